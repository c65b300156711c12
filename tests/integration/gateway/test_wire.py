"""The lifecycle API by raw HTTP: errors, limits, headers, lists."""

import json
import socket

import pytest

from harness import BASE, TAIL, Gateway, wait_for

UNKNOWN = "00000000-0000-4000-8000-000000000000"


def envelope(reply, status, code):
    assert reply.status == status, reply.raw
    assert set(reply.json) == {"code", "message"}, reply.raw
    assert reply.json["code"] == code and reply.json["message"]
    assert reply.getheader("X-Request-ID")


@pytest.mark.parametrize(
    "body,code",
    [
        (b"{", "SANDBOX::INVALID_PARAMETER"),
        (b"", "SANDBOX::INVALID_PARAMETER"),
        (b"[1]", "SANDBOX::INVALID_PARAMETER"),
        (b'{"image":{"uri":"x"},"entrypoint":"tail"}', "SANDBOX::INVALID_PARAMETER"),
        (b'{"image":{"uri":"x"},"entrypoint":["a"],"timeout":1}', "SANDBOX::INVALID_PARAMETER"),
        (b'{"image":{"uri":"x"},"entrypoint":["a"],"resourceLimits":{"memory":"lots"}}', "SANDBOX::INVALID_PARAMETER"),
        (b'{"image":{"uri":"x"},"entrypoint":["a"],"metadata":{"opensandbox.io/a":"b"}}', "SANDBOX::INVALID_METADATA_LABEL"),
        (b'{"image":{"uri":"\xff"},"entrypoint":["a"]}', "SANDBOX::INVALID_PARAMETER"),
        (b'{"image":{"uri":"UPPER CASE"},"entrypoint":["a"]}', "SANDBOX::INVALID_PARAMETER"),
    ],
)
def test_bad_create_bodies(shared, body, code):
    reply = shared.request("POST", "/v1/sandboxes", body)
    envelope(reply, 400, code)
    assert shared.records() == []


def test_body_limit_and_one_past_it(shared):
    limit = 1 << 20
    head = b'{"image":{"uri":" "},"entrypoint":["a"],"pad":"'
    exact = head + b"x" * (limit - len(head) - 2) + b'"}'
    envelope(shared.request("POST", "/v1/sandboxes", exact), 400, "SANDBOX::INVALID_PARAMETER")
    envelope(shared.request("POST", "/v1/sandboxes", exact + b" "), 413, "GENERAL::PAYLOAD_TOO_LARGE")


def test_an_entrypoint_that_does_not_exist(shared):
    reply = shared.create(entrypoint=["/nope"])
    envelope(reply, 400, "DOCKER::INVALID_ENTRYPOINT")
    assert "/nope" in reply.json["message"]
    assert shared.records() == [] and shared.engine.containers(shared.instance) == []


def test_unknown_image_leaves_nothing(shared):
    reply = shared.create(image="nosuch.invalid/no:tag")
    envelope(reply, 500, "DOCKER::SANDBOX_IMAGE_PULL_FAILED")
    assert "nosuch.invalid/no:tag" in reply.json["message"]
    assert shared.records() == [] and shared.engine.containers(shared.instance) == []


@pytest.mark.parametrize(
    "method,path",
    [
        ("GET", f"/v1/sandboxes/{UNKNOWN}"),
        ("DELETE", f"/v1/sandboxes/{UNKNOWN}"),
        ("POST", f"/v1/sandboxes/{UNKNOWN}/pause"),
        ("POST", f"/v1/sandboxes/{UNKNOWN}/resume"),
        ("GET", f"/v1/sandboxes/{UNKNOWN}/endpoints/44772"),
        ("GET", "/v1/sandboxes/not-an-id"),
    ],
)
def test_unknown_sandbox(shared, method, path):
    envelope(shared.request(method, path), 404, "DOCKER::SANDBOX_NOT_FOUND")


def test_keys(shared):
    envelope(shared.request("GET", "/v1/sandboxes", headers={"OPEN-SANDBOX-API-KEY": ""}), 401, "MISSING_API_KEY")
    envelope(shared.request("GET", "/v1/sandboxes", headers={"OPEN-SANDBOX-API-KEY": shared.key + "x"}), 401, "INVALID_API_KEY")
    # open paths are exact; what is unknown stays unknown to strangers
    wrong = {"OPEN-SANDBOX-API-KEY": "nope"}
    assert shared.request("GET", "/health", headers=wrong).json == {"status": "healthy"}
    assert shared.request("GET", "/version", headers=wrong).status == 200
    for path in ("/v1/sandboxes/..%2f..%2fetc", "/v1/sandboxes/a%00b", "/healthz", "/v1/health", "/docsfoo", "/nothing"):
        assert shared.request("GET", path, headers=wrong).status == 401, path
        assert shared.request("GET", path).status == 404, path


def test_bare_and_prefixed_routes(shared):
    assert shared.request("GET", "/sandboxes").status == 200
    assert shared.request("GET", "/v1/sandboxes/").status == 200
    reply = shared.request("PUT", "/v1/sandboxes")
    envelope(reply, 405, "GENERAL::METHOD_NOT_ALLOWED")
    assert reply.getheader("Allow") == "POST, GET"


def test_request_id_and_cors(shared):
    reply = shared.request("GET", "/v1/sandboxes", headers={"X-Request-ID": "abc", "Origin": "http://x.example"})
    assert reply.getheader("X-Request-ID") == "abc"
    assert reply.getheader("Access-Control-Allow-Origin") == "http://x.example"
    preflight = shared.request(
        "OPTIONS", "/v1/sandboxes", headers={"OPEN-SANDBOX-API-KEY": "", "Origin": "http://x.example", "Access-Control-Request-Method": "POST"},
    )
    assert preflight.status == 200 and preflight.raw == b"OK"


def test_telemetry_is_taken(shared):
    event = {"eventType": "sandbox.create", "createDurationMs": 5, "success": True, "sdkLanguage": "x"}
    reply = shared.request("POST", "/v1/metrics/events", event)
    assert reply.status == 204 and reply.raw == b""
    assert shared.request("POST", "/metrics/events", event).status == 404


@pytest.mark.parametrize("query", ["page=0", "page=x", "pageSize=0", "pageSize=201", "metadata=a", "metadata=%25zz%3D1"])
def test_bad_list_queries(shared, query):
    assert shared.request("GET", f"/v1/sandboxes?{query}").status == 400


def test_list_shape_and_filters(make_gateway):
    gw = make_gateway().start()
    ids = [gw.create(metadata={"n": str(i), "tag": "a_b"}).json["id"] for i in range(2)]
    page = gw.request("GET", "/v1/sandboxes?pageSize=1").json
    assert page["pagination"] == {"page": 1, "pageSize": 1, "totalItems": 2, "totalPages": 2, "hasNextPage": True}
    assert page["items"][0]["id"] == ids[1]
    assert gw.request("GET", "/v1/sandboxes?page=9").json["items"] == []
    # encoded once and twice (contract 4.3)
    for query in ("metadata=n%3D0%26tag%3Da_b", "metadata=n%253D0", "metadata=n%3D%2530"):
        reply = gw.request("GET", f"/v1/sandboxes?{query}")
        if query == "metadata=n%253D0":
            assert reply.status == 400  # a part without '='
        else:
            assert [i["id"] for i in reply.json["items"]] == [ids[0]], query
    gw.request("POST", f"/v1/sandboxes/{ids[0]}/pause")
    both = gw.request("GET", "/v1/sandboxes?state=RUNNING&state=nonsense").json
    assert [i["id"] for i in both["items"]] == [ids[1]]


def test_pause_twice_and_resume_running(shared):
    sid = shared.create().json["id"]
    try:
        envelope(shared.request("POST", f"/v1/sandboxes/{sid}/resume"), 409, "DOCKER::SANDBOX_NOT_PAUSED")
        first = shared.request("POST", f"/v1/sandboxes/{sid}/pause")
        assert first.status == 202 and first.raw == b"" and first.getheader("Content-Length") == "0"
        envelope(shared.request("POST", f"/v1/sandboxes/{sid}/pause"), 409, "DOCKER::SANDBOX_NOT_RUNNING")
    finally:
        assert shared.request("DELETE", f"/v1/sandboxes/{sid}").status == 204
    gone = shared.request("DELETE", f"/v1/sandboxes/{sid}")
    envelope(gone, 404, "DOCKER::SANDBOX_NOT_FOUND")
    assert "DELETED" in gone.json["message"]


def test_metrics_count_what_was_refused(shared):
    def counters():
        reply = shared.request("GET", "/metrics")
        assert reply.status == 200 and reply.getheader("Content-Type").startswith("text/plain")
        return dict(line.split() for line in reply.raw.decode().splitlines() if not line.startswith("#"))

    before = int(counters()["sandgate_requests_refused_total"])
    with socket.create_connection(("127.0.0.1", shared.port), 10) as s:
        s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert s.recv(100).startswith(b"HTTP/1.1 400")
    assert int(counters()["sandgate_requests_refused_total"]) == before + 1
    assert shared.request("GET", "/metrics", headers={"OPEN-SANDBOX-API-KEY": ""}).status == 401


def test_endpoints(shared):
    sid = shared.create().json["id"]
    try:
        agent = shared.request("GET", f"/v1/sandboxes/{sid}/endpoints/44772?use_server_proxy=false").json
        host, _, path = agent["endpoint"].partition("/")
        assert host.startswith("127.0.0.1:") and path == "proxy/44772"
        assert len(agent["headers"]["X-EXECD-ACCESS-TOKEN"]) == 64
        egress = shared.request("GET", f"/v1/sandboxes/{sid}/endpoints/18080").json
        assert egress == {"endpoint": f"{host}/proxy/18080"}
        for word, proxied in (("True", True), ("1", True), ("on", True), ("yes", True), ("no", False), ("0", False), ("F", False)):
            asked = shared.request("GET", f"/v1/sandboxes/{sid}/endpoints/3000?use_server_proxy={word}").json["endpoint"]
            assert ("/sandboxes/" in asked) == proxied, word
        for word in ("", "perhaps"):
            reply = shared.request("GET", f"/v1/sandboxes/{sid}/endpoints/3000?use_server_proxy={word}")
            envelope(reply, 400, "SANDBOX::INVALID_PARAMETER")
        for port in ("0", "65536", "x", "-1"):
            envelope(shared.request("GET", f"/v1/sandboxes/{sid}/endpoints/{port}"), 400, "DOCKER::INVALID_PORT")
        # a client elsewhere cannot reach what is published on loopback: the proxy form, with its own name and mount
        elsewhere = shared.request("GET", f"/v1/sandboxes/{sid}/endpoints/44772", headers={"Host": "box.example:80"})
        assert elsewhere.json["endpoint"] == f"box.example:80/v1/sandboxes/{sid}/proxy/44772"
        asked = shared.request("GET", f"/sandboxes/{sid}/endpoints/3000?use_server_proxy=true").json
        assert asked == {"endpoint": f"127.0.0.1:{shared.port}/sandboxes/{sid}/proxy/3000"}
        both = shared.request("GET", f"/v1/sandboxes/{sid}/endpoints/3000?use_server_proxy=true&expires=9999999999")
        envelope(both, 400, "SANDBOX::INVALID_PARAMETER")
    finally:
        shared.request("DELETE", f"/v1/sandboxes/{sid}")


@pytest.mark.parametrize("eip,direct,proxied", [
    (None, "box.example", "box.example:8080"),
    ("203.0.113.7", "203.0.113.7", "203.0.113.7"),
    ("https://sb.example.com:8443/x/", "sb.example.com", "sb.example.com:8443/x"),
])
def test_endpoints_of_a_published_agent(make_gateway, eip, direct, proxied):
    """pains L1: the host is the configured one, else the one that the client used."""
    gw = make_gateway(extra='[docker]\npublish_host = "0.0.0.0"\n[relay]\nenabled = true\nhost = "0.0.0.0"\n')
    if eip:
        gw.config.write_text(gw.config.read_text().replace("[server]\n", f'[server]\neip = "{eip}"\n'))
    gw.start()
    sid = gw.create().json["id"]
    published = gw.engine.sandbox(sid)["NetworkSettings"]["Ports"]["44772/tcp"][0]["HostPort"]

    def endpoint(port, query=""):
        path = f"/v1/sandboxes/{sid}/endpoints/{port}{query}"
        return gw.request("GET", path, headers={"Host": "box.example:8080"}).json["endpoint"]

    assert endpoint(44772) == f"{direct}:{published}/proxy/44772"
    assert endpoint(44772, "?use_server_proxy=true") == f"{proxied}/v1/sandboxes/{sid}/proxy/44772"
    host, _, relayed = endpoint(3000).partition(":")
    assert host == direct and int(relayed) > 0


def test_the_entrypoint_decides_the_end(shared):
    sid = shared.create(entrypoint=["sh", "-c", "exit 3"]).json["id"]
    try:
        record = wait_for("the end is seen", lambda: (lambda r: r if r["status"]["state"] == "Failed" else None)(
            shared.request("GET", f"/v1/sandboxes/{sid}").json))
        assert "code 3" in record["status"]["message"]
    finally:
        shared.request("DELETE", f"/v1/sandboxes/{sid}")


def test_malformed_http_does_not_hurt(shared):
    for garbage in (b"\x00" * 100, b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"POST /v1/sandboxes HTTP/1.1\r\nContent-Length: x\r\n\r\n",
                    b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", shared.port), 10) as s:
            try:
                s.sendall(garbage)
                s.shutdown(socket.SHUT_WR)
                while s.recv(65536):
                    pass
            except OSError:
                pass  # the server may hang up at any point
    assert shared.request("GET", "/health").status == 200


def test_expiry_removes_container_and_record(make_gateway):
    gw = make_gateway().start()
    sid = gw.create(timeout=60).json["id"]
    soon = gw.request("POST", f"/v1/sandboxes/{sid}/renew-expiration", {"expiresAt": "2999-01-01T00:00:00Z"})
    assert soon.json == {"expiresAt": "2999-01-01T00:00:00Z"}
    import datetime

    at = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(milliseconds=300)
    assert gw.request("POST", f"/v1/sandboxes/{sid}/renew-expiration", {"expiresAt": at.isoformat()}).status == 200
    wait_for("it is gone", lambda: gw.request("GET", f"/v1/sandboxes/{sid}").status == 404)
    assert "EXPIRED" in gw.request("GET", f"/v1/sandboxes/{sid}").json["message"]
    assert gw.engine.containers(gw.instance) == []


def test_open_mode_refuses_web_pages_and_other_names(make_gateway):
    gw = make_gateway()
    gw.config.write_text(gw.config.read_text().replace(f'api_key = "{gw.key}"\n', ""))
    gw.start(env={"OPENSANDBOX_INSECURE_SERVER": "YES"})
    assert gw.request("GET", "/v1/sandboxes").status == 200
    envelope(gw.request("GET", "/v1/sandboxes", headers={"Host": "evil.example"}), 403, "GENERAL::FORBIDDEN")
    envelope(gw.request("GET", "/v1/sandboxes", headers={"Origin": "http://evil.example"}), 403, "GENERAL::FORBIDDEN")
    # the sandboxes' ports as well, and an Origin too long to be read is no missing one
    for origin in ("http://evil.example", "http://" + "e" * 300):
        reply = gw.request("GET", f"/v1/sandboxes/{UNKNOWN}/proxy/80/", headers={"Origin": origin})
        envelope(reply, 403, "GENERAL::FORBIDDEN")
    assert gw.request("GET", f"/v1/sandboxes/{UNKNOWN}/proxy/80/", headers={"Origin": "http://localhost:3000"}).status == 404


def test_refuses_to_start_without_a_key(make_gateway):
    gw = make_gateway()
    gw.config.write_text(gw.config.read_text().replace(f'api_key = "{gw.key}"\n', ""))
    gw.start(wait=False)
    assert gw.wait_dead() == 1
    assert "OPENSANDBOX_INSECURE_SERVER=YES" in gw.log_text()
