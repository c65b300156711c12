"""kill -9 of the gateway at every step of create and delete: no orphan container, no record without a container, and
the next start is clean. SANDGATE_FAULT (gateway/domain/fault.h) stops the process at a step. SANDGATE_SOAK multiplies
the rounds."""

import http.client
import os
import socket
import threading

import pytest

from harness import wait_for

CREATE_STEPS = ["create.intent", "create.made", "create.started", "create.inspected", "create.held", "create.claimed",
                "create.confirmed"]
DELETE_STEPS = ["delete.intent", "delete.removed", "delete.confirmed"]
ROUNDS = int(os.environ.get("SANDGATE_SOAK", "1"))


def settled(gw):
    """Records and containers, when every record has its container and the other way round, and no helper is left."""
    records = {r["id"]: r["status"]["state"] for r in gw.records()}
    everything = gw.engine.containers(gw.instance, None)
    containers = {c["Labels"].get("sandgate.id") for c in everything}
    if set(records) != containers or any(s not in ("Running", "Paused") for s in records.values()):
        return None
    return records, containers


@pytest.mark.parametrize("step", CREATE_STEPS)
def test_kill_in_create(make_gateway, step):
    gw = make_gateway()
    for _ in range(ROUNDS):
        gw.start(fault=f"crash:{step}")
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            gw.create()
        assert gw.wait_dead() == -9
        gw.start()
        records, containers = wait_for(f"consistent after {step}", lambda: settled(gw))
        # before the confirmation the client never learned the id: everything is undone
        assert len(records) == (step == "create.confirmed")
        for sid in records:
            assert gw.request("DELETE", f"/v1/sandboxes/{sid}").status == 204
        assert gw.engine.containers(gw.instance) == []
        gw.stop()


@pytest.mark.parametrize("step", DELETE_STEPS)
def test_kill_in_delete(make_gateway, step):
    gw = make_gateway().start()
    for _ in range(ROUNDS):
        if gw.process.poll() is not None:
            gw.start()
        sid = gw.create().json["id"]
        gw.stop()
        gw.start(fault=f"crash:{step}")
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            gw.request("DELETE", f"/v1/sandboxes/{sid}")
        assert gw.wait_dead() == -9
        gw.start()
        wait_for(f"gone after {step}", lambda: settled(gw) == ({}, set()))
        reply = gw.request("GET", f"/v1/sandboxes/{sid}")
        assert reply.status == 404 and "DELETED" in reply.json["message"]
        gw.stop()


def test_kill_between_requests_keeps_everything(make_gateway):
    gw = make_gateway().start()
    made = gw.create(timeout=300, metadata={"a": "b"}).json
    endpoint = gw.request("GET", f"/v1/sandboxes/{made['id']}/endpoints/44772").json
    gw.request("POST", f"/v1/sandboxes/{made['id']}/renew-expiration", {"expiresAt": "2999-01-01T00:00:00Z"})
    paused = gw.create().json["id"]
    gw.request("POST", f"/v1/sandboxes/{paused}/pause")
    gw.kill9()
    gw.start()
    again = gw.request("GET", f"/v1/sandboxes/{made['id']}").json
    assert again["expiresAt"] == "2999-01-01T00:00:00Z" and again["metadata"] == {"a": "b"}
    assert again["createdAt"] == made["createdAt"] and again["status"]["state"] == "Running"
    assert gw.request("GET", f"/v1/sandboxes/{made['id']}/endpoints/44772").json == endpoint
    assert gw.request("GET", f"/v1/sandboxes/{paused}").json["status"]["state"] == "Paused"
    assert gw.request("POST", f"/v1/sandboxes/{paused}/resume").status == 202


def test_expired_while_down_is_removed_at_start(make_gateway):
    gw = make_gateway().start()
    sid = gw.create().json["id"]
    import datetime

    at = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(milliseconds=500)
    gw.request("POST", f"/v1/sandboxes/{sid}/renew-expiration", {"expiresAt": at.isoformat()})
    gw.kill9()
    wait_for("its time has come", lambda: datetime.datetime.now(datetime.timezone.utc) > at)
    gw.start()
    wait_for("it is removed", lambda: gw.engine.containers(gw.instance) == [])
    wait_for("and its record", lambda: gw.records() == [])


def test_containers_lost_or_stopped_behind_our_back(make_gateway):
    gw = make_gateway(extra="[sandbox]\nsweep_interval_seconds = 1\n").start()
    lost, stopped = (gw.create().json["id"] for _ in range(2))
    gw.engine.call("DELETE", f"/containers/sandbox-{lost}?force=1")
    gw.engine.call("POST", f"/containers/sandbox-{stopped}/kill")
    wait_for("the loss is seen", lambda: gw.request("GET", f"/v1/sandboxes/{lost}").status == 404)
    assert "CONTAINER_REMOVED" in gw.request("GET", f"/v1/sandboxes/{lost}").json["message"]
    wait_for("the end is seen",
             lambda: gw.request("GET", f"/v1/sandboxes/{stopped}").json["status"]["state"] == "Failed")
    assert gw.request("DELETE", f"/v1/sandboxes/{stopped}").status == 204


def test_a_container_without_a_record_is_frozen_then_removed(make_gateway):
    gw = make_gateway(extra="[sandbox]\nsweep_interval_seconds = 1\nquarantine_seconds = 2\n").start()
    sid = gw.create().json["id"]
    gw.stop()
    for name in ("sandgate.db", "sandgate.db-wal", "sandgate.db-shm"):
        (gw.dir / name).unlink(missing_ok=True)
    # the database is new but keeps its name on the engine: as after restoring an old copy
    import sqlite3

    instance = gw.instance
    gw.start()
    gw.stop()
    with sqlite3.connect(gw.dir / "sandgate.db") as db:
        db.execute("UPDATE meta SET value = ? WHERE key = 'instance'", (instance,))
    fresh = gw.instance
    gw.start()
    assert gw.instance == instance
    state = lambda: gw.engine.call("GET", f"/containers/sandbox-{sid}/json")
    wait_for("it is frozen", lambda: state()[0] == 200 and state()[1]["State"]["Paused"])
    assert "container without a record" in gw.log_text()
    wait_for("it is removed", lambda: state()[0] == 404)
    gw.engine.call("DELETE", f"/networks/sandgate-{fresh[:8]}")


def test_two_gateways_never_touch_each_others_containers(make_gateway):
    one, two = make_gateway().start(), make_gateway().start()
    assert one.instance != two.instance
    sid = one.create().json["id"]
    assert two.request("DELETE", f"/v1/sandboxes/{sid}").status == 404
    two.kill9()
    two.start()
    wait_for("two has swept", lambda: "listening" in two.log_text() and two.records() == [])
    two.stop()
    two.start()
    assert one.request("GET", f"/v1/sandboxes/{sid}").json["status"]["state"] == "Running"
    assert one.engine.sandbox(sid)["State"]["Running"]
    assert "container without a record" not in two.log_text()


def test_a_second_gateway_on_the_same_database_is_refused(make_gateway):
    gw = make_gateway().start()
    other = make_gateway()
    other.config.write_text(gw.config.read_text())
    other.start(wait=False)
    assert other.wait_dead() == 1
    assert "in use by another gateway" in other.log_text()
    assert gw.request("GET", "/health").status == 200


def test_graceful_stop_lets_a_create_finish(make_gateway):
    gw = make_gateway().start()
    gw.create()  # warms the agent volume
    replies = []
    worker = threading.Thread(target=lambda: replies.append(gw.create()))
    worker.start()
    wait_for("the create is under way", lambda: len(gw.engine.containers(gw.instance)) == 2)
    gw.stop()
    worker.join(30)
    assert replies and replies[0].status == 202
    assert len(gw.engine.containers(gw.instance)) == 2


def test_a_request_that_comes_too_late_for_the_stop_is_refused(make_gateway, tmp_path):
    gw, go = make_gateway(), tmp_path / "go"
    gw.config.write_text(gw.config.read_text().replace("port = 0\n", "port = 0\ntimeout_graceful_shutdown = 0\n"))
    gw.start(fault="wait:create.intent", env={"SANDGATE_FAULT_FILE": str(go)})
    head = f"POST /v1/sandboxes HTTP/1.1\r\nHost: {gw.domain}\r\nOPEN-SANDBOX-API-KEY: {gw.key}\r\n"
    with socket.create_connection(("127.0.0.1", gw.port), timeout=30) as late:
        late.sendall(head.encode() + b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{")
        worker = threading.Thread(target=gw.create)
        worker.start()
        wait_for("a create is under way", lambda: len(gw.records()) == 1)
        gw.process.terminate()
        wait_for("it stops", lambda: '"stopping"' in gw.log_text())
        late.sendall(b"}")  # read when no thread is left that could work on it
        go.touch()
        assert gw.process.wait(60) == 0, gw.log_text()[-3000:]
        assert late.recv(100).startswith(b"HTTP/1.1 503")
    worker.join(30)
