"""Many streams through the proxy: idle ones cost little, aborted ones leave nothing. SANDGATE_SOAK multiplies."""

import http.client
import os
import pathlib
import selectors
import socket

import pytest

from harness import wait_for

SOAK = int(os.environ.get("SANDGATE_SOAK", "1"))
IDLE = 1000
ABORTED = 200 * SOAK
KIB_PER_STREAM = 8

# Answers every request with a stream that says one thing and then nothing; tells how many are open on /open.
BACKEND = r"""
import asyncio
open_streams = 0
async def serve(reader, writer):
    global open_streams
    path = (await reader.readuntil(b"\r\n\r\n")).split()[1]
    if path == b"/open":
        body = str(open_streams).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain(); writer.close(); return
    open_streams += 1
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: hello\n\n")
    try:
        await reader.read()
    except OSError:
        pass
    open_streams -= 1
    writer.close()
async def main():
    server = await asyncio.start_server(serve, "0.0.0.0", 8000, backlog=2048)
    await server.serve_forever()
asyncio.run(main())
"""


def rss_kib(pid):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("VmRSS")).split()[1])


def fds(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


@pytest.fixture
def streaming(make_gateway):
    gw = make_gateway(extra="").start()
    gw.sid = gw.create(entrypoint=["python3", "-c", BACKEND], resourceLimits={"memory": "512Mi"}).json["id"]
    gw.path = f"/v1/sandboxes/{gw.sid}/proxy/8000"
    wait_for("the backend listens", lambda: open_streams(gw) == 0)
    return gw


def open_streams(gw):
    conn = http.client.HTTPConnection("127.0.0.1", gw.port, timeout=20)
    conn.request("GET", gw.path + "/open")
    reply = conn.getresponse()
    body = reply.read()
    return int(body) if reply.status == 200 else None


def begin(gw):
    s = socket.create_connection(("127.0.0.1", gw.port), 20)
    s.sendall(f"GET {gw.path}/stream HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    return s


def read_hello(sockets):
    """Until each has its first event."""
    with selectors.DefaultSelector() as sel:
        seen = {}
        for s in sockets:
            sel.register(s, selectors.EVENT_READ)
            seen[s] = b""
        while sel.get_map():
            ready = sel.select(20)
            assert ready, "no stream moved for 20 s"
            for key, _ in ready:
                seen[key.fileobj] += key.fileobj.recv(65536)
                if b"hello" in seen[key.fileobj]:
                    sel.unregister(key.fileobj)


def test_idle_streams_are_cheap_and_health_still_answers(streaming):
    gw = streaming
    first = [begin(gw) for _ in range(20)]  # fills what is allocated once
    read_hello(first)
    before = rss_kib(gw.process.pid)
    streams = [begin(gw) for _ in range(IDLE)]
    read_hello(streams)
    each = (rss_kib(gw.process.pid) - before) / IDLE
    print(f"{each:.2f} KiB per idle stream")
    assert each <= KIB_PER_STREAM
    for _ in range(20):
        assert gw.request("GET", "/health", timeout=5).status == 200
    for s in first + streams:
        s.close()
    wait_for("the backend's side is closed, too", lambda: open_streams(gw) == 0, 30)


def test_aborted_streams_leave_nothing(streaming):
    gw = streaming
    read_hello([s := begin(gw)])
    s.close()
    wait_for("the backend sees the end", lambda: open_streams(gw) == 0)
    before = fds(gw.process.pid)
    for _ in range(ABORTED // 50):
        batch = [begin(gw) for _ in range(50)]
        read_hello(batch[:25])  # the others are cut wherever they are
        for s in batch:
            s.close()
    wait_for("no stream is left", lambda: open_streams(gw) == 0, 60)
    wait_for("no descriptor is left", lambda: fds(gw.process.pid) <= before + 2, 60)
