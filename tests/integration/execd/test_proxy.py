"""/proxy/{port}: the sandbox's own servers behind the agent (contract/execd.md 11, design decisions 8 and 12)."""

import contextlib
import json
import os
import socket
import threading

import pytest

from agentlib import DEADLINE, Fifo, claim, read_line

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Wire:
    """One TCP connection, read piece by piece."""

    def __init__(self, sock):
        self.sock = sock
        self.sock.settimeout(DEADLINE)
        self.data = b""

    def send(self, data):
        self.sock.sendall(data if isinstance(data, bytes) else data.encode())

    def more(self):
        data = self.sock.recv(65536)
        self.data += data
        return bool(data)

    def take(self, n):
        while len(self.data) < n:
            assert self.more(), f"the connection ended after {self.data!r}"
        taken, self.data = self.data[:n], self.data[n:]
        return taken

    def until(self, mark):
        while mark not in self.data:
            assert self.more(), f"the connection ended after {self.data!r}"
        return self.take(self.data.index(mark) + len(mark))

    def head(self):
        """(first line, [(name, value)])"""
        lines = self.until(b"\r\n\r\n").decode().split("\r\n")[:-2]
        return lines[0], [tuple(line.split(": ", 1)) for line in lines[1:]]

    def ended(self):
        """Waits for the end of the connection; everything that came before it."""
        with contextlib.suppress(ConnectionResetError):
            while self.more():
                pass
        return self.data

    def close(self):
        self.sock.close()


class Backend:
    """A server that is the test itself: it accepts, reads and answers by hand."""

    def __init__(self, host="127.0.0.1"):
        self.listener = socket.create_server((host, 0), backlog=1024)
        self.listener.settimeout(DEADLINE)
        self.port = self.listener.getsockname()[1]
        self.wires = []

    def accept(self):
        wire = Wire(self.listener.accept()[0])
        self.wires.append(wire)
        return wire

    def close(self):
        for wire in self.wires:
            wire.close()
        self.listener.close()


@pytest.fixture
def backend():
    server = Backend()
    yield server
    server.close()


@pytest.fixture
def dial():
    """dial(agent) -> Wire"""
    wires = []

    def start(agent):
        wire = Wire(socket.create_connection(("127.0.0.1", agent.port), DEADLINE))
        wires.append(wire)
        return wire

    yield start
    for wire in wires:
        wire.close()


def values(head, name):
    return [v for k, v in head[1] if k.lower() == name.lower()]


def exchange(client, server, request, body=b""):
    """Sends a request, answers it, reads the answer: what the backend got as its head and body."""
    client.send(request)
    head = server.head()
    got = server.take(len(body))
    server.send(OK)
    assert client.head()[0] == "HTTP/1.1 200 OK"
    assert client.take(2) == b"ok"
    assert got == body
    return head


def through(agent, backend, dial, request, body=b""):
    client = dial(agent)
    client.send(request)
    server = backend.accept()
    return exchange(client, server, b"", body)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


def sockets(agent):
    count = 0
    for fd in os.listdir(f"/proc/{agent.proc.pid}/fd"):
        with contextlib.suppress(OSError):
            count += os.readlink(f"/proc/{agent.proc.pid}/fd/{fd}").startswith("socket:")
    return count


# ---- requests ----


@pytest.mark.parametrize("asked,got", [
    ("", "/"),
    ("/", "/"),
    ("?x=1", "/?x=1"),
    ("/a/b", "/a/b"),
    ("/a%2Fb%20c/%e4", "/a%2Fb%20c/%e4"),
    ("//a///b//", "//a///b//"),
    ("/?a&b=&c=%26&a", "/?a&b=&c=%26&a"),
    ("/x?y=/proxy/1?z", "/x?y=/proxy/1?z"),
    ("/../%2e%2e/./x", "/../%2e%2e/./x"),
    ("/" + "x" * 8000, "/" + "x" * 8000),
])
def test_the_target_is_kept(agent, backend, dial, asked, got):
    head = through(agent, backend, dial, f"GET /proxy/{backend.port}{asked} HTTP/1.1\r\nHost: h\r\n\r\n")
    assert head[0] == f"GET {got} HTTP/1.1"


def test_absolute_form(agent, backend, dial):
    head = through(agent, backend, dial, f"GET http://h:1/proxy/{backend.port}/a?b HTTP/1.1\r\nHost: h:1\r\n\r\n")
    assert head[0] == "GET /a?b HTTP/1.1"


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "PROPFIND", "M-SEARCH"])
def test_methods(agent, backend, dial, method):
    head = through(agent, backend, dial, f"{method} /proxy/{backend.port}/m HTTP/1.1\r\nHost: h\r\n\r\n")
    assert head[0] == f"{method} /m HTTP/1.1"


def test_head_has_no_body(agent, backend, dial):
    client = dial(agent)
    for _ in range(2):
        client.send(f"HEAD /proxy/{backend.port}/ HTTP/1.1\r\nHost: h\r\n\r\n")
    server = backend.accept()
    for _ in range(2):
        assert server.head()[0] == "HEAD / HTTP/1.1"
        server.send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        assert values(client.head(), "content-length") == ["1000"]
    assert client.data == b""


def test_body_on_delete(agent, backend, dial):
    request = f"DELETE /proxy/{backend.port}/d HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"
    assert values(through(agent, backend, dial, request, b"hello"), "content-length") == ["5"]


def test_chunks_and_trailers_both_ways(agent, backend, dial):
    body = b"5;x=y\r\nhello\r\n0\r\nX-Sum: 1\r\nX-Sum: 2\r\n\r\n"
    client = dial(agent)
    client.send(f"POST /proxy/{backend.port}/ HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n"
                "Trailer: X-Sum\r\nTE: trailers\r\nConnection: TE\r\n\r\n".encode() + body)
    server = backend.accept()
    head = server.head()
    assert values(head, "trailer") == ["X-Sum"] and values(head, "te") == ["trailers"]
    assert server.take(len(body)) == body
    server.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n" + body)
    assert values(client.head(), "transfer-encoding") == ["chunked"]
    assert client.take(len(body)) == body


def test_headers_of_the_request(agent, backend, dial):
    head = through(agent, backend, dial, f"GET /proxy/{backend.port}/ HTTP/1.1\r\nHost: My.Host:99\r\n"
                   "Authorization: Bearer x\r\nCookie: a=1\r\nX-EXECD-ACCESS-TOKEN: t\r\nx-execd-access-token: u\r\n"
                   "Open-Sandbox-Api-Key: k\r\nOpenSandbox-Secure-Access: s\r\nX-Own: 1\r\nx-own: 2\r\n"
                   "Connection: keep-alive, x-hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n\r\n")
    assert head[1] == [
        ("Host", "My.Host:99"),
        ("Authorization", "Bearer x"),
        ("Cookie", "a=1"),
        ("X-Own", "1"),
        ("x-own", "2"),
        ("X-Forwarded-For", "127.0.0.1"),
        ("X-Forwarded-Proto", "http"),
    ]


@pytest.mark.parametrize("sent,client", [
    ("X-Forwarded-For: 1.2.3.4 , 5.6.7.8\r\nX-Real-IP: 9.9.9.9\r\n", "1.2.3.4"),
    ("X-Forwarded-For: 2001:db8::1\r\n", "2001:db8::1"),
    ("X-Real-IP: 9.9.9.9\r\n", "9.9.9.9"),
    ("X-Forwarded-For: , 1.2.3.4\r\nX-Real-IP: 9.9.9.9\r\n", "9.9.9.9"),
    ("X-Forwarded-For: " + "x" * 300 + "\r\n", "127.0.0.1"),
    ("", "127.0.0.1"),
])
def test_forwarded(agent, backend, dial, sent, client):
    head = through(agent, backend, dial, f"GET /proxy/{backend.port}/ HTTP/1.1\r\nHost: h\r\n{sent}"
                   "X-Forwarded-Proto: https\r\nX-Forwarded-Host: evil\r\n\r\n")
    assert values(head, "x-forwarded-for") == [client]
    assert values(head, "x-forwarded-proto") == ["http"]
    assert values(head, "x-forwarded-host") == []


# ---- responses ----


def test_the_response_is_kept(agent, backend, dial):
    client = dial(agent)
    client.send(f"GET /proxy/{backend.port}/ HTTP/1.1\r\nHost: h\r\n\r\n")
    server = backend.accept()
    server.head()
    fields = ("Server: own\r\nSet-Cookie: a=1; Path=/\r\nset-cookie: b=2\r\nSet-Cookie: a=3\r\n"
              "Location: /there\r\nX-Request-ID: mine\r\nContent-Length: 0\r\n")
    server.send("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" f"HTTP/1.1 299 Own Words\r\n{fields}\r\n")
    assert client.until(b"\r\n\r\n") == b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    assert client.until(b"\r\n\r\n") == f"HTTP/1.1 299 Own Words\r\n{fields}\r\n".encode()


def test_ticks_arrive_at_once(agent, backend, dial):
    client = dial(agent)
    client.send(f"GET /proxy/{backend.port}/events HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n")
    server = backend.accept()
    server.head()
    server.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    client.head()
    for i in range(20):  # the next one is sent only once this one is there
        tick = f"data: {i}\n\n".encode()
        chunk = b"%x\r\n%s\r\n" % (len(tick), tick)
        server.send(chunk)
        assert client.take(len(chunk)) == chunk
    client.close()
    assert server.ended() == b""


def test_a_cut_response_is_seen_as_cut(agent, backend, dial):
    client = dial(agent)
    client.send(f"GET /proxy/{backend.port}/ HTTP/1.1\r\nHost: h\r\n\r\n")
    server = backend.accept()
    server.head()
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345")
    client.head()
    server.close()
    assert client.ended() == b"12345"


def test_upgrade(agent, backend, dial):
    client = dial(agent)
    client.send(f"GET /proxy/{backend.port}/ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                "Sec-WebSocket-Key: k\r\nSec-WebSocket-Protocol: a, b\r\n\r\nearly")
    server = backend.accept()
    head = server.head()
    assert head[0] == "GET /ws HTTP/1.1"
    assert values(head, "upgrade") == ["websocket"] and values(head, "connection") == ["Upgrade"]
    assert values(head, "sec-websocket-key") == ["k"] and values(head, "sec-websocket-protocol") == ["a, b"]
    server.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x01x")
    answer = client.head()
    assert answer[0].split()[1] == "101" and values(answer, "upgrade") == ["websocket"]
    assert client.take(3) == b"\x81\x01x"
    assert server.take(5) == b"early"
    for size in (1, 1000, 300000):
        data = os.urandom(size)
        client.send(data)
        assert server.take(size) == data
        server.send(data)
        assert client.take(size) == data
    client.sock.shutdown(socket.SHUT_WR)
    assert server.ended() == b""
    server.send("bye")
    server.close()
    assert client.ended() == b"bye"


def test_one_connection_for_everything(agent, backend, dial):
    client = dial(agent)
    client.send(f"GET /proxy/{backend.port}/1 HTTP/1.1\r\nHost: h\r\n\r\n")
    server = backend.accept()
    exchange(client, server, b"")
    for i in range(3):
        client.send("GET /ping HTTP/1.1\r\nHost: h\r\n\r\n")
        assert client.head()[0] == "HTTP/1.1 200 OK"
        client.send(f"GET /proxy/{agent.port}/ping HTTP/1.1\r\nHost: h\r\n\r\n")
        assert client.head()[0] == "HTTP/1.1 200 OK"
        head = exchange(client, server, f"GET /proxy/{backend.port}/{i} HTTP/1.1\r\nHost: h\r\n\r\n")
        assert head[0] == f"GET /{i} HTTP/1.1"


def test_bulk_both_ways(agent, backend, dial):
    size = 20 << 20
    data = os.urandom(1 << 20) * 20
    before = agent.rss_kib()
    client = dial(agent)
    client.send(f"POST /proxy/{backend.port}/ HTTP/1.1\r\nHost: h\r\nContent-Length: {size}\r\n\r\n")
    server = backend.accept()
    server.head()
    sender = threading.Thread(target=client.send, args=(data,))
    sender.start()
    assert server.take(size) == data
    sender.join()
    server.send(f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n")
    sender = threading.Thread(target=server.send, args=(data,))
    sender.start()
    client.head()
    assert client.take(size) == data
    sender.join()
    if not agent.sanitized:
        assert agent.rss_kib() - before < 2048


# ---- who may ----


def test_other_ports_need_no_token(start_agent, backend, dial):
    agent = start_agent("--access-token=tok")
    client = dial(agent)
    for token in ("", "X-EXECD-ACCESS-TOKEN: tok\r\n", "X-EXECD-ACCESS-TOKEN: wrong\r\n"):
        client.send(f"GET /proxy/{backend.port}/ HTTP/1.1\r\nHost: h\r\n{token}\r\n")
        server = backend.wires[0] if backend.wires else backend.accept()
        assert values(exchange(client, server, b""), "x-execd-access-token") == []


@pytest.mark.parametrize("path", [
    "/command", "/proxy/{port}/command", "//proxy/{port}/command", "/proxy/{port}/proxy/{port}/command",
    "/proxy/{port}", "/proxy/{port}?x", "/proxy/{port}/../command",
])
def test_the_own_port_needs_the_token(start_agent, path):
    agent = start_agent("--access-token=tok")
    resp = agent.request("POST", path.format(port=agent.port), {"command": "true"})
    assert resp.status == 401


@pytest.mark.parametrize("spelling", ["0{port}", "00{port}", "+{port}", "%3{port}"])
def test_the_own_port_has_one_spelling(start_agent, spelling):
    agent = start_agent("--access-token=tok")
    path = f"/proxy/{spelling.format(port=agent.port)}/command"
    assert agent.request("POST", path, {"command": "true"}).status == 400


def test_held(held, backend):
    agent = held()
    for path in (f"/proxy/{backend.port}/x", f"/proxy/{backend.port}", "/proxy/bad/", f"/proxy/{agent.port}/command"):
        for method, body in (("GET", None), ("POST", "{}"), ("OPTIONS", None)):
            resp = agent.request(method, path, body)
            assert resp.status == 503 and set(json.loads(resp.data)) == {"code", "message"}
    assert agent.request("GET", f"/proxy/{agent.port}/ping").status == 200
    backend.listener.setblocking(False)
    with pytest.raises(BlockingIOError):
        backend.listener.accept()
    backend.listener.settimeout(DEADLINE)
    claim(agent)


def test_after_the_claim(held, backend, dial):
    agent = held()
    client = dial(agent)
    client.send(f"GET /proxy/{backend.port}/ HTTP/1.1\r\nHost: h\r\n\r\n")
    head = client.head()
    assert head[0].split()[1] == "503"
    client.take(int(values(head, "content-length")[0]))
    assert claim(agent).status == 200
    client.send(f"GET /proxy/{backend.port}/ HTTP/1.1\r\nHost: h\r\n\r\n")
    exchange(client, backend.accept(), b"")


def test_stopping(held, backend, tmp_path):
    go = Fifo(tmp_path / "go")
    agent = held()
    claim(agent, entrypoint=["sh", "-c", f"trap 'echo stopping; read x < {go}; exit 3' TERM; echo up; "
                                         "while :; do sleep 0.05; done"])
    assert read_line(agent.proc.stdout) == "up\n"
    agent.proc.terminate()
    assert read_line(agent.proc.stdout) == "stopping\n"
    agent.headers = {}
    resp = agent.request("GET", f"/proxy/{backend.port}/")
    assert resp.status == 503 and "stopping" in json.loads(resp.data)["message"]
    go.write("x\n")
    assert agent.wait() == 3


def test_open_tunnels_do_not_hold_up_the_end(agent, backend, dial):
    client = dial(agent)
    client.send(f"GET /proxy/{backend.port}/ HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
    server = backend.accept()
    server.head()
    server.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
    client.head()
    agent.proc.terminate()
    assert agent.wait() == 0
    assert client.ended() == b"" and server.ended() == b""


# ---- failures ----


@pytest.mark.parametrize("path", ["/proxy", "/proxy/", "/proxy/?x", "/proxy/x/", "/proxy/0/", "/proxy/65536/", "/proxy/80x"])
def test_bad_ports(agent, path):
    resp = agent.request("GET", path)
    error = json.loads(resp.data)
    assert resp.status == 400 and set(error) == {"code", "message"} and "port is required" in error["message"]
    assert resp.getheader("X-Request-ID")


def test_not_the_proxy(agent):
    for path in ("/proxyx/80/", "//proxy/80/", "/Proxy/80/", "/%70roxy/80/"):
        assert agent.request("GET", path).status == 404


def test_nothing_listens(agent, dial):
    client = dial(agent)
    for port in (free_port(), free_port()):
        for body in ("", "hello"):
            client.send(f"POST /proxy/{port}/ HTTP/1.1\r\nHost: h\r\nContent-Length: {len(body)}\r\n\r\n{body}")
            head = client.head()
            error = json.loads(client.take(int(values(head, "content-length")[0])))
            assert head[0] == "HTTP/1.1 502 Bad Gateway"
            assert set(error) == {"code", "message"} and error["code"] == "BACKEND_CONNECTION_FAILED"
            assert "nothing listens on this port in the sandbox" in error["message"]


def test_a_backend_that_talks_nonsense(agent, backend, dial):
    client = dial(agent)
    client.send(f"GET /proxy/{backend.port}/ HTTP/1.1\r\nHost: h\r\n\r\n")
    server = backend.accept()
    server.head()
    server.send("SSH-2.0-OpenSSH\r\n\r\n")
    assert client.head()[0].split()[1] == "502"


def test_a_malformed_request_has_an_id(agent, dial):
    client = dial(agent)
    client.send("GET /ping HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n")
    head = client.head()
    assert head[0].split()[1] == "400" and values(head, "x-request-id")


def settle(agent, want):
    """Closing is the agent's business of a moment; each look is a round trip."""
    now = None
    for _ in range(2000):
        agent.request("GET", "/ping")
        now = sockets(agent)
        if now <= want:
            return
    raise AssertionError(f"{now} sockets are left of {want}")


def test_aborted_requests_leave_nothing(agent, backend):
    agent.request("GET", "/ping")
    idle = sockets(agent)
    before = agent.rss_kib()
    stop = threading.Event()

    def serve():
        while not stop.is_set():
            with contextlib.suppress(OSError):
                wire = Wire(backend.listener.accept()[0])
                wire.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                backend.wires.append(wire)

    server = threading.Thread(target=serve)
    server.start()
    requests = [
        f"GET /proxy/{backend.port}/ HTTP/1.1\r\nHost: h\r\n\r\n",
        f"POST /proxy/{backend.port}/ HTTP/1.1\r\nHost: h\r\nContent-Length: 99\r\n\r\nhalf",
        f"GET /proxy/{backend.port}/ HTTP/1.1\r\nHos",
        "POST /command HTTP/1.1\r\nHost: h\r\nContent-Length: 99\r\n\r\n{",
        "GET /ping HTTP/1.1\r\nHost: h\r\n\r\n",
    ]
    for i in range(1000):
        with socket.create_connection(("127.0.0.1", agent.port), DEADLINE) as sock:
            sock.sendall(requests[i % len(requests)].encode())
    stop.set()
    backend.listener.shutdown(socket.SHUT_RDWR)
    server.join()
    settle(agent, idle + 1)  # one kept connection to the API more, at most
    if not agent.sanitized:
        assert agent.rss_kib() - before < 2048


def test_a_command_survives_its_client_behind_the_front(agent, tmp_path):
    up, go = Fifo(tmp_path / "up"), Fifo(tmp_path / "go")
    agent.request("GET", "/ping")
    idle = sockets(agent)
    stream = agent.stream(command=f"echo up > {up}; read x < {go}; yes | head -c 30000000; exit 7")
    ident = stream.next()["text"]
    assert up.read_line() == "up"
    stream.close()
    settle(agent, idle + 1)  # the stream is cut while the command still waits
    before = agent.rss_kib()
    assert agent.status(ident)["running"]
    go.write("x\n")
    assert agent.wait_ended(ident)["exit_code"] == 7
    if not agent.sanitized:
        assert agent.rss_kib() - before < 2048  # the output went nowhere


def test_idle_memory(agent):
    if not agent.sanitized:
        assert agent.rss_kib() < 3 * 1024
