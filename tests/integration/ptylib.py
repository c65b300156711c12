"""A client of /pty (contract/execd.md 9) on the package websockets."""

import json
import struct
import time

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

DEADLINE = 20


class Client:
    """What came, sorted: out and err are bytes, replays (offset, bytes), texts JSON objects."""

    def __init__(self, url, headers=None, **options):
        options = {"compression": None, "max_size": None, "proxy": None, "open_timeout": DEADLINE, **options}
        self.ws = connect(url, additional_headers=headers, **options).__enter__()
        self.out = bytearray()
        self.err = b""
        self.replays = []
        self.texts = []
        self.order = []

    def take(self, timeout=DEADLINE):
        message = self.ws.recv(timeout)
        if isinstance(message, str):
            self.texts.append(json.loads(message))
            self.order.append(self.texts[-1]["type"])
            return
        kind, data = message[0], message[1:]
        self.order.append(kind)
        if kind == 1:
            assert len(data) <= 32 * 1024
            self.out += data
        elif kind == 2:
            self.err += data
        else:
            assert kind == 3
            self.replays.append((struct.unpack(">Q", data[:8])[0], data[8:]))

    def until(self, done):
        end = time.monotonic() + DEADLINE
        while not done():
            assert time.monotonic() < end, (self.out[-500:], self.texts)
            self.take()

    def text(self, kind):
        """Waits for a JSON frame of the kind and takes it off the list."""
        self.until(lambda: any(t["type"] == kind for t in self.texts))
        found = next(t for t in self.texts if t["type"] == kind)
        self.texts.remove(found)
        return found

    def see(self, data):
        """Waits for the bytes in the output, live or replayed, and gives what came up to there."""
        data = data if isinstance(data, bytes) else data.encode()
        self.until(lambda: data in self.seen)
        return self.seen

    @property
    def seen(self):
        return b"".join(d for _, d in self.replays) + self.out

    def type(self, text):
        self.ws.send(b"\0" + (text if isinstance(text, bytes) else text.encode()))

    def send(self, **frame):
        self.ws.send(json.dumps(frame))

    def end(self):
        """Everything to the end: (close code, reason)."""
        try:
            while True:
                self.take()
        except ConnectionClosed as closed:
            return (closed.rcvd.code, closed.rcvd.reason) if closed.rcvd else (1006, "")

    def close(self):
        self.ws.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ws.close()


class Session:
    def __init__(self, agent, **body):
        self.agent = agent
        resp = agent.request("POST", "/pty", body=body or None)
        assert resp.status == 201, resp.data
        self.id = json.loads(resp.data)["session_id"]

    def url(self, query=""):
        return f"ws://127.0.0.1:{self.agent.port}/pty/{self.id}/ws{query}"

    def attach(self, query="", **options):
        client = Client(self.url(query), self.agent.headers, **options)
        client.connected = client.text("connected")
        return client

    def state(self):
        resp = self.agent.request("GET", f"/pty/{self.id}")
        return json.loads(resp.data) if resp.status == 200 else resp.status

    def delete(self):
        return self.agent.request("DELETE", f"/pty/{self.id}").status
