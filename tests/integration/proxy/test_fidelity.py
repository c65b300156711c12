"""What goes through the proxy comes out as it went in (contract 8.1, pains 2.9)."""

import gzip
import hashlib
import json
import threading
import time

import pytest
from conftest import AGENT, CONTROL, PORT, resident
from harness import wait_for
from rawhttp import Echo, script

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


# ---- request line ----


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "/a%2Fb",
        "/a%2fb%25%20%zz%",
        "/%00%0d%0a",
        "//",
        "//x///y/",
        "/a;p=1;q/b;c",
        "/x?a&b=&=c",
        "/x?",
        "/?",
        "/x?y?z?",
        "/x?a=%2E%2E/../..&b=+%20",
        "/...",
        "/.hidden/..also",
        "/x/%2e%2ea",
        "/~!$&'()*+,;=:@-._",
        "/|[]{}^\"<>\\`",
        "/zażółć".encode().decode("latin-1"),
        "/" + "a" * 8000,
    ],
    ids=lambda t: t[:24].encode("unicode_escape").decode(),
)
@pytest.mark.parametrize("mount", ["", "/v1"])
def test_target_goes_through_byte_for_byte(box, target, mount):
    assert box.echo("GET", target, mount=mount).line == f"GET {target} HTTP/1.1"


@pytest.mark.parametrize("rest,seen", [("", "/"), ("?", "/?"), ("?a&b=&=c", "/?a&b=&=c")])
def test_no_path_becomes_a_slash(box, rest, seen):
    assert box.echo("GET", rest).target == seen


def test_absolute_form_reaches_the_sandbox_as_a_path(box):
    with box.connect() as c:
        url = f"http://{box.gw.domain}{box.prefix()}/a%2Fb?c"
        c.send(f"GET {url} HTTP/1.1\r\nHost: {box.gw.domain}\r\n\r\n".encode())
        assert Echo(c.response().json).line == "GET /a%2Fb?c HTTP/1.1"


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "brew"])
def test_methods(box, method):
    seen = box.echo(method, "/m", body=b"with a body")
    assert seen.line == f"{method} /m HTTP/1.1" and seen.body == b"with a body"
    assert seen.all("Content-Length") == ["11"]
    assert box.echo(method, "/m").all("Content-Length") == []


def test_head_keeps_the_length_and_has_no_body(box):
    with box.connect() as c:
        c.send(box.head("HEAD", "/h"))
        r = c.response("HEAD")
        assert r.status == 200 and r.get("Content-Length") == "1234"
        c.send(box.head("GET", "/next"))  # nothing of a body is left on the connection
        assert Echo(c.response().json).line == "GET /next HTTP/1.1"


def test_options_of_a_browser_reaches_the_sandbox(box):
    preflight = ("Origin: http://x.example", "Access-Control-Request-Method: PUT")
    assert box.echo("OPTIONS", "/o", *preflight).get("Origin") == "http://x.example"


# ---- request fields ----


def test_order_letters_and_repeats_of_fields_stay(box):
    sent = [("X-b", "2"), ("accept", "*/*"), ("x-A", "1"), ("X-b", "3"), ("ETag", 'W/"q, r"'), ("X-Empty", "")]
    sent += [("X-Latin", "\xe9\xff"), ("X-Blank", "a  b\tc")]
    with box.connect() as c:
        c.send(box.head("GET", "/f", *(f"{n}: {v}" for n, v in sent)))
        head = Echo(c.response().json).head.decode("latin-1")
    lines = [line for line in head.split("\r\n") if line.lower().startswith(("x-", "accept", "etag"))]
    assert lines[: len(sent)] == [f"{n}: {v}" for n, v in sent]
    rest = lines[len(sent) :]
    assert all(line.startswith("X-Forwarded-") for line in rest), rest


def test_nothing_is_added_but_forwarding(box):
    names = [n for n, _ in box.echo("GET", "/f").fields]
    assert names == ["Host", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host"]


def test_host_is_the_target(box):
    assert box.echo("GET", "/").all("Host") == [f"{box.ip}:{PORT}"]


@pytest.mark.parametrize("connection", ["close, X-One", "keep-alive,x-one , ,X-TWO", "X-One\r\nConnection: x-two"])
def test_hop_by_hop_fields_end_here(box, connection):
    seen = box.echo(
        "GET", "/", f"Connection: {connection}", "X-One: 1", "X-Two: 2", "Keep-Alive: timeout=5", "TE: gzip",
        "Proxy-Authorization: Basic eA==", "Proxy-Connection: keep-alive", "Trailer: X-T", "X-Stays: 1",
    )  # fmt: skip
    left = {n.lower() for n, _ in seen.fields}
    gone = {"keep-alive", "te", "proxy-authorization", "proxy-connection", "trailer", "x-one"}
    gone |= {"x-two"} if "two" in connection.lower() else set()
    assert not left & gone and "x-stays" in left
    assert ("x-two" in left) == ("two" not in connection.lower())
    assert not left & {"connection"}


def test_connection_cannot_name_away_framing_or_host(box):
    seen = box.echo("POST", "/", "Connection: content-length, host, x-forwarded-for", body=b"abc")
    assert seen.body == b"abc" and seen.get("Host") and seen.get("X-Forwarded-For") == "127.0.0.1"


def test_te_trailers_goes_on(box):
    seen = box.echo("GET", "/", "TE: trailers, deflate;q=0.5", "Connection: TE")
    assert seen.all("TE") == ["trailers"] and seen.all("Connection") == ["TE"]


def test_h2c_upgrade_ends_here(box):
    seen = box.echo("GET", "/", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk")
    assert not {n.lower() for n, _ in seen.fields} & {"upgrade", "http2-settings", "connection"}


def test_key_and_login_reach_no_port_of_the_user(box):
    key = box.gw.key
    fields = (
        f"OPEN-SANDBOX-API-KEY: {key}", f"open-sandbox-api-key: {key}", f"X-EXECD-ACCESS-TOKEN: {box.token}",
        "Authorization: Bearer t", "Cookie: a=b", "cookie: c=d", "OpenSandbox-Secure-Access: s",
        "OpenSandbox-Access-Renew: skip", "OPENSANDBOX-EGRESS-AUTH: mine",
    )  # fmt: skip
    seen = box.echo("GET", "/", *fields)
    assert [n for n, _ in seen.fields if not n.startswith("X-Forwarded")] == ["Host", "OPENSANDBOX-EGRESS-AUTH"]
    assert key.encode() not in seen.head and box.token.encode() not in seen.head


def test_pass_login_lets_authorization_and_cookie_through(make_box):
    box = make_box("[proxy]\npass_login = true\n")
    fields = ("Authorization: Bearer t", "Cookie: a=b", "Cookie: c=d", f"OPEN-SANDBOX-API-KEY: {box.gw.key}")
    seen = box.echo("GET", "/", *fields, f"X-EXECD-ACCESS-TOKEN: {box.token}")
    assert seen.all("Authorization") == ["Bearer t"] and seen.all("Cookie") == ["a=b", "c=d"]
    assert not seen.all("OPEN-SANDBOX-API-KEY") and not seen.all("X-EXECD-ACCESS-TOKEN")


def test_the_agents_token_goes_to_the_agents_port_only(box):
    token, key = f"X-EXECD-ACCESS-TOKEN: {box.token}", f"OPEN-SANDBOX-API-KEY: {box.gw.key}"
    info = "/files/info?path=/etc/hostname"
    assert box.ask("GET", info, port=AGENT).status == 401
    assert box.ask("GET", info, token, port=AGENT).status == 200
    assert box.ask("GET", info, key, port=AGENT).status == 200  # the gateway adds it for a valid key
    assert box.ask("GET", info, key + "x", port=AGENT).status == 401
    assert box.ask("GET", info, token + "x", key, port=AGENT).status == 401  # the caller's own is not replaced


def test_the_agents_own_proxy_passes_neither_token_nor_key_on(box):
    fields = (f"X-EXECD-ACCESS-TOKEN: {box.token}", f"OPEN-SANDBOX-API-KEY: {box.gw.key}")
    seen = box.echo("GET", f"/proxy/{PORT}/a%2Fb?c=", *fields, port=AGENT)
    assert seen.line == "GET /a%2Fb?c= HTTP/1.1"
    assert box.token.encode() not in seen.head and box.gw.key.encode() not in seen.head


def test_forwarding_is_rebuilt(box):
    forged = ("Forwarded: for=1.2.3.4", "X-Forwarded-For: 1.2.3.4", "X-Forwarded-Host: evil", "X-Forwarded-Port: 1")
    forged += ("X-Forwarded-Proto: https", "X-Real-IP: 1.2.3.4", "X-Forwarded-Prefix: /x", "X-Sandgate-Peer: 1.2.3.4")
    seen = box.echo("GET", "/", *forged)
    assert seen.all("X-Forwarded-For") == ["127.0.0.1"]
    assert seen.all("X-Forwarded-Host") == [box.gw.domain]
    assert seen.all("X-Forwarded-Proto") == ["http"]
    for name in ("Forwarded", "X-Forwarded-Port", "X-Real-IP", "X-Forwarded-Prefix", "X-Sandgate-Peer"):
        assert seen.all(name) == [], name


def test_request_id(box):
    with_id = box.ask("GET", "/", "X-Request-ID: trace-1")
    assert with_id.all("X-Request-ID") == ["trace-1"]
    assert Echo(with_id.json).all("X-Request-ID") == ["trace-1"]
    without = box.ask("GET", "/")
    assert len(without.get("X-Request-ID")) == 32 and Echo(without.json).all("X-Request-ID") == []
    own = b"HTTP/1.1 200 OK\r\nx-request-id: theirs\r\nX-Request-ID: too\r\nContent-Length: 0\r\n\r\n"
    assert box.scripted(own, fields=["X-Request-ID: mine"]).all("X-Request-ID") == ["mine"]


# ---- request bodies ----


def test_chunked_request_with_extensions_and_trailers(box):
    body = b'5;x="y"\r\nhello\r\n0001\r\n \r\nA\r\n0123456789\r\n0;last\r\nX-Sum: 1\r\nX-Sum: 2\r\n\r\n'
    seen = box.echo("POST", "/", "Transfer-Encoding: chunked", "Trailer: X-Sum", body=body)
    assert seen.body == body and seen.all("Trailer") == ["X-Sum"] and seen.all("Content-Length") == []


def test_chunked_request_byte_by_byte(box):
    body = b"3\r\nabc\r\n0\r\nT: 1\r\n\r\n"
    with box.connect() as c:
        for byte in box.head("PUT", "/slow", "Transfer-Encoding: chunked") + body:
            c.send(bytes([byte]))
        assert Echo(c.response().json).body == body


def test_expect_continue_comes_from_the_backend(box):
    with box.connect() as c:
        c.send(box.head("POST", "/x", "Expect: 100-continue", "Content-Length: 3"))
        assert c.until(b"\r\n\r\n").startswith(b"HTTP/1.1 100 ")  # before a byte of the body was sent
        c.send(b"abc")
        seen = Echo(c.response().json)
        assert seen.body == b"abc" and seen.get("Expect") == "100-continue"


def test_refused_expectation(box):
    no = b"HTTP/1.1 417 No\r\nContent-Length: 2\r\n\r\nno"
    with box.connect() as c:
        c.send(box.head("POST", script(no, early=1), "Expect: 100-continue", "Content-Length: 3"))
        r = c.response()
        assert r.status == 417 and r.body == b"no" and r.interim == []
        assert c.closed()  # nobody can tell whether the body comes


def test_early_response_passes_while_the_body_is_under_way(box):
    no = b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno"
    with box.connect() as c:
        c.send(box.head("POST", script(no, early=1), "Content-Length: 1000000") + b"x" * 1000)
        r = c.response()
        assert r.status == 413 and r.body == b"no"
        assert c.closed()  # what is left of the body is not read as a request


def test_large_bodies_both_ways(box):
    data = bytes(range(256)) * (64 << 12)  # 64 MiB
    with box.connect() as c:
        c.send(box.head("PUT", "/s/sink", f"Content-Length: {len(data)}"))
        sender = threading.Thread(target=c.send, args=(data,))
        sender.start()
        assert c.response().json == {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        sender.join()
        c.send(box.head("GET", f"/s/huge?n={len(data)}"))
        r = c.head()
        digest, left = hashlib.sha256(c.buf), len(data) - len(c.buf)
        while left:
            piece = c.sock.recv(min(left, 1 << 20))
            digest.update(piece)
            left -= len(piece)
    block = bytes(i * 7 & 255 for i in range(1 << 8)) * (1 << 12)
    assert r.get("Content-Length") == str(len(data))
    assert digest.hexdigest() == hashlib.sha256(block * (len(data) // len(block))).hexdigest()


def sent_until_full(c, data):
    """Sends until nothing is taken for half a second."""
    c.sock.settimeout(0.5)
    total = 0
    try:
        while total < 1 << 28:
            total += c.sock.send(data)
    except TimeoutError:
        pass
    return total


def test_a_backend_that_does_not_read_holds_the_client_back(box):
    before = resident(box.gw)
    with box.connect() as c:
        c.send(box.head("POST", "/s/stall?tag=stalled", f"Content-Length: {1 << 30}"))
        box.wait_active("stalled")
        assert sent_until_full(c, b"x" * (1 << 20)) < 64 << 20
        assert resident(box.gw) - before < 2048
        c.reset()
        assert box.wait_ended("stalled", 1)


def test_a_client_that_does_not_read_holds_the_backend_back(box):
    before = resident(box.gw)
    with box.connect(receive=65536) as c:
        c.send(box.head("GET", f"/s/huge?tag=huge&n={1 << 30}"))
        c.until(b"\r\n\r\n")
        with pytest.raises(AssertionError):
            box.wait_ended("huge", 0.5)
        assert resident(box.gw) - before < 2048
    box.wait_ended("huge", 1)


# ---- responses ----


def added(response):
    """Fields that the gateway may add."""
    return [(n, v) for n, v in response.fields if n != "X-Request-ID"]


RESPONSES = {
    "cookies": b"HTTP/1.1 200 OK\r\nSet-Cookie: a=1; Path=/\r\nset-cookie: b=2\r\nX: y\r\nSet-Cookie: c=3, d\r\n"
    b"Content-Length: 2\r\n\r\nok",
    "repeated": b"HTTP/1.1 200 OK\r\nDate: Mon, 01 Jan 2001 00:00:00 GMT\r\nServer: mine/1\r\nVary: A\r\nVary: B\r\n"
    b"WWW-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n",
    "reason": b"HTTP/1.1 418 I'm a \xe9 teapot\r\nContent-Length: 0\r\n\r\n",
    "no reason": b"HTTP/1.1 299 \r\nContent-Length: 0\r\n\r\n",
    "odd status": b"HTTP/1.1 799 Odd\r\nContent-Length: 0\r\n\r\n",
    "gzip": b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
    % len(gzip.compress(b"z" * 999, mtime=0))
    + gzip.compress(b"z" * 999, mtime=0),
    "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n007;e=1\r\nbcdefgh\r\nC\r\n"
    b"0123456789ab\r\n0\r\n\r\n",
    "trailers": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n2\r\nok\r\n0\r\n"
    b"X-Sum: 1\r\nX-Other: 2\r\n\r\n",
    "204": b"HTTP/1.1 204 No Content\r\nX-A: b\r\n\r\n",
    "304": b'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\nContent-Length: 77\r\n\r\n',
    "error with body": b"HTTP/1.1 500 Oh\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nbad",
}


@pytest.mark.parametrize("piece", [0, 7], ids=["whole", "in pieces"])
@pytest.mark.parametrize("name", RESPONSES)
def test_response_is_exact(box, name, piece):
    said = RESPONSES[name]
    head, _, body = said.partition(b"\r\n\r\n")
    with box.connect() as c:
        c.send(box.head("GET", script(said, **({"piece": piece} if piece else {}))))
        r = c.response()
        lines = r.head[:-4].split(b"\r\n")
        assert lines[0] == head.split(b"\r\n")[0]
        assert [n for n in lines[1:] if not n.startswith(b"X-Request-ID: ")] == head.split(b"\r\n")[1:]
        raw = r.raw if not r.trailers else r.raw + r.trailers
        assert raw == (body if r.get("Transfer-Encoding") is None else body[:-2])
        c.send(box.head("GET", "/next"))  # framing was right: the connection goes on
        assert c.response().status == 200


def test_response_without_a_length_ends_with_the_connection(box):
    with box.connect() as c:
        c.send(box.head("GET", script(b"HTTP/1.1 200 OK\r\nX-A: 1\r\n\r\nto the end", close=1)))
        r = c.response()
        assert r.body == b"to the end" and r.get("Connection") == "close" and r.get("X-A") == "1"


def test_http_1_0_backend(box):
    with box.connect() as c:
        c.send(box.head("GET", script(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", close=1)))
        r = c.response()
        assert r.head.startswith(b"HTTP/1.1 200 OK\r\n") and r.body == b"ok"
        c.send(box.head("GET", "/next"))
        assert c.response().status == 200


def test_interim_responses_pass(box):
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nLink: </b>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n"
    r = box.scripted(hints + OK)
    assert [i.head for i in r.interim] == [
        b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nLink: </b>\r\n\r\n",
        b"HTTP/1.1 102 Processing\r\n\r\n",
    ]
    assert r.status == 200 and r.body == b"ok"


def test_interim_response_comes_before_the_final_one_is_said(box):
    with box.connect() as c:
        c.send(box.head("GET", script(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", hold=1)))
        assert c.until(b"\r\n\r\n").startswith(b"HTTP/1.1 103 ")


def test_hop_by_hop_fields_of_a_response_end_here(box):
    said = (
        b"HTTP/1.1 200 OK\r\nConnection: X-Secret, keep-alive\r\nConnection: x-other\r\nX-Secret: 1\r\nX-Other: 2\r\n"
        b"Keep-Alive: timeout=9\r\nProxy-Authenticate: Basic\r\nUpgrade: h2c\r\nX-Stays: 3\r\nContent-Length: 2\r\n\r\nok"
    )
    r = box.scripted(said)
    assert added(r) == [("X-Stays", "3"), ("Content-Length", "2")] and r.body == b"ok"


def test_a_204_with_framing_loses_it(box):
    with box.connect() as c:
        c.send(box.head("GET", script(b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n")))
        assert added(c.response()) == []
        c.send(box.head("GET", "/next"))
        assert c.response().status == 200


@pytest.mark.parametrize("mount", ["", "/v1"])
@pytest.mark.parametrize(
    "location,local",
    [
        ("/", True), ("/a%2Fb?c=/d#e", True), ("//host/x", False), ("http://h/x", False), ("https://h:1/", False),
        ("relative/x", False), ("../x", False), ("?q", False), ("", False),
    ],
)  # fmt: skip
def test_location(box, mount, location, local):
    said = f"HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Location: /c\r\nContent-Length: 0\r\n\r\n".encode()
    r = box.ask("GET", script(said), mount=mount)
    assert r.all("Location") == [(box.prefix(mount=mount) if local else "") + location]
    assert r.all("Content-Location") == ["/c"]


def test_events_pass_at_once(box):
    with box.connect() as c:
        c.send(box.head("GET", "/s/sse?n=20&ms=50"))
        assert c.head().get("Transfer-Encoding") == "chunked"
        late = []
        for _ in range(20):
            _, data = c.chunk()
            late.append(time.time() - float(data.split()[1]))  # the sandbox has our clock
        assert sorted(late)[10] < 0.05, late


def test_http_1_0_client(box):
    with box.connect() as c:
        c.send(f"GET {box.prefix()}/old HTTP/1.0\r\n\r\n".encode())
        r = c.response()
        assert r.status == 200 and Echo(r.json).get("Host") == f"{box.ip}:{PORT}"
        assert c.closed()


def test_http_1_0_client_that_keeps_its_connection(box):
    with box.connect() as c:
        for _ in range(3):
            c.send(f"GET {box.prefix()}/old HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".encode())
            r = c.response()
            assert r.status == 200 and r.all("Connection") == ["keep-alive"]


def test_http_1_0_client_of_the_agent(box):
    token = f"X-EXECD-ACCESS-TOKEN: {box.token}"
    body = json.dumps({"command": "seq 1 3"})
    fields = f"{token}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    with box.connect() as c:
        c.send(f"POST {box.prefix(AGENT)}/command HTTP/1.0\r\n{fields}\r\n\r\n{body}".encode())
        r = c.response()
        assert r.status == 200 and r.get("Transfer-Encoding") is None and b"execution_complete" in r.body


# ---- aborts ----


@pytest.mark.parametrize("script_", ["endless", "hang", "sse", "stall"])
def test_a_client_that_leaves_takes_the_backend_connection_along(box, script_):
    with box.connect() as c:
        c.send(box.head("GET", f"/s/{script_}?ms=60000&tag={script_}"))
        box.wait_active(script_)
        if script_ in ("endless", "sse"):
            c.head()
            c.chunk()
    box.wait_ended(script_, 1)


def test_a_client_that_leaves_within_its_body(box):
    with box.connect() as c:
        c.send(box.head("POST", "/s/sink?tag=half", "Content-Length: 1000") + b"x" * 10)
        box.wait_active("half")
    assert box.wait_ended("half", 1) == "closed"


def test_a_client_that_leaves_a_response_that_it_did_not_read(box):
    with box.connect(receive=4096) as c:
        c.send(box.head("GET", "/s/endless?tag=full"))
        box.wait_active("full")
        c.until(b"\r\n\r\n")
    box.wait_ended("full", 1)


def test_many_aborts_leave_nothing(box):
    before = wait_for("idle connections only", lambda: (s := box.state())["active"] == [] and s, 5)["open"]
    for _ in range(100):
        with box.connect() as c:
            c.send(box.head("GET", "/s/endless"))
            c.head()
    wait_for("no connection more than before", lambda: box.state()["open"] <= before, 5)


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize(
    "framing,half",
    [
        (b"Content-Length: 100", b"half"),
        (b"Transfer-Encoding: chunked", b"4\r\nhalf\r\n"),
        (b"Transfer-Encoding: chunked", b"9\r\nhalf"),
        (b"X-Until: close", b"half"),
    ],
    ids=["length", "chunks", "within a chunk", "until close"],
)
def test_a_backend_that_leaves_within_its_body_cuts_the_client(box, framing, half, how):
    with box.connect() as c:
        said = b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n\r\n" + half
        c.send(box.head("GET", script(said, hold=1, tag="cut")))
        c.until(b"half")
        box.wait_active("cut")
        start = time.monotonic()
        box.cut("cut", how)
        if framing.endswith(b"close") and how == "reset":
            with pytest.raises(ConnectionResetError):  # a clean end would say that this was all
                c.more()
        else:
            c.buf = b""
            assert c.closed()
        assert time.monotonic() - start < 1


# ---- one connection, several destinations ----


def test_one_connection_mixes_api_and_proxy(box):
    with box.connect() as c:
        for _ in range(3):
            c.send(f"GET /v1/sandboxes/{box.id} HTTP/1.1\r\nHost: x\r\nOPEN-SANDBOX-API-KEY: {box.gw.key}\r\n\r\n".encode())
            assert c.response().json["id"] == box.id
            c.send(box.head("POST", "/p", "Content-Length: 2") + b"hi")
            assert Echo(c.response().json).body == b"hi"
            c.send(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert c.response().json == {"status": "healthy"}
            c.send(box.head("GET", "/x", port=1))
            assert c.response().status == 502


def test_pipelined_requests_are_answered_in_order(box):
    get = f"GET /v1/sandboxes/{box.id} HTTP/1.1\r\nHost: x\r\nOPEN-SANDBOX-API-KEY: {box.gw.key}\r\n\r\n".encode()
    batch = b""
    for i in range(20):
        batch += box.head("GET", f"/n{i}") + get + box.head("POST", f"/m{i}", "Content-Length: 3") + b"abc"
        batch += box.head("POST", f"/c{i}", "Transfer-Encoding: chunked") + b"1\r\nx\r\n0\r\n\r\n"
    with box.connect() as c:
        c.send(batch)
        for i in range(20):
            assert Echo(c.response().json).line == f"GET /n{i} HTTP/1.1"
            assert c.response().json["id"] == box.id
            assert Echo(c.response().json).body == b"abc"
            assert Echo(c.response().json).body == b"1\r\nx\r\n0\r\n\r\n"


def test_a_pipelined_request_waits_for_the_response_before_it(box):
    with box.connect() as c:
        c.send(box.head("GET", "/s/sse?n=3&ms=50") + box.head("GET", "/after"))
        assert c.response().body.count(b"data: ") == 3
        assert Echo(c.response().json).target == "/after"


def test_backend_connections_are_kept(box):
    seen = [box.echo("GET", "/") for _ in range(5)]
    assert len({e.conn for e in seen}) == 1 and seen[-1].nth == seen[0].nth + 4


def test_two_clients_never_share_a_busy_backend_connection(box):
    with box.connect() as a, box.connect() as b:
        a.send(box.head("GET", "/s/hang?tag=busy"))
        box.wait_active("busy")
        b.send(box.head("GET", "/free"))
        assert b.response().status == 200


def test_a_kept_connection_that_was_closed_is_noticed(box):
    for i in range(5):
        assert box.scripted(OK, close=1, tag=f"kept{i}").body == b"ok"
        box.wait_connection_closed(f"kept{i}")
        assert box.echo("POST", "/again", body=b"x").body == b"x"


def test_a_request_that_may_be_repeated_survives_a_race_with_the_close(box):
    for _ in range(20):
        assert box.scripted(OK, close=1).body == b"ok"
        assert box.echo("GET", "/again").target == "/again"


def test_other_port_of_the_same_sandbox(box):
    r = box.ask("GET", "/", port=CONTROL)
    assert r.status == 200 and json.loads(r.body)["accepted"]
