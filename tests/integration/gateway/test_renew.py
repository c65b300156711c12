"""Renewal by access through the proxy (contract 8.3): workload traffic renews, probes and reads do not."""

import datetime
import http.client
import json
import socket

import pytest

from harness import wait_for

EXTRA = "[renew_intent]\nenabled = true\nmin_interval_seconds = 1\n"


def seconds_left(gw, sid):
    at = gw.request("GET", f"/v1/sandboxes/{sid}").json["expiresAt"]
    at = datetime.datetime.fromisoformat(at.replace("Z", "+00:00"))
    return (at - datetime.datetime.now(datetime.timezone.utc)).total_seconds()


def proxied(gw, sid, path, body=None, headers=None):
    conn = http.client.HTTPConnection("127.0.0.1", gw.port, timeout=20)
    conn.request("POST" if body else "GET", f"/v1/sandboxes/{sid}/proxy/44772{path}", body,
                 {"OPEN-SANDBOX-API-KEY": gw.key, **(headers or {})})
    reply = conn.getresponse()
    reply.read()
    return reply.status


@pytest.fixture
def renewing(make_gateway):
    return make_gateway(extra=EXTRA).start()


def create(gw, extend="600"):
    return gw.create(timeout=60, extensions={"access.renew.extend.seconds": extend}).json["id"]


def test_workload_traffic_renews(renewing):
    sid = create(renewing)
    assert proxied(renewing, sid, "/command", json.dumps({"command": "true"})) == 200
    wait_for("it is renewed", lambda: seconds_left(renewing, sid) > 500)


def test_probes_reads_and_the_skip_header_do_not(renewing):
    sid, used = create(renewing), create(renewing)
    body = json.dumps({"command": "true"})
    assert proxied(renewing, sid, "/ping") == 200
    assert proxied(renewing, sid, "/command", body, {"OpenSandbox-Access-Renew": "skip"}) == 200
    renewing.request("GET", f"/v1/sandboxes/{sid}")
    renewing.request("GET", f"/v1/sandboxes/{sid}/endpoints/44772")
    # a later access to another sandbox is through: earlier ones would be, too
    assert proxied(renewing, used, "/command", body) == 200
    wait_for("the other is renewed", lambda: seconds_left(renewing, used) > 500)
    assert seconds_left(renewing, sid) < 61


def test_without_the_extension_or_the_switch_nothing_renews(make_gateway):
    gw = make_gateway(extra=EXTRA).start()
    plain, used = gw.create(timeout=60).json["id"], create(gw)
    body = json.dumps({"command": "true"})
    assert proxied(gw, plain, "/command", body) == 200 and proxied(gw, used, "/command", body) == 200
    wait_for("the other is renewed", lambda: seconds_left(gw, used) > 500)
    assert seconds_left(gw, plain) < 61


def test_a_long_stream_goes_on_renewing(renewing):
    sid = create(renewing, "300")
    with socket.create_connection(("127.0.0.1", renewing.port), 20) as s:
        body = json.dumps({"command": "sleep 60"}).encode()
        s.sendall(f"POST /v1/sandboxes/{sid}/proxy/44772/command HTTP/1.1\r\nHost: x\r\nOPEN-SANDBOX-API-KEY: {renewing.key}\r\n"
                  f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        assert s.recv(65536).startswith(b"HTTP/1.1 200")
        wait_for("it is renewed", lambda: seconds_left(renewing, sid) > 250)
        soon = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=30)
        assert renewing.request("POST", f"/v1/sandboxes/{sid}/renew-expiration", {"expiresAt": soon.isoformat()}).status == 200
        wait_for("the open stream renews it again", lambda: seconds_left(renewing, sid) > 250)


def test_a_renewal_survives_kill_9(renewing):
    sid = create(renewing)
    assert proxied(renewing, sid, "/command", json.dumps({"command": "true"})) == 200
    wait_for("it is renewed", lambda: seconds_left(renewing, sid) > 500)
    renewing.kill9()
    renewing.start()
    assert seconds_left(renewing, sid) > 500


def test_traffic_renews_after_a_restart_too(renewing):
    """pains X11."""
    sid = create(renewing)
    renewing.kill9()
    renewing.start()
    assert seconds_left(renewing, sid) < 61
    assert proxied(renewing, sid, "/command", json.dumps({"command": "true"})) == 200
    wait_for("it is renewed", lambda: seconds_left(renewing, sid) > 500)


def test_a_busy_sandbox_lives_and_an_idle_one_dies(renewing):
    """Both have two seconds; one is used, the other is only looked at."""
    busy, idle = create(renewing), create(renewing)
    soon = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=2)
    for sid in (busy, idle):
        assert renewing.request("POST", f"/v1/sandboxes/{sid}/renew-expiration", {"expiresAt": soon.isoformat()}).status == 200
    assert proxied(renewing, busy, "/command", json.dumps({"command": "true"})) == 200

    def looked_at():
        if renewing.request("GET", f"/v1/sandboxes/{idle}").status == 404:
            return True
        proxied(renewing, idle, "/ping")
        return False

    wait_for("the idle one dies although it is pinged and read", looked_at)
    assert renewing.request("GET", f"/v1/sandboxes/{busy}").json["status"]["state"] == "Running"
