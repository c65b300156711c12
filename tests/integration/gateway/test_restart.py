"""The gateway, the engine, or both are restarted under running sandboxes. SANDGATE_SOAK: 20 of them."""

import concurrent.futures
import http.client
import json
import os
import re
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


def ask_agent(gw, sid, method, route, body=None, with_token=True):
    host, port, path, headers = gw.agent(sid)
    conn = http.client.HTTPConnection(host, port, timeout=20)
    data = None if body is None else json.dumps(body)
    headers = {**headers, "Content-Type": "application/json"} if with_token else {}
    conn.request(method, path.rstrip("/") + route, data, headers)
    reply = conn.getresponse()
    raw = reply.read()
    conn.close()
    return reply.status, raw.decode()


def agent_says(gw, sid, with_token):
    return ask_agent(gw, sid, "GET", "/internal/nothing", with_token=with_token)[0]


def all_over(gw, ids):
    return all(r["status"]["state"] in ("Failed", "Terminated") for r in gw.records() if r["id"] in ids)


def test_a_killed_gateway_knows_everything_again(make_gateway):
    gw = make_gateway().start()
    ids = create_all(gw, timeout=600)
    gw.renew(ids[0], 7200)
    endpoint = lambda sid: gw.request("GET", f"/v1/sandboxes/{sid}/endpoints/44772").json
    seen = lambda: {r["id"]: (r, endpoint(r["id"])) for r in gw.records()}
    before = seen()
    assert set(before) == set(ids)
    gw.kill9()
    gw.start()
    assert seen() == before
    for sid in ids:
        assert agent_says(gw, sid, with_token=True) != 401 and agent_says(gw, sid, with_token=False) == 401


def test_a_command_outlives_the_gateway(make_gateway):
    gw = make_gateway().start()
    sid = gw.create().json["id"]
    work = {"command": "echo begun; while [ ! -e /tmp/go ]; do sleep 0.1; done; echo done; exit 3", "background": True}
    status, text = ask_agent(gw, sid, "POST", "/command", work)
    assert status == 200, text
    command = re.search(r'"type":"init".*?"text":"([^"]+)"', text)[1]
    gw.kill9()
    gw.start()
    about = lambda: json.loads(ask_agent(gw, sid, "GET", f"/command/status/{command}")[1])
    assert about()["running"] is True
    assert ask_agent(gw, sid, "POST", "/command", {"command": "touch /tmp/go"})[0] == 200
    wait_for("it ends", lambda: about()["running"] is False)
    assert about()["exit_code"] == 3
    assert ask_agent(gw, sid, "GET", f"/command/{command}/logs")[1] == "begun\ndone\n"


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


def test_a_sandbox_that_got_another_address_is_found_there(make_gateway):
    gw = make_gateway(extra="[sandbox]\nsweep_interval_seconds = 1\n").start()
    one, two = (gw.create().json["id"] for _ in range(2))
    address = lambda sid: next(iter(gw.engine.sandbox(sid)["NetworkSettings"]["Networks"].values()))["IPAddress"]
    before = address(one)
    network = next(iter(gw.engine.sandbox(one)["NetworkSettings"]["Networks"]))
    move = lambda verb, sid: gw.engine.call("POST", f"/networks/{network}/{verb}", {"Container": f"sandbox-{sid}"})
    for verb, sid in (("disconnect", one), ("disconnect", two), ("connect", two), ("connect", one)):
        assert move(verb, sid)[0] == 200
    assert address(one) != before
    wait_for("the record has it", lambda: gw.column(one, "address") == address(one))
    assert gw.state(one)["state"] == "Running"
    assert agent_says(gw, one, with_token=True) != 401 and agent_says(gw, one, with_token=False) == 401
