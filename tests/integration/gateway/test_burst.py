"""Many creates at once: all succeed and each is usable; reads go on meanwhile."""

import concurrent.futures
import http.client
import os
import threading

from harness import wait_for

COUNT = 100 if "SANDGATE_SOAK" in os.environ else 12


def run(gw, sandbox_id):
    host, port, prefix, headers = gw.agent(sandbox_id)
    conn = http.client.HTTPConnection(host, port, timeout=60)
    conn.request("POST", prefix + "/command", f'{{"command":"echo {sandbox_id}"}}',
                 {"Content-Type": "application/json", **headers})
    reply = conn.getresponse()
    body = reply.read().decode()
    conn.close()
    return reply.status == 200 and sandbox_id in body and "execution_complete" in body


def test_parallel_creates_are_all_usable(make_gateway):
    gw = make_gateway().start()
    with concurrent.futures.ThreadPoolExecutor(COUNT) as pool:
        replies = list(pool.map(lambda _: gw.create(resourceLimits={"memory": "64Mi"}), range(COUNT)))
        assert [r.status for r in replies] == [202] * COUNT, {r.raw for r in replies if r.status != 202}
        ids = [r.json["id"] for r in replies]
        assert len(set(ids)) == COUNT and all(r.json["status"]["state"] == "Running" for r in replies)
        ports = {gw.agent(i)[1] for i in ids}
        assert len(ports) == COUNT
        assert all(pool.map(lambda i: run(gw, i), ids))
        assert set(pool.map(lambda i: gw.request("DELETE", f"/v1/sandboxes/{i}").status, ids)) == {204}
    assert gw.records() == [] and gw.engine.containers(gw.instance) == []


def test_one_delete_of_many_wins(shared):
    """pains L9: twenty at once, one 204, the others 404 with a code."""
    sandbox_id = shared.create().json["id"]
    start = threading.Barrier(20)

    def delete(_):
        start.wait(30)
        return shared.request("DELETE", f"/v1/sandboxes/{sandbox_id}")

    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        replies = list(pool.map(delete, range(20)))
    assert sorted(r.status for r in replies) == [204] + [404] * 19
    assert {r.json["code"] for r in replies if r.status == 404} == {"DOCKER::SANDBOX_NOT_FOUND"}


def test_reads_and_renewals_do_not_wait_for_creates(make_gateway):
    """The only thread for engine calls hangs in a create; what the store alone can tell is told."""
    gw = make_gateway()
    gw.config.write_text(gw.config.read_text().replace("[server]\n", "[server]\nthread_pool_size = 1\n"))
    pause = gw.dir / "go-on"
    gw.start()
    sandbox_id = gw.create().json["id"]
    gw.stop()
    gw.start(fault="wait:create.held", env={"SANDGATE_FAULT_FILE": str(pause)})
    replies = []
    worker = threading.Thread(target=lambda: replies.append(gw.create(timeout=None)))
    worker.start()
    try:
        wait_for("the create hangs", lambda: [r for r in gw.records() if r["status"]["state"] == "Pending"])
        path = f"/v1/sandboxes/{sandbox_id}"
        assert gw.request("GET", path, timeout=5).status == 200
        assert gw.request("PATCH", path + "/metadata", {"a": "b"}, timeout=5).json["metadata"] == {"a": "b"}
        at = "2099-01-01T00:00:00Z"
        assert gw.request("POST", path + "/renew-expiration", {"expiresAt": at}, timeout=5).json == {"expiresAt": at}
        assert gw.request("GET", path + "/endpoints/44772", timeout=5).status == 200
        assert gw.request("GET", path + "/diagnostics/events?scope=all", timeout=5).status == 200
        assert gw.request("GET", "/metrics", timeout=5).status == 200
    finally:
        pause.touch()
        worker.join(60)
    assert replies[0].status == 202
