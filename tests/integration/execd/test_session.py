"""Shell sessions (contract/execd.md 7): what lasts from run to run, and what ends them."""

import json
import os
import shutil
import signal

import pytest

from agentlib import Fifo, Result, Stream, processes


class Session:
    def __init__(self, agent, **body):
        self.agent = agent
        resp = agent.request("POST", "/session", body or None)
        assert resp.status == 200, resp.data
        self.id = json.loads(resp.data)["session_id"]

    def post(self, command, **body):
        return self.agent.request("POST", f"/session/{self.id}/run", {"command": command, **body})

    def stream(self, command, **body):
        conn = self.agent.connect()
        text = json.dumps({"command": command, **body})
        conn.request("POST", f"/session/{self.id}/run", text, self.agent.headers)
        resp = conn.getresponse()
        assert resp.status == 200, resp.read()
        return Stream(conn, resp)

    def run(self, command, **body):
        stream = self.stream(command, **body)
        try:
            return Result(stream.rest())
        finally:
            stream.close()

    def lines(self, command, **body):
        return self.run(command, **body).out


@pytest.fixture
def session(agent):
    return Session(agent)


def test_exports_and_directory_last(session, tmp_path):
    made = session.run("export A=1 B='two words'; C=no; mkdir sub; cd sub; echo hi; echo oops >&2")
    assert made.id == session.id and made.code == 0
    assert made.out == ["hi", "oops"] and made.err == []
    assert session.lines('echo "$A|$B|$C"; pwd') == ["1|two words|", str(tmp_path / "sub")]
    assert session.lines("unset A; export B=; cd ..") == []
    assert session.lines('echo "${A-gone}|${B-gone}|$OLDPWD"; pwd') == [
        f"gone||{tmp_path}/sub",
        str(tmp_path),
    ]


def test_what_does_not_last(session):
    session.run("f() { :; }; export -f f 2>/dev/null; alias x=y; D=1; set -f; export PS4=no")
    assert session.lines("type f >/dev/null 2>&1 || echo none; type x >/dev/null 2>&1 || echo none") == ["none", "none"]
    assert session.lines('case $- in *f*) echo kept;; *) echo none;; esac; echo ${D-none}; echo "$PS4"') == [
        "none",
        "none",
        "+ ",
    ]


@pytest.mark.parametrize("value", ["a\nb\n\nc\n", "'\"\\$`!", "ümläut ✓", "x" * 100000, "=", ""])
def test_values_come_back_as_they_were(session, value, tmp_path):
    (tmp_path / "value").write_text(value)
    session.run('export V="$(cat value; echo .)"; V=${V%.}')
    session.run('printf %s "$V" > back')
    assert (tmp_path / "back").read_text() == value


def test_exit_keeps_state(session, tmp_path):
    result = session.run("cd /; export A=1; exit 3")
    assert result.code == 3 and result.error["traceback"] == ["exit status 3"]
    assert result.error["ename"] == "CommandExecError"
    assert session.lines("pwd; echo $A") == ["/", "1"]


def test_exec_ends_the_run_only(session):
    session.run("export A=1")
    assert session.run("export A=2; exec sh -c 'echo in; exit 4'").code == 4
    assert session.lines("echo $A") == ["1"]


def test_a_program_that_fails(session):
    assert session.run("sh -c 'exit 7'").code == 7
    assert session.run("false; export A=1; false").code == 1
    assert session.lines("echo $A") == ["1"]
    killed = session.run("kill -9 $$")
    assert killed.code == -1 and killed.error["traceback"] == ["signal: killed"]
    assert session.lines("echo $A") == ["1"]


@pytest.mark.parametrize("command", ["echo 'open", "if true", "((", "cat <<'EOF'\nno end", ")", "| x"])
def test_broken_text_is_an_error_or_ends(session, command):
    session.run("export A=1")
    session.run(command)
    assert session.lines("echo $A") == ["1"]


def test_heredocs(session, tmp_path):
    assert session.run("cat <<'EOF' > t\nhi $A\nEOF").code == 0
    assert (tmp_path / "t").read_text() == "hi $A\n"
    assert session.lines("cat <<E\none\ntwo\nE") == ["one", "two"]


def test_own_traps_and_options(session):
    assert session.lines("trap 'echo bye' EXIT; export A=1; echo hi") == ["hi", "bye"]
    assert session.run("set -eu; export B=2; false; echo not").code == 1
    assert session.lines("set -x; export C=3; echo $A$B 2>/dev/null")[-1] == "12"
    assert session.lines("echo $C; echo $# $0") in (["3", "0 bash"], ["3", "0 sh"])
    assert session.lines("IFS=0123456789; set -- 1; export D=4; exit 0") == []
    assert session.lines("(export E=5; exit 9); echo $? $D; echo ${E-none}") == ["9 4", "none"]


def test_too_large_a_state_is_said(session):
    session.run("export A=1")
    many = "; ".join(f"export V{i}=$x" for i in range(15))
    lines = session.lines(f"x=$(head -c 100000 /dev/zero | tr '\\0' x); {many}; cd /")
    assert any("not kept" in line for line in lines)
    assert session.lines("echo $A ${V1-none}") == ["1 none"]


def test_a_foreign_state_changes_nothing(session):
    session.run("export A=1")
    session.run("for f in /proc/self/fd/1??; do head -c 4096 /dev/urandom > $f; done; exec true")
    assert session.lines("echo $A") == ["1"]


def test_blank_lines_are_dropped(session):
    assert session.lines("printf 'a\\n\\n\\r\\nb\\r\\nc'") == ["a", "b", "c"]


def test_directories(agent, tmp_path):
    env = tmp_path / "env"
    env.mkdir()
    (env / ".env").write_text(f"DEEP={tmp_path}/a/b\nSECRETLY='x y'\n")
    session = Session(agent, cwd="$DEEP/c")
    assert session.lines("pwd; echo $SECRETLY; echo ${EXECD_ENVS-none}") == [f"{tmp_path}/a/b/c", "x y", "none"]
    assert session.lines("pwd", cwd="$DEEP") == [f"{tmp_path}/a/b"]
    assert session.lines("pwd") == [f"{tmp_path}/a/b"]
    assert session.lines("pwd", cwd="c") == [f"{tmp_path}/a/b/c"]
    resp = session.post("pwd", cwd="/nowhere")
    assert resp.status == 400 and json.loads(resp.data)["code"] == "INVALID_REQUEST_BODY"
    assert b"/nowhere" in resp.data
    shutil.rmtree(tmp_path / "a" / "b")
    resp = session.post("pwd")
    assert resp.status == 400 and b"a/b/c" in resp.data
    assert session.lines("pwd", cwd="/") == ["/"]
    assert session.lines("pwd") == ["/"]
    (tmp_path / "file").write_text("")
    assert agent.request("POST", "/session", {"cwd": str(tmp_path / "file" / "x")}).status in (400, 500)


def test_two_sessions_and_runs_at_once(agent, tmp_path):
    one, two = Session(agent), Session(agent)
    go = Fifo(tmp_path / "go")
    slow = one.stream(f"export A=slow; cd /; echo up; read x < {go}")
    assert slow.until("stdout")["text"] == "up"
    assert one.run("export B=fast").code == 0
    assert two.lines("echo ${A-none} ${B-none}") == ["none none"]
    go.write("x\n")
    slow.rest()
    assert one.lines("echo $A $B; pwd") == ["slow fast", "/"]
    assert two.lines("pwd") == [str(tmp_path)]


def test_timeout_ends_the_group(session):
    result = session.run("sleep 4711 & sleep 4711", timeout=300)
    assert result.code == -1 and "timed out after 300 ms" in result.error["traceback"][0]
    assert processes("4711") == []
    assert session.lines("echo on") == ["on"]


def test_a_child_that_holds_the_output(session):
    (pid,) = session.lines("sleep 4712 & echo $!")
    os.kill(int(pid), signal.SIGKILL)


def test_client_gone_ends_the_run(session):
    stream = session.stream("echo up; exec sleep 4713")
    stream.until("stdout")
    stream.close()
    for _ in range(100000):
        session.run("true")
        if not processes("4713"):
            return
    raise AssertionError("the run outlived its client")


@pytest.mark.parametrize("by", ["route", "interrupt"])
def test_delete(agent, session, by):
    stream = session.stream("echo up; sleep 4714 & sleep 4714")
    stream.until("stdout")
    if by == "route":
        resp = agent.request("DELETE", f"/session/{session.id}")
    else:
        resp = agent.request("DELETE", "/command", id=session.id)
    assert resp.status == 200 and resp.data == b""
    assert stream.rest()[-1]["error"]["evalue"] == "-1"
    assert processes("4714") == []
    for method, path, body in (
        ("POST", f"/session/{session.id}/run", {"command": "true"}),
        ("DELETE", f"/session/{session.id}", None),
    ):
        resp = agent.request(method, path, body)
        assert resp.status == 404 and json.loads(resp.data)["code"] == "CONTEXT_NOT_FOUND"


def test_bad_requests(agent, session):
    assert agent.request("POST", "/session", "{").status == 400
    assert agent.request("POST", "/session", {"cwd": 5}).status == 400
    assert agent.request("POST", "/session", {"cwd": "$NOT_THERE/x"}).status == 400
    for body in ({}, {"command": ""}, {"command": 1}, {"command": "x", "timeout": -1}):
        resp = agent.request("POST", f"/session/{session.id}/run", body)
        assert resp.status == 400 and json.loads(resp.data)["code"] == "INVALID_REQUEST_BODY"
    assert agent.request("GET", f"/command/{session.id}/resume").status == 404


def test_too_many(agent):
    ids = [Session(agent).id for _ in range(256)]
    resp = agent.request("POST", "/session")
    assert resp.status == 503 and b"delete some" in resp.data
    assert agent.request("DELETE", f"/session/{ids[0]}").status == 200
    assert agent.request("POST", "/session").status == 200


def test_nothing_is_written_to_disk(start_agent, tmp_path):
    agent = start_agent(env={"TMPDIR": str(tmp_path / "tmp")})
    (tmp_path / "tmp").mkdir()
    session = Session(agent)
    session.run("export SECRET=very-$((40+2))-secret; echo $SECRET")
    assert session.lines("echo $SECRET") == ["very-42-secret"]
    session.run("ls")
    for top, _, names in os.walk(tmp_path):
        for name in names:
            with open(os.path.join(top, name), "rb") as f:
                assert b"very-42" not in f.read(), name


def test_without_bash(start_agent, tmp_path):
    (tmp_path / "bin").mkdir()
    for name in ("sh", "sleep", "cat"):
        os.symlink(shutil.which(name), tmp_path / "bin" / name)
    session = Session(start_agent(env={"PATH": str(tmp_path / "bin")}))
    assert session.run("export A='x\ny'; cd /; exit 3").code == 3
    assert session.lines('echo "$A"; pwd; echo ${BASH_VERSION-sh}') == ["x", "y", "/", "sh"]
    assert session.run("echo 'open").code != 0
    assert session.lines("trap 'echo bye' EXIT; export B=2") == ["bye"]
    assert session.lines("echo $B") == ["2"]


def test_without_any_shell(start_agent, tmp_path):
    session = Session(start_agent(env={"PATH": str(tmp_path)}))
    result = session.run("true")
    assert "no shell" in result.error["evalue"] and result.error["ename"] == "CommandExecError"
