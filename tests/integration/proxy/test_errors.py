"""What cannot be proxied is refused with a clear answer, and nothing reaches a sandbox that should not."""

import threading
import time
from email.utils import parsedate_to_datetime

import pytest
from conftest import AGENT, NOBODY, PORT, Box
from harness import wait_for
from rawhttp import Raw, script

UNKNOWN = "00000000-0000-4000-8000-000000000000"


def envelope(r, status, code):
    assert r.status == status, (r.head, r.body)
    assert r.get("Content-Type") == "application/json"
    document = r.json
    assert set(document) == {"code", "message"} and document["code"] == code and document["message"], document
    assert len(r.all("X-Request-ID")) == 1 and len(r.all("Date")) == 1
    assert parsedate_to_datetime(r.get("Date"))
    return document["message"]


# ---- where it goes ----


@pytest.mark.parametrize("mount", ["", "/v1"])
@pytest.mark.parametrize("sandbox", [UNKNOWN, "nosuch", "a" * 36])
def test_unknown_sandbox(gateway, mount, sandbox):
    with Raw(("127.0.0.1", gateway.port)) as c:
        for _ in range(2):  # the connection goes on
            c.send(f"GET {mount}/sandboxes/{sandbox}/proxy/8000/x HTTP/1.1\r\nHost: h\r\n\r\n".encode())
            assert sandbox in envelope(c.response(), 404, "DOCKER::SANDBOX_NOT_FOUND")


def test_the_request_id_of_an_error_is_the_clients(gateway):
    with Raw(("127.0.0.1", gateway.port)) as c:
        c.send(f"GET /sandboxes/{UNKNOWN}/proxy/1/ HTTP/1.1\r\nHost: h\r\nX-Request-ID: trace-9\r\n\r\n".encode())
        assert c.response().all("X-Request-ID") == ["trace-9"]


def test_paused_sandbox_is_refused_at_once(make_box):
    box = make_box()
    assert box.echo("GET", "/before").target == "/before"
    assert box.gw.request("POST", f"/v1/sandboxes/{box.id}/pause").status == 202
    start = time.monotonic()
    message = envelope(box.ask("GET", "/"), 409, "DOCKER::SANDBOX_NOT_RUNNING")
    envelope(box.ask("GET", "/ping", port=AGENT), 409, "DOCKER::SANDBOX_NOT_RUNNING")
    assert time.monotonic() - start < 1 and "Paused" in message
    assert box.gw.request("POST", f"/v1/sandboxes/{box.id}/resume").status == 202
    assert box.echo("GET", "/after").target == "/after"


def test_deleted_sandbox_is_404_and_its_streams_end(make_box):
    box = make_box()
    with box.connect() as c:
        c.send(box.head("GET", "/s/sse?ms=60000"))
        c.head()
        c.chunk()
        assert box.gw.request("DELETE", f"/v1/sandboxes/{box.id}").status == 204
        envelope(box.ask("GET", "/"), 404, "DOCKER::SANDBOX_NOT_FOUND")
        assert c.closed()


def test_nothing_listens(box):
    with box.connect() as c:
        for method, body in (("GET", b""), ("POST", b"abc"), ("GET", b"")):
            c.send(box.head(method, "/", f"Content-Length: {len(body)}", port=NOBODY) + body)
            message = envelope(c.response(), 502, "BACKEND_CONNECTION_FAILED")
    assert "refused" in message.lower(), message


def test_a_listener_that_comes_later_is_found(make_box):
    box = make_box(backend=False)
    envelope(box.ask("GET", "/"), 502, "BACKEND_CONNECTION_FAILED")
    box.start_backend()
    assert box.echo("GET", "/").target == "/"


def test_head_of_an_error_has_no_body(box):
    with box.connect() as c:
        c.send(box.head("HEAD", "/", port=NOBODY) + box.head("GET", "/next"))
        r = c.response("HEAD")
        assert r.status == 502 and int(r.get("Content-Length")) > 0
        assert c.response().status == 200


@pytest.mark.parametrize("how", ["close", "reset"])
def test_backend_leaves_before_its_head(box, how):
    envelope(box.ask("POST", script(b"", **{how: 1}), body=b"x"), 502, "BACKEND_RESPONSE_FAILED")
    envelope(box.ask("POST", script(b"HTTP/1.1 200 O", **{how: 1}), body=b"x"), 502, "BACKEND_RESPONSE_FAILED")


@pytest.mark.parametrize(
    "said",
    [
        b"hello\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
        b"HTTP/1.1 200 OK\r\nBad name: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\x00b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\r\n folded\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
    ],
    ids=lambda b: b[:40].decode("latin-1").encode("unicode_escape").decode(),
)
def test_backend_says_what_is_no_http(box, said):
    envelope(box.scripted(said, close=1), 502, "BACKEND_RESPONSE_FAILED")
    assert box.echo("GET", "/next").target == "/next"


def test_backend_says_more_than_it_promised(box):
    """The rest must not become the answer to somebody else's request."""
    said = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
    for piece in (0, 10):
        assert box.scripted(said, tag=f"more{piece}", **({"piece": piece} if piece else {})).body == b"ok"
        box.wait_connection_closed(f"more{piece}")
        assert box.echo("GET", "/next").target == "/next"


def test_huge_head_of_a_backend(box):
    box.upload("/tmp/big.py", (
        "import socket\ns=socket.create_server(('0.0.0.0',8010))\nwhile 1:\n c,_=s.accept()\n c.recv(9999)\n"
        " c.sendall(b'HTTP/1.1 200 OK\\r\\nX: ' + b'a'*70000 + b'\\r\\n\\r\\n')\n c.close()\n"
    ).encode())  # fmt: skip
    box.run("exec python3 /tmp/big.py", background=True)
    r = wait_for("it listens", lambda: (r := box.ask("GET", "/", port=8010)).json["code"] != "BACKEND_CONNECTION_FAILED" and r)
    envelope(r, 502, "BACKEND_RESPONSE_FAILED")


# ---- ports and paths ----


@pytest.mark.parametrize("port", ["0", "65536", "99999999999999999999", "abc", "80a", "-1", "+80", "", "%38000", "80;x"])
def test_bad_ports_are_the_apis(box, port):
    """Contract 2: what is no proxy path needs the key, and with it is unknown."""
    target = f"/v1/sandboxes/{box.id}/proxy/{port}/x"
    with box.connect() as c:
        c.send(f"GET {target} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
        assert c.response().status == 401
        c.send(f"GET {target} HTTP/1.1\r\nHost: h\r\nOPEN-SANDBOX-API-KEY: {box.gw.key}\r\n\r\n".encode())
        r = c.response()
        assert r.status in (400, 404) and set(r.json) == {"code", "message"}
    assert box.state()["requests"] == 0


@pytest.mark.parametrize(
    "target",
    ["/..", "/../x", "/a/../b", "/.", "/a/./b", "/a/..", "/%2e%2e/x", "/%2E%2e", "/.%2e/", "/%2e/x", "/../?q", "/..?q"],
)
def test_dot_segments_are_refused(box, target):
    envelope(box.ask("GET", target), 400, "SANDBOX::INVALID_PARAMETER")
    assert box.state()["requests"] == 0


@pytest.mark.parametrize(
    "path", ["/v1/sandboxes/{}/../{}/proxy/8000/", "/v1/../v1/sandboxes/{}/proxy/8000/", "/v1//sandboxes/{}/proxy/8000/",
             "/V1/sandboxes/{}/proxy/8000/", "/v1/sandboxes/{}/proxy//8000", "/v1/sandboxes/{}%2fproxy/8000/",
             "/v1/sandboxes/{}/proxy/8000%2f", "/v2/sandboxes/{}/proxy/8000/"],
)  # fmt: skip
def test_paths_that_only_look_like_the_proxy(box, path):
    target = path.replace("{}", box.id)
    with box.connect() as c:
        c.send(f"GET {target} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
        assert c.response().status in (400, 401, 404)
    assert box.state()["requests"] == 0


# ---- smuggling and broken heads ----

PIPED = b"GET /v1/sandboxes/ID/proxy/8000/smuggled HTTP/1.1\r\nHost: h\r\n\r\n"
START = b"POST /v1/sandboxes/ID/proxy/8000/x HTTP/1.1\r\n"
HOST = b"Host: h\r\n"

SMUGGLING = {
    "CL and TE": (400, START + HOST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    "TE and CL": (400, START + HOST + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n"),
    "two CL": (400, START + HOST + b"Content-Length: 0\r\nContent-Length: 5\r\n\r\n"),
    "CL list": (400, START + HOST + b"Content-Length: 0, 5\r\n\r\n"),
    "CL list of equals": (400, START + HOST + b"Content-Length: 5, 5\r\n\r\nabcde"),
    "CL plus": (400, START + HOST + b"Content-Length: +5\r\n\r\nabcde"),
    "CL minus": (400, START + HOST + b"Content-Length: -5\r\n\r\n"),
    "CL hex": (400, START + HOST + b"Content-Length: 0x5\r\n\r\nabcde"),
    "CL blank inside": (400, START + HOST + b"Content-Length: 1 0\r\n\r\nabcde"),
    "CL empty": (400, START + HOST + b"Content-Length:\r\n\r\n"),
    "CL huge": (400, START + HOST + b"Content-Length: 99999999999999999999\r\n\r\n"),
    "CL letters": (400, START + HOST + b"Content-Length: 5a\r\n\r\nabcde"),
    "TE identity": (400, START + HOST + b"Transfer-Encoding: identity\r\n\r\n"),
    "TE identity and CL": (400, START + HOST + b"Transfer-Encoding: identity\r\nContent-Length: 5\r\n\r\nabcde"),
    "TE xchunked": (400, START + HOST + b"Transfer-Encoding: xchunked\r\n\r\n"),
    "TE gzip, chunked": (501, START + HOST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    "TE chunked, identity": (400, START + HOST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"),
    "TE twice": (400, START + HOST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    "TE chunked twice": (501, START + HOST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"),
    "TE quoted": (400, START + HOST + b'Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n'),
    "TE with VT": (400, START + HOST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n"),
    "TE blank before colon": (400, START + HOST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"),
    "TE tab before colon": (400, START + HOST + b"Transfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n"),
    "TE folded": (400, START + HOST + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n"),
    "TE in HTTP/1.0": (400, START.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    "obs-fold": (400, START + HOST + b"X: a\r\n b\r\n\r\n"),
    "fold first": (400, START + b" X: a\r\n" + HOST + b"\r\n"),
    "bare LF": (400, START + HOST + b"X: a\n\r\n"),
    "bare LF everywhere": (400, START.replace(b"\r", b"") + b"Host: h\n\n"),
    "bare LF at the end": (400, START + HOST + b"X: a\r\n\n"),
    "bare CR in a value": (400, START + HOST + b"X: a\rY: b\r\n\r\n"),
    "bare CR in the line": (400, START.replace(b"/x ", b"/x\r ") + HOST + b"\r\n"),
    "NUL in a value": (400, START + HOST + b"X: a\x00b\r\n\r\n"),
    "NUL in a name": (400, START + HOST + b"X\x00: a\r\n\r\n"),
    "NUL in the target": (400, START.replace(b"/x ", b"/x\x00 ") + HOST + b"\r\n"),
    "control in a value": (400, START + HOST + b"X: a\x7fb\r\n\r\n"),
    "empty name": (400, START + HOST + b": a\r\n\r\n"),
    "no colon": (400, START + HOST + b"Xa\r\n\r\n"),
    "name with a blank": (400, START + HOST + b"X Y: a\r\n\r\n"),
    "name with obs-text": (400, START + HOST + b"X\xe9: a\r\n\r\n"),
    "two Host": (400, START + HOST + HOST + b"\r\n"),
    "no Host": (400, START + b"\r\n"),
    "empty Host": (400, START + b"Host:\r\n\r\n"),
    "bad Host": (400, START + b"Host: a/b\r\n\r\n"),
    "Host differs": (400, START.replace(b" /v1", b" http://other/v1") + HOST + b"\r\n"),
    "blank in the target": (400, START.replace(b"/x ", b"/x y ") + HOST + b"\r\n"),
    "field in the target": (400, START.replace(b"/x ", b"/x HTTP/1.1\r\nHost: h\r\nX-Y: ") + HOST + b"\r\n"),
    "fragment": (400, START.replace(b"/x ", b"/x#y ") + HOST + b"\r\n"),
    "two blanks": (400, START.replace(b"/x ", b"/x  ") + HOST + b"\r\n"),
    "tab for a blank": (400, START.replace(b"POST ", b"POST\t") + HOST + b"\r\n"),
    "no version": (400, b"GET /v1/sandboxes/ID/proxy/8000/x\r\n" + HOST + b"\r\n"),
    "HTTP/2.0": (505, START.replace(b"1.1", b"2.0") + HOST + b"\r\n"),
    "HTTP/1.2": (505, START.replace(b"1.1", b"1.2") + HOST + b"\r\n"),
    "http/1.1": (400, START.replace(b"HTTP", b"http") + HOST + b"\r\n"),
    "HTTP/01.1": (400, START.replace(b"1.1", b"01.1") + HOST + b"\r\n"),
    "HTTP/2 preface": (505, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "CONNECT": (501, b"CONNECT h:80 HTTP/1.1\r\n" + HOST + b"\r\n"),
    "TLS hello": (400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"),
    "method with a slash": (400, START.replace(b"POST", b"PO/ST") + HOST + b"\r\n"),
    "long method": (501, START.replace(b"POST", b"P" * 33) + HOST + b"\r\n"),
    "many Connection names": (400, START + HOST + b"Connection: " + b"a, " * 80 + b"\r\n\r\n"),
    "Connection no list": (400, START + HOST + b"Connection: a b/c\r\n\r\n"),
    "long target": (414, START.replace(b"/x ", b"/" + b"x" * 9000 + b" ") + HOST + b"\r\n"),
    "endless target": (414, b"GET /" + b"x" * 60000),
    "large head": (431, START + HOST + b"X: " + b"a" * 33000 + b"\r\n\r\n"),
    "large head in many fields": (431, START + HOST + (b"X: " + b"a" * 400 + b"\r\n") * 90 + b"\r\n"),
    "many fields": (431, START + HOST + b"A: b\r\n" * 128 + b"\r\n"),
}


@pytest.mark.parametrize("name", SMUGGLING)
def test_broken_heads_are_refused_and_end_the_connection(box, name):
    status, data = SMUGGLING[name]
    with box.connect() as c:
        c.send((data + PIPED).replace(b"ID", box.id.encode()))
        r = c.response()
        assert r.status == status, (r.head, r.body)
        assert r.get("Connection") == "close" and r.get("X-Request-ID")
        assert set(r.json) == {"code", "message"} and r.json["message"]
        assert c.closed()
    assert box.state()["requests"] == 0, box.state()["lines"]


@pytest.mark.parametrize(
    "body",
    [b"x\r\n", b"-1\r\n", b"0x1\r\na\r\n", b"1 \r\na\r\n", b"1\na\r\n", b"1\r\nab\r\n", b"1\r\na\n", b"1;x\ny\r\na\r\n",
     b"FFFFFFFFFFFFFFFFF\r\n", b"0\r\nX : y\r\n\r\n", b"0\r\n\x00: y\r\n\r\n", b"0\r\n folded\r\n\r\n", b"\r\n"],
    ids=lambda b: b.decode("latin-1").encode("unicode_escape").decode(),
)  # fmt: skip
@pytest.mark.parametrize("apart", [False, True], ids=["at once", "later"])
def test_broken_chunks_are_refused_and_end_the_connection(box, body, apart):
    with box.connect() as c:
        head = box.head("POST", "/s/sink?tag=broken", "Transfer-Encoding: chunked")
        if apart:
            c.send(head)
            box.wait_active("broken")
        c.send((b"" if apart else head) + body + PIPED.replace(b"ID", box.id.encode()))
        r = c.response()
        assert r.status == 400 and r.get("Connection") == "close" and r.get("X-Request-ID"), r.head
        assert c.closed()
    wait_for("the backend is done", lambda: box.state()["active"] == [], 5)
    assert not [line for line in box.state()["lines"] if "smuggled" in line]


@pytest.mark.parametrize("at", ["API", "proxy"])
def test_what_is_at_the_limit_passes(box, at):
    target = f"/v1/sandboxes/{box.id}" if at == "API" else f"{box.prefix()}/"
    head = f"GET {target} HTTP/1.1\r\nHost: h\r\nOPEN-SANDBOX-API-KEY: {box.gw.key}\r\n"
    many = head + "A: b\r\n" * 126 + "\r\n"
    with box.connect() as c:
        assert c.send(many.encode()).response().status == 200
        if at == "proxy":  # libmicrohttpd has limits of its own
            big = head + "X: " + "a" * (32768 - len(head) - 7) + "\r\n\r\n"
            assert len(big) == 32768
            assert c.send(big.encode()).response().status == 200
            target = target + "x" * (8192 - len(target))
            assert c.send(f"GET {target} HTTP/1.1\r\nHost: h\r\n\r\n".encode()).response().status == 200


def test_a_refusal_is_seen_although_the_client_still_sends(box):
    """Closing with unread input would reset the connection, and the answer would be lost."""
    with box.connect() as c:
        c.send(b"GET / HTTP/1.1\r\nBad name: x\r\n\r\n" + b"x" * 500_000)
        assert c.response().status == 400


def test_an_answer_leaves_no_body_behind(box):
    """A body that is not read must not be taken for the next request."""
    inner = PIPED.replace(b"ID", box.id.encode())
    with box.connect() as c:
        c.send(box.head("POST", "/", f"Content-Length: {len(inner)}", port=NOBODY) + inner)
        assert c.response().status == 502
        c.send(box.head("GET", "/honest"))
        assert c.response().status == 200
    with box.connect() as c:
        c.send(box.head("POST", "/..", "Transfer-Encoding: chunked") + b"%x\r\n" % len(inner) + inner + b"\r\n0\r\n\r\n")
        assert c.response().status == 400
    lines = box.state()["lines"]
    assert [line for line in lines if "smuggled" in line] == [], lines


@pytest.mark.parametrize("target", ["/..", "/", "/unknown"])
def test_a_refused_expectation_ends_the_connection(box, target):
    """The client may or may not send its body: what follows cannot be told apart."""
    with box.connect() as c:
        head = box.head("POST", target, "Expect: 100-continue", "Content-Length: 100", port=NOBODY)
        c.send(head.replace(box.id.encode(), UNKNOWN.encode()) if target == "/unknown" else head)
        r = c.response()
        assert r.status in (400, 404, 502) and r.interim == [] and r.get("Connection") == "close"
        assert c.closed()


@pytest.mark.parametrize("n", [1, 40])
def test_a_slow_head_comes_through_while_others_work(box, n):
    """Slow clients cost nobody else anything."""
    slow = [box.connect() for _ in range(n)]
    try:
        for c in slow:
            c.send(box.head("GET", "/slow")[:-3])
        assert box.echo("GET", "/fast").target == "/fast"
        for c in slow:
            c.send(b"\n\r\n")
            assert c.response().status == 200
    finally:
        for c in slow:
            c.close()


# ---- keys ----


def test_require_key(make_box):
    box = make_box("[proxy]\nrequire_key = true\n")
    key = f"OPEN-SANDBOX-API-KEY: {box.gw.key}"
    for port in (PORT, AGENT):
        envelope(box.ask("GET", "/ping", port=port), 401, "MISSING_API_KEY")
        envelope(box.ask("GET", "/ping", key + "x", port=port), 401, "INVALID_API_KEY")
        assert box.ask("GET", "/ping", key, port=port).status == 200
    upgrade = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: eA==")
    assert box.ask("GET", "/s/ws", *upgrade).status == 401
    assert [line for line in box.state()["lines"] if "/s/ws" in line] == []


def test_without_a_key_the_proxy_answers(box):
    assert box.ask("GET", "/").status == 200
    assert box.ask("GET", "/", "OPEN-SANDBOX-API-KEY: wrong").status == 200  # contract 2: not looked at


def test_sandboxes_may_not_use_the_proxy(make_gateway, engine):
    """Design decision 10: a gateway on all addresses is within their reach."""
    gw = make_gateway()
    gw.config.write_text(gw.config.read_text().replace('host = "127.0.0.1"', 'host = "0.0.0.0"'))
    box = Box(gw.start()).start_backend()
    gateway_of = next(iter(engine.sandbox(box.id)["NetworkSettings"]["Networks"].values()))["Gateway"]
    url = f"http://{gateway_of}:{gw.port}{box.prefix()}/"
    probe = (
        "import urllib.request as u\ntry:\n r=u.urlopen('%s', timeout=1); print('open', r.status)\n"
        "except Exception as e:\n print('shut', e)\n" % url
    )
    box.upload("/tmp/probe.py", probe.encode())
    out = box.run("python3 /tmp/probe.py").decode()
    assert '"text":"shut' in out, out
    assert box.state()["requests"] == 0


# ---- start and end ----


def test_a_container_that_died_is_not_dialled(make_box):
    """Decision 8: its address may be another sandbox's by now."""
    box = make_box("[sandbox]\nsweep_interval_seconds = 1\n")
    with box.connect() as c:
        c.send(box.head("GET", "/s/sse?ms=60000"))
        c.head()
        c.chunk()
        status, _ = box.gw.engine.call("POST", f"/containers/sandbox-{box.id}/kill")
        assert status == 204
        assert c.closed()
    r = wait_for("the proxy knows", lambda: (r := box.ask("GET", "/")).status in (404, 409) and r, 5)
    assert set(r.json) == {"code", "message"}


def test_a_stream_survives_a_pause(make_box):
    box = make_box()
    with box.connect() as c:
        c.send(box.head("GET", "/s/sse?ms=50"))
        c.head()
        c.chunk()
        assert box.gw.request("POST", f"/v1/sandboxes/{box.id}/pause").status == 202
        assert box.gw.request("POST", f"/v1/sandboxes/{box.id}/resume").status == 202
        resumed = time.time()
        wait_for("it goes on", lambda: float(c.chunk()[1].split()[1]) > resumed, 5)


def test_streams_outlive_a_client_that_only_reads(box):
    """A response head that never comes, and one that never ends, wait at no cost to others."""
    waiting = [box.connect() for _ in range(30)]
    for i, c in enumerate(waiting):
        c.send(box.head("GET", f"/s/hang?tag=wait{i}"))
    for i in range(30):
        box.wait_active(f"wait{i}")
    assert box.gw.request("GET", "/health").status == 200 and box.echo("GET", "/x").target == "/x"
    for c in waiting:
        c.close()
    for i in range(30):
        box.wait_ended(f"wait{i}")


def test_a_request_for_a_sandbox_that_is_being_made_waits(make_gateway):
    gw = make_gateway().start()
    made = []
    maker = threading.Thread(target=lambda: made.append(Box(gw)))
    maker.start()
    try:
        record = wait_for("the record is there", lambda: gw.records() or made, 10)
        record = gw.records()[0]
        with Raw(("127.0.0.1", gw.port)) as c:
            path = f"/sandboxes/{record['id']}/proxy/{AGENT}/ping"
            c.send(f"GET {path} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
            r = c.response()
            assert r.status == 200, (r.head, r.body)
    finally:
        maker.join()


def test_a_stop_of_the_gateway_lets_answers_finish(make_box):
    box = make_box()
    with box.connect() as idle, box.connect() as busy:
        idle.send(box.head("GET", "/x"))
        assert idle.response().status == 200
        busy.send(box.head("GET", "/s/sse?n=10&ms=50&tag=last"))
        busy.head()
        stopper = threading.Thread(target=box.gw.stop)
        stopper.start()
        try:
            seen = 0
            while (part := busy.chunk()[1]) != b"":
                seen += part.count(b"data: ")
            assert seen == 10
            assert idle.closed()
        finally:
            stopper.join()
