"""A proxy between the gateway and the real engine that spoils one kind of call: refuses it, carries it out and breaks the
connection, answers half, or does not answer."""

import http.client
import http.server
import json
import re
import socket
import socketserver
import threading

MODES = ("refused", "carried", "half", "hang", "dropped")


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    allow_reuse_address = True


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16

    def address_string(self):
        return "gateway"

    def log_message(self, *args):
        pass

    def body(self):
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            parts = []
            while True:
                size = int(self.rfile.readline().split(b";")[0], 16)
                parts.append(self.rfile.read(size))
                self.rfile.readline()
                if not size:
                    return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def forward(self):
        data = self.body()
        bad = self.server.owner
        mode = bad.judge(f"{self.command} {re.sub(r'^/v[0-9.]+', '', self.path)}")
        if mode == "refused":
            text = json.dumps({"message": "spoiled on purpose"}).encode()
            return self.reply(500, {"Content-Type": "application/json"}, text)
        if mode == "dropped":
            return self.drop()
        if mode == "hang":
            bad.stopped.wait(600)
            return self.drop()
        conn = http.client.HTTPConnection("engine", timeout=600)
        conn.sock = socket.socket(socket.AF_UNIX)
        conn.sock.connect(bad.target)
        headers = {k: v for k, v in self.headers.items() if k.lower() not in ("transfer-encoding", "content-length")}
        conn.request(self.command, self.path, data or None, headers)
        upstream = conn.getresponse()
        if mode == "carried":
            upstream.read()
            return self.drop()
        if "/events" in self.path or (upstream.chunked and mode != "half"):
            return self.stream(conn, upstream)
        text = upstream.read()
        headers = {k: v for k, v in upstream.getheaders() if k.lower() not in ("transfer-encoding", "content-length")}
        self.reply(upstream.status, headers, text, half=mode == "half")
        conn.close()

    def reply(self, status, headers, text, half=False):
        self.send_response_only(status)
        for k, v in headers.items():
            self.send_header(k, v)
        empty = status in (204, 304)
        if not empty:
            self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if not empty:
            self.wfile.write(text[: len(text) // 2] if half else text)
        self.wfile.flush()
        if half:
            self.drop()

    def stream(self, conn, upstream):
        self.send_response_only(upstream.status)
        for k, v in upstream.getheaders():
            self.send_header(k, v)
        self.end_headers()
        self.wfile.flush()
        try:
            while piece := upstream.read1(1 << 16):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
            self.wfile.flush()
        except OSError:
            self.close_connection = True
        finally:
            conn.close()

    def drop(self):
        self.close_connection = True
        try:
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    do_GET = do_POST = do_DELETE = do_HEAD = do_PUT = forward


class BadEngine:
    """`path` is a socket like the engine's own."""

    def __init__(self, target, path):
        self.target, self.path = target, str(path)
        self.lock, self.stopped = threading.Lock(), threading.Event()
        self.pattern, self.mode, self.left, self.met = None, None, 0, 0
        self.calls = []
        self.server = Server(self.path, Handler)
        self.server.owner = self
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self.thread.start()

    def spoil(self, pattern, mode, times=1):
        """The next calls whose "METHOD /path?query" matches the regular expression."""
        with self.lock:
            self.pattern, self.mode, self.left, self.met = re.compile(pattern), mode, times, 0

    def heal(self):
        """Returns how many calls were spoiled."""
        with self.lock:
            self.left = 0
            self.stopped.set()
            self.stopped = threading.Event()
            return self.met

    def judge(self, call):
        with self.lock:
            self.calls.append(call)
            if self.left and self.pattern.search(call):
                self.left -= 1
                self.met += 1
                return self.mode
        return None

    def count(self):
        """Calls since the last count."""
        with self.lock:
            calls, self.calls = self.calls, []
        return calls

    def close(self):
        self.heal()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(10)
