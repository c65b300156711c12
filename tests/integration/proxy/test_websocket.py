"""An independent client (the package websockets) through the proxy."""

import asyncio
import base64
import os

import pytest
import websockets
from conftest import AGENT, NOBODY, resident
from harness import wait_for
from websockets.exceptions import ConnectionClosed, InvalidStatus

DEADLINE = 8


def url(box, query="", port=8000, mount="/v1"):
    return f"ws://{box.gw.domain}{box.prefix(port, mount)}/s/ws{query}"


def connect(box, query="", port=8000, mount="/v1", **kw):
    kw = {"compression": None, "max_size": None, "open_timeout": DEADLINE, "proxy": None, **kw}
    return websockets.connect(url(box, query, port, mount), **kw)


async def echo(ws, message):
    await ws.send(message)
    return await asyncio.wait_for(ws.recv(), DEADLINE)


@pytest.mark.parametrize("mount", ["", "/v1"])
async def test_text_and_binary(box, mount):
    async with connect(box, mount=mount) as ws:
        for message in ("zażółć", "", b"\x00\xff" * 100, b"", "x" * 125, "x" * 126, b"y" * 65535, b"y" * 65536):
            assert await echo(ws, message) == message


async def test_large_messages(box):
    async with connect(box) as ws:
        for message in (bytes(range(256)) * 4096, "ab" * (1 << 19)):
            assert await echo(ws, message) == message


async def test_many_messages_in_flight(box):
    async with connect(box) as ws:
        sender = asyncio.create_task(ws.send([str(i) for i in range(3)]))
        assert await asyncio.wait_for(ws.recv(), DEADLINE) == "012"
        await sender
        for i in range(2000):
            await ws.send(f"m{i}")
        for i in range(2000):
            assert await asyncio.wait_for(ws.recv(), DEADLINE) == f"m{i}"


async def test_fragments_stay_fragments(box):
    async with connect(box) as ws:
        await ws.send(["ab", "", "cd"])  # the backend echoes frame by frame
        parts = [p async for p in ws.recv_streaming()]
        assert [p for p in parts if p] == ["ab", "cd"] and len(parts) >= 3
        await ws.send("fragments one two three")
        assert [p async for p in ws.recv_streaming()] == ["one", "two", "three"]


async def test_ping_and_pong_both_ways(box):
    async with connect(box) as ws:
        await asyncio.wait_for(await ws.ping(b"from the client"), DEADLINE)
        assert await echo(ws, "ping from-the-backend") == "pong from-the-backend"


@pytest.mark.parametrize("code,reason", [(1000, ""), (1001, "going"), (3000, "x"), (4999, "ż" * 60), (1011, "oh")])
async def test_close_code_of_the_backend(box, code, reason):
    async with connect(box) as ws:
        with pytest.raises(ConnectionClosed) as raised:
            await echo(ws, f"close {code} {reason}")
        assert (raised.value.rcvd.code, raised.value.rcvd.reason) == (code, reason)
        assert raised.value.rcvd_then_sent is True


@pytest.mark.parametrize("code,reason", [(1000, "bye"), (4001, "ż" * 60), (1001, "")])
async def test_close_code_of_the_client(box, code, reason):
    tag = f"ws{code}"
    async with connect(box, f"?tag={tag}") as ws:
        await ws.close(code, reason)
        assert ws.close_code == code
    assert box.wait_ended(tag) == f"close {code} {reason}"


async def test_close_without_a_code(box):
    async with connect(box) as ws:
        with pytest.raises(ConnectionClosed) as raised:
            await echo(ws, "close")
        assert raised.value.rcvd.code == 1005


async def test_a_backend_that_drops_is_seen_at_once(box):
    async with connect(box) as ws:
        with pytest.raises(ConnectionClosed) as raised:
            await asyncio.wait_for(echo(ws, "drop"), 1)
        assert raised.value.rcvd is None


@pytest.mark.parametrize("how", ["close", "abort"])
async def test_a_client_that_drops_ends_the_backend(box, how):
    ws = await connect(box, f"?tag=drop-{how}")
    await echo(ws, "x")
    if how == "abort":
        ws.transport.abort()
    else:
        ws.transport.close()
    ended = await asyncio.to_thread(box.wait_ended, f"drop-{how}", 1)
    assert ended in ("closed", "ConnectionResetError")


async def test_subprotocol_and_origin(box):
    query = "?protocol=chat.v2"
    async with connect(box, query, subprotocols=["chat.v1", "chat.v2"], origin="http://o.example") as ws:
        assert ws.subprotocol == "chat.v2"
        head = base64.b64decode(await echo(ws, "head")).decode()
    lines = {line.split(": ")[0].lower(): line.split(": ", 1)[1] for line in head.split("\r\n")[1:-2]}
    assert head.startswith(f"GET /s/ws{query} HTTP/1.1\r\n")
    assert lines["sec-websocket-protocol"] == "chat.v1, chat.v2" and lines["origin"] == "http://o.example"
    assert lines["connection"] == "Upgrade" and lines["upgrade"] == "websocket"
    assert lines["host"] == f"{box.ip}:8000" and lines["x-forwarded-for"] == "127.0.0.1"


async def test_no_subprotocol_when_the_backend_chooses_none(box):
    async with connect(box, subprotocols=["a"]) as ws:
        assert ws.subprotocol is None


async def test_key_and_login_do_not_reach_the_backend(box):
    fields = {
        "OPEN-SANDBOX-API-KEY": box.gw.key, "Authorization": "Bearer t", "Cookie": "a=b",
        "X-EXECD-ACCESS-TOKEN": box.token, "OpenSandbox-Access-Renew": "skip", "Connection": "keep-alive, X-Hop",
    }  # fmt: skip
    async with connect(box, additional_headers=fields) as ws:
        head = base64.b64decode(await echo(ws, "head")).decode().lower()
    for name in ("open-sandbox-api-key", "authorization", "cookie", "x-execd-access-token", "opensandbox-access-renew"):
        assert f"\r\n{name}:" not in head, name


async def test_what_the_backend_says_with_its_101_arrives(box):
    async with connect(box, "?first=1") as ws:
        assert await asyncio.wait_for(ws.recv(), DEADLINE) == "first"


def test_frames_that_come_with_the_request_reach_the_backend_after_its_101(box):
    upgrade = ("Connection: keep-alive, Upgrade", "Upgrade: WebSocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: eA==")
    masked = b"\x81\x82\x00\x00\x00\x00hi"
    with box.connect() as c:
        c.send(box.head("GET", "/s/ws", *upgrade) + masked)
        r = c.head()
        assert r.status == 101 and r.all("Connection") == ["Upgrade"] and r.all("Upgrade") == ["websocket"]
        assert r.get("Content-Length") is None and r.get("Transfer-Encoding") is None
        assert c.take(4) == b"\x81\x02hi"


def test_half_open_tunnel_passes_the_rest(box):
    """A client that has ended its side still gets what the backend says."""
    upgrade = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: eA==")
    with box.connect() as c:
        c.send(box.head("GET", "/s/ws", *upgrade))
        assert c.head().status == 101
        c.send(b"\x81\x82\x00\x00\x00\x00hi" * 1000)
        c.sock.shutdown(1)
        assert c.take(4000) == b"\x81\x02hi" * 1000
        assert c.closed()


async def status_of(box, **kw):
    with pytest.raises(InvalidStatus) as raised:
        await connect(box, **kw)
    return raised.value.response


async def test_refusals_before_the_upgrade_are_http(box):
    r = await status_of(box, port=NOBODY)
    assert r.status_code == 502 and b"BACKEND_CONNECTION_FAILED" in r.body
    r = await status_of(box, query="/../x")
    assert r.status_code == 400 and box.state()["requests"] == 0
    gone = f"ws://{box.gw.domain}/sandboxes/00000000-0000-4000-8000-000000000000/proxy/8000/"
    with pytest.raises(InvalidStatus) as raised:
        await websockets.connect(gone, proxy=None)
    assert raised.value.response.status_code == 404 and b"SANDBOX_NOT_FOUND" in raised.value.response.body


async def test_a_backend_that_speaks_no_websocket(box):
    plain = f"ws://{box.gw.domain}{box.prefix()}/echo"
    with pytest.raises(InvalidStatus) as raised:
        await websockets.connect(plain, proxy=None)
    assert raised.value.response.status_code == 200


async def test_api_and_agent_refuse_upgrades_they_do_not_know(box):
    for path in ("/v1/sandboxes", "/health", f"{box.prefix(AGENT)}/ping"):
        with pytest.raises((InvalidStatus, websockets.exceptions.InvalidHandshake)):
            await websockets.connect(f"ws://{box.gw.domain}{path}", proxy=None)
    assert box.gw.request("GET", "/health").status == 200


async def test_two_hundred_open_at_once(box):
    threads = lambda: len(os.listdir(f"/proc/{box.gw.process.pid}/task"))
    before = threads()
    clients = await asyncio.gather(*(connect(box) for _ in range(200)))
    try:
        assert threads() < before + 20  # some are started on demand, none for a stream
        answers = await asyncio.gather(*(echo(ws, f"{i}") for i, ws in enumerate(clients)))
        assert answers == [f"{i}" for i in range(200)]
        assert box.gw.request("GET", "/health").status == 200
    finally:
        await asyncio.gather(*(ws.close() for ws in clients))
    sockets = lambda: box.state()["open"]
    await asyncio.to_thread(wait_for, "all are closed", lambda: sockets() < 20, 5)


async def test_compression_is_between_the_ends(box):
    """The offer reaches the backend, which takes none; the client goes on without."""
    async with connect(box, compression="deflate") as ws:
        head = base64.b64decode(await echo(ws, "head")).decode()
        assert "permessage-deflate" in head


async def test_slow_reader_does_not_lose_or_pile_up(box):
    before = resident(box.gw)
    async with connect(box, max_queue=1) as ws:

        async def feed():
            for _ in range(64):
                await ws.send(b"z" * (1 << 18))

        feeder = asyncio.create_task(feed())
        total = 0
        while total < 64 << 18:
            total += len(await asyncio.wait_for(ws.recv(), DEADLINE))
        await feeder
    assert resident(box.gw) - before < 4096
