"""Design decision 3: nothing secret is ever in the container's configuration, and a held container can be claimed by
its gateway only."""

import http.client
import json
import re
import socket
import threading

from harness import BASE, BUSYBOX, TAIL, wait_for


def everything_the_engine_knows(gw, sid):
    """Inspect of the container, and of the image made from it by a commit."""
    inspect = json.dumps(gw.engine.sandbox(sid))
    status, made = gw.engine.call("POST", f"/commit?container=sandbox-{sid}&repo=sandgate-test-commit&tag={sid}", {})
    assert status == 201, made
    try:
        image = gw.engine.call("GET", f"/images/{made['Id']}/json")[1]
        return inspect + json.dumps(image), made["Id"]
    finally:
        gw.engine.call("DELETE", f"/images/{made['Id']}?force=1")


def test_inspect_and_commit_show_no_secret(shared):
    secret = "user-secret-7c1d"
    reply = shared.create(env={"API_PASSWORD": secret}, entrypoint=["tail", "-f", "/dev/null", f"/{secret}-entry"])
    sid = reply.json["id"]
    try:
        token = shared.agent(sid)[3]["X-EXECD-ACCESS-TOKEN"]
        known, _ = everything_the_engine_knows(shared, sid)
        assert secret not in known and "API_PASSWORD" not in known
        assert token not in known and "OPENSANDBOX_ID=" not in known
        labels = shared.engine.sandbox(sid)["Config"]["Labels"]
        assert labels["opensandbox.io/id"] == sid and labels["sandgate.id"] == sid
    finally:
        shared.request("DELETE", f"/v1/sandboxes/{sid}")


def test_the_committed_file_system_holds_no_secret(shared):
    """The agent's .env and CA live on a tmpfs: a commit does not take them along."""
    sid = shared.create(env={"SECRET_VALUE": "s3cr3t-in-env"}).json["id"]
    try:
        status, changes = shared.engine.call("GET", f"/containers/sandbox-{sid}/changes")
        assert status == 200
        paths = [c["Path"] for c in changes or []]
        assert not [p for p in paths if p.startswith("/opt/opensandbox/")], paths
    finally:
        shared.request("DELETE", f"/v1/sandboxes/{sid}")


def test_processes_see_neither_token_nor_claim(shared):
    sid = shared.create(env={"MINE": "1"}).json["id"]
    try:
        host, port, prefix, headers = shared.agent(sid)
        token = headers["X-EXECD-ACCESS-TOKEN"]
        conn = http.client.HTTPConnection(host, port, timeout=20)
        script = "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'; env"
        conn.request("POST", prefix + "/command", json.dumps({"command": script}), headers)
        seen = conn.getresponse().read().decode()
        assert "MINE=1" in seen and token not in seen
        hashes = re.findall(r"--claim-sha256=([0-9a-f]{64})", seen)
        assert len(hashes) <= 1  # the hash is public, its preimage is not
    finally:
        shared.request("DELETE", f"/v1/sandboxes/{sid}")


def held_container(gw):
    """Starts a create that stops before the claim; the container of it and its address."""
    before = {c["Id"] for c in gw.engine.containers(gw.instance)} if gw.instance else set()
    gw.start(fault="hold:create.held")
    threading.Thread(target=lambda: _swallow(gw), daemon=True).start()
    item = wait_for("a held container runs", lambda: next(
        (c for c in gw.engine.containers(gw.instance) if c["State"] == "running" and c["Id"] not in before), None))
    address = next(iter(item["NetworkSettings"]["Networks"].values()))["IPAddress"]
    wait_for("its agent listens", lambda: _ping(address))
    return item, address


def _swallow(gw):
    try:
        gw.create(timeout=300)
    except (http.client.HTTPException, OSError):
        pass


def _ping(address):
    try:
        conn = http.client.HTTPConnection(address, 44772, timeout=5)
        conn.request("GET", "/ping")
        return conn.getresponse().status == 200
    except OSError:
        return False


def test_a_held_container_answers_nothing_else(make_gateway):
    gw = make_gateway()
    _, address = held_container(gw)
    for method, path in (("POST", "/command"), ("GET", "/files/info?path=/"), ("GET", "/files/download?path=/etc/passwd")):
        conn = http.client.HTTPConnection(address, 44772, timeout=5)
        conn.request(method, path, "{}")
        reply = conn.getresponse()
        assert reply.status == 503, (path, reply.status, reply.read())
    gw.kill9()


def test_an_attacker_in_another_sandbox_cannot_claim_it(make_gateway):
    """From a sandbox of the same gateway the held agent cannot even be reached."""
    gw = make_gateway().start()
    attacker = gw.create().json["id"]
    host, port, prefix, headers = gw.agent(attacker)
    gw.stop()
    item, address = held_container(gw)
    body = json.dumps({"secret": "0" * 64, "token": "mine", "env": {}, "entrypoint": TAIL})
    script = f"curl -s -m 3 -X POST -d '{body}' http://{address}:44772/internal/claim; echo status=$?"
    conn = http.client.HTTPConnection(host, port, timeout=30)
    conn.request("POST", prefix + "/command", json.dumps({"command": script}), headers)
    seen = conn.getresponse().read().decode()
    status = re.search(r"status=(\d+)", seen)
    assert status and status[1] in ("7", "28"), seen  # refused or no answer: never connected
    assert gw.engine.call("GET", f"/containers/{item['Id']}/json")[1]["State"]["Running"]
    gw.kill9()


def test_a_wrong_claim_destroys_the_member(make_gateway):
    gw = make_gateway()
    item, address = held_container(gw)
    conn = http.client.HTTPConnection(address, 44772, timeout=5)
    conn.request("POST", "/internal/claim", json.dumps({"secret": "0" * 64, "token": "x", "env": {}, "entrypoint": TAIL}))
    reply = conn.getresponse()
    assert reply.status == 403, reply.read()
    state = lambda: gw.engine.call("GET", f"/containers/{item['Id']}/json")[1]["State"]
    wait_for("the member is gone", lambda: not state()["Running"])
    assert state()["ExitCode"] == 126
    gw.kill9()


def test_a_claimed_agent_cannot_be_claimed_again(shared):
    sid = shared.create().json["id"]
    try:
        address = next(iter(shared.engine.sandbox(sid)["NetworkSettings"]["Networks"].values()))["IPAddress"]
        conn = http.client.HTTPConnection(address, 44772, timeout=5)
        conn.request("POST", "/internal/claim", json.dumps({"secret": "0" * 64, "token": "x", "env": {}, "entrypoint": TAIL}))
        assert conn.getresponse().status == 409
        assert shared.engine.sandbox(sid)["State"]["Running"]
        conn = http.client.HTTPConnection(address, 44772, timeout=5)
        conn.request("POST", "/command", json.dumps({"command": "id"}))
        assert conn.getresponse().status == 401
    finally:
        shared.request("DELETE", f"/v1/sandboxes/{sid}")


def test_sandboxes_reach_neither_the_api_nor_the_host(make_gateway):
    gw = make_gateway()
    gw.config.write_text(gw.config.read_text().replace('host = "127.0.0.1"', 'host = "0.0.0.0"'))
    gw.start()
    sid = gw.create().json["id"]
    host, port, prefix, headers = gw.agent(sid)
    network = next(iter(gw.engine.sandbox(sid)["NetworkSettings"]["Networks"].values()))
    script = f"curl -s -m 3 http://{network['Gateway']}:{gw.port}/health; echo status=$?"
    conn = http.client.HTTPConnection(host, port, timeout=30)
    conn.request("POST", prefix + "/command", json.dumps({"command": script}), headers)
    seen = conn.getresponse().read().decode()
    assert "healthy" not in seen, seen
