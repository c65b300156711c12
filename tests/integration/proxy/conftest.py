"""A sandbox with the backend in it, and clients that reach it through the gateway."""

import http.client
import json
import pathlib
import socket
import urllib.request

import pytest
from harness import Gateway, wait_for
from rawhttp import Echo, Raw, script

PORT, CONTROL, AGENT, NOBODY = 8000, 8001, 44772, 8099
SOURCE = pathlib.Path(__file__).with_name("backend.py")


def own_address():
    """An address of this machine that is not loopback; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.connect(("203.0.113.1", 9))
        return s.getsockname()[0]


def resident(gw):
    """KiB of the gateway."""
    lines = open(f"/proc/{gw.process.pid}/status")
    return int(next(line.split()[1] for line in lines if line.startswith("VmRSS")))


class Box:
    """One sandbox of a gateway."""

    def __init__(self, gw, **fields):
        self.gw = gw
        reply = gw.create(**fields)
        assert reply.status == 202, reply.raw
        self.id = reply.json["id"]
        networks = gw.engine.sandbox(self.id)["NetworkSettings"]["Networks"]
        self.ip = next(iter(networks.values()))["IPAddress"]
        self.token = gw.agent(self.id)[3]["X-EXECD-ACCESS-TOKEN"]

    # ---- the agent, not through the gateway ----

    def agent(self, method, path, body=None, headers=None):
        host, port, prefix, token = self.gw.agent(self.id)
        conn = http.client.HTTPConnection(host, port, timeout=20)
        try:
            conn.request(method, prefix + path, body, {**token, **(headers or {})})
            reply = conn.getresponse()
            data = reply.read()
        finally:
            conn.close()
        assert reply.status == 200, (reply.status, data)
        return data

    def upload(self, path, data):
        head = 'Content-Disposition: form-data; name="{}"; filename="x"\r\n\r\n'
        parts = [("metadata", json.dumps({"path": path}).encode()), ("file", data)]
        body = b"".join(b"--B\r\n" + head.format(n).encode() + d + b"\r\n" for n, d in parts) + b"--B--\r\n"
        self.agent("POST", "/files/upload", body, {"Content-Type": "multipart/form-data; boundary=B"})

    def run(self, command, background=False):
        body = json.dumps({"command": command, "background": background})
        return self.agent("POST", "/command", body, {"Content-Type": "application/json"})

    def start_backend(self):
        self.upload("/tmp/backend.py", SOURCE.read_bytes())
        self.run(f"exec python3 /tmp/backend.py {PORT} {CONTROL}", background=True)
        wait_for("backend answers", self._control_answers)
        return self

    def _control_answers(self):
        try:
            return self.state()
        except OSError:
            return None

    # ---- what the backend has seen, not through the gateway ----

    def _control(self, path="", **kw):
        request = urllib.request.Request(f"http://{self.ip}:{CONTROL}/{path}", **kw)
        with urllib.request.urlopen(request, timeout=5) as reply:
            return json.load(reply)

    def state(self):
        return self._control()

    def forget(self):
        return self._control("forget", method="POST")

    def cut(self, tag, how):
        """The held request ends with "close" or "reset"."""
        self._control(f"{how}?{tag}", method="POST")

    def wait_active(self, tag):
        wait_for(f"backend works on {tag}", lambda: tag in self.state()["active"], 5)

    def wait_ended(self, tag, deadline=2):
        """How the tagged request ended."""
        return wait_for(f"backend is done with {tag}", lambda: self.state()["ended"].get(tag), deadline)

    def wait_connection_closed(self, tag):
        """The connection that the tagged request came on is gone."""
        wait_for(f"connection of {tag} is closed", lambda: (s := self.state())["conns"][tag] in s["closed"], 5)

    # ---- through the gateway ----

    def prefix(self, port=PORT, mount="/v1"):
        return f"{mount}/sandboxes/{self.id}/proxy/{port}"

    @property
    def address(self):
        return "127.0.0.1", self.gw.port

    def connect(self, **kw):
        return Raw(self.address, **kw)

    def head(self, method, target, *fields, port=PORT, mount="/v1"):
        """A request head; target follows the port as it is, fields are whole lines."""
        lines = [f"{method} {self.prefix(port, mount)}{target} HTTP/1.1", f"Host: {self.gw.domain}", *fields]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"

    def ask(self, method, target, *fields, body=b"", port=PORT, mount="/v1"):
        """One request on a connection of its own."""
        if body and not any(f.lower().startswith("transfer-encoding") for f in fields):
            fields = (*fields, f"Content-Length: {len(body)}")
        with self.connect() as c:
            c.send(self.head(method, target, *fields, port=port, mount=mount) + body)
            return c.response(method)

    def echo(self, method, target, *fields, **kw):
        r = self.ask(method, target, *fields, **kw)
        assert r.status == 200, (r.head, r.body)
        return Echo(r.json)

    def scripted(self, data, method="GET", fields=(), body=b"", **options):
        """The response to bytes that the backend says."""
        return self.ask(method, script(data, **options), *fields, body=body)


@pytest.fixture(scope="session")
def gateway(tmp_path_factory, engine):
    """One gateway for the folder: its sandboxes are not touched by the tests."""
    gw = Gateway(tmp_path_factory.mktemp("proxy"), engine).start()
    yield gw
    gw.cleanup()


@pytest.fixture(scope="session")
def shared_box(gateway):
    return Box(gateway, timeout=1800).start_backend()


@pytest.fixture
def box(shared_box):
    shared_box.forget()
    return shared_box


@pytest.fixture
def make_box(make_gateway):
    """A gateway with other settings and a sandbox in it."""

    def make(extra="", backend=True, **kw):
        made = Box(make_gateway(extra=extra).start(), **kw)
        return made.start_backend() if backend else made

    return make
