"""GET /command/{id}/resume: nothing of a stream is lost with its connection (contract/newest.md 3.1)."""

import http.client
import json
import threading
import time

import pytest
from agentlib import Fifo, Result, Stream


def resume(agent, ident, after=None):
    conn = agent.connect()
    conn.request("GET", f"/command/{ident}/resume" + ("" if after is None else f"?after_eid={after}"))
    resp = conn.getresponse()
    if resp.status == 200:
        assert resp.getheader("Content-Type") == "text/event-stream"
        return Stream(conn, resp)
    resp.data = resp.read()
    conn.close()
    return resp


def resume_when_free(agent, ident, after):
    """The agent sees a client's leaving a moment later: until then it says 409."""
    for _ in range(100000):
        got = resume(agent, ident, after)
        if isinstance(got, Stream):
            return got
        assert got.status == 409 and json.loads(got.data)["code"] == "INVALID_REQUEST_BODY"
    raise AssertionError("the stream was never given free")


def numbers(events):
    return [e["eid"] for e in events if "eid" in e]


def test_numbers(agent):
    r = agent.run("echo a; echo b >&2; echo c; exit 3")
    assert numbers(r.events) == [1, 2, 3, 4]
    assert all("eid" not in e for e in r.events if e["type"] in ("init", "ping"))
    assert r.last["eid"] == 4 and r.last["type"] == "error"


def test_three_cuts(agent, tmp_path):
    """200 ticks, cut every 15: all there, once, in order."""
    go = Fifo(tmp_path / "go")
    stream = agent.stream(command=f"for i in $(seq 200); do echo $i; [ $((i % 15)) != 0 ] || read x < {go}; done")
    ident = stream.next()["text"]
    got = []
    for _ in range(3):
        while len(got) % 15 or not got or got[-1]["eid"] % 15:
            event = stream.next()
            if "eid" in event:
                got.append(event)
        stream.close()
        go.write("x\n")
        stream = resume_when_free(agent, ident, got[-1]["eid"])
        got.append(stream.next())
    for _ in range(12):
        go.write("x\n")
    got += [e for e in stream.rest() if e["type"] != "ping"]
    assert [e["eid"] for e in got] == list(range(1, 202))
    assert [e["text"] for e in got[:-1]] == [f"{i}\n" for i in range(1, 201)]
    assert got[-1]["type"] == "execution_complete"


def test_after_the_end(agent):
    r = agent.run("seq 1 1000; exit 7")
    for after, want in ((None, 1001), (0, 1001), ("x", 1001), (990, 11), (1000, 1), (1001, 0)):
        events = resume(agent, r.id, after).rest()
        assert [e["type"] for e in events] == (["stdout"] * (want - 1) + ["error"] if want else [])
        assert numbers(events) == list(range(1002 - want, 1002))
    resp = resume(agent, r.id, 1002)
    assert resp.status == 400 and "number 1001" in json.loads(resp.data)["message"]
    assert [e["text"] for e in resume(agent, r.id).rest()[:-1]] == r.out


def test_what_cannot_be_resumed(agent, tmp_path):
    resp = resume(agent, "0" * 32)
    assert resp.status == 404 and json.loads(resp.data)["code"] == "INVALID_REQUEST_BODY"
    background = agent.run("true", background=True)
    assert resume(agent, background.id).status == 404
    go = Fifo(tmp_path / "go")
    stream = agent.stream(command=f"echo up; read x < {go}")
    ident = stream.next()["text"]
    stream.until("stdout")
    resp = resume(agent, ident, 1)
    assert resp.status == 409 and "still active" in json.loads(resp.data)["message"]
    go.write("x\n")
    assert stream.rest()[-1]["type"] == "execution_complete"


def test_a_gap_is_said(agent):
    r = agent.run("yes 0123456789012345678901234567890123456789 | head -n 300000")
    resp = resume(agent, r.id, 5)
    assert resp.status == 410
    body = json.loads(resp.data)
    assert body["code"] == "EVENTS_GONE" and "oldest that is kept is number" in body["message"]
    oldest = int(body["message"].split("after_eid=")[1].rstrip(")"))
    events = resume(agent, r.id, oldest).rest()
    assert numbers(events) == list(range(oldest + 1, 300002))
    assert 300001 - oldest >= 1024


def test_the_command_does_not_wait_for_a_client_that_left(agent, tmp_path):
    stream = agent.stream(command=f"seq 1 2000000; echo x > {tmp_path}/done")
    ident = stream.next()["text"]
    stream.close()
    agent.wait_ended(ident)
    assert (tmp_path / "done").exists()
    assert resume(agent, ident, 2000000).rest()[-1]["type"] == "execution_complete"


def test_a_slow_client_does_not_hold_up_the_command(agent, tmp_path):
    """Megabytes behind, and the command ends all the same; the client then gets every byte."""
    stream = agent.stream(command=f"seq 1 100000; echo x > {tmp_path}/done")
    ident = stream.next()["text"]
    agent.wait_ended(ident)
    assert (tmp_path / "done").exists()
    events = stream.rest()
    assert "".join(e["text"] for e in events if e["type"] == "stdout") == "".join(f"{i}\n" for i in range(1, 100001))


def test_live_resumes_one_after_another(agent, tmp_path):
    go = Fifo(tmp_path / "go")
    stream = agent.stream(command=f"while read x < {go}; do echo $x; [ $x != end ] || exit 0; done")
    ident = stream.next()["text"]
    last = 0
    for i in range(20):
        stream.close()
        stream = resume_when_free(agent, ident, last)
        go.write(f"{i}\n")
        event = stream.next()
        assert (event["text"], event["eid"]) == (f"{i}\n", last + 1)
        last += 1
    go.write("end\n")
    assert [e["type"] for e in stream.rest()] == ["stdout", "execution_complete"]


def test_a_quiet_resume_has_neither_init_nor_pings(agent, tmp_path):
    go = Fifo(tmp_path / "go")
    stream = agent.stream(command=f"echo a; read x < {go}")
    ident = stream.next()["text"]
    stream.until("stdout")
    stream.close()
    stream = resume_when_free(agent, ident, 1)
    timer = threading.Timer(3.5, go.write, ["x\n"])  # longer than the time between pings
    timer.start()
    assert [e["type"] for e in stream.rest()] == ["execution_complete"]


def test_two_clients_of_an_ended_command(agent):
    r = agent.run("seq 1 200000")
    first, second = (resume(agent, r.id, 199000) for _ in range(2))
    a, b = first.rest(), second.rest()
    assert a == b and len(a) == 1001


def test_killed_agent_is_no_clean_end_of_a_resume(agent):
    stream = agent.stream(command="echo a; exec sleep 60")
    ident = stream.next()["text"]
    stream.until("stdout")
    stream.close()
    stream = resume_when_free(agent, ident, 0)
    stream.until("stdout")
    agent.proc.kill()
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        stream.rest()


def test_logs_of_many_commands_are_bounded(agent):
    """Ended ones make room; the newest can still be resumed."""
    ids = [agent.run("head -c 40000 /dev/zero | tr '\\0' x").id for _ in range(150)]
    assert resume(agent, ids[0]).status == 404
    assert len(resume(agent, ids[-1]).rest()) == 2
    if not agent.sanitized:
        assert agent.rss_kib() < 16 * 1024
