"""The gateway, the engine, or both are restarted under running sandboxes. SANDGATE_SOAK: 20 of them."""

import concurrent.futures
import http.client
import os
import time

from harness import BUSYBOX, wait_for

COUNT = 20 if int(os.environ.get("SANDGATE_SOAK", "1")) > 1 else 4
ENTRY = ["/bin/busybox", "tail", "-f", "/dev/null"]
# Exits when it is asked to: TERM of PID 1's child.
OBEDIENT = ["/bin/busybox", "sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done"]


def create_all(gw, **fields):
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        replies = list(pool.map(lambda n: gw.create(metadata={"n": str(n)}, **fields), range(COUNT)))
    assert all(r.status == 202 for r in replies), [r.raw for r in replies]
    return [r.json["id"] for r in replies]


def agent_says(gw, sid, with_token):
    host, port, path, headers = gw.agent(sid)
    conn = http.client.HTTPConnection(host, port, timeout=20)
    conn.request("GET", path.rstrip("/") + "/internal/nothing", headers=headers if with_token else {})
    status = conn.getresponse().status
    conn.close()
    return status


def all_over(gw, ids):
    return all(r["status"]["state"] in ("Failed", "Terminated") for r in gw.records() if r["id"] in ids)


def test_a_killed_gateway_knows_everything_again(make_gateway):
    gw = make_gateway().start()
    ids = create_all(gw, timeout=600)
    gw.renew(ids[0], 7200)
    seen = lambda: {r["id"]: (r, gw.request("GET", f"/v1/sandboxes/{r['id']}/endpoints/44772").json) for r in gw.records()}
    before = seen()
    assert set(before) == set(ids)
    gw.kill9()
    gw.start()
    assert seen() == before
    for sid in ids:
        assert agent_says(gw, sid, with_token=True) != 401 and agent_says(gw, sid, with_token=False) == 401


def test_a_killed_engine_leaves_true_states(private, make_gateway):
    gw = make_gateway(on=private.engine).start()
    ids = create_all(gw, image=BUSYBOX, entrypoint=ENTRY)
    private.kill9()
    private.start()
    begin = time.monotonic()
    # after a crash the engine reports a container as ended, or (seldom) as gone
    wait_for("all are seen to be over", lambda: all_over(gw, ids), 60)
    print(f"true states {(time.monotonic() - begin) * 1000:.0f} ms after the engine's return")
    for sid in ids:
        assert gw.request("DELETE", f"/v1/sandboxes/{sid}").status in (204, 404)
    assert gw.create(BUSYBOX, ENTRY).status == 202


def test_a_restarted_engine_leaves_true_states(private, make_gateway):
    gw = make_gateway(on=private.engine).start()
    ids = create_all(gw, image=BUSYBOX, entrypoint=OBEDIENT)
    private.stop()
    assert gw.request("GET", "/health").status == 200
    private.start()
    begin = time.monotonic()
    wait_for("all are seen to be over", lambda: all_over(gw, ids), 60)
    print(f"true states {(time.monotonic() - begin) * 1000:.0f} ms after the engine's return")
    for record in gw.records():
        status = record["status"]
        assert status["reason"] in ("CONTAINER_EXITED", "CONTAINER_EXITED_ERROR"), status


def test_expiry_and_delete_outlast_an_outage(private, make_gateway):
    gw = make_gateway(on=private.engine).start()
    expires, deleted = (gw.create(BUSYBOX, ENTRY).json["id"] for _ in range(2))
    at, status = gw.renew(expires, 1)
    assert status == 200
    private.kill9()
    wait_for("its time has come", lambda: time.time() > at.timestamp() + 0.5)
    reply = gw.request("DELETE", f"/v1/sandboxes/{deleted}")
    assert reply.status == 500 and reply.json["code"] == "DOCKER::SANDBOX_DELETE_FAILED", reply.raw
    gw.kill9()
    gw.start()  # without an engine
    private.start()
    begin = time.monotonic()
    wait_for("both are gone", lambda: gw.records() == [] and gw.engine.containers(gw.instance) == [], 60)
    print(f"gone {(time.monotonic() - begin) * 1000:.0f} ms after the engine's return")
    assert "EXPIRED" in gw.state(expires) and "DELETED" in gw.state(deleted)
