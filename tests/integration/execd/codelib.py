"""A client of /code and its contexts (contract/execd.md 8.1)."""

import json

from agentlib import Stream


class Run:
    """What the events of one execution say."""

    def __init__(self, events):
        self.kinds = [e["type"] for e in events if e["type"] != "ping"]
        self.id = events[0]["text"]
        self.out = "".join(e["text"] for e in events if e["type"] == "stdout")
        self.err = "".join(e["text"] for e in events if e["type"] == "stderr")
        self.results = [e["results"] for e in events if e["type"] == "result"]
        self.count = next((e["execution_count"] for e in events if e["type"] == "execution_count"), None)
        self.error = events[-1].get("error")
        assert self.kinds[0] == "init" and self.kinds.count("init") == 1
        assert [k for k in self.kinds if k in ("error", "execution_complete")] == [self.kinds[-1]]
        assert all("eid" not in e for e in events)

    @property
    def text(self):
        assert not self.error, self.error
        return self.results[-1]["text"] if self.results else None


class Codes:
    def __init__(self, agent):
        self.agent = agent

    def post(self, code, context):
        conn = self.agent.connect()
        conn.request("POST", "/code", json.dumps({"code": code, "context": context}), self.agent.headers)
        resp = conn.getresponse()
        if resp.status != 200:
            body = json.loads(resp.read())
            conn.close()
            return resp.status, body["code"], body["message"]
        return Stream(conn, resp)

    def start(self, code, context=None, language="python"):
        stream = self.post(code, {"id": context} if context else {"language": language})
        assert isinstance(stream, Stream), stream
        return stream

    def run(self, code, context=None, language="python"):
        stream = self.start(code, context, language)
        run = Run(stream.rest())
        stream.close()
        return run

    def sh(self, code, context=None):
        return self.run(code, context, "bash")

    def context(self, language="python", **fields):
        resp = self.agent.request("POST", "/code/context", {"language": language, **fields})
        body = json.loads(resp.data)
        assert resp.status == 200, body
        return body["id"]

    def list(self, **query):
        resp = self.agent.request("GET", "/code/contexts", **query)
        assert resp.status == 200, resp.data
        return json.loads(resp.data)

    def delete(self, ident):
        return self.agent.request("DELETE", f"/code/contexts/{ident}").status

    def interrupt(self, ident):
        return self.agent.request("DELETE", "/code", id=ident).status
