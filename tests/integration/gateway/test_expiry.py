"""Expiry, grace, the record of the end. SANDGATE_SOAK multiplies the rounds."""

import concurrent.futures
import datetime
import os
import threading

import pytest

from harness import wait_for

SOAK = int(os.environ.get("SANDGATE_SOAK", "1"))
FLUSHES = ["sh", "-c", "trap 'echo flushed; exit 0' TERM; echo ready; while :; do sleep 0.1; done"]


def now():
    return datetime.datetime.now(datetime.timezone.utc)


def gone(gw, sid):
    return isinstance(gw.state(sid), str)


@pytest.fixture(scope="module")
def graceful(tmp_path_factory, engine):
    from harness import Gateway

    gw = Gateway(tmp_path_factory.mktemp("grace"), engine, extra="[sandbox]\nstop_grace_seconds = 20\n").start()
    yield gw
    gw.cleanup()


def ready(gw, sid):
    logs = lambda: gw.engine.call("GET", f"/containers/sandbox-{sid}/logs?stdout=1")[1]
    wait_for("the handler is set", lambda: b"ready" in logs())


# ---- the end on time


def test_running_and_paused_ones_end_on_time(shared):
    running, paused = (shared.create().json["id"] for _ in range(2))
    assert shared.request("POST", f"/v1/sandboxes/{paused}/pause").status == 202
    at = {sid: shared.renew(sid, 0.5)[0] for sid in (running, paused)}
    for sid in (running, paused):
        wait_for("it is gone", lambda: gone(shared, sid))
        print(f"gone {(now() - at[sid]).total_seconds() * 1000:.0f} ms after its time")
        assert "EXPIRED" in shared.state(sid)
        assert shared.column(sid, "transition_ms") >= at[sid].timestamp() * 1000 - 1
        assert shared.engine.call("GET", f"/containers/sandbox-{sid}/json")[0] == 404


def test_the_sweep_removes_when_the_expiry_thread_is_stuck(make_gateway):
    gw = make_gateway(extra="[sandbox]\nsweep_interval_seconds = 1\n").start(fault="hold:expiry.look")
    sid = gw.create().json["id"]
    at, status = gw.renew(sid, 0.3)
    assert status == 200
    wait_for("the sweep removed it", lambda: gone(gw, sid))
    print(f"gone {(now() - at).total_seconds() * 1000:.0f} ms after its time")
    assert "EXPIRED" in gw.state(sid)
    assert gw.engine.containers(gw.instance) == []


@pytest.mark.parametrize("step", ["delete.intent", "delete.stopped", "delete.removed", "delete.confirmed"])
def test_killed_in_the_middle_of_an_expiry(make_gateway, step):
    gw = make_gateway(extra="[sandbox]\nstop_grace_seconds = 20\n").start(fault=f"crash:{step}")
    sid = gw.create(entrypoint=FLUSHES).json["id"]
    ready(gw, sid)
    gw.renew(sid, 0.2)
    assert gw.wait_dead() == -9
    gw.start()
    wait_for("it is gone", lambda: gone(gw, sid) and gw.engine.containers(gw.instance) == [])
    assert "(EXPIRED: The sandbox reached its expiry time.)" in gw.state(sid)
    if step != "delete.removed":  # then its output went with it
        assert "flushed" in gw.column(sid, "logs")


# ---- renewals that race with it


def race(gw):
    """Renews around the deadline until a renewal loses, or often enough. What was granted must hold."""
    sid = gw.create().json["id"]
    granted, status = gw.renew(sid, 0.3)
    assert status == 200
    won = 0
    for n in range(6):
        wait_for("the deadline is near", lambda: now() > granted - datetime.timedelta(milliseconds=40 - 6 * n), 5)
        at, status = gw.renew(sid, 0.3)
        if status == 404:
            break
        assert status == 200, status
        granted, won = at, won + 1
    wait_for("it is gone", lambda: gone(gw, sid), 10)
    late = now() - granted
    assert "EXPIRED" in gw.state(sid)
    with_stop = gw.column(sid, "(SELECT at_ms FROM events WHERE sandbox_id = sandboxes.id AND type = 'Stopping')")
    assert with_stop >= granted.timestamp() * 1000 - 1, "it was ended before its time"
    return late.total_seconds(), won, status == 404


def test_renewals_race_with_expiry(make_gateway):
    gw = make_gateway().start()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: race(gw), range(4 * SOAK)))
    late, won, lost = zip(*results)
    print(f"{len(results)} rounds, {sum(won)} renewals granted, {sum(lost)} lost,"
          f" gone at the latest {max(late) * 1000:.0f} ms after the last granted time")
    assert gw.engine.containers(gw.instance) == []


# ---- grace


def test_expiry_lets_the_term_handler_flush(graceful):
    sid = graceful.create(entrypoint=FLUSHES).json["id"]
    ready(graceful, sid)
    graceful.renew(sid, 0.2)
    wait_for("it is gone", lambda: gone(graceful, sid))
    assert "flushed\n" in graceful.column(sid, "logs")
    assert "EXPIRED" in graceful.state(sid)


def test_a_paused_one_is_resumed_for_its_grace(graceful):
    sid = graceful.create(entrypoint=FLUSHES).json["id"]
    ready(graceful, sid)
    assert graceful.request("POST", f"/v1/sandboxes/{sid}/pause").status == 202
    assert graceful.request("DELETE", f"/v1/sandboxes/{sid}").status == 204
    assert "flushed\n" in graceful.column(sid, "logs")
    assert "DELETED" in graceful.state(sid)


def test_without_grace_it_is_killed(shared):
    sid = shared.create(entrypoint=FLUSHES).json["id"]
    ready(shared, sid)
    assert shared.request("DELETE", f"/v1/sandboxes/{sid}").status == 204
    lines = shared.column(sid, "logs").splitlines()  # each behind its time
    assert len(lines) == 1 and lines[0].endswith("Z ready")
    assert shared.column(sid, "exit_code") == -1


# ---- delete


def test_the_end_says_who_asked(shared):
    sid = shared.create().json["id"]
    reply = shared.request("DELETE", f"/v1/sandboxes/{sid}", headers={"X-Request-ID": "who-asked-42"})
    assert reply.status == 204
    assert "(DELETED: Deleted by request who-asked-42 from 127.0.0.1.)" in shared.state(sid)


def test_twenty_deletes_at_once(shared):
    sid = shared.create().json["id"]
    barrier = threading.Barrier(20)

    def delete(_):
        barrier.wait()
        return shared.request("DELETE", f"/v1/sandboxes/{sid}")

    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        replies = list(pool.map(delete, range(20)))
    assert sorted(r.status for r in replies) == [204] + [404] * 19
    assert {r.json["code"] for r in replies if r.status == 404} == {"DOCKER::SANDBOX_NOT_FOUND"}


def test_deletes_race_with_expiry(shared):
    for _ in range(2 * SOAK):
        sid = shared.create().json["id"]
        at, _ = shared.renew(sid, 0.1)
        wait_for("its time comes", lambda: now() >= at - datetime.timedelta(milliseconds=3))
        assert shared.request("DELETE", f"/v1/sandboxes/{sid}").status in (204, 404)
        wait_for("it is gone", lambda: gone(shared, sid))
        wait_for("and its container", lambda: shared.engine.call("GET", f"/containers/sandbox-{sid}/json")[0] == 404)
