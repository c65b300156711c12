"""Settings whose effect no other file shows: connections, how long an end is known, what is refused at start."""

import datetime
import socket

import pytest

from harness import BASE, TAIL, wait_for


def with_server(gw, line):
    gw.config.write_text(gw.config.read_text().replace("[server]\n", f"[server]\n{line}\n"))
    return gw


def ask(connection, port):
    connection.sendall(f"GET /health HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
    return connection.recv(65536)


def test_an_idle_connection_is_closed(make_gateway):
    gw = with_server(make_gateway(), "timeout_keep_alive = 1").start()
    with socket.create_connection(("127.0.0.1", gw.port), 20) as s:
        assert ask(s, gw.port).startswith(b"HTTP/1.1 200")
        assert s.recv(1) == b""  # the end, within the socket's deadline


def test_connections_beyond_the_limit_are_turned_away(make_gateway):
    gw = with_server(make_gateway(), "limit_concurrency = 4").start()
    held = [socket.create_connection(("127.0.0.1", gw.port), 20) for _ in range(4)]
    for s in held:
        assert ask(s, gw.port).startswith(b"HTTP/1.1 200")
    with socket.create_connection(("127.0.0.1", gw.port), 20) as s:
        assert s.recv(65536).startswith(b"HTTP/1.1 503")
    held.pop().close()
    wait_for("there is room again", lambda: gw.request("GET", "/health").status == 200)
    for s in held:
        s.close()


def test_a_create_that_says_nothing_of_its_time_gets_the_servers(make_gateway):
    """pains X4: what nobody ends does not live for ever, unless it was asked for."""
    gw = make_gateway(extra="[sandbox]\ndefault_timeout_seconds = 3600\n").start()
    body = {"image": {"uri": BASE}, "entrypoint": TAIL}
    made = gw.request("POST", "/v1/sandboxes", body).json
    at = [datetime.datetime.fromisoformat(made[k].replace("Z", "+00:00")) for k in ("createdAt", "expiresAt")]
    assert at[1] - at[0] == datetime.timedelta(hours=1)
    assert gw.renew(made["id"], 7200)[1] == 200
    assert "expiresAt" not in gw.request("POST", "/v1/sandboxes", {**body, "timeout": None}).json


def test_an_end_is_forgotten(make_gateway):
    gw = make_gateway(extra="[sandbox]\nkeep_ended_seconds = 0\nsweep_interval_seconds = 1\n").start()
    sid = gw.create().json["id"]
    assert gw.request("DELETE", f"/v1/sandboxes/{sid}").status == 204
    wait_for("its record is gone", lambda: gw.request("GET", f"/v1/sandboxes/{sid}?include=ended").status == 404)
    assert gw.state(sid) == f"Sandbox {sid} not found."


@pytest.mark.parametrize("text,key", [
    ('[docker]\npublish_host = "everywhere"\n', "docker.publish_host"),
    ('[docker]\nseccomp_profile = "/nosuch"\n', "docker.seccomp_profile"),
    ('[docker]\nsandbox_binds = ["x"]\n', "docker.sandbox_binds"),
    ('[relay]\nhost = "here"\n', "relay.host"),
    ('[log]\nlevel = "LOUD"\n', "log.level"),
    ('[runtime]\ntype = "kubernetes"\n', "runtime.type"),
    ('[tenants]\nprovider = "file"\n', "tenants.provider"),
])
def test_a_setting_that_cannot_be_kept_is_refused_at_start(make_gateway, text, key):
    gw = make_gateway(extra=text)
    gw.start(wait=False)
    assert gw.wait_dead() == 1
    assert key in gw.log_text().splitlines()[-1]
