"""Held start, the claim, and the duties of PID 1 (common/agent/wire.h, design decisions 2 and 3)."""

import json
import os
import signal
import threading
import time
import uuid

import pytest

from agentlib import SECRET, Fifo, claim, processes, read_line

REFUSED = 126
NOT_STARTED = 127


def test_held_answers_ping_and_nothing_else(held):
    agent = held()
    resp = agent.request("GET", "/ping")
    assert (resp.status, resp.data) == (200, b"")
    for method, path in [("POST", "/command"), ("GET", "/files/info"), ("GET", "/nope"), ("POST", "/ping/x")]:
        resp = agent.request(method, path, "{}" if method == "POST" else None)
        assert resp.status == 503 and set(json.loads(resp.data)) == {"code", "message"}


def test_ready(held):
    agent = held()
    resp = agent.request("GET", "/ready")
    assert (resp.status, json.loads(resp.data)) == (503, {"initialized": False})
    claim(agent, entrypoint=["sleep", "1000"])
    resp = agent.request("GET", "/ready", headers={})
    assert resp.status == 200
    assert json.loads(resp.data) == {"initialized": True, "sandboxId": "box-1", "generation": 1}


def test_claim(held):
    agent = held(env={"FROM_IMAGE": "i", "BOTH": "image", "EXECD_ACCESS_TOKEN": "bait"})
    resp = claim(agent, env={"BOTH": "claim", "FROM_CLAIM": "c"},
                 entrypoint=["sh", "-c", "echo $FROM_IMAGE $BOTH $FROM_CLAIM $OPENSANDBOX_ID $LANG; "
                                         "echo $EXECD_ACCESS_TOKEN; exec sleep 60"])
    reply = json.loads(resp.data)
    assert resp.status == 200 and reply["status"] == "claimed"
    assert read_line(agent.proc.stdout) == "i claim c box-1 C.UTF-8\n"
    assert read_line(agent.proc.stdout) == "\n"
    assert os.getpgid(reply["pid"]) == reply["pid"]
    assert agent.run("echo $BOTH $OPENSANDBOX_ID").stdout == "claim box-1\n"
    assert agent.request("GET", "/ping", headers={"X-EXECD-ACCESS-TOKEN": ""}).status == 200
    agent.headers = {}
    assert agent.request("POST", "/command", {"command": "true"}).status == 401
    agent.headers = {"X-EXECD-ACCESS-TOKEN": "bait"}
    assert agent.request("POST", "/command", {"command": "true"}).status == 401


def test_a_second_claim_is_a_conflict(held):
    agent = held()
    assert claim(agent).status == 200
    for secret in (SECRET, "wrong"):
        resp = agent.request("POST", "/internal/claim", {"secret": secret, "token": "other"})
        assert resp.status == 409
    assert agent.run("echo still mine").stdout == "still mine\n"


@pytest.mark.parametrize("body", ['{"secret":"wrong","token":"t"}', '{"token":"t"}', "{", ""])
def test_a_wrong_secret_is_the_end(held, body):
    agent = held()
    resp = agent.request("POST", "/internal/claim", body)
    assert resp.status == 403 and set(json.loads(resp.data)) == {"code", "message"}
    assert agent.wait() == REFUSED
    assert b"security" in agent.proc.stderr.read()


@pytest.mark.parametrize("fields,text", [
    ({"entrypoint": ["no-such-program"]}, "no-such-program: not found in PATH"),
    ({"entrypoint": ["/no/such/program"]}, "/no/such/program: No such file or directory"),
    ({"entrypoint": ["/etc/passwd"]}, "Permission denied"),
    ({"entrypoint": [""]}, "must not be empty"),
    ({"entrypoint": "sleep"}, "entrypoint"),
    ({"token": ""}, "token"),
    ({"env": {"A": 1}}, "env"),
    ({"lineEndings": "some"}, "lineEndings"),
])
def test_a_claim_that_cannot_be_carried_out(held, fields, text):
    agent = held()
    resp = claim(agent, **fields)
    error = json.loads(resp.data)
    assert resp.status == 400 and text in error["message"]
    assert agent.wait() == NOT_STARTED


@pytest.mark.parametrize("fields,want", [
    ({}, ["a\n"]),
    ({"lineEndings": "strip"}, ["a"]),
    ({"lineEndings": "strip", "env": {"OPENSANDBOX_LINE_ENDINGS": "keep"}}, ["a\n"]),
])
def test_line_endings(held, fields, want):
    agent = held()
    assert claim(agent, **fields).status == 200
    assert agent.run("echo a").out == want


def test_entrypoint_runs_in_the_agents_directory(held, tmp_path):
    agent = held(cwd=tmp_path)
    claim(agent, entrypoint=["pwd"])
    assert read_line(agent.proc.stdout) == f"{tmp_path}\n"
    assert agent.wait() == 0


@pytest.mark.parametrize("script,status", [("exit 42", 42), ("kill -9 $$", 137), ("true", 0)])
def test_the_end_of_the_entrypoint_is_the_end(held, script, status):
    agent = held()
    claim(agent, entrypoint=["sh", "-c", script])
    assert agent.wait() == status


def test_the_end_takes_everything_with_it(held, tmp_path):
    marker = f"300.{uuid.uuid4().int % 10**9}"
    go = Fifo(tmp_path / "go")
    agent = held()
    claim(agent, entrypoint=["sh", "-c", f"read x < {go}; exit 5"])
    agent.run(f"sleep {marker} & setsid sleep {marker} & true")
    stream = agent.stream(command=f"sleep {marker}")
    stream.until("ping")
    go.write("x\n")
    assert stream.until("error")["error"]["traceback"] == ["signal: terminated"]
    assert agent.wait() == 5
    assert processes(marker) == []


def test_term_reaches_the_entrypoint_and_its_status_is_kept(held):
    agent = held()
    claim(agent, entrypoint=["sh", "-c", "trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.05; done"])
    assert read_line(agent.proc.stdout) == "up\n"
    agent.proc.send_signal(signal.SIGTERM)
    assert agent.wait() == 7
    assert agent.proc.stdout.read() == b"bye\n"


def test_term_when_nothing_runs(held):
    agent = held()
    agent.proc.send_signal(signal.SIGTERM)
    assert agent.wait() == 0
    agent = held()
    claim(agent)
    agent.proc.send_signal(signal.SIGINT)
    assert agent.wait() == 0


def test_no_new_commands_while_it_stops(held, tmp_path):
    go = Fifo(tmp_path / "go")
    agent = held()
    claim(agent, entrypoint=["sh", "-c", f"trap 'echo stopping; read x < {go}; exit 3' TERM; echo up; "
                                         "while :; do sleep 0.05; done"])
    read_line(agent.proc.stdout)
    agent.proc.send_signal(signal.SIGTERM)
    assert read_line(agent.proc.stdout) == "stopping\n"
    assert agent.request("POST", "/command", {"command": "true"}).status == 503
    assert agent.request("GET", "/ping").status == 200
    go.write("x\n")
    assert agent.wait() == 3


@pytest.mark.parametrize("sig", ["HUP", "USR1", "USR2", "WINCH"])
def test_signals_are_passed_on(held, sig):
    agent = held()
    claim(agent, entrypoint=["sh", "-c", f"trap 'echo got {sig}; exit 0' {sig}; echo up; while :; do sleep 0.02; done"])
    assert read_line(agent.proc.stdout) == "up\n"
    agent.proc.send_signal(getattr(signal, "SIG" + sig))
    assert read_line(agent.proc.stdout) == f"got {sig}\n"
    assert agent.wait() == 0


def test_the_end_is_not_waited_for_when_nothing_is_left(held):
    agent = held()
    claim(agent, entrypoint=["sh", "-c", "read x; exit 4"])  # its input is empty
    began = time.monotonic()
    assert agent.wait() == 4
    assert time.monotonic() - began < 2


@pytest.mark.slow
def test_kill_after_ten_seconds(held, tmp_path):
    marker = f"300.{uuid.uuid4().int % 10**9}"
    go, up = Fifo(tmp_path / "go"), Fifo(tmp_path / "up")
    agent = held()
    claim(agent, entrypoint=["sh", "-c", f"read x < {go}; exit 9"])
    agent.run(f"(trap '' TERM; echo up > {up}; exec sleep {marker}) & true")
    assert up.read_line() == "up"
    began = time.monotonic()
    go.write("x\n")
    assert agent.wait() == 9
    assert 9 < time.monotonic() - began < 14 and processes(marker) == []


def zombies(parent):
    found = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as f:
                state, ppid = f.read().rsplit(")", 1)[1].split()[:2]
        except OSError:
            continue
        found += state == "Z" and int(ppid) == parent
    return found


def test_orphans_are_collected(held):
    agent = held()
    claim(agent)
    agent.run("for i in 1 2 3 4 5 6 7 8; do (setsid sh -c 'exit 3' &) ; done")
    agent.run("true")
    for _ in range(1000):
        if zombies(agent.proc.pid) == 0:
            break
    assert zombies(agent.proc.pid) == 0


def test_memory_and_environment_are_closed(held):
    agent = held()
    claim(agent)
    if os.geteuid() != 0:
        pytest.skip("needs root to look as another user")
    result = agent.run(f"cat /proc/{agent.proc.pid}/environ; cat /proc/{agent.proc.pid}/maps", uid=65534)
    assert result.code != 0 and result.stdout == ""


def test_claim_race_has_one_winner(held):
    agent = held()
    codes = []

    def one(i):
        body = {"secret": SECRET, "token": f"t{i}"}
        codes.append(agent.request("POST", "/internal/claim", body).status)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(codes) == [200] + [409] * 7


def test_classic_init_runs_a_program(start_agent):
    agent = start_agent("--init", "--", "sh", "-c", "echo hi; exit 6")
    assert read_line(agent.proc.stdout) == "hi\n"
    assert agent.wait() == 6
