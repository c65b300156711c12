"""The agent ends a sandbox that is past its time when nobody else does (pains X3). Here the grace is short."""

import json
import os
import select
import signal
import time

from agentlib import claim, read_line

GRACE = "--deadline-grace-ms=500"
TRAP = ["sh", "-c", "trap 'echo told; exit 3' TERM; echo up; while :; do sleep 60 & wait $!; done"]


def now():
    return int(time.time() * 1000)


def tell(agent, at, **more):
    return agent.request("POST", "/internal/deadline", {"deadline": at, **more})


def pass_by(seconds):
    """Time is what these tests are about."""
    select.select([], [], [], seconds)


def test_it_ends_gracefully_after_the_grace(held):
    agent = held(args=[GRACE])
    began = time.monotonic()
    assert claim(agent, entrypoint=TRAP, deadline=now() + 300).status == 200
    assert read_line(agent.proc.stdout) == "up\n"
    assert read_line(agent.proc.stdout) == "told\n"
    assert agent.wait() == 3
    assert time.monotonic() - began > 0.75
    assert b"past its time" in agent.proc.stderr.read()


def test_the_clocks_may_differ(held):
    """What counts is how much is left by the claimer's own clock."""
    agent = held(args=[GRACE])
    hour = 3600 * 1000
    assert claim(agent, deadline=now() - hour + 300, now=now() - hour).status == 200
    assert agent.run("echo alive").stdout == "alive\n"
    assert agent.wait() == 0


def test_without_a_deadline_nothing_ends(held):
    agent = held(args=[GRACE])
    assert claim(agent, deadline=0).status == 200
    pass_by(1)
    assert agent.run("echo alive").stdout == "alive\n"


def test_a_renewal_moves_it_both_ways(held):
    agent = held(args=[GRACE])
    assert claim(agent, deadline=now() + 100).status == 200
    assert tell(agent, now() + 60000).status == 200
    pass_by(1)
    assert agent.run("echo alive").stdout == "alive\n"
    assert tell(agent, 0).status == 200
    assert tell(agent, now() + 1, now=now()).status == 200
    assert agent.wait() == 0


def test_one_that_was_stopped_meanwhile_gets_its_grace_again(held):
    """As a paused one: its renewal waits in the socket, and must be heard before the end."""
    agent = held(args=["--deadline-grace-ms=1000"])
    assert claim(agent, deadline=now() + 1).status == 200
    os.kill(agent.proc.pid, signal.SIGSTOP)
    pass_by(2)
    os.kill(agent.proc.pid, signal.SIGCONT)
    assert agent.run("echo alive").stdout == "alive\n"
    assert tell(agent, now() + 60000).status == 200
    pass_by(1.5)
    assert agent.run("echo alive").stdout == "alive\n"


def test_bad_deadlines(held):
    agent = held(args=[GRACE])
    assert claim(agent).status == 200
    for body in ("", "{", "{}", '{"deadline":-1}', '{"deadline":"x"}', '{"deadline":null}', '{"deadline":1e30}'):
        reply = agent.request("POST", "/internal/deadline", body)
        assert reply.status == 400 and "message" in json.loads(reply.data), body
    agent.headers = {}
    assert tell(agent, now()).status == 401
    agent.headers = {"X-EXECD-ACCESS-TOKEN": "tok"}
    assert agent.run("echo alive").stdout == "alive\n"
