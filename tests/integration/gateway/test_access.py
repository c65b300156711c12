"""Who reaches a sandbox's ports: secure access, signed and expiring addresses, the proxy's own key."""

import http.client
import json
import re
import time

import pytest

from harness import BASE, TAIL, wait_for

SERVER = ["python3", "-m", "http.server", "8000", "--directory", "/etc"]


def get(endpoint, path="/", headers=None):
    host, _, prefix = endpoint.partition("/")
    name, _, port = host.partition(":")
    conn = http.client.HTTPConnection(name, int(port), timeout=20)
    conn.request("GET", f"/{prefix}{path}" if prefix else path, headers=headers or {})
    reply = conn.getresponse()
    reply.raw = reply.read()
    return reply


def endpoint(gw, sid, port, query="use_server_proxy=true"):
    reply = gw.request("GET", f"/v1/sandboxes/{sid}/endpoints/{port}?{query}")
    assert reply.status == 200, reply.raw
    return reply.json["endpoint"], reply.json.get("headers", {})


def serving(gw, **fields):
    """A sandbox whose port 8000 serves, seen through what its own endpoint answer gives."""
    sid = gw.create(entrypoint=SERVER, **fields).json["id"]
    where, headers = endpoint(gw, sid, 8000)
    wait_for("it serves", lambda: get(where, "/hostname", headers).status == 200)
    return sid


def test_secure_access(shared):
    sid = serving(shared, secureAccess=True)
    where, headers = endpoint(shared, sid, 8000, "use_server_proxy=false")
    assert where == f"{shared.domain}/v1/sandboxes/{sid}/proxy/8000"  # never the direct form
    assert set(headers) == {"OpenSandbox-Secure-Access"}
    assert get(where, "/hostname", headers).status == 200
    for wrong in ({}, {"OpenSandbox-Secure-Access": "x"}, {"OPEN-SANDBOX-API-KEY": shared.key}):
        refused = get(where, "/hostname", wrong)
        assert refused.status == 401
        assert json.loads(refused.raw)["code"] == "MISSING_OR_INVALID_SECURE_ACCESS"
    agent, all_headers = endpoint(shared, sid, 44772)
    assert set(all_headers) == {"OpenSandbox-Secure-Access", "X-EXECD-ACCESS-TOKEN"}
    assert get(agent, "/files/info?path=/etc", all_headers).status == 200
    shared.request("DELETE", f"/v1/sandboxes/{sid}")


def test_secure_access_has_no_way_around_through_the_agent(shared):
    """The agent's own port is published on loopback: its /proxy/{port} is closed, too."""
    sid = serving(shared, secureAccess=True)
    published = shared.engine.sandbox(sid)["NetworkSettings"]["Ports"]["44772/tcp"][0]["HostPort"]
    assert get(f"127.0.0.1:{published}", "/proxy/8000/hostname").status == 401
    _, headers = endpoint(shared, sid, 44772)
    assert get(f"127.0.0.1:{published}", "/proxy/8000/hostname", headers).status == 200
    shared.request("DELETE", f"/v1/sandboxes/{sid}")


def test_signed_addresses_open_one_port_until_they_expire(shared):
    sid = serving(shared, secureAccess=True)
    soon = int(time.time()) + 600
    signed, headers = endpoint(shared, sid, 8000, f"expires={soon}")
    assert headers == {} and re.fullmatch(rf"{shared.domain}/v1/signed/{sid}/8000/[0-9a-z]+/[0-9a-f]{{32}}", signed)
    assert get(signed, "/hostname").status == 200
    for changed in (signed.replace("/8000/", "/8001/"), signed[:-1] + ("0" if signed[-1] != "0" else "1")):
        refused = get(changed, "/hostname")
        assert refused.status == 403 and set(json.loads(refused.raw)) == {"code", "message"}
    short, _ = endpoint(shared, sid, 8000, f"expires={int(time.time()) + 2}")
    assert get(short, "/hostname").status == 200
    wait_for("it expires", lambda: get(short, "/hostname").status == 403)
    shared.request("DELETE", f"/v1/sandboxes/{sid}")


def test_signed_addresses_survive_a_restart(make_gateway):
    gw = make_gateway().start()
    sid = serving(gw)
    signed, _ = endpoint(gw, sid, 8000, f"expires={int(time.time()) + 600}")
    gw.kill9()
    gw.start()
    path = signed.partition("/")[2]
    assert get(f"{gw.domain}/{path}", "/hostname").status == 200


@pytest.mark.parametrize("query", ["expires=0", "expires=x", "expires=-5", "expires=99999999999999999999", "expires=1"])
def test_bad_expiries(shared, query):
    sid = shared.create().json["id"]
    try:
        assert shared.request("GET", f"/v1/sandboxes/{sid}/endpoints/80?{query}").status == 400
    finally:
        shared.request("DELETE", f"/v1/sandboxes/{sid}")


def test_location_of_a_signed_address_stays_signed(shared):
    sid = serving(shared)
    signed, _ = endpoint(shared, sid, 8000, f"expires={int(time.time()) + 600}")
    moved = get(signed, "/apt")  # a directory: the server adds the slash by a redirect
    assert moved.status == 301 and moved.getheader("Location").endswith("/apt/")
    shared.request("DELETE", f"/v1/sandboxes/{sid}")


def test_the_proxy_can_demand_the_key(make_gateway):
    gw = make_gateway(extra="[proxy]\nrequire_key = true\n").start()
    sid = gw.create(entrypoint=SERVER).json["id"]
    where, _ = endpoint(gw, sid, 8000)
    wait_for("it serves", lambda: get(where, "/hostname", {"OPEN-SANDBOX-API-KEY": gw.key}).status == 200)
    refused = get(where, "/hostname")
    assert refused.status == 401 and json.loads(refused.raw)["code"] == "MISSING_API_KEY"


def test_the_key_opens_the_agent_through_the_proxy(shared):
    """Design decision 8: the gateway adds the agent's token for a caller with a valid key, never otherwise."""
    sid = shared.create().json["id"]
    where = f"{shared.domain}/v1/sandboxes/{sid}/proxy/44772"
    assert get(where, "/files/info?path=/etc").status == 401
    assert get(where, "/files/info?path=/etc", {"OPEN-SANDBOX-API-KEY": "wrong"}).status == 401
    assert get(where, "/files/info?path=/etc", {"OPEN-SANDBOX-API-KEY": shared.key}).status == 200
    own = {"X-EXECD-ACCESS-TOKEN": "wrong", "OPEN-SANDBOX-API-KEY": shared.key}
    assert get(where, "/files/info?path=/etc", own).status == 401  # what the caller sends is what counts
    shared.request("DELETE", f"/v1/sandboxes/{sid}")


ECHO_HEAD = r"""
import http.server
class Echo(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = str(self.headers).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)
import threading
threading.Thread(target=http.server.HTTPServer(("0.0.0.0", 8001), Echo).serve_forever).start()
http.server.HTTPServer(("0.0.0.0", 8000), Echo).serve_forever()
"""


def test_login_passes_to_the_ports_that_want_it(shared):
    """extensions["proxy.login.ports"]: Authorization and Cookie reach these ports and no others."""
    sid = shared.create(entrypoint=["python3", "-c", ECHO_HEAD], extensions={"proxy.login.ports": "8000"}).json["id"]
    login = {"Authorization": "Basic abc", "Cookie": "session=1", "OPEN-SANDBOX-API-KEY": shared.key}
    for port, passes in ((8000, True), (8001, False)):
        where, _ = endpoint(shared, sid, port)
        wait_for("it serves", lambda: get(where).status == 200)
        seen = get(where, "/", login).raw.decode()
        assert ("Basic abc" in seen) is passes and ("session=1" in seen) is passes, seen
        assert shared.key not in seen
    shared.request("DELETE", f"/v1/sandboxes/{sid}")
