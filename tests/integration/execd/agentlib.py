"""A client that sees the wire: raw event bytes, chunk ends, connection cuts."""

import http.client
import json
import os
import pathlib
import select
import subprocess
import urllib.parse

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
DEADLINE = 20
SECRET = "open sesame"


def binary():
    named = os.environ.get("EXECD")
    candidates = [named] if named else [ROOT / "build/execd", ROOT / "build/debug/execd"]
    for path in candidates:
        if pathlib.Path(path).is_file():
            return str(pathlib.Path(path).resolve())
    pytest.fail("no agent binary: build one with `make build/execd`, or set EXECD")


class Stream:
    """A command's response, read event by event."""

    def __init__(self, conn, resp):
        self.conn = conn
        self.resp = resp
        self.raw = bytearray()
        self.pos = 0

    def next(self):
        """The next event; None at the clean end of the body. Anything else raises."""
        while True:
            end = self.raw.find(b"\n\n", self.pos)
            if end >= 0:
                text = self.raw[self.pos : end]
                self.pos = end + 2
                return json.loads(text)
            data = self.resp.read1(1 << 20)
            if not data:
                assert self.pos == len(self.raw), "bytes after the last event"
                return None
            self.raw += data

    def until(self, kind):
        while True:
            event = self.next()
            assert event is not None, f"the stream ended before {kind}"
            if event["type"] == kind:
                return event

    def rest(self):
        """The events to the end."""
        events = []
        while (event := self.next()) is not None:
            events.append(event)
        return events

    def close(self):
        self.conn.close()


class Result:
    def __init__(self, events):
        self.events = events
        self.id = events[0]["text"]
        self.out = [e["text"] for e in events if e["type"] == "stdout"]
        self.err = [e["text"] for e in events if e["type"] == "stderr"]
        self.last = events[-1]
        assert events[0]["type"] == "init"
        assert [e["type"] for e in events].count("init") == 1
        kinds = [e["type"] for e in events if e["type"] in ("error", "execution_complete")]
        assert len(kinds) == 1 and self.last["type"] == kinds[0], "one terminal event, and it is the last"
        self.error = self.last.get("error")

    @property
    def code(self):
        return int(self.error["evalue"]) if self.error else 0

    @property
    def stdout(self):
        return "".join(self.out)

    @property
    def stderr(self):
        return "".join(self.err)


class Agent:
    def __init__(self, proc, port):
        self.proc = proc
        self.port = port
        self.headers = {}

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)

    def request(self, method, path, /, body=None, headers=None, **query):
        conn = self.connect()
        try:
            if query:
                path += "?" + urllib.parse.urlencode(query, doseq=True)
            if isinstance(body, (dict, list)):
                body = json.dumps(body)
            conn.request(method, path, body, {**self.headers, **(headers or {})})
            resp = conn.getresponse()
            resp.data = resp.read()
            return resp
        finally:
            conn.close()

    def stream(self, _headers=None, **body):
        conn = self.connect()
        conn.request("POST", "/command", json.dumps(body), {**self.headers, **(_headers or {})})
        resp = conn.getresponse()
        assert resp.status == 200, resp.read()
        return Stream(conn, resp)

    def run(self, command=None, _headers=None, **body):
        if command is not None:
            body["command"] = command
        stream = self.stream(_headers, **body)
        try:
            return Result(stream.rest())
        finally:
            stream.close()

    def status(self, ident):
        resp = self.request("GET", f"/command/status/{ident}")
        return json.loads(resp.data) if resp.status == 200 else resp.status

    def wait_ended(self, ident):
        """Asks until the command is over; each look is a round trip, so this is no busy loop."""
        for _ in range(100000):
            status = self.status(ident)
            if not status["running"]:
                return status
        raise AssertionError("the command did not end")

    def rss_kib(self):
        with open(f"/proc/{self.proc.pid}/status") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))

    def peak_kib(self):
        """The most memory it ever had resident."""
        with open(f"/proc/{self.proc.pid}/status") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmHWM"))

    @property
    def sanitized(self):
        """Built with a sanitizer: its memory says nothing."""
        with open(f"/proc/{self.proc.pid}/maps") as f:
            maps = f.read()
        return "libasan" in maps or "libtsan" in maps

    def wait(self):
        return self.proc.wait(DEADLINE)

    def stop(self):
        if self.proc.poll() is None:
            self.proc.terminate()
            try:
                self.proc.wait(DEADLINE)
            except subprocess.TimeoutExpired:
                self.proc.kill()
                self.proc.wait()
        os.set_blocking(self.proc.stderr.fileno(), False)
        said = self.proc.stderr.read() or b""
        self.proc.stdout.close()
        self.proc.stderr.close()
        assert b"Sanitizer" not in said and b"runtime error" not in said, said.decode()


def claim(agent, **fields):
    """Claims a held agent; from then on it is talked to with the token."""
    body = {"secret": SECRET, "token": "tok", **fields}
    resp = agent.request("POST", "/internal/claim", body)
    if resp.status == 200:
        agent.headers = {"X-EXECD-ACCESS-TOKEN": "tok"}
    return resp


def read_line(pipe):
    ready, _, _ = select.select([pipe], [], [], DEADLINE)
    assert ready, "no output"
    return pipe.readline().decode()


class Fifo:
    """Two processes meeting: the test waits for the command, or lets it go on."""

    def __init__(self, path):
        self.path = str(path)
        os.mkfifo(self.path)
        self.fd = os.open(self.path, os.O_RDWR)

    def read_line(self):
        data = b""
        while not data.endswith(b"\n"):
            ready, _, _ = select.select([self.fd], [], [], DEADLINE)
            assert ready, f"nothing came through {self.path}"
            data += os.read(self.fd, 4096)
        return data.decode().strip()

    def write(self, text):
        os.write(self.fd, text.encode())

    def __str__(self):
        return self.path


def processes(marker):
    """Pids whose command line has the marker as one argument; zombies have none."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                if marker.encode() in f.read().split(b"\0"):
                    found.append(int(pid))
        except OSError:
            pass
    return found
