"""POST /command: framing, order, ends, environment (contract/execd.md 5 and 6)."""

import http.client
import json
import os
import signal
import sys
import threading
import time
import uuid

import pytest

from agentlib import Fifo, processes

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to switch identity")
PY = sys.executable


# ---- framing ----


def test_the_wire(agent):
    stream = agent.stream(command="echo hi; echo oops >&2")
    resp = stream.resp
    assert resp.getheader("Content-Type") == "text/event-stream"
    assert resp.getheader("Cache-Control") == "no-cache"
    assert resp.getheader("X-Accel-Buffering") == "no"
    assert resp.getheader("Transfer-Encoding") == "chunked"
    events = stream.rest()
    kinds = [e["type"] for e in events]
    assert kinds[:2] == ["init", "ping"]
    assert events[1]["text"] == "pong"
    assert sorted(kinds[2:-1]) == ["stderr", "stdout"]
    assert kinds[-1] == "execution_complete"
    assert len(events[0]["text"]) == 32 and int(events[0]["text"], 16) >= 0
    now = time.time() * 1000
    assert all(abs(e["timestamp"] - now) < 60000 and isinstance(e["timestamp"], int) for e in events)
    assert stream.raw.startswith(b'{"type":"init","text":"')
    assert stream.raw.endswith(b"}\n\n") and stream.raw.count(b"\n") == 2 * len(events)


def test_connection_stays_usable(agent):
    conn = agent.connect()
    for i in range(20):
        conn.request("POST", "/command", json.dumps({"command": f"echo {i}"}))
        text = conn.getresponse().read().decode()
        assert json.dumps(f"{i}\n") in text and "execution_complete" in text


def test_events_leave_when_the_bytes_arrive(agent, tmp_path):
    go = Fifo(tmp_path / "go")
    stream = agent.stream(command=f"echo one; read x < {go}; echo two >&2; read x < {go}; echo three")
    assert stream.until("stdout")["text"] == "one\n"
    go.write("x\n")
    assert stream.until("stderr")["text"] == "two\n"
    go.write("x\n")
    assert stream.until("stdout")["text"] == "three\n"
    assert stream.next()["type"] == "execution_complete"
    assert stream.next() is None


def test_pings(agent, tmp_path):
    go = Fifo(tmp_path / "go")
    stream = agent.stream(command=f"read x < {go}")
    began = time.monotonic()
    stream.until("ping")
    assert time.monotonic() - began < 1
    stream.until("ping")
    assert 2 < time.monotonic() - began < 6
    go.write("x\n")
    assert stream.next()["type"] == "execution_complete"


def test_agent_killed_is_no_clean_end(agent):
    stream = agent.stream(command="echo hi; exec sleep 60")
    stream.until("stdout")
    agent.proc.kill()
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        stream.rest()


# ---- ends ----


@pytest.mark.parametrize("n", [1, 3, 7, 126, 127, 255])
def test_exit_status(agent, n):
    result = agent.run(f"exit {n}")
    assert result.error == {"ename": "CommandExecError", "evalue": str(n), "traceback": [f"exit status {n}"]}
    status = agent.status(result.id)
    assert (status["exit_code"], status["running"], status["error"]) == (n, False, f"exit status {n}")


def test_exit_zero(agent):
    result = agent.run("true")
    assert result.last["type"] == "execution_complete" and result.last["execution_time"] >= 0
    status = agent.status(result.id)
    assert status["exit_code"] == 0 and "error" not in status
    assert status["content"] == "true" and status["id"] == result.id
    assert status["started_at"].endswith("Z") and status["finished_at"].endswith("Z")


@pytest.mark.parametrize("sig,text", [("KILL", "signal: killed"), ("TERM", "signal: terminated"),
                                      ("SEGV", "signal: segmentation fault")])
def test_signals(agent, sig, text):
    result = agent.run(f"kill -{sig} $$")
    assert result.error == {"ename": "CommandExecError", "evalue": "-1", "traceback": [text]}
    assert agent.status(result.id)["exit_code"] == -1


def test_leader_exit_ends_the_stream_though_a_child_holds_the_pipe(agent):
    marker = f"60.{uuid.uuid4().int % 10**9}"
    began = time.monotonic()
    result = agent.run(f"sleep {marker} & echo hi")
    assert time.monotonic() - began < 5
    assert result.out == ["hi\n"] and result.code == 0
    for _ in range(1000):  # it may not have become sleep yet
        left = processes(marker)
        if left:
            break
    assert len(left) == 1, "what the user left running lives on"
    os.kill(left[0], signal.SIGKILL)


def test_leftovers_may_go_on_writing(agent, tmp_path):
    go, done = Fifo(tmp_path / "go"), Fifo(tmp_path / "done")
    script = f"read x < {go}; for i in $(seq 20000); do echo late line $i || exit 1; done; echo ok > {done}"
    assert agent.run(f"({script}) & echo started").out == ["started\n"]
    go.write("x\n")
    assert done.read_line() == "ok"


def test_output_of_the_leader_is_complete(agent):
    for _ in range(30):
        result = agent.run("seq 1 3000; exit 3")
        assert result.stdout == "".join(f"{i}\n" for i in range(1, 3001))
        assert result.code == 3


def test_stdin_is_empty(agent):
    assert agent.run("cat; echo end").stdout == "end\n"


# ---- timeout and interrupt ----


def test_timeout_ends_the_whole_group(agent):
    marker = f"300.{uuid.uuid4().int % 10**9}"
    began = time.monotonic()
    result = agent.run(f"sleep {marker} & (sleep {marker}; true) & sleep {marker}", timeout=300)
    assert 0.25 < time.monotonic() - began < 3
    assert processes(marker) == []
    assert result.error["evalue"] == "-1"
    assert "timed out after 300 ms" in result.error["traceback"][0]
    assert "timed out" in agent.status(result.id)["error"]


def test_timeout_kills_what_ignores_term(agent):
    marker = f"300.{uuid.uuid4().int % 10**9}"
    began = time.monotonic()
    result = agent.run(f"trap '' TERM; sleep {marker} & wait; sleep {marker}", timeout=200)
    assert 1.1 < time.monotonic() - began < 4
    assert result.error["evalue"] == "-1" and processes(marker) == []


def test_timeout_leaves_time_to_clean_up(agent):
    result = agent.run("trap 'echo bye; exit 0' TERM; echo hi; while :; do sleep 0.01; done", timeout=300)
    assert result.out == ["hi\n", "bye\n"] and result.error["evalue"] == "-1"


def test_interrupt(agent):
    marker = f"300.{uuid.uuid4().int % 10**9}"
    stream = agent.stream(command=f"sleep {marker} & echo up; wait")
    ident = stream.until("init")["text"]
    stream.until("stdout")
    assert agent.status(ident)["running"] is True
    resp = agent.request("DELETE", "/command", id=ident)
    assert (resp.status, resp.data, resp.getheader("Content-Length")) == (200, b"", "0")
    assert processes(marker) == []
    error = stream.until("error")["error"]
    assert error["evalue"] == "-1" and error["traceback"] == ["signal: terminated", "command was interrupted"]
    assert agent.status(ident)["error"] == "command was interrupted"
    assert stream.next() is None
    resp = agent.request("DELETE", "/command", id=ident)
    assert resp.status == 500 and json.loads(resp.data)["code"] == "RUNTIME_ERROR"


def test_interrupt_from_init_on(agent):
    for _ in range(10):
        stream = agent.stream(command="exec sleep 60")
        ident = stream.next()["text"]
        assert agent.request("DELETE", "/command", id=ident).status == 200
        assert stream.until("error")


def test_interrupt_kills_what_ignores_term(agent):
    stream = agent.stream(command="trap '' TERM; echo up; while :; do sleep 0.05; done")
    ident = stream.until("init")["text"]
    stream.until("stdout")
    began = time.monotonic()
    other = threading.Thread(target=lambda: agent.request("DELETE", "/command", id=ident))
    other.start()
    assert agent.request("DELETE", "/command", id=ident).status == 200  # two at once
    other.join()
    assert 2.5 < time.monotonic() - began < 5
    assert stream.until("error")["error"]["traceback"][0] == "signal: killed"


def test_interrupt_faults(agent):
    resp = agent.request("DELETE", "/command")
    assert resp.status == 400 and json.loads(resp.data)["code"] == "MISSING_QUERY"
    resp = agent.request("DELETE", "/command", id="0" * 32)
    assert resp.status == 500 and "no such session" in json.loads(resp.data)["message"]


# ---- the client ----


def test_disconnect_does_not_end_the_command(agent, tmp_path):
    up, go = Fifo(tmp_path / "up"), Fifo(tmp_path / "go")
    command = f"echo up > {up}; read x < {go}; yes | head -c 3000000; echo x > {tmp_path}/done; exit 7"
    stream = agent.stream(command=command)
    ident = stream.next()["text"]
    assert up.read_line() == "up"
    stream.close()
    go.write("x\n")
    assert agent.wait_ended(ident)["exit_code"] == 7
    assert (tmp_path / "done").exists()


def test_disconnect_while_the_stream_is_full(agent, tmp_path):
    stream = agent.stream(command=f"yes | head -c 50000000; echo x > {tmp_path}/done")
    ident = stream.next()["text"]
    stream.close()
    assert agent.wait_ended(ident)["exit_code"] == 0
    assert (tmp_path / "done").exists()


def test_a_slow_client_is_waited_for_in_bounded_memory(agent):
    before = agent.rss_kib()
    stream = agent.stream(command="yes 0123456789012345678901234567890123456789 | head -c 20000000")
    stream.next()
    peak = 0
    for _ in range(2000):  # a while in which the agent could collect everything
        assert agent.request("GET", "/ping").status == 200
        peak = max(peak, agent.rss_kib())
    if not agent.sanitized:
        assert peak - before < 8 * 1024
    total = sum(len(e["text"]) for e in stream.rest() if e["type"] == "stdout")
    assert total == 20000000


def test_a_command_is_over_though_its_reader_is_slow(agent):
    stream = agent.stream(command="yes | head -c 60000; exit 3")  # fits into pipe, stream and socket
    ident = stream.next()["text"]
    assert agent.wait_ended(ident)["exit_code"] == 3
    assert agent.request("DELETE", "/command", id=ident).status == 500
    events = stream.rest()
    assert sum(len(e["text"]) for e in events if e["type"] == "stdout") == 60000
    assert events[-1]["error"]["evalue"] == "3"


def test_many_at_once(agent):
    results = {}

    def one(i):
        results[i] = agent.run(f"for k in 1 2 3; do echo {i}-$k; done; exit {i % 5}")

    threads = [threading.Thread(target=one, args=(i,)) for i in range(60)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for i in range(60):
        assert results[i].stdout == f"{i}-1\n{i}-2\n{i}-3\n" and results[i].code == i % 5
    assert len({r.id for r in results.values()}) == 60


# ---- output units ----

STRIPPED = {"User-Agent": "OpenSandbox-Python-SDK/1.1.0"}


@pytest.mark.parametrize("text,kept,stripped", [
    ("a\\n\\nb\\n\\n\\nc\\n", ["a\n", "\n", "b\n", "\n", "\n", "c\n"], ["a", "\n", "b", "\n", "\n", "c"]),
    ("a\\r\\nb\\n", ["a\r\n", "b\n"], ["a", "b"]),
    ("1%%\\r2%%\\n", ["1%\r", "2%\n"], ["1%", "2%"]),
    ("a\\n\\n\\nb\\rc\\n\\nlast", ["a\n", "\n", "\n", "b\r", "c\n", "\n", "last"],
     ["a", "\n", "\n", "b", "c", "\n", "last"]),
    ("x\\r", ["x\r"], ["x"]),
    ("", [], []),
])
def test_units(agent, text, kept, stripped):
    assert agent.run(f"printf '{text}'").out == kept
    assert agent.run(f"printf '{text}' >&2", STRIPPED).err == stripped


def test_crlf_torn_between_writes(agent, tmp_path):
    go = Fifo(tmp_path / "go")
    command = f"printf 'a\\r'; read x < {go}; printf '\\nb\\n'"
    stream = agent.stream(command=command)
    assert stream.until("stdout")["text"] == "a\r"  # nothing followed for a few milliseconds
    go.write("x\n")
    assert [e["text"] for e in stream.rest() if e["type"] == "stdout"] == ["\n", "b\n"]
    stream = agent.stream(STRIPPED, command=command)
    assert stream.until("stdout")["text"] == "a"
    go.write("x\n")
    assert [e["text"] for e in stream.rest() if e["type"] == "stdout"] == ["b"]


@pytest.mark.parametrize("mode,want", [("keep", ["a\n"]), ("strip", ["a"])])
def test_line_endings_by_environment(start_agent, mode, want):
    agent = start_agent(env={"OPENSANDBOX_LINE_ENDINGS": mode})
    assert agent.run("echo a").out == want
    assert agent.run("echo a", STRIPPED).out == want


def test_utf8_in_single_bytes(agent):
    text = "é☕你好😀"
    code = f"import os\nfor b in {text.encode()!r}: os.write(1, bytes([b]))\nos.write(1, b'\\n')"
    assert agent.run(argv=[PY, "-c", code]).out == [text + "\n"]


@pytest.mark.parametrize("shift", [0, 1, 2, 3])
def test_utf8_over_read_borders(agent, shift):
    code = f"import os; os.write(1, b'x' * (65535 - {shift}) + '☕'.encode() * 1000 + b'\\n')"
    assert agent.run(argv=[PY, "-c", code]).stdout == "x" * (65535 - shift) + "☕" * 1000 + "\n"


def test_bytes_that_are_no_text(agent):
    result = agent.run("printf 'a\\377\\300b\\000\\342\\230\\n\\033[0m\"\\\\\\n'")
    assert result.out == ["a\ufffd\ufffdb\0\ufffd\ufffd\n", '\033[0m"\\\n']


def test_everything_is_ascii_on_the_wire(agent):
    stream = agent.stream(command="printf '\\302\\205\\342\\200\\250\\342\\200\\251é\\n'")
    assert [e["text"] for e in stream.rest() if e["type"] == "stdout"] == ["\x85\u2028\u2029é\n"]
    assert stream.raw.isascii()


def test_a_line_of_20_megabytes(agent):
    result = agent.run(argv=[PY, "-c", "print('x' * 20_000_000)"])
    assert max(map(len, result.out)) <= 1 << 20
    assert result.stdout == "x" * 20_000_000 + "\n"
    if not agent.sanitized:
        assert agent.rss_kib() < 16 * 1024


def test_a_million_lines(agent):
    result = agent.run("seq 1 1000000")
    assert result.stdout == "".join(f"{i}\n" for i in range(1, 1000001))


# ---- what runs ----


def test_argv_is_taken_literally(agent):
    assert agent.run(argv=["printf", "%s|%s", "$HOME;'x'", "a b"]).stdout == "$HOME;'x'|a b"


def test_argv_is_found_in_the_requests_path(agent, tmp_path):
    program = tmp_path / "bin" / "hello"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho hello from here\n")
    program.chmod(0o755)
    assert agent.run(argv=["hello"], envs={"PATH": str(program.parent)}).stdout == "hello from here\n"
    assert agent.run(argv=["bin/hello"], cwd=str(tmp_path)).stdout == "hello from here\n"


@pytest.mark.parametrize("argv,text", [
    (["no-such-program"], "not found in PATH"),
    (["/no/such/program"], "No such file or directory"),
    (["/etc"], "Permission denied"),
])
def test_what_cannot_start(agent, argv, text):
    result = agent.run(argv=argv)
    assert result.error["ename"] == "CommandExecError"
    assert text in result.error["evalue"] and result.error["traceback"] == [result.error["evalue"]]
    assert agent.status(result.id) == 404


def test_an_image_without_a_shell(start_agent):
    agent = start_agent(env={"PATH": "/nonexistent"})
    result = agent.run("echo hi")
    assert "no shell" in result.error["evalue"]


def test_cwd(agent, tmp_path):
    (tmp_path / "sub").mkdir()
    assert agent.run("pwd").stdout == f"{tmp_path}\n"
    assert agent.run("pwd; echo $PWD", cwd=str(tmp_path / "sub")).out == [f"{tmp_path}/sub\n"] * 2
    assert agent.run("pwd", cwd="~/sub").stdout == f"{tmp_path}/sub\n"
    assert agent.run("pwd", cwd="$D/${E}b", envs={"D": str(tmp_path), "E": "su"}).stdout == f"{tmp_path}/sub\n"
    assert agent.run("pwd", cwd="sub").stdout == f"{tmp_path}/sub\n"


@pytest.mark.parametrize("cwd,text", [("/nope", "No such file"), ("/etc/passwd", "not a directory"),
                                      ("/$NOT_SET/$ALSO_NOT", "ALSO_NOT, NOT_SET")])
def test_bad_cwd(agent, cwd, text):
    resp = agent.request("POST", "/command", {"command": "true", "cwd": cwd})
    error = json.loads(resp.data)
    assert (resp.status, error["code"]) == (400, "INVALID_REQUEST_BODY") and text in error["message"]


@pytest.mark.parametrize("body", [
    "", "{", "[]", "null", "{}", '{"command":""}', '{"command":5}', '{"argv":[]}', '{"argv":[""]}',
    '{"argv":["a",null]}', '{"command":"x","argv":["x"]}', '{"command":"x","timeout":-1}',
    '{"command":"x","gid":1}', '{"command":"x","uid":-1}', '{"command":"x","uid":4294967295}',
    '{"command":"x","envs":{"A":1}}', '{"command":"x","envs":{"":"1"}}', '{"command":"x","envs":{"A=B":"1"}}',
    '{"command":"x","background":"yes"}', '{"command":"a\\u0000b"}',
])
def test_bad_requests(agent, body):
    resp = agent.request("POST", "/command", body)
    error = json.loads(resp.data)
    assert resp.status == 400 and error["code"] == "INVALID_REQUEST_BODY" and error["message"]


def test_lenient_json(agent):
    body = '{"command":"echo ok","cwd":null,"envs":null,"timeout":0,"uid":null,"later":1} trailing'
    resp = agent.request("POST", "/command", body, {"Content-Type": "text/plain"})
    assert resp.status == 200 and b'"ok\\n"' in resp.data


def test_environment_order(start_agent, tmp_path):
    agent = start_agent(env={"A": "agent", "B": "agent", "C": "agent", "EXECD_ACCESS_TOKEN": "secret"})
    agent.headers = {"X-EXECD-ACCESS-TOKEN": "secret"}
    env_file = tmp_path / "env" / ".env"
    env_file.parent.mkdir()
    env_file.write_text("B=file\nC=file\nD='it is\ntwo lines'\nE=\"$A/x\"\n")
    show = 'printf "%s|" "$A" "$B" "$C" "$D" "$E" "${EXECD_ACCESS_TOKEN-none}" "$EXECD_ENVS" "$LANG"'
    result = agent.run(show, envs={"C": "request"})
    assert result.stdout == f"agent|file|request|it is\ntwo lines|agent/x|none|{env_file}|C.UTF-8|"
    env_file.write_text("B=again\n")
    assert agent.run("echo $B").stdout == "again\n"
    assert agent.run("echo ${C}").stdout == "agent\n"


def test_the_token_is_nowhere_to_be_read(start_agent):
    agent = start_agent(env={"EXECD_ACCESS_TOKEN": "s3cr3t-token"})
    agent.headers = {"X-EXECD-ACCESS-TOKEN": "s3cr3t-token"}
    assert "s3cr3t" not in agent.run("env").stdout
    if os.geteuid() == 0:
        result = agent.run(f"cat /proc/{agent.proc.pid}/environ", uid=65534)
        assert result.code != 0 and "ermission denied" in result.stderr


def test_token(start_agent):
    agent = start_agent("--access-token", "abc")
    assert agent.request("GET", "/ping").status == 200
    for headers in ({}, {"X-EXECD-ACCESS-TOKEN": "abcd"}, {"X-EXECD-ACCESS-TOKEN": ""}):
        resp = agent.request("POST", "/command", {"command": "true"}, headers)
        assert resp.status == 401 and set(json.loads(resp.data)) == {"code", "message"}
        assert agent.request("GET", "/no/such/path", headers=headers).status == 401
    agent.headers = {"x-execd-access-token": "abc"}
    assert agent.run("echo in").stdout == "in\n"


@root_only
def test_identity(agent):
    assert agent.run("id -u; id -g; id -G; echo $HOME $USER", uid=65534).out == \
        ["65534\n", "65534\n", "65534\n", "/nonexistent nobody\n"]
    assert agent.run("id -u; id -g; id -G", uid=54321).out == ["54321\n", "54321\n", "54321\n"]
    assert agent.run("id -u; id -g", uid=54321, gid=7).out == ["54321\n", "7\n"]
    assert agent.run("echo x > /dev/stdout; echo y > /dev/stderr", uid=65534).stdout == "x\n"
    assert agent.run("echo $HOME", uid=65534, envs={"HOME": "/mine"}).stdout == "/mine\n"


def test_clean_child(agent):
    code = ("import os, signal\n"
            "print(sorted(int(f) for f in os.listdir('/proc/self/fd'))[:4], os.getpgid(0) == os.getpid())\n"
            "print(open('/proc/self/status').read().split('SigBlk:')[1].split()[0])\n"
            "print(open('/proc/self/status').read().split('SigIgn:')[1].split()[0])\n")
    lines = agent.run(argv=[PY, "-S", "-c", code]).out
    assert lines[0] == "[0, 1, 2, 3] True\n" and lines[1] == "0000000000000000\n"
    assert int(lines[2], 16) & (1 << (signal.SIGHUP - 1)) == 0


# ---- background ----


def test_background(agent, tmp_path):
    go = Fifo(tmp_path / "go")
    began = time.monotonic()
    result = agent.run(f"echo one; echo two >&2; read x < {go}; echo three; exit 4", background=True)
    assert time.monotonic() - began < 2
    assert result.last["type"] == "execution_complete" and result.out == []
    assert agent.status(result.id)["running"] is True
    path = f"/command/{result.id}/logs"
    seen, cursor = b"", 0
    while seen != b"one\ntwo\n":
        resp = agent.request("GET", path, cursor=cursor)
        assert resp.status == 200 and resp.getheader("Content-Type") == "text/plain; charset=utf-8"
        seen += resp.data
        cursor = int(resp.getheader("EXECD-COMMANDS-TAIL-CURSOR"))
        assert cursor == len(seen)
    go.write("x\n")
    assert agent.wait_ended(result.id)["exit_code"] == 4
    assert agent.request("GET", path, cursor=cursor).data == b"three\n"
    assert agent.request("GET", path).data == b"one\ntwo\nthree\n"
    resp = agent.request("GET", path, cursor=9999)
    assert (resp.data, resp.getheader("EXECD-COMMANDS-TAIL-CURSOR")) == (b"", "14")
    assert agent.request("GET", path, cursor="junk").data == b"one\ntwo\nthree\n"
    assert agent.request("GET", path, cursor=-1).status == 400


def test_background_faults(agent):
    result = agent.run(argv=["no-such-program"], background=True)
    assert "not found" in result.error["evalue"]
    assert agent.status(result.id)["exit_code"] == 255
    fore = agent.run("true")
    resp = agent.request("GET", f"/command/{fore.id}/logs")
    assert resp.status == 400 and json.loads(resp.data)["code"] == "INVALID_REQUEST_BODY"
    resp = agent.request("GET", "/command/status/nope")
    assert resp.status == 404 and json.loads(resp.data)["code"] == "INVALID_REQUEST_BODY"


def test_background_timeout_and_interrupt(agent):
    marker = f"300.{uuid.uuid4().int % 10**9}"
    result = agent.run(f"sleep {marker} & sleep {marker}", background=True, timeout=200)
    status = agent.wait_ended(result.id)
    assert status["exit_code"] == -1 and "timed out" in status["error"] and processes(marker) == []
    result = agent.run(f"sleep {marker}", background=True)
    assert agent.request("DELETE", "/command", id=result.id).status == 200
    assert agent.wait_ended(result.id)["exit_code"] == -1 and processes(marker) == []


# ---- the agent itself ----


def test_own_port_behind_its_proxy_path(agent):
    prefix = f"/proxy/{agent.port}"
    assert agent.request("GET", prefix + "/ping").status == 200
    resp = agent.request("POST", prefix + "/command", {"command": "echo hi"})
    assert b'"hi\\n"' in resp.data


def test_ping_and_unknown_paths(agent):
    resp = agent.request("GET", "/ping")
    assert (resp.status, resp.data, resp.getheader("Content-Length")) == (200, b"", "0")
    resp = agent.request("GET", "/nope", headers={"X-Request-ID": "abc"})
    assert resp.status == 404 and resp.getheader("X-Request-ID") == "abc"
    assert set(json.loads(resp.data)) == {"code", "message"}
    assert agent.request("GET", "/command").status == 405
    assert agent.request("POST", "/internal/claim", {}).status == 404


def test_upstream_flags(start_agent):
    agent = start_agent("--jupyter-host=http://x", "-jupyter-token", "t", "--graceful-shutdown-timeout=3s",
                        env={"EXECD_API_GRACE_SHUTDOWN": "3s", "JUPYTER_TOKEN": "t"})
    began = time.monotonic()
    assert agent.run("echo ${JUPYTER_TOKEN-none}").stdout == "none\n"
    assert time.monotonic() - began < 2


def test_output_is_not_logged(start_agent):
    agent = start_agent()
    agent.run("echo very-visible-text; seq 1 10000")
    agent.proc.terminate()
    assert agent.wait() == 0
    assert b"very-visible" not in agent.proc.stderr.read()
