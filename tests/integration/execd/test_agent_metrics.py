"""GET /metrics and /metrics/watch of the agent as a local process (contract/execd.md 11)."""

import json
import os
import time

from agentlib import Stream

KEYS = ["cpu_count", "cpu_used_pct", "mem_total_mib", "mem_used_mib", "timestamp"]


def check(m):
    assert sorted(m) == KEYS
    assert 0 < m["cpu_count"] <= os.cpu_count()
    assert 0 <= m["cpu_used_pct"] <= 100
    assert 0 <= m["mem_used_mib"] <= m["mem_total_mib"]
    assert abs(m["timestamp"] - time.time() * 1000) < 60000
    return m


def metrics(agent):
    reply = agent.request("GET", "/metrics")
    assert reply.status == 200 and reply.getheader("Content-Type").startswith("application/json")
    return check(json.loads(reply.data))


def watch(agent):
    conn = agent.connect()
    conn.request("GET", "/metrics/watch", headers=agent.headers)
    reply = conn.getresponse()
    assert reply.status == 200 and reply.getheader("Content-Type") == "text/event-stream"
    return Stream(conn, reply)


def test_answers_are_there_at_once(agent):
    """Twenty that each took a second would not be through."""
    start = time.monotonic()
    for _ in range(20):
        metrics(agent)
    assert time.monotonic() - start < 15


def test_use_of_the_cpu_is_seen(agent):
    stream = agent.stream(command="echo up; while :; do :; done")
    stream.until("stdout")
    until = time.monotonic() + 20
    while metrics(agent)["cpu_used_pct"] < 5:
        assert time.monotonic() < until, "a busy loop is not seen"
    agent.request("DELETE", "/command", id=json.loads(stream.raw.split(b"\n\n")[0])["text"])
    stream.close()


def test_watch_sends_events_with_two_line_feeds(agent):
    stream = watch(agent)
    for _ in range(2):
        check(stream.next())
    assert stream.raw.count(b"\n\n") >= 2 and b"\n\n\n" not in stream.raw
    stream.close()
    metrics(agent)


def test_watchers_that_leave_cost_nothing(agent):
    for _ in range(30):
        stream = watch(agent)
        check(stream.next())
        stream.close()
    again = watch(agent)
    check(again.next())
    again.close()


def test_the_end_of_the_agent_ends_watching(agent):
    streams = [watch(agent) for _ in range(3)]
    for stream in streams:
        check(stream.next())
    agent.proc.terminate()
    for stream in streams:
        assert stream.rest() == []  # the clean end of the body
        stream.close()
    assert agent.wait() == 0


def test_they_need_the_token(start_agent):
    agent = start_agent("--access-token=tok")
    for path in ("/metrics", "/metrics/watch"):
        assert agent.request("GET", path).status == 401
    agent.headers = {"X-EXECD-ACCESS-TOKEN": "tok"}
    metrics(agent)
