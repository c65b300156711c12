"""A server that shows what it got and says exactly what it is told to. Runs inside a sandbox; standard library only.

    python3 backend.py DATA_PORT CONTROL_PORT

Data port, one thread a connection, HTTP/1.1 with keep-alive:
    /s/raw?b64=R       the bytes R (base64url) as the response, after the request body; `early=1`: before it, and the
                       connection ends; `close=1`: then close; `reset=1`: then RST; `piece=N`: N bytes at a time;
                       `hold=1`: then nothing until the peer goes or the control port cuts the request
    /s/sse?n=N&ms=M    N events (0: for ever), M ms apart, as chunks with the time of sending
    /s/endless         chunks for ever
    /s/hang            reads the request and says nothing
    /s/huge?n=N        N bytes with Content-Length
    /s/sink            reads the body; {"bytes","sha256"}
    /s/stall           reads the head and no byte of the body
    /s/ws              WebSocket: see websocket()
    anything else      echo: {"head","body","nth","conn"}; head and body (chunk framing included) in base64
A query `tag=T` names the request in the state that the control port tells.

Control port: GET / the state, POST /forget forgets counts, POST /close?T and /reset?T end the held request T with FIN or
RST. Never through the proxy.
"""

import base64
import hashlib
import http.server
import json
import select
import socket
import struct
import sys
import threading
import time
import urllib.parse

lock = threading.Lock()
cuts = {}  # tag: "close" or "reset"
state = {"accepted": 0, "open": 0, "requests": 0, "lines": [], "active": [], "ended": {}, "conns": {}, "closed": []}


def note(tag, how):
    """The tagged request has ended."""
    with lock:
        state["active"].remove(tag)
        state["ended"][tag] = how


class Gone(Exception):
    """The peer left."""


class Conn:
    def __init__(self, sock, number):
        self.sock, self.buf, self.number, self.nth = sock, b"", number, 0

    def more(self):
        data = self.sock.recv(1 << 18)
        if not data:
            raise Gone("closed")
        self.buf += data

    def take(self, n):
        while len(self.buf) < n:
            self.more()
        out, self.buf = self.buf[:n], self.buf[n:]
        return out

    def line(self):
        while b"\n" not in self.buf:
            self.more()
        return self.take(self.buf.index(b"\n") + 1)

    def head(self):
        """The next head, or None at a clean end."""
        while b"\r\n\r\n" not in self.buf:
            try:
                self.more()
            except Gone:
                if not self.buf:
                    return None
                raise
        return self.take(self.buf.index(b"\r\n\r\n") + 4)

    def pieces(self, fields):
        """The body as it comes, chunk framing and trailers included: (raw, data)."""
        if "chunked" in fields.get("transfer-encoding", ""):
            while True:
                line = self.line()
                size = int(line.split(b";")[0], 16)
                if not size:
                    yield line, b""
                    break
                data = self.take(size + 2)
                yield line + data, data[:-2]
            while True:
                line = self.line()
                yield line, b""
                if line == b"\r\n":
                    return
        left = int(fields.get("content-length", 0))
        while left:
            if not self.buf:
                self.more()
            data, self.buf = self.buf[:left], self.buf[left:]
            left -= len(data)
            yield data, data

    def until_gone(self):
        """Waits for the peer's end; what it says meanwhile is thrown away."""
        while True:
            self.more()
            self.buf = b""

    def hold(self, tag):
        """Until the peer goes or a cut is asked; what it says is thrown away."""
        while tag not in cuts:
            if select.select([self.sock], [], [], 0.005)[0]:
                self.more()
                self.buf = b""
        if cuts.pop(tag) == "reset":
            self.reset()
        raise Gone("closed by us")

    def is_gone(self):
        return bool(select.select([self.sock], [], [], 0)[0]) and not self.sock.recv(1, socket.MSG_PEEK)

    def send(self, data):
        self.sock.sendall(data)

    def reset(self):
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise Gone("reset by us")


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def reply(conn, document):
    body = json.dumps(document).encode()
    conn.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


# ---- what is told to happen ----


def raw(conn, q, fields, _head):
    data = base64.urlsafe_b64decode(q["b64"])
    if not q.get("early"):
        for _ in conn.pieces(fields):
            pass
    piece = int(q.get("piece", 0)) or len(data)
    for at in range(0, len(data), piece or 1):
        conn.send(data[at : at + piece])
        if piece < len(data):
            time.sleep(0.001)  # so that they leave one by one
    if q.get("reset"):
        conn.reset()
    if q.get("hold"):
        conn.hold(q.get("tag"))
    if q.get("early"):
        conn.sock.shutdown(socket.SHUT_WR)
        conn.until_gone()
    return not q.get("close")


def sse(conn, q, _fields, _head):
    conn.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    n, i = int(q.get("n", 0)), 0
    while not n or i < n:
        conn.send(chunk(b"data: %.6f\n\n" % time.time()))
        i += 1
        if select.select([conn.sock], [], [], int(q.get("ms", 50)) / 1000)[0] and conn.is_gone():
            raise Gone("closed")
    conn.send(b"0\r\n\r\n")
    return True


def endless(conn, _q, _fields, _head):
    conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    data = chunk(b"x" * 4096)
    while not conn.is_gone():
        conn.send(data)
    raise Gone("closed")


def hang(conn, _q, _fields, _head):
    conn.until_gone()


def huge(conn, q, fields, _head):
    for _ in conn.pieces(fields):
        pass
    left = int(q["n"])
    conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % left)
    block = bytes(i * 7 & 255 for i in range(1 << 8)) * (1 << 12)
    while left:
        conn.send(block[:left])
        left -= min(left, len(block))
    return True


def sink(conn, _q, fields, _head):
    digest, count = hashlib.sha256(), 0
    for _, data in conn.pieces(fields):
        digest.update(data)
        count += len(data)
    reply(conn, {"bytes": count, "sha256": digest.hexdigest()})
    return True


def stall(conn, _q, _fields, _head):
    poll = select.poll()
    poll.register(conn.sock, select.POLLRDHUP)
    poll.poll()
    raise Gone("closed")


def echo(conn, _q, fields, head):
    if fields.get("expect", "").lower() == "100-continue":
        conn.send(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = b"".join(r for r, _ in conn.pieces(fields))
    if head.startswith(b"HEAD "):
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\nX-Head: %s\r\n\r\n" % base64.b64encode(head))
        return True
    encode = lambda b: base64.b64encode(b).decode()
    reply(conn, {"head": encode(head), "body": encode(body), "nth": conn.nth, "conn": conn.number})
    return True


# ---- WebSocket, RFC 6455 ----


def frame(opcode, data, fin=True):
    size = len(data)
    if size < 126:
        length = bytes([size])
    elif size < 1 << 16:
        length = b"\x7e" + struct.pack(">H", size)
    else:
        length = b"\x7f" + struct.pack(">Q", size)
    return bytes([(0x80 if fin else 0) | opcode]) + length + data


def read_frame(conn):
    first, second = conn.take(2)
    assert second & 0x80, "a client's frame must be masked"
    size = second & 0x7F
    if size == 126:
        (size,) = struct.unpack(">H", conn.take(2))
    elif size == 127:
        (size,) = struct.unpack(">Q", conn.take(8))
    key = conn.take(4)
    data = conn.take(size)
    n = int.from_bytes(data, "big") ^ int.from_bytes((key * (size // 4 + 1))[:size], "big")
    return bool(first & 0x80), first & 15, n.to_bytes(size, "big")


def websocket(conn, q, fields, head):
    """Echoes each data frame as it came (opcode, FIN). A text frame may ask for more: `head` the request's head in
    base64, `close CODE REASON`, `close` without a code, `drop` ends TCP without a close frame, `ping DATA` pings and
    tells the pong's payload, `fragments A B C` one message in three frames."""
    if fields.get("upgrade", "").lower() != "websocket":
        conn.send(b"HTTP/1.1 426 Upgrade Required\r\nContent-Length: 0\r\n\r\n")
        return True
    guid = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
    accept = base64.b64encode(hashlib.sha1(fields["sec-websocket-key"].encode() + guid).digest())
    answer = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    answer += b"Sec-WebSocket-Accept: %s\r\n" % accept
    if q.get("protocol"):
        answer += b"Sec-WebSocket-Protocol: %s\r\n" % q["protocol"].encode()
    conn.send(answer + b"\r\n" + (frame(1, b"first") if q.get("first") else b""))
    while True:
        fin, opcode, data = read_frame(conn)
        word, _, rest = data.partition(b" ") if opcode == 1 and fin else (b"", b"", b"")
        if opcode == 8:
            conn.send(frame(8, data))
            code = struct.unpack(">H", data[:2])[0] if data else 1005
            raise Gone(f"close {code} {data[2:].decode()}")
        if opcode == 9:
            conn.send(frame(10, data))
        elif opcode == 10:
            conn.send(frame(1, b"pong " + data))
        elif word == b"head":
            conn.send(frame(1, base64.b64encode(head)))
        elif word == b"close":
            code, _, reason = rest.partition(b" ")
            conn.send(frame(8, struct.pack(">H", int(code)) + reason if code else b""))
        elif word == b"drop":
            raise Gone("dropped")
        elif word == b"ping":
            conn.send(frame(9, rest))
        elif word == b"fragments":
            parts = rest.split(b" ")
            for i, part in enumerate(parts):
                conn.send(frame(0 if i else 1, part, i == len(parts) - 1))
        else:
            conn.send(frame(opcode, data, fin))


SCRIPTS = {
    "raw": raw, "sse": sse, "endless": endless, "hang": hang, "huge": huge, "sink": sink, "stall": stall,
    "ws": websocket,
}  # fmt: skip


# ---- connections ----


def one(conn, head):
    """Works on one request; true: the connection goes on."""
    lines = head.decode("latin-1").split("\r\n")
    fields = {}
    for line in lines[1:-2]:
        name, _, value = line.partition(":")
        fields[name.lower()] = value.strip()
    path, _, query = lines[0].split(" ")[1].partition("?")
    name = path.removeprefix("/s/") if path.startswith("/s/") else ""
    q = dict(urllib.parse.parse_qsl(query)) if name in SCRIPTS or "tag=" in query else {}
    tag = q.get("tag")
    with lock:
        state["requests"] += 1
        state["lines"] = state["lines"][-199:] + [lines[0]]
        if tag:
            state["active"].append(tag)
            state["conns"][tag] = conn.number
    conn.nth += 1
    how = "done"
    try:
        return SCRIPTS.get(name, echo)(conn, q, fields, head)
    except Exception as e:
        how = str(e) if isinstance(e, Gone) else type(e).__name__
        raise
    finally:
        if tag:
            note(tag, how)


def serve(sock, number):
    conn = Conn(sock, number)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        while (head := conn.head()) and one(conn, head):
            pass
    except (Gone, OSError):
        pass
    finally:
        sock.close()
        with lock:
            state["open"] -= 1
            state["closed"] = state["closed"][-199:] + [number]


class Control(http.server.BaseHTTPRequestHandler):
    def answer(self):
        with lock:
            body = json.dumps(state).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer()

    def do_POST(self):
        how, _, tag = self.path[1:].partition("?")
        with lock:
            if how == "forget":
                state.update(requests=0, lines=[], ended={})
            else:
                cuts[tag] = how
        self.answer()

    def log_message(self, *_args):
        pass


def main():
    control = http.server.ThreadingHTTPServer(("0.0.0.0", int(sys.argv[2])), Control)
    threading.Thread(target=control.serve_forever, daemon=True).start()
    listener = socket.create_server(("0.0.0.0", int(sys.argv[1])), backlog=512)
    while True:
        sock, _ = listener.accept()
        with lock:
            state["accepted"] += 1
            state["open"] += 1
            number = state["accepted"]
        threading.Thread(target=serve, args=(sock, number), daemon=True).start()


if __name__ == "__main__":
    main()
