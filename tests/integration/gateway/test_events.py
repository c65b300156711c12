"""What happens to containers behind the gateway's back is seen by the engine's events: the sweep is switched off."""

import datetime
import time

import pytest

from harness import wait_for

NO_SWEEP = "[sandbox]\nsweep_interval_seconds = 3600\n"


@pytest.fixture(scope="module")
def gw(tmp_path_factory, engine):
    from harness import Gateway

    gateway = Gateway(tmp_path_factory.mktemp("events"), engine, extra=NO_SWEEP).start()
    yield gateway
    gateway.cleanup()


def ends(gw, sid):
    """The status of a sandbox that has ended by itself; how long that took is printed."""
    begin = time.monotonic()
    status = wait_for("the end is seen", lambda: (s := gw.state(sid))["state"] in ("Failed", "Terminated") and s)
    print(f"noticed after {(time.monotonic() - begin) * 1000:.0f} ms")
    return status


def test_a_killed_container_is_failed(gw):
    sid = gw.create().json["id"]
    assert gw.engine.call("POST", f"/containers/sandbox-{sid}/kill")[0] == 204
    status = ends(gw, sid)
    assert status["state"] == "Failed" and status["reason"] == "CONTAINER_EXITED_ERROR"
    assert status["message"] == "Sandbox container exited with code 137."
    finished = gw.engine.sandbox(sid)["State"]["FinishedAt"]  # nanoseconds; ours is cut to milliseconds
    seen, finished = (datetime.datetime.fromisoformat(t) for t in (status["lastTransitionAt"], finished))
    assert seen == finished.replace(microsecond=finished.microsecond // 1000 * 1000)
    assert [r["id"] for r in gw.records() if r["id"] == sid], "it stays listed until deleted or expired"
    assert gw.request("DELETE", f"/v1/sandboxes/{sid}").status == 204
    assert "exited with code 137" in gw.state(sid)


def test_a_removed_container_is_gone(gw):
    sid = gw.create().json["id"]
    assert gw.engine.call("DELETE", f"/containers/sandbox-{sid}?force=1")[0] == 204
    begin = time.monotonic()
    wait_for("the loss is seen", lambda: isinstance(gw.state(sid), str))
    print(f"noticed after {(time.monotonic() - begin) * 1000:.0f} ms")
    assert "CONTAINER_REMOVED" in gw.state(sid)
    assert gw.request("DELETE", f"/v1/sandboxes/{sid}").status == 404


def test_deleting_what_was_removed_from_outside(gw):
    sid = gw.create().json["id"]
    assert gw.engine.call("DELETE", f"/containers/sandbox-{sid}?force=1")[0] == 204
    assert gw.request("DELETE", f"/v1/sandboxes/{sid}").status in (204, 404)
    assert "ended at" in gw.state(sid)


def test_pause_and_unpause_from_outside(gw):
    sid = gw.create().json["id"]
    for action, state in (("pause", "Paused"), ("unpause", "Running")) * 2:
        assert gw.engine.call("POST", f"/containers/sandbox-{sid}/{action}")[0] == 204
        begin = time.monotonic()
        wait_for(f"{state} is seen", lambda: gw.state(sid)["state"] == state)
        print(f"{state} noticed after {(time.monotonic() - begin) * 1000:.0f} ms")
    assert gw.request("DELETE", f"/v1/sandboxes/{sid}").status == 204


@pytest.mark.parametrize("code", [0, 7])
def test_entrypoints_that_end(gw, code):
    sid = gw.create(entrypoint=["sh", "-c", f"sleep 0.3; exit {code}"]).json["id"]
    status = ends(gw, sid)
    if code:
        assert (status["state"], status["reason"]) == ("Failed", "CONTAINER_EXITED_ERROR")
        assert status["message"] == f"Sandbox container exited with code {code}."
    else:
        assert (status["state"], status["reason"]) == ("Terminated", "CONTAINER_EXITED")
    assert gw.request("DELETE", f"/v1/sandboxes/{sid}").status == 204


def test_an_entrypoint_that_ends_at_once(gw):
    reply = gw.create(entrypoint=["true"])
    if reply.status == 202:  # it may be over before the create is
        assert ends(gw, reply.json["id"])["state"] == "Terminated"


def test_out_of_memory(gw):
    hog = ["sh", "-c", "exec tail /dev/zero"]  # one line without end: it keeps all of it
    sid = gw.create(entrypoint=hog, resourceLimits={"memory": "64Mi"}).json["id"]
    status = ends(gw, sid)
    assert (status["state"], status["reason"]) == ("Failed", "OOMKilled"), status
    assert status["message"].startswith("Sandbox container exited with code 137.")
    assert gw.request("DELETE", f"/v1/sandboxes/{sid}").status == 204
    assert "OOMKilled" in gw.state(sid)


def test_a_container_started_again_stays_over(gw):
    sid = gw.create().json["id"]
    assert gw.engine.call("POST", f"/containers/sandbox-{sid}/restart?t=1")[0] == 204
    status = ends(gw, sid)
    assert status["state"] == "Failed"
    wait_for("it is stopped", lambda: not gw.engine.sandbox(sid)["State"]["Running"])
    before = gw.state(sid)
    assert gw.engine.call("POST", f"/containers/sandbox-{sid}/start")[0] in (204, 304)
    wait_for("it is stopped again", lambda: not gw.engine.sandbox(sid)["State"]["Running"])
    assert gw.state(sid) == before
    assert gw.request("DELETE", f"/v1/sandboxes/{sid}").status == 204


def test_a_death_while_the_gateway_is_down(make_gateway):
    gw = make_gateway(extra=NO_SWEEP).start()
    killed, restarted, paused = (gw.create().json["id"] for _ in range(3))
    gw.kill9()
    gw.engine.call("POST", f"/containers/sandbox-{killed}/kill")
    gw.engine.call("POST", f"/containers/sandbox-{restarted}/restart?t=1")
    gw.engine.call("POST", f"/containers/sandbox-{paused}/pause")
    gw.start()
    assert ends(gw, killed)["message"] == "Sandbox container exited with code 137."
    assert ends(gw, restarted)["reason"] == "CONTAINER_RESTARTED"
    wait_for("the pause is seen", lambda: gw.state(paused)["state"] == "Paused")
    assert datetime.datetime.fromisoformat(gw.state(killed)["lastTransitionAt"].replace("Z", "+00:00"))
