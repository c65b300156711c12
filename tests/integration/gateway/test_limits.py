"""Resource limits as the programs in a sandbox feel them (pains Q1, Q3, Q4): memory, processes, disk, GPUs."""

import pytest
from test_create import INVALID, run

from harness import Gateway

FORKS = "import os\nn = 0\ntry:\n  while n < 500:\n    if os.fork() == 0: os.execvp('sleep', ['sleep', '600'])\n    n += 1\nexcept OSError as e: print(n, e.strerror)"
GREEDY = "x = bytearray(10**9)"


@pytest.fixture(scope="module")
def gw(tmp_path_factory, engine):
    made = Gateway(tmp_path_factory.mktemp("limits"), engine, extra="[docker]\npids_limit = 64\n").start()
    yield made
    made.cleanup()


def remove(gw, sid):
    assert gw.request("DELETE", f"/v1/sandboxes/{sid}").status == 204


def test_a_command_out_of_memory_is_killed_and_the_sandbox_goes_on(gw):
    sid = gw.create(resourceLimits={"memory": "64Mi"}).json["id"]
    limits = gw.engine.sandbox(sid)["HostConfig"]
    assert limits["Memory"] == limits["MemorySwap"] == 64 << 20  # swap would double it
    assert run(gw, sid, f"python3 -c '{GREEDY}'; echo status $?").split()[-2:] == ["status", "137"]
    assert run(gw, sid, "echo still here").strip() == "still here"
    assert gw.state(sid)["state"] == "Running"
    remove(gw, sid)


def test_a_fork_bomb_meets_its_limit(gw):
    bombed, other = (gw.create().json["id"] for _ in range(2))
    said = run(gw, bombed, f'python3 -c "{FORKS}"')
    count, _, why = said.partition(" ")
    assert 0 < int(count) < 64 and "temporarily unavailable" in why, said
    assert gw.agent(bombed) and gw.state(bombed)["state"] == "Running"
    assert run(gw, other, "echo fine").strip() == "fine"
    remove(gw, bombed)
    remove(gw, other)


@pytest.mark.parametrize("name", ["disk", "gpu"])
def test_what_the_engine_cannot_limit_is_refused_by_name(gw, name):
    """Honoured or refused, never dropped: which of the two depends on the engine."""
    reply = gw.create(resourceLimits={name: {"disk": "64Mi", "gpu": "1"}[name]})
    if reply.status == 400:
        assert reply.json["code"] == INVALID and f"resourceLimits.{name}" in reply.json["message"], reply.raw
        assert gw.records() == [] and gw.engine.containers(gw.instance) == []
        return
    assert reply.status == 202, reply.raw
    sid = reply.json["id"]
    if name == "disk":
        assert "No space left" in run(gw, sid, "fallocate -l 128M /root/big")
    else:
        assert gw.engine.sandbox(sid)["HostConfig"]["DeviceRequests"]
    remove(gw, sid)
