"""Images from a registry: pulled once, shared by all who want them, with and without credentials."""

import base64
import http.client
import json
import os
import pathlib
import socket
import subprocess
import threading

import pytest

from harness import BUSYBOX, wait_for

ENTRY = ["/bin/busybox", "tail", "-f", "/dev/null"]
USER, PASSWORD = "ann", "sesame"
HTPASSWD = "ann:$2y$05$abcdefghijklmnopqrstuuKcS.CYWVYVaLiiCKrrc0A5s3mGesJ9O\n"
CONFIG = """version: 0.1
log: {{level: info, accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: {dir}/data}}}}
http: {{addr: "127.0.0.1:{port}", relativeurls: true}}
{auth}
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Registry:
    """A registry behind a door: while it is shut, connections are taken and nothing is answered."""

    def __init__(self, directory, auth):
        self.port, self.behind = free_port(), free_port()
        self.open = threading.Event()
        self.open.set()
        config = pathlib.Path(directory) / "registry.yml"
        htpasswd = pathlib.Path(directory) / "htpasswd"
        htpasswd.write_text(HTPASSWD)
        config.write_text(
            CONFIG.format(
                dir=directory,
                port=self.behind,
                auth=f"auth: {{htpasswd: {{realm: here, path: {htpasswd}}}}}" if auth else "",
            )
        )
        self.process = subprocess.Popen(
            [os.environ["REGISTRY_BIN"], "serve", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.door = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._serve, daemon=True).start()
        wait_for("the registry answers", self._answers)

    def _answers(self):
        try:
            conn = http.client.HTTPConnection("127.0.0.1", self.behind, timeout=5)
            conn.request("GET", "/v2/")
            return conn.getresponse().status in (200, 401)
        except OSError:
            return False

    def _serve(self):
        while True:
            try:
                client, _ = self.door.accept()
            except OSError:
                return
            threading.Thread(target=self._relay, args=(client,), daemon=True).start()

    def _relay(self, client):
        self.open.wait()
        try:
            server = socket.create_connection(("127.0.0.1", self.behind))
        except OSError:  # the registry was stopped meanwhile
            client.close()
            return
        threading.Thread(target=self._copy, args=(client, server), daemon=True).start()
        self._copy(server, client)

    @staticmethod
    def _copy(source, target):
        try:
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def stop(self):
        self.open.set()
        self.door.close()
        self.process.terminate()
        self.process.wait(30)


class Image:
    """A name in the registry, which the engine does not have."""

    def __init__(self, engine, registry, name):
        self.engine, self.uri = engine, f"127.0.0.1:{registry.port}/{name}:1"
        repo = self.uri.removesuffix(":1")
        auth = base64.urlsafe_b64encode(json.dumps({"username": USER, "password": PASSWORD}).encode()).decode()
        status, reply = engine.call("POST", f"/images/{BUSYBOX}/tag?repo={repo}&tag=1")
        assert status == 201, reply
        conn = http.client.HTTPConnection("localhost", timeout=60)
        conn.sock = socket.socket(socket.AF_UNIX)
        conn.sock.connect(engine.path)
        conn.request("POST", f"/images/{repo}/push?tag=1", headers={"X-Registry-Auth": auth})
        told = conn.getresponse().read().decode()
        assert "digest: sha256" in told, told
        self.remove()

    def remove(self):
        self.engine.call("DELETE", f"/images/{self.uri}")


@pytest.fixture
def registry(tmp_path):
    r = Registry(tmp_path, auth=False)
    yield r
    r.stop()


@pytest.fixture
def locked_registry(tmp_path):
    r = Registry(tmp_path, auth=True)
    yield r
    r.stop()


@pytest.fixture
def make_image(engine):
    made = []

    def make(registry, name):
        made.append(Image(engine, registry, name))
        return made[-1].uri

    yield make
    for image in made:
        image.remove()


def is_running(gw, reply):
    """A create may be answered while its image is still being pulled."""
    assert reply.status == 202, reply.raw
    sandbox = f"/v1/sandboxes/{reply.json['id']}"
    wait_for("it runs", lambda: gw.request("GET", sandbox).json["status"]["state"] == "Running")
    return True


def pulls_of(gw, uri):
    return sum('"pulling an image"' in line and uri in line for line in gw.log_text().splitlines())


def test_two_creates_share_one_pull(engine, make_gateway, registry, make_image):
    uri = make_image(registry, "shared/box")
    gw = make_gateway().start()
    registry.open.clear()
    replies = []
    threads = [threading.Thread(target=lambda: replies.append(gw.create(uri, ENTRY))) for _ in range(2)]
    for t in threads:
        t.start()
    wait_for("both are on record", lambda: len(gw.records()) == 2)
    wait_for("the pull runs", lambda: pulls_of(gw, uri) == 1)
    assert all(r["status"]["state"] == "Pending" for r in gw.records())
    registry.open.set()
    for t in threads:
        t.join(60)
    assert len(replies) == 2 and all(is_running(gw, r) for r in replies)
    assert pulls_of(gw, uri) == 1
    assert is_running(gw, gw.create(uri, ENTRY))  # it is there now
    assert pulls_of(gw, uri) == 1


def test_a_pull_outlives_its_client(make_gateway, registry, make_image):
    """pains P1: who asked has left; the sandbox comes into being, and the next one finds the image."""
    uri = make_image(registry, "left/box")
    gw = make_gateway().start()
    registry.open.clear()
    body = json.dumps({"image": {"uri": uri}, "entrypoint": ENTRY, "timeout": 300}).encode()
    with socket.create_connection(("127.0.0.1", gw.port), 20) as s:
        s.sendall(f"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nOPEN-SANDBOX-API-KEY: {gw.key}\r\n"
                  f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        wait_for("the pull runs", lambda: pulls_of(gw, uri) == 1)
    told = wait_for("the record tells of it", lambda: (r := gw.records()) and "Pulling" in r[0]["status"]["message"] and r[0])
    registry.open.set()
    wait_for("it runs", lambda: gw.state(told["id"])["state"] == "Running")
    assert is_running(gw, gw.create(uri, ENTRY)) and pulls_of(gw, uri) == 1


def test_credentials_open_a_locked_registry(engine, make_gateway, locked_registry, make_image):
    uri = make_image(locked_registry, "locked/box")
    gw = make_gateway().start()

    def create(auth):
        image = {"uri": uri, **({"auth": auth} if auth else {})}
        return gw.request("POST", "/v1/sandboxes", {"image": image, "entrypoint": ENTRY, "timeout": 300})

    for auth in (None, {"username": USER, "password": "wrong"}):
        reply = create(auth)
        assert reply.status == 500 and reply.json["code"] == "DOCKER::SANDBOX_IMAGE_PULL_FAILED", reply.raw
        assert uri in reply.json["message"]
    assert engine.containers(gw.instance) == []
    assert is_running(gw, create({"username": USER, "password": PASSWORD}))
    assert PASSWORD not in gw.log_text() and "wrong" not in gw.log_text()


def test_an_image_of_another_platform_is_refused(make_gateway, registry, make_image):
    """The registry has it for this machine's platform only."""
    uri = make_image(registry, "plain/box")
    gw = make_gateway().start()
    assert is_running(gw, gw.create(uri, ENTRY, platform={"os": "linux", "arch": machine()}))
    other = "amd64" if machine() == "arm64" else "arm64"
    reply = gw.create(uri, ENTRY, platform={"os": "linux", "arch": other})
    assert reply.status == 500 and reply.json["code"] == "DOCKER::SANDBOX_IMAGE_PULL_FAILED", reply.raw
    assert f"{uri} is not on the engine for linux/{other} and" in reply.json["message"], reply.raw


def machine():
    return {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]


def test_an_unknown_image_fails_at_once_and_again(make_gateway, registry):
    gw = make_gateway().start()
    uri = f"127.0.0.1:{registry.port}/no/such:1"
    for _ in range(2):
        reply = gw.create(uri, ENTRY)
        assert reply.status == 500 and reply.json["code"] == "DOCKER::SANDBOX_IMAGE_PULL_FAILED", reply.raw
    assert pulls_of(gw, uri) == 2
