"""/pty of a sandbox, by the published port and through the gateway (contract/execd.md 9, design decision 8)."""

import http.client
import json
import threading

import pytest
from conftest import AGENT
from harness import BASE, BUSYBOX, NONROOT, STATIC
from ptylib import DEADLINE, Client
from websockets.exceptions import InvalidStatus


class Way:
    """To one sandbox's agent."""

    def __init__(self, gw, box, direct, headers=None):
        host, port, prefix, token = gw.agent(box)
        self.address, self.prefix, self.headers = (host, port), prefix, token
        if not direct:
            self.address, self.prefix = ("127.0.0.1", gw.port), f"/v1/sandboxes/{box}/proxy/{AGENT}"
        if headers is not None:
            self.headers = headers

    def request(self, method, path, body=None):
        conn = http.client.HTTPConnection(*self.address, timeout=DEADLINE)
        try:
            conn.request(method, self.prefix + path, json.dumps(body) if body else None, self.headers)
            reply = conn.getresponse()
            return reply.status, reply.read()
        finally:
            conn.close()

    def make(self, **body):
        status, data = self.request("POST", "/pty", body)
        assert status == 201, data
        return json.loads(data)["session_id"]

    def state(self, ident):
        return json.loads(self.request("GET", f"/pty/{ident}")[1])

    def attach(self, ident, query="", **options):
        host, port = self.address
        client = Client(f"ws://{host}:{port}{self.prefix}/pty/{ident}/ws{query}", self.headers, **options)
        client.connected = client.text("connected")
        return client


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "proxied"])
def test_a_shell(box, direct):
    way = Way(box.gw, box.id, direct)
    ident = way.make(cwd="/tmp/pty/new")
    with way.attach(ident) as client:
        client.send(type="resize", cols=100, rows=40)
        client.type("pwd; stty size; tty\n")
        seen = client.see("/dev/pts/")
        assert b"/tmp/pty/new" in seen and b"40 100" in seen
        at = len(client.out)
    with way.attach(ident, f"?since={at}") as again:
        again.type("exit 3\n")
        assert again.text("exit")["exit_code"] == 3
        assert again.end() == (1000, "process exited")
    assert way.request("DELETE", f"/pty/{ident}") == (200, b"")


def test_a_key_opens_it_and_nothing_else_does(box):
    key = Way(box.gw, box.id, False, {"OPEN-SANDBOX-API-KEY": box.gw.key})
    ident = key.make()
    with key.attach(ident) as client:
        client.type("echo $((6 * 7))\n")
        client.see("42")
        with pytest.raises(InvalidStatus) as caught:
            Way(box.gw, box.id, False, {}).attach(ident)
        assert caught.value.response.status_code == 401
    key.request("DELETE", f"/pty/{ident}")


def test_bulk_and_back_pressure_through_the_gateway(box):
    way = Way(box.gw, box.id, False)
    size = 64 << 20  # the kernel's buffers of two connections take up to 20 MiB
    ident = way.make(command=f"head -c {size} /dev/zero | tr '\\0' x; exit 5")
    with way.attach(ident, max_queue=1) as client:
        last, same = -1, 0
        while same < 100:  # the output stands still while nobody reads
            now = way.state(ident)["output_offset"]
            last, same = now, same + 1 if now == last and now else 0
        assert last < size // 2
        parts = [client.out]
        client.out = b""
        while "exit" not in client.order:
            client.take()
            parts.append(client.out)
            client.out = b""
        assert client.text("exit")["exit_code"] == 5
        whole = b"".join(parts)
        assert len(whole) == size and not whole.strip(b"x")
    way.request("DELETE", f"/pty/{ident}")


def test_takeover_and_viewers_across_the_ways(box):
    direct, proxied = Way(box.gw, box.id, True), Way(box.gw, box.id, False)
    ident = direct.make(command="stty -echo; echo ready; exec cat")
    first = direct.attach(ident)
    first.see("ready")
    viewer = proxied.attach(ident, "?mode=viewer")
    second = proxied.attach(ident, "?takeover=1")
    assert first.end() == (4001, "TAKEN_OVER")
    second.type("for all\n")
    second.see("for all")
    viewer.see("for all")
    assert proxied.request("DELETE", f"/pty/{ident}")[0] == 200
    for client in (second, viewer):
        assert client.text("exit")["exit_code"] == -1
        assert client.end()[0] == 1000


@pytest.mark.parametrize("image", [BASE, NONROOT, BUSYBOX, STATIC])
def test_images(gateway, image):
    entrypoint = {BUSYBOX: ["/bin/busybox", "tail", "-f", "/dev/null"], STATIC: ["/hello", "wait"]}.get(image)
    created = gateway.create(image, **({"entrypoint": entrypoint} if entrypoint else {}))
    assert created.status == 202, created.raw
    way = Way(gateway, created.json["id"], False)
    ident = way.make()
    if image == STATIC:
        host, port = way.address
        client = Client(f"ws://{host}:{port}{way.prefix}/pty/{ident}/ws", way.headers)
        error = client.text("error")
        assert error["code"] == "START_FAILED" and "no shell" in error["error"]
        client.end()
    else:
        with way.attach(ident) as client:
            client.type("echo uid=$(id -u).; echo shell=$0.\n")
            seen = client.see(b"shell=sh." if image == BUSYBOX else b"shell=bash.")
            assert (b"uid=1000." if image == NONROOT else b"uid=0.") in seen
    assert gateway.request("DELETE", f"/v1/sandboxes/{created.json['id']}").status == 204


def test_read_only_root(make_box):
    box = make_box(extra="[sandbox]\nread_only_root = true\n", backend=False)
    way = Way(box.gw, box.id, False)
    with way.attach(way.make()) as client:
        client.type("touch /x; tty\n")
        assert b"Read-only" in client.see("/dev/pts/")


def test_a_deleted_sandbox_ends_its_terminals_soon(gateway):
    created = gateway.create().json["id"]
    way = Way(gateway, created, False)
    client = way.attach(way.make())
    client.type("echo $((40 + 2))\n")
    client.see("42")
    ended = []
    reader = threading.Thread(target=lambda: ended.append(client.end()))
    reader.start()
    assert gateway.request("DELETE", f"/v1/sandboxes/{created}").status == 204
    reader.join(DEADLINE)
    assert ended and ended[0][0] in (1001, 1006)
