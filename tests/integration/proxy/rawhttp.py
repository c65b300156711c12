"""A client that sends the bytes it is given and sees the bytes that come."""

import base64
import json
import socket
import struct
import urllib.parse


class Response:
    """head: its bytes; fields: [(name, value)] as sent; raw: the body with its framing; body: without; trailers: bytes.
    whole: the body came to the end that its framing promised."""

    def __init__(self, head):
        self.head = head
        line, *fields = head.decode("latin-1").split("\r\n")[:-2]
        self.status = int(line.split(" ")[1])
        self.fields = [tuple(f.split(": ", 1)) if ": " in f else (f.rstrip(":"), "") for f in fields]
        self.raw, self.body, self.trailers, self.whole = b"", b"", b"", False

    def all(self, name):
        return [v for n, v in self.fields if n.lower() == name.lower()]

    def get(self, name):
        return next(iter(self.all(name)), None)

    @property
    def json(self):
        return json.loads(self.body)


class Raw:
    """One connection."""

    def __init__(self, address, timeout=8, receive=None):
        self.sock = socket.socket()
        if receive:  # a client that takes little at once
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
        self.sock.settimeout(timeout)
        self.sock.connect(address)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buf = b""

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        self.close()

    def close(self):
        self.sock.close()

    def reset(self):
        """Ends it so that the other side sees it although it does not read."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def send(self, data):
        self.sock.sendall(data)
        return self

    def more(self):
        data = self.sock.recv(1 << 18)
        self.buf += data
        return bool(data)

    def until(self, end):
        """Bytes up to and with end."""
        while end not in self.buf:
            if not self.more():
                raise EOFError(f"closed after {self.buf[-300:]!r}")
        at = self.buf.index(end) + len(end)
        out, self.buf = self.buf[:at], self.buf[at:]
        return out

    def take(self, n):
        while len(self.buf) < n:
            if not self.more():
                raise EOFError(f"closed after {len(self.buf)} of {n} bytes")
        out, self.buf = self.buf[:n], self.buf[n:]
        return out

    def closed(self):
        """Waits for the end; true when no byte came before it."""
        try:
            return not self.buf and not self.more()
        except ConnectionError:
            return True

    def head(self):
        return Response(self.until(b"\r\n\r\n"))

    def chunk(self):
        """(line, data) of one chunk."""
        line = self.until(b"\r\n")
        size = int(line.split(b";")[0], 16)
        return line, self.take(size + 2)[:-2] if size else b""

    def body(self, r, method="GET"):
        """Reads the body of r; an early end leaves r.whole false."""
        try:
            self._body(r, method)
            r.whole = True
        except (EOFError, ConnectionError):
            r.raw += self.buf
            self.buf = b""
        return r

    def _body(self, r, method):
        if method == "HEAD" or r.status in (204, 304) or r.status < 200:
            return
        if r.get("Transfer-Encoding") == "chunked":
            while True:
                line, data = self.chunk()
                r.raw += line
                if not data:
                    break
                r.raw += data + b"\r\n"
                r.body += data
            while (line := self.until(b"\r\n")) != b"\r\n":
                r.trailers += line
        elif r.get("Content-Length") is not None:
            r.raw = r.body = self.take(int(r.get("Content-Length")))
        else:
            while self.more():
                pass
            r.raw = r.body = self.buf
            self.buf = b""

    def response(self, method="GET"):
        """The next final response; what came before is in .interim."""
        interim = []
        while (r := self.head()).status < 200:
            interim.append(r)
        r.interim = interim
        return self.body(r, method)


def script(data, **options):
    """The backend's path that answers with these bytes."""
    q = {"b64": base64.urlsafe_b64encode(data).decode(), **options}
    return "/s/raw?" + urllib.parse.urlencode(q)


class Echo:
    """What the backend got."""

    def __init__(self, document):
        self.head = base64.b64decode(document["head"])
        self.body = base64.b64decode(document["body"])
        self.nth, self.conn = document["nth"], document["conn"]
        self.line, *fields = self.head.decode("latin-1").split("\r\n")[:-2]
        self.fields = [tuple(f.split(": ", 1)) for f in fields]

    @property
    def target(self):
        return self.line.split(" ")[1]

    def all(self, name):
        return [v for n, v in self.fields if n.lower() == name.lower()]

    def get(self, name):
        return next(iter(self.all(name)), None)
