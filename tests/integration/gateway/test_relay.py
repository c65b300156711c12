"""Relay mode: TCP ports of the gateway that lead to ports of sandboxes, the same ones over a restart."""

import hashlib
import os
import socket
import threading

import pytest

from harness import BASE, wait_for

EXTRA = "[relay]\nenabled = true\n"
# Echoes what it gets until the end, then says so and closes: half-close has to pass.
ECHO = r"""
import socket, threading
def serve(c):
    while data := c.recv(65536):
        c.sendall(data)
    c.sendall(b"END")
    c.close()
s = socket.create_server(("0.0.0.0", 7000), backlog=128)
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
"""


@pytest.fixture
def relaying(make_gateway):
    gw = make_gateway(extra=EXTRA).start()
    gw.sid = gw.create(entrypoint=["python3", "-c", ECHO]).json["id"]
    gw.relay = address(gw, gw.sid, 7000)
    wait_for("the backend echoes", lambda: talk(gw.relay, b"x") == b"xEND")
    return gw


def address(gw, sid, port):
    reply = gw.request("GET", f"/v1/sandboxes/{sid}/endpoints/{port}")
    assert reply.status == 200, reply.raw
    host, _, number = reply.json["endpoint"].partition(":")
    assert host == "127.0.0.1" and number.isdigit(), reply.json
    return host, int(number)


def talk(where, data):
    """All that comes back for data, sent whole and then half-closed."""
    back = b""
    try:
        with socket.create_connection(where, 20) as s:
            def send():
                try:
                    s.sendall(data)
                    s.shutdown(socket.SHUT_WR)
                except OSError:
                    pass  # the other side hung up first: what comes back tells

            sender = threading.Thread(target=send)
            sender.start()
            while part := s.recv(1 << 16):
                back += part
            sender.join(20)
    except OSError:
        pass
    return back


def refused(where):
    try:
        socket.create_connection(where, 5).close()
    except ConnectionRefusedError:
        return True
    return False


def test_bytes_pass_both_ways_and_half_close_too(relaying):
    data = os.urandom(3 << 20)
    back = talk(relaying.relay, data)
    assert len(back) == len(data) + 3 and hashlib.sha256(back[:-3]).digest() == hashlib.sha256(data).digest()


def test_the_port_is_stable(relaying):
    assert address(relaying, relaying.sid, 7000) == relaying.relay
    relaying.kill9()
    relaying.start()
    assert address(relaying, relaying.sid, 7000) == relaying.relay
    assert talk(relaying.relay, b"again") == b"againEND"


def test_many_askers_get_one_port(relaying):
    import concurrent.futures

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        found = set(pool.map(lambda _: address(relaying, relaying.sid, 7001), range(16)))
    assert len(found) == 1


def test_the_agent_and_the_proxy_form_stay_what_they_are(relaying):
    agent = relaying.request("GET", f"/v1/sandboxes/{relaying.sid}/endpoints/44772").json["endpoint"]
    assert agent.endswith("/proxy/44772")
    proxied = relaying.request("GET", f"/v1/sandboxes/{relaying.sid}/endpoints/7000?use_server_proxy=true").json
    assert proxied["endpoint"] == f"{relaying.domain}/v1/sandboxes/{relaying.sid}/proxy/7000"
    secure = relaying.create(secureAccess=True).json["id"]
    closed = relaying.request("GET", f"/v1/sandboxes/{secure}/endpoints/7000").json["endpoint"]
    assert "/proxy/7000" in closed


def test_nothing_behind_is_a_closed_connection(relaying):
    assert talk(address(relaying, relaying.sid, 7999), b"x") == b""
    relaying.request("POST", f"/v1/sandboxes/{relaying.sid}/pause")
    assert talk(relaying.relay, b"x") == b""
    relaying.request("POST", f"/v1/sandboxes/{relaying.sid}/resume")
    wait_for("it goes on", lambda: talk(relaying.relay, b"x") == b"xEND")


def test_a_deleted_sandbox_takes_its_ports_and_connections_along(relaying):
    with socket.create_connection(relaying.relay, 20) as s:
        s.sendall(b"hello")
        assert s.recv(5) == b"hello"
        assert relaying.request("DELETE", f"/v1/sandboxes/{relaying.sid}").status == 204
        s.settimeout(20)
        try:
            assert s.recv(1) == b""
        except ConnectionResetError:
            pass

    wait_for("nobody listens any more", lambda: refused(relaying.relay))
    reply = relaying.request("GET", f"/v1/sandboxes/{relaying.sid}/endpoints/7000")
    assert reply.status == 404


def test_one_that_has_ended_gets_no_listener(relaying):
    sid = relaying.create(entrypoint=["sh", "-c", "exit 0"]).json["id"]
    state = lambda: relaying.request("GET", f"/v1/sandboxes/{sid}").json["status"]["state"]
    wait_for("it has ended", lambda: state() == "Terminated")
    late = address(relaying, sid, 7000)
    assert talk(relaying.relay, b"x") == b"xEND"  # the loop has been through what it was told
    assert refused(late)
    relaying.kill9()
    relaying.start()
    assert talk(relaying.relay, b"x") == b"xEND"
    assert refused(late)


def test_aborted_connections_leave_nothing(relaying):
    def fds():
        return len(os.listdir(f"/proc/{relaying.process.pid}/fd"))

    before = fds()
    for _ in range(50):
        streams = [socket.create_connection(relaying.relay, 20) for _ in range(4)]
        for s in streams:
            s.sendall(b"x" * 1000)
            s.close()
    wait_for("no descriptor is left", lambda: fds() <= before + 1)


def test_a_sandbox_has_so_many_and_no_more(relaying):
    """One port is taken by the fixture; what is on record stays available."""
    for port in range(20000, 20063):
        address(relaying, relaying.sid, port)
    path = f"/v1/sandboxes/{relaying.sid}/endpoints/"
    reply = relaying.request("GET", path + "20063")
    assert reply.status == 429 and reply.json["code"] == "GENERAL::LIMIT_REACHED" and "64" in reply.json["message"]
    assert address(relaying, relaying.sid, 20062) and address(relaying, relaying.sid, 7000) == relaying.relay
    assert relaying.request("GET", path + "20063?use_server_proxy=true").status == 200
