"""The official SDK from where a client cannot reach what is published: no option is needed (design decision 9). That
use_server_proxy=True does all that works directly is what tests/integration/sdk/test_quickstart.py shows."""

import asyncio
import base64
from datetime import timedelta

import pytest
import websockets
from conftest import PORT, Box, own_address
from harness import BASE, Gateway
from opensandbox import SandboxSync
from opensandbox.config import ConnectionConfig, ConnectionConfigSync
from opensandbox.models.execd import ExecutionHandlers
from opensandbox.sandbox import Sandbox
from rawhttp import Raw


@pytest.fixture(scope="module")
def open_gateway(tmp_path_factory, engine):
    """Listens on all addresses."""
    gw = Gateway(tmp_path_factory.mktemp("open"), engine)
    gw.config.write_text(gw.config.read_text().replace('host = "127.0.0.1"', 'host = "0.0.0.0"'))
    gw.start()
    yield gw
    gw.cleanup()


def config(gw, host, kind=ConnectionConfigSync, **kw):
    return kind(domain=f"{host}:{gw.port}", api_key=gw.key, request_timeout=timedelta(seconds=20), **kw)


def text(execution):
    return "".join(m.text for m in execution.logs.stdout)


def test_a_client_on_another_address_needs_no_option(open_gateway):
    host = own_address()
    sb = SandboxSync.create(BASE, connection_config=config(open_gateway, host), timeout=timedelta(minutes=5))
    with sb:
        for port in (44772, 18080, 8080, 3000):
            assert sb.get_endpoint(port).endpoint == f"{host}:{open_gateway.port}/v1/sandboxes/{sb.id}/proxy/{port}"
        assert text(sb.commands.run("echo hello")) == "hello\n"
        assert sb.commands.run("exit 3").exit_code == 3
        data = bytes(range(256)) * 4096
        sb.files.write_file("/tmp/a b/ż%2F.bin", data)
        assert sb.files.read_bytes("/tmp/a b/ż%2F.bin") == data
        odd = ["/tmp/a b/ż%2F.bin", "/tmp"]  # the query goes through as it is (pains F4)
        assert sb.files.get_file_info(odd)[odd[0]].size == len(data)
        sb.kill()


def test_the_same_gateway_by_loopback_is_direct(open_gateway):
    sb = SandboxSync.create(BASE, connection_config=config(open_gateway, "127.0.0.1"), timeout=timedelta(minutes=5))
    with sb:
        endpoint = sb.get_endpoint(3000).endpoint
        assert endpoint.endswith("/proxy/3000") and "/sandboxes/" not in endpoint
        assert text(sb.commands.run("echo direct")) == "direct\n"
        sb.kill()


def test_output_comes_while_the_command_runs(open_gateway):
    """Each line within its time, over the gateway, from another address."""

    async def main():
        cfg = config(open_gateway, own_address(), ConnectionConfig)
        async with await Sandbox.create(BASE, connection_config=cfg) as sb:
            loop, seen = asyncio.get_running_loop(), []

            async def note(_message):
                seen.append(loop.time())

            await sb.commands.run("for i in 1 2 3; do echo $i; sleep 0.2; done", handlers=ExecutionHandlers(on_stdout=note))
            await sb.kill()
            return seen

    seen = asyncio.run(main())
    assert len(seen) == 3 and seen[2] - seen[0] > 0.3, seen


@pytest.mark.parametrize("mount", ["", "/v1"])
def test_endpoints_keep_the_mount_that_was_asked(open_gateway, mount):
    reply = open_gateway.create()
    sid = reply.json["id"]
    host = f"{own_address()}:{open_gateway.port}"
    for query in ("", "?use_server_proxy=true", "?use_server_proxy=false"):
        path = f"{mount}/sandboxes/{sid}/endpoints/44772{query}"
        reply = open_gateway.request("GET", path, headers={"Host": host})
        assert reply.json["endpoint"] == f"{host}{mount}/sandboxes/{sid}/proxy/44772"
        assert set(reply.json["headers"]) == {"X-EXECD-ACCESS-TOKEN"}
    reply = open_gateway.request("GET", f"{mount}/sandboxes/{sid}/endpoints/80?use_server_proxy=true")
    assert reply.json == {"endpoint": f"127.0.0.1:{open_gateway.port}{mount}/sandboxes/{sid}/proxy/80"}
    assert open_gateway.request("DELETE", f"/v1/sandboxes/{sid}").status == 204


async def test_user_ports_by_the_endpoint_of_another_address(open_gateway):
    """HTTP and WebSocket, with what the SDK hands out and nothing else: no key, no token."""
    box = Box(open_gateway).start_backend()
    host = f"{own_address()}:{open_gateway.port}"
    reply = open_gateway.request("GET", f"/v1/sandboxes/{box.id}/endpoints/{PORT}", headers={"Host": host})
    endpoint = reply.json["endpoint"]
    assert endpoint.startswith(host) and "headers" not in reply.json
    with Raw((own_address(), open_gateway.port)) as c:
        c.send(f"GET /{endpoint.partition('/')[2]}/x?y HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert base64.b64decode(c.response().json["head"]).startswith(b"GET /x?y HTTP/1.1\r\n")
    async with websockets.connect(f"ws://{endpoint}/s/ws", proxy=None) as ws:
        await ws.send("hi")
        assert await asyncio.wait_for(ws.recv(), 8) == "hi"
