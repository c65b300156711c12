"""The engine is down, or dies in the middle of a create. Runs on a private engine of its own."""

import threading

import pytest

from harness import BUSYBOX, wait_for

ENTRY = ["/bin/busybox", "tail", "-f", "/dev/null"]


def test_starts_without_an_engine_and_recovers(private, make_gateway):
    private.stop()
    gw = make_gateway(on=private.engine).start()
    reply = gw.create(BUSYBOX, ENTRY)
    assert reply.status == 503 and reply.json["code"] == "DOCKER::INITIALIZATION_ERROR", reply.raw
    assert reply.getheader("Retry-After")
    assert gw.request("GET", "/health").status == 200
    assert gw.records() == [] or gw.records()[0]["status"]["state"] == "Stopping"
    private.start()
    wait_for("creates work again", lambda: gw.create(BUSYBOX, ENTRY).status == 202, 60)
    wait_for("what the outage left is gone", lambda: all(r["status"]["state"] == "Running" for r in gw.records()))
    for record in gw.records():
        assert gw.request("DELETE", f"/v1/sandboxes/{record['id']}").status == 204
    assert gw.engine.containers(gw.instance) == []


@pytest.mark.parametrize("step", ["create.made", "create.started"])
def test_engine_dies_in_mid_create(private, make_gateway, step):
    """The gateway waits at the step while the engine is killed, then goes on into the dead engine."""
    gw = make_gateway(on=private.engine)
    pause = gw.dir / "go-on"
    gw.start(fault=f"wait:{step}", env={"SANDGATE_FAULT_FILE": str(pause)})
    replies = []
    worker = threading.Thread(target=lambda: replies.append(gw.create(BUSYBOX, ENTRY)))
    worker.start()
    wait_for("the container is made", lambda: gw.engine.containers(gw.instance), 60)
    private.kill9()
    pause.touch()
    worker.join(120)
    assert replies and replies[0].status >= 500 and set(replies[0].json) == {"code", "message"}, replies
    private.start()
    wait_for("the half-made container is removed", lambda: gw.engine.containers(gw.instance) == [], 90)
    wait_for("and its record", lambda: gw.records() == [])
    assert gw.create(BUSYBOX, ENTRY).status == 202
