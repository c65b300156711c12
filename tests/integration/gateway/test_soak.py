"""Many cycles: descriptors, threads and memory of the gateway stay flat; nothing is left on the engine. SANDGATE_SOAK
multiplies the counts (make soak)."""

import concurrent.futures
import http.client
import json
import os
import pathlib

from harness import wait_for

SOAK = int(os.environ.get("SANDGATE_SOAK", "1"))


def figures(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    rss = int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])
    threads = len(os.listdir(f"/proc/{pid}/task"))
    return {"fds": len(os.listdir(f"/proc/{pid}/fd")), "threads": threads, "rss_kib": rss}


def cycle(gw):
    made = gw.create()
    assert made.status == 202, made.raw
    sid = made.json["id"]
    host, port, prefix, headers = gw.agent(sid)
    conn = http.client.HTTPConnection(host, port, timeout=30)
    conn.request("POST", prefix + "/command", json.dumps({"command": "echo hi"}), headers)
    events = conn.getresponse().read().decode()
    assert '"execution_complete"' in events, events
    conn.close()
    assert gw.request("DELETE", f"/v1/sandboxes/{sid}").status == 204


def test_cycles_leave_everything_flat(make_gateway):
    gw = make_gateway().start()
    for _ in range(3):
        cycle(gw)  # fills caches, makes connections
    before = figures(gw.process.pid)
    for _ in range(10 * SOAK):
        cycle(gw)
    wait_for("connections are closed", lambda: figures(gw.process.pid)["fds"] <= before["fds"], 60)
    after = figures(gw.process.pid)
    print(f"before {before} after {after}")
    assert after["threads"] == before["threads"], (before, after)
    assert after["rss_kib"] <= before["rss_kib"] + 4096, (before, after)
    assert gw.records() == [] and gw.engine.containers(gw.instance, None) == []


def test_a_burst_of_creates(make_gateway):
    """All succeed, no port clash, ids unique, health answers meanwhile."""
    gw = make_gateway().start()
    count = min(8 * SOAK, 100)
    with concurrent.futures.ThreadPoolExecutor(count + 1) as pool:
        creates = [pool.submit(gw.create) for _ in range(count)]
        while not all(c.done() for c in creates):
            assert gw.request("GET", "/health", timeout=10).status == 200
        replies = [c.result() for c in creates]
    assert [r.status for r in replies] == [202] * count
    ids = {r.json["id"] for r in replies}
    endpoints = {gw.request("GET", f"/v1/sandboxes/{i}/endpoints/44772").json["endpoint"] for i in ids}
    assert len(ids) == len(endpoints) == count
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        gone = list(pool.map(lambda i: gw.request("DELETE", f"/v1/sandboxes/{i}").status, ids))
    assert gone == [204] * count and gw.engine.containers(gw.instance, None) == []


def test_twenty_deletes_of_one_sandbox(make_gateway):
    gw = make_gateway().start()
    for _ in range(SOAK):
        sid = gw.create().json["id"]
        with concurrent.futures.ThreadPoolExecutor(20) as pool:
            statuses = sorted(pool.map(lambda _: gw.request("DELETE", f"/v1/sandboxes/{sid}").status, range(20)))
        assert statuses == [204] + [404] * 19
