"""Lifecycle hooks and mount checks of a claim (common/agent/wire.h, contract/newest.md 3.5)."""

import json
import os
import select
import signal
import threading
import uuid

import pytest

from agentlib import DEADLINE, SECRET, Fifo, claim, processes, read_line

SOAK = pytest.mark.skipif("SANDGATE_SOAK" not in os.environ, reason="takes long: part of make soak")
TIMEOUT = 124
NOT_STARTED = 127


def shell(script):
    return ["sh", "-c", script]


def message(resp):
    error = json.loads(resp.data)
    assert set(error) == {"code", "message"}
    return error["message"]


class Claim:
    """A claim whose answer is waited for elsewhere."""

    def __init__(self, agent, **fields):
        self.agent = agent
        self.resp = None
        self.thread = threading.Thread(target=self.ask, args=(fields,))
        self.thread.start()

    def ask(self, fields):
        self.resp = claim(self.agent, **fields)

    @property
    def waits(self):
        return self.thread.is_alive()

    def wait(self):
        self.thread.join(DEADLINE)
        assert self.resp is not None, "the claim was not answered"
        return self.resp


def read_until(pipe, text):
    """Lines of the agent's log up to the one that holds text."""
    seen = ""
    while text not in seen:
        seen += read_line(pipe)
        assert seen, "the log ended"
    return seen


def at(path):
    st = os.stat(path)
    return {"path": str(path), "dev": str(st.st_dev), "ino": str(st.st_ino)}


# ---- mounts ----


def test_mounts_that_are_what_was_checked(held, tmp_path):
    (tmp_path / "v").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "v")
    agent = held()
    resp = claim(agent, mounts=[at(tmp_path / "v"), at(tmp_path / "link"), at("/proc")], entrypoint=["sleep", "60"])
    assert resp.status == 200


@pytest.mark.parametrize("change,text", [
    ({"ino": "1"}, "the volume at {} is not the directory that was checked"),
    ({"dev": "1"}, "the volume at {} is not the directory that was checked"),
    ({"path": "/no/such/volume"}, "/no/such/volume"),
    ({"path": "relative"}, "absolute"),
    ({"path": "/" * 4096}, "mounts.1.path"),
    ({"dev": 66306}, "mounts.1.dev"),
    ({"ino": None}, "mounts.1.ino"),
])
def test_a_wrong_mount_is_refused_before_anything_runs(held, tmp_path, change, text):
    agent = held()
    ran = tmp_path / "ran"
    resp = claim(agent, mounts=[at(tmp_path), {**at(tmp_path), **change}],
                 lifecycle={"preStart": {"command": ["touch", str(ran)]}}, entrypoint=["touch", str(ran)])
    assert resp.status == 400 and text.format(tmp_path) in message(resp)
    assert agent.wait() == NOT_STARTED and not ran.exists()


def test_mounts_have_a_limit(held, tmp_path):
    agent = held()
    assert claim(agent, mounts=[at(tmp_path)] * 64).status == 200
    agent = held()
    resp = claim(agent, mounts=[at(tmp_path)] * 65)
    assert resp.status == 400 and "mounts" in message(resp)


# ---- preStart ----


def test_pre_start_comes_first(held, tmp_path):
    order = tmp_path / "order"
    agent = held(cwd=tmp_path, env={"FROM_IMAGE": "i", "EXECD_ACCESS_TOKEN": "bait",
                                    "OPENSANDBOX_LIFECYCLE": '{"preStart":{"command":["false"]}}'})
    resp = claim(agent, env={"FROM_CLAIM": "c"}, entrypoint=shell(f"echo entrypoint >> {order}; cat {order}; exec sleep 60"),
                 lifecycle={"preStart": {"command": shell(
                     f"pwd; echo $FROM_IMAGE $FROM_CLAIM $OPENSANDBOX_ID; env | grep -E 'TOKEN|LIFECYCLE'; "
                     f"echo to stderr >&2; echo hook >> {order}")}})
    assert resp.status == 200 and json.loads(resp.data)["pid"] > 0
    assert [read_line(agent.proc.stdout) for _ in range(4)] == [f"{tmp_path}\n", "i c box-1\n", "hook\n", "entrypoint\n"]
    read_until(agent.proc.stderr, "to stderr\n")
    assert agent.run("echo open").stdout == "open\n"


def test_the_claim_waits_for_pre_start(held, tmp_path):
    up, go = Fifo(tmp_path / "up"), Fifo(tmp_path / "go")
    agent = held()
    waiting = Claim(agent, entrypoint=["sleep", "60"],
                    lifecycle={"preStart": {"command": shell(f"echo up > {up}; read x < {go}")}})
    assert up.read_line() == "up"
    token = {"X-EXECD-ACCESS-TOKEN": "tok"}
    for _ in range(3):
        assert agent.request("GET", "/ping").status == 200
        for path in ("/files/info?path=/", "/proxy/9/x"):
            resp = agent.request("GET", path, headers=token)
            assert resp.status == 503 and "preStart" in message(resp)
        assert agent.request("POST", "/command", {"command": "true"}, headers=token).status == 503
    assert agent.request("POST", "/internal/claim", {"secret": SECRET, "token": "x"}).status == 409
    assert waiting.waits
    go.write("x\n")
    assert waiting.wait().status == 200
    assert agent.run("echo open").stdout == "open\n"


@pytest.mark.parametrize("script,status,text", [
    ("echo one; echo two >&2; exit 3", 3, "exit status 3"),
    ("kill -9 $$", 137, "signal KILL"),
    ("printf 'caf\\303\\251 \\377'; exit 1", 1, "caf\u00e9 \ufffd"),
    ("seq 1 50000; echo the end; exit 255", 255, "the end"),
    ("exit 1", 1, "it wrote nothing"),
])
def test_a_failed_pre_start_is_the_end(held, tmp_path, script, status, text):
    agent = held()
    ran = tmp_path / "ran"
    out = []
    reader = threading.Thread(target=lambda: out.append(agent.proc.stdout.read()))
    reader.start()
    resp = claim(agent, entrypoint=["touch", str(ran)], lifecycle={"preStart": {"command": shell(script)}})
    said = message(resp)
    assert resp.status == 400 and said.startswith("lifecycle.preStart: ") and text in said
    assert len(said.encode()) <= 450
    assert agent.wait() == status and not ran.exists()
    reader.join(DEADLINE)
    if "seq" in script:
        assert out[0] == b"".join(b"%d\n" % i for i in range(1, 50001)) + b"the end\n"


def test_a_pre_start_that_cannot_be_started(held, tmp_path):
    for command in (["no-such-program"], ["/no/such/program"], ["/etc/passwd"]):
        agent = held()
        resp = claim(agent, lifecycle={"preStart": {"command": command}})
        assert resp.status == 400 and "lifecycle.preStart" in message(resp) and command[0] in message(resp)
        assert agent.wait() == NOT_STARTED


def test_an_entrypoint_that_cannot_be_started_after_pre_start(held):
    marker = f"300.{uuid.uuid4().int % 10**9}"
    agent = held()
    resp = claim(agent, entrypoint=["no-such-program"],
                 lifecycle={"preStart": {"command": shell(f"setsid sleep {marker} & exit 0")}})
    assert resp.status == 400 and "no-such-program: not found" in message(resp)
    assert agent.wait() == NOT_STARTED and processes(marker) == []


def test_the_timeout_ends_the_whole_group(held, tmp_path):
    marker = f"300.{uuid.uuid4().int % 10**9}"
    agent = held()
    resp = claim(agent, entrypoint=["touch", str(tmp_path / "ran")],
                 lifecycle={"preStart": {"command": shell(f"sleep {marker} & echo begun; sleep {marker}"),
                                         "timeoutSeconds": 1}})
    said = message(resp)
    assert resp.status == 400 and "timed out after 1 s" in said and "begun" in said
    assert processes(marker) == []
    assert agent.wait() == TIMEOUT and not (tmp_path / "ran").exists()


@SOAK
def test_soak_a_pre_start_that_ignores_term_is_killed(held):
    marker = f"300.{uuid.uuid4().int % 10**9}"
    agent = held()
    resp = claim(agent, lifecycle={"preStart": {"command": shell(f"trap '' TERM; sleep {marker}; sleep {marker}"),
                                                "timeoutSeconds": 1}})
    assert resp.status == 400 and "timed out after 1 s" in message(resp)
    assert processes(marker) == [] and agent.wait() == TIMEOUT


def test_what_pre_start_leaves_running_goes_on(held, tmp_path):
    go = Fifo(tmp_path / "go")
    agent = held()
    resp = claim(agent, entrypoint=["sleep", "60"],
                 lifecycle={"preStart": {"command": shell(f"setsid sh -c 'read x < {go}; echo late' & echo early")}})
    assert resp.status == 200
    assert read_line(agent.proc.stdout) == "early\n"
    go.write("x\n")
    assert read_line(agent.proc.stdout) == "late\n"


def test_a_claimer_that_goes_away_ends_nothing(held, tmp_path):
    up, go, ran = Fifo(tmp_path / "up"), Fifo(tmp_path / "go"), Fifo(tmp_path / "ran")
    agent = held()
    conn = agent.connect()
    conn.request("POST", "/internal/claim", json.dumps({
        "secret": SECRET, "token": "tok", "entrypoint": shell(f"echo ran > {ran}; exec sleep 60"),
        "lifecycle": {"preStart": {"command": shell(f"echo up > {up}; read x < {go}")}}}))
    assert up.read_line() == "up"
    conn.close()
    assert agent.request("GET", "/ping").status == 200
    go.write("x\n")
    assert ran.read_line() == "ran"
    agent.headers = {"X-EXECD-ACCESS-TOKEN": "tok"}
    assert agent.run("echo open").stdout == "open\n"


def test_term_while_pre_start_runs(held, tmp_path):
    up = Fifo(tmp_path / "up")
    for script in (f"echo up > {up}; exec sleep 300", f"trap 'exit 0' TERM; echo up > {up}; while :; do sleep 0.02; done"):
        agent = held()
        waiting = Claim(agent, entrypoint=["touch", str(tmp_path / "ran")],
                        lifecycle={"preStart": {"command": shell(script)}})
        assert up.read_line() == "up"
        agent.proc.send_signal(signal.SIGTERM)
        resp = waiting.wait()
        assert resp.status == 400 and "stopped" in message(resp)
        assert agent.wait() == 143 and not (tmp_path / "ran").exists()


# ---- periodic hooks ----


def periodic(command, schedule="@every 1s", name="hook", **more):
    return {"periodic": [{"name": name, "schedule": schedule, "command": command, **more}]}


def test_every_second_without_overlap(held, tmp_path):
    log, go = tmp_path / "log", Fifo(tmp_path / "go")
    ran = Fifo(tmp_path / "ran")
    agent = held(cwd=tmp_path)
    resp = claim(agent, env={"A": "a"}, entrypoint=["sleep", "60"],
                 lifecycle=periodic(shell(f"echo begin >> {log}; echo $A $PWD > {ran}; read x < {go}; echo end >> {log}; echo out")))
    assert resp.status == 200
    for _ in range(2):
        assert ran.read_line() == f"a {tmp_path}"
        read_until(agent.proc.stderr, "is skipped")
        assert log.read_text().endswith("begin\n")
        go.write("x\n")
        assert read_line(agent.proc.stdout) == "out\n"
    lines = log.read_text().split()
    assert lines[:4] == ["begin", "end"] * 2
    assert agent.run("true").code == 0


@SOAK
def test_soak_a_minute_of_the_wall_clock(held):
    agent = held()
    assert claim(agent, entrypoint=["sleep", "300"],
                 lifecycle=periodic(shell("date +%S"), schedule="TZ=UTC * * * * *")).status == 200
    assert select.select([agent.proc.stdout], [], [], 60 + DEADLINE)[0], "a minute has passed without a run"
    assert int(read_line(agent.proc.stdout)) < DEADLINE


def test_failures_are_only_logged(held):
    agent = held()
    hooks = {"periodic": periodic(["no-such-program"], name="absent")["periodic"]
             + periodic(shell("exit 7"), name="seven")["periodic"]}
    assert claim(agent, entrypoint=["sleep", "60"], lifecycle=hooks).status == 200
    said = read_until(agent.proc.stderr, '"seven"')
    said += read_until(agent.proc.stderr, '"absent"') if '"absent"' not in said else ""
    assert "exit status 7" in said and "no-such-program: not found" in said
    assert agent.run("echo still here").stdout == "still here\n"


def test_a_periodic_hook_that_takes_too_long(held, tmp_path):
    marker = f"300.{uuid.uuid4().int % 10**9}"
    agent = held()
    assert claim(agent, entrypoint=["sleep", "60"],
                 lifecycle=periodic(["sleep", marker], timeoutSeconds=1)).status == 200
    assert "hook" in read_until(agent.proc.stderr, "timed out after 1 s")
    assert "hook" in read_until(agent.proc.stderr, "timed out after 1 s")  # it is run again


def test_the_end_cancels_hooks(held, tmp_path):
    """The entrypoint takes longer to end than the hooks' period: none is begun meanwhile."""
    marker = f"300.{uuid.uuid4().int % 10**9}"
    up = Fifo(tmp_path / "up")
    starts, seen = tmp_path / "starts", tmp_path / "seen"
    starts.touch()
    agent = held()
    hooks = {"periodic": periodic(["sh", "-c", f"echo up > {up}; sleep 300", marker], name="long")["periodic"]
             + periodic(shell(f"echo x >> {starts}"), name="short")["periodic"]}
    assert claim(agent, lifecycle=hooks, entrypoint=shell(
        f"trap 'cp {starts} {seen}; sleep 2; exit 5' TERM; while :; do sleep 0.05; done")).status == 200
    assert up.read_line() == "up"
    assert processes(marker)  # between fork and exec the shell's child has the same command line
    agent.proc.send_signal(signal.SIGTERM)
    assert agent.wait() == 5 and processes(marker) == []
    assert len(starts.read_text()) <= len(seen.read_text()) + 2  # one may have been on its way


def test_hooks_leave_no_zombies(held, tmp_path):
    done = Fifo(tmp_path / "done")
    agent = held()
    assert claim(agent, entrypoint=["sleep", "60"],
                 lifecycle={"preStart": {"command": shell("for i in 1 2 3; do (setsid true &); done")},
                            **periodic(shell(f"for i in 1 2 3; do (setsid true &); done; echo x > {done}"))}).status == 200
    done.read_line()
    done.read_line()
    agent.run("true")
    for _ in range(1000):
        dead = 0
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/stat") as f:
                    state, parent = f.read().rsplit(")", 1)[1].split()[:2]
            except OSError:
                continue
            dead += state == "Z" and int(parent) == agent.proc.pid
        if not dead:
            return
    raise AssertionError(f"{dead} zombies")


@pytest.mark.parametrize("lifecycle,text", [
    ({"preStart": {"command": []}}, "lifecycle.preStart.command"),
    ({"preStart": {"command": ["true"], "timeoutSeconds": 10801}}, "lifecycle.preStart.timeoutSeconds"),
    ({"postStop": {}}, "postStop"),
    (periodic(["true"], schedule="61 * * * *"), "lifecycle.periodic.0.schedule: minute"),
    (periodic(["true"], schedule="TZ=No/Such_Zone @daily"), "time zone No/Such_Zone"),
    (periodic(["true"], timeoutSeconds=301), "lifecycle.periodic.0.timeoutSeconds"),
    ({"periodic": periodic(["true"])["periodic"] * 2}, "lifecycle.periodic.1.name"),
    ([], "lifecycle"),
])
def test_hooks_that_are_refused(held, tmp_path, lifecycle, text):
    agent = held()
    resp = claim(agent, lifecycle=lifecycle, entrypoint=["touch", str(tmp_path / "ran")])
    assert resp.status == 400 and text in message(resp)
    assert agent.wait() == NOT_STARTED and not (tmp_path / "ran").exists()


# ---- classic mode: upstream's server passes hooks by a variable ----


def test_classic_hooks(start_agent):
    hooks = {"version": 1, "preStart": {"command": shell("echo hook; env | grep LIFECYCLE; true")}}
    agent = start_agent("--init", "--", "sh", "-c", "echo entrypoint; env | grep LIFECYCLE; exit 6",
                        env={"OPENSANDBOX_LIFECYCLE": json.dumps(hooks)})
    assert read_line(agent.proc.stdout) == "hook\n"
    assert read_line(agent.proc.stdout) == "entrypoint\n"
    assert agent.wait() == 6


def test_classic_hooks_without_an_entrypoint(start_agent):
    agent = start_agent(env={"OPENSANDBOX_LIFECYCLE": json.dumps(periodic(["echo", "tick"]))})
    assert read_line(agent.proc.stdout) == "tick\n"
    assert read_line(agent.proc.stdout) == "tick\n"
    assert agent.run("echo open").stdout == "open\n"


def test_a_failed_classic_hook_is_the_end(start_agent, tmp_path):
    agent = start_agent("--init", "--", "touch", str(tmp_path / "ran"), env={
        "OPENSANDBOX_LIFECYCLE": json.dumps({"preStart": {"command": shell("exit 9")}})})
    assert agent.wait() == 9 and not (tmp_path / "ran").exists()


@pytest.mark.parametrize("value", ["{", '{"nope":1}', '{"preStart":{"command":["true"]}} x'])
def test_invalid_classic_hooks_fail_the_start(start_agent, tmp_path, value):
    agent = start_agent("--init", "--", "touch", str(tmp_path / "ran"), env={"OPENSANDBOX_LIFECYCLE": value})
    assert agent.wait() == 1 and not (tmp_path / "ran").exists()
