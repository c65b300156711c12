"""TLS ends in nginx (in Caddy, too, where it is installed), with the configuration of deploy/tls: everything that works
directly works through it."""

import asyncio
import hashlib
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import time
from datetime import timedelta

import httpx
import pytest
import websockets
from conftest import Box, own_address
from harness import BASE, ROOT, Gateway, wait_for
from opensandbox import SandboxSync
from opensandbox.config import ConnectionConfigSync
from rawhttp import Echo, Raw, script

SIZE = 1 << 30 if os.environ.get("SANDGATE_SOAK") else 256 << 20
PATH = os.environ["PATH"] + ":/usr/sbin"

NGINX = """
worker_processes 1;
daemon off;
pid {dir}/pid;
error_log {dir}/error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {dir}/tmp; proxy_temp_path {dir}/tmp; fastcgi_temp_path {dir}/tmp;
    uwsgi_temp_path {dir}/tmp; scgi_temp_path {dir}/tmp;
    include {dir}/site;
}}
"""
CADDY = """
{{
    admin off
    http_port {plain}
    https_port {port}
    auto_https disable_redirects
    grace_period 1s
    storage file_system {dir}
}}
import {dir}/site
"""


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


def make_certificate(directory, address):
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    names = f"subjectAltName=DNS:localhost,IP:127.0.0.1,IP:{address}"
    command += ["-subj", "/CN=localhost", "-addext", names, "-keyout", f"{directory}/key.pem", "-out", f"{directory}/cert.pem"]
    subprocess.run(command, check=True, capture_output=True)


class Tls:
    """A TLS terminating server, with the configuration of deploy/tls, in front of a gateway."""

    def __init__(self, kind, directory, gw):
        self.kind, self.dir, self.gw, self.address = kind, pathlib.Path(directory), gw, own_address()
        self.port, self.plain = free_port(), free_port()
        make_certificate(directory, self.address)
        for made in (self.dir, self.dir / "tmp"):  # the worker of nginx is nobody in particular
            made.mkdir(exist_ok=True)
            made.chmod(0o777)
        main = (NGINX if kind == "nginx" else CADDY).format(dir=directory, port=self.port, plain=self.plain)
        (self.dir / "main").write_text(main)
        (self.dir / "site").write_text(self._site())
        self.context = ssl.create_default_context(cafile=f"{directory}/cert.pem")
        with open(self.dir / "output", "wb") as out:
            self.process = subprocess.Popen(self._command(), stdout=out, stderr=out, env={**os.environ, "HOME": directory})
        wait_for(f"{kind} listens", self._listens)

    def _command(self):
        if self.kind == "nginx":
            return [shutil.which("nginx", path=PATH), "-p", str(self.dir), "-c", f"{self.dir}/main"]
        return [shutil.which("caddy", path=PATH), "run", "--adapter", "caddyfile", "--config", f"{self.dir}/main"]

    def _site(self):
        """The file of deploy/tls with ports, names and paths of this run."""
        names = ", ".join(f"https://{n}:{self.port}" for n in ("localhost", "127.0.0.1", self.address))
        nginx = {
            "server 127.0.0.1:8080;": f"server 127.0.0.1:{self.gw.port};",
            "listen 80;": f"listen {self.plain};",
            "listen [::]:80;": "",
            "listen 443 ssl;": f"listen {self.port} ssl;",
            "listen [::]:443 ssl;": "",
            "server_name sandgate.example.com;": "server_name localhost;",
            "/etc/ssl/sandgate/fullchain.pem": f"{self.dir}/cert.pem",
            "/etc/ssl/sandgate/privkey.pem": f"{self.dir}/key.pem",
        }
        caddy = {
            "\nsandgate.example.com {\n": f"\n{names} {{\n\ttls {self.dir}/cert.pem {self.dir}/key.pem\n",
            "127.0.0.1:8080": f"127.0.0.1:{self.gw.port}",
        }
        text = (ROOT / "deploy/tls" / ("nginx.conf" if self.kind == "nginx" else "Caddyfile")).read_text()
        for old, new in (nginx if self.kind == "nginx" else caddy).items():
            assert old in text, old
            text = text.replace(old, new)
        return text

    def _listens(self):
        assert self.process.poll() is None, (self.dir / "output").read_text()
        try:
            return socket.create_connection(("127.0.0.1", self.port), 1).close() or True
        except OSError:
            return False

    def connect(self, **kw):
        raw = Raw(("127.0.0.1", self.port), **kw)
        raw.sock = self.context.wrap_socket(raw.sock, server_hostname="127.0.0.1")
        return raw

    def head(self, box, method, target, *fields):
        lines = [f"{method} {box.prefix()}{target} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", *fields]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"

    def stop(self):
        self.process.terminate()
        self.process.wait(20)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory, engine):
    """One that believes the proxy in front of it."""
    gw = Gateway(tmp_path_factory.mktemp("behind-tls"), engine)
    gw.config.write_text(gw.config.read_text().replace("port = 0\n", 'port = 0\ntrusted_proxies = ["127.0.0.1"]\n'))
    yield gw.start()
    gw.cleanup()


@pytest.fixture(scope="module")
def shared_box(gateway):
    return Box(gateway, timeout=1800).start_backend()


@pytest.fixture(scope="module", params=["nginx"] + (["caddy"] if shutil.which("caddy", path=PATH) else []))
def tls(request, gateway, tmp_path_factory):
    front = Tls(request.param, str(tmp_path_factory.mktemp(request.param)), gateway)
    yield front
    front.stop()


def sdk(tls, host, **kw):
    transport = httpx.HTTPTransport(verify=tls.context)
    return ConnectionConfigSync(
        domain=f"{host}:{tls.port}", api_key=tls.gw.key, protocol="https", transport=transport,
        request_timeout=timedelta(seconds=20), **kw,
    )  # fmt: skip


def quick_start(config):
    sb = SandboxSync.create(BASE, connection_config=config, timeout=timedelta(minutes=5))
    with sb:
        assert "".join(m.text for m in sb.commands.run("echo hello").logs.stdout).strip() == "hello"
        sb.files.write_file("/tmp/a", "zażółć")
        assert sb.files.read_file("/tmp/a") == "zażółć"
        endpoint = sb.get_endpoint(8000).endpoint
        sb.kill()
    return endpoint


def test_sdk_by_a_name_that_is_not_loopback_needs_no_option(tls):
    assert quick_start(sdk(tls, tls.address)).startswith(f"{tls.address}:{tls.port}/v1/sandboxes/")


def test_sdk_with_the_proxy_option(tls):
    assert quick_start(sdk(tls, "localhost", use_server_proxy=True)).startswith(f"localhost:{tls.port}/v1/sandboxes/")


def test_endpoints_through_tls_are_in_proxy_form_by_loopback_too(tls, box):
    """Through TLS the published port cannot be meant: it speaks plain HTTP."""
    with tls.connect() as c:
        target = f"/v1/sandboxes/{box.id}/endpoints/44772"
        c.send(f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{tls.port}\r\nOPEN-SANDBOX-API-KEY: {tls.gw.key}\r\n\r\n".encode())
        assert c.response().json["endpoint"] == f"127.0.0.1:{tls.port}{box.prefix(44772)}"


def test_a_sandbox_sees_https(tls, box):
    with tls.connect() as c:
        c.send(tls.head(box, "GET", "/"))
        assert Echo(c.response().json).all("X-Forwarded-Proto") == ["https"]


def test_plain_http_is_sent_to_https(tls):
    if tls.kind != "nginx":
        return  # Caddy does it by itself
    with Raw(("127.0.0.1", tls.plain)) as c:
        c.send(b"POST /v1/sandboxes?a=%2F HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
        r = c.response()
        assert r.status == 308 and r.get("Location") == "https://localhost/v1/sandboxes?a=%2F"


@pytest.mark.parametrize("target", ["/a%2Fb//c;d/%25?x&y=&=z", "/%7e/..x?", "//"])
def test_target_stays_as_it_is(tls, box, target):
    with tls.connect() as c:
        c.send(tls.head(box, "GET", target, "X_Under: 1", "X-Real-IP: 9.9.9.9", "X-Forwarded-For: 9.9.9.9"))
        seen = Echo(c.response().json)
        assert seen.line == f"GET {target} HTTP/1.1" and seen.get("X_Under") == "1"
        assert b"9.9.9.9" not in seen.head


def test_dot_segments_get_no_further(tls, box):
    with tls.connect() as c:
        c.send(tls.head(box, "GET", "/../../x"))
        assert c.response().status == 400
    assert box.state()["requests"] == 0


def test_a_sandbox_does_not_steer_the_server_in_front(tls, box):
    said = b"HTTP/1.1 200 OK\r\nX-Accel-Redirect: /v1/sandboxes\r\nX-Accel-Limit-Rate: 1\r\nServer: mine\r\nSet-Cookie: a=1\r\n"
    said += b"Set-Cookie: b=2\r\nDate: Mon, 01 Jan 2001 00:00:00 GMT\r\nContent-Length: 2\r\n\r\nok"
    with tls.connect() as c:
        c.send(tls.head(box, "GET", script(said)))
        r = c.response()
        assert r.status == 200 and r.body == b"ok"
        assert r.all("Server")[-1] == "mine" and r.all("Set-Cookie") == ["a=1", "b=2"]
        assert r.all("Date") == ["Mon, 01 Jan 2001 00:00:00 GMT"]


async def test_websocket(tls, box):
    url = f"wss://127.0.0.1:{tls.port}{box.prefix()}/s/ws?tag=wss"
    async with websockets.connect(url, ssl=tls.context, proxy=None, max_size=None, compression=None) as ws:
        for message in ("text", bytes(1 << 20)):
            await ws.send(message)
            assert await asyncio.wait_for(ws.recv(), 8) == message
        await ws.close(4000, "bye")
    assert box.wait_ended("wss") == "close 4000 bye"


def test_events_pass_at_once(tls, box):
    with tls.connect() as c:
        c.send(tls.head(box, "GET", "/s/sse?n=10&ms=50"))
        c.head()
        late = [time.time() - float(c.chunk()[1].split()[1]) for _ in range(10)]
        assert sorted(late)[5] < 0.05, late


def test_a_client_that_leaves_takes_the_backend_connection_along(tls, box):
    with tls.connect() as c:
        c.send(tls.head(box, "GET", "/s/sse?ms=60000&tag=tls"))
        c.head()
        c.chunk()
    box.wait_ended("tls", 2)


def test_large_upload(tls, box):
    block = bytes(i * 11 & 255 for i in range(1 << 8)) * (1 << 12)
    count = SIZE // len(block)
    digest = hashlib.sha256()
    for _ in range(count):
        digest.update(block)

    with tls.connect(timeout=60) as c:  # one thread: an SSL object must not be read and written by two at once
        c.send(tls.head(box, "PUT", "/s/sink", f"Content-Length: {SIZE}"))
        for _ in range(count):
            c.send(block)
        r = c.response()
        assert r.status == 200 and r.json == {"bytes": SIZE, "sha256": digest.hexdigest()}
    assert not any((tls.dir / "tmp").iterdir())  # nothing was collected on disk


def test_large_download(tls, box):
    with tls.connect(timeout=60) as c:
        c.send(tls.head(box, "GET", f"/s/huge?n={SIZE}"))
        r = c.head()
        assert r.get("Content-Length") == str(SIZE)
        got, digest = len(c.buf), hashlib.sha256(c.buf)
        while got < SIZE and (data := c.sock.recv(1 << 20)):
            got += len(data)
            digest.update(data)
    expected, block = hashlib.sha256(), bytes(i * 7 & 255 for i in range(1 << 8)) * (1 << 12)
    for _ in range(SIZE // len(block)):
        expected.update(block)
    assert got == SIZE and digest.digest() == expected.digest()
