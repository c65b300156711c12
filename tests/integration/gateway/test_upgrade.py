"""Today's gateway takes over the database and the running sandboxes of the previous version."""

import http.client
import os
import pathlib
import subprocess

import pytest

from harness import wait_for

HERE = pathlib.Path(__file__).parent


@pytest.fixture(scope="module")
def previous():
    cache = os.path.join(os.environ["SANDGATE_STATE"], "previous")
    made = subprocess.run([HERE / "previous.sh", cache], capture_output=True, text=True, check=False)
    if made.returncode == 2:
        pytest.skip("the history of this clone is too short for the previous version")
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


def run(gw, sandbox_id, command):
    """Output of a command by the sandbox's agent, with the token that the endpoint answer gives."""
    host, port, prefix, headers = gw.agent(sandbox_id)
    conn = http.client.HTTPConnection(host, port, timeout=20)
    conn.request("POST", prefix + "/command", f'{{"command":"{command}"}}', {"Content-Type": "application/json", **headers})
    reply = conn.getresponse()
    body = reply.read().decode()
    conn.close()
    assert reply.status == 200, body
    return body


@pytest.mark.parametrize("end", ["stop", "kill9"])
def test_sandboxes_outlive_the_upgrade(make_gateway, previous, end):
    gw = make_gateway()
    today, gw.binary = gw.binary, previous
    gw.start()
    running, paused, renewed, gone = (gw.create(metadata={"n": n}).json["id"] for n in "abcd")
    assert gw.request("POST", f"/v1/sandboxes/{paused}/pause").status == 202
    at = "2099-01-01T00:00:00Z"
    assert gw.request("POST", f"/v1/sandboxes/{renewed}/renew-expiration", {"expiresAt": at}).status == 200
    assert gw.request("DELETE", f"/v1/sandboxes/{gone}").status == 204
    before = {r["id"]: r for r in gw.records()}
    places = {i: gw.agent(i) for i in before}
    instance = gw.instance
    getattr(gw, end)()

    gw.binary = today
    gw.start()
    assert gw.instance == instance
    after = {r["id"]: r for r in gw.records()}
    assert after == before and after[renewed]["expiresAt"] == at and after[paused]["status"]["state"] == "Paused"
    assert {i: gw.agent(i) for i in after} == places
    for number in ("0003",):
        assert (gw.dir / f"sandgate.db.before-{number}").stat().st_size > 0
    assert "DELETED" in gw.request("GET", f"/v1/sandboxes/{gone}").json["message"]

    # agents of the previous version go on serving
    assert "from-before" in run(gw, running, "echo from-before")
    assert gw.request("POST", f"/v1/sandboxes/{paused}/resume").status == 202
    assert "thawed" in run(gw, paused, "echo thawed")
    new = gw.create().json["id"]
    assert "new-agent" in run(gw, new, "echo new-agent")
    for sandbox_id in (running, paused, renewed, new):
        assert gw.request("DELETE", f"/v1/sandboxes/{sandbox_id}").status == 204
    assert gw.engine.containers(gw.instance) == []


def test_the_previous_version_refuses_the_new_database(make_gateway, previous):
    gw = make_gateway().start()
    gw.stop()
    gw.binary = previous
    gw.start(wait=False)
    assert wait_for("the old program ends", lambda: gw.process.poll() is not None) and gw.process.returncode == 1
    assert "newer than this program" in gw.log_text()
