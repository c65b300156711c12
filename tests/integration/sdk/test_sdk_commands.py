"""Commands and shell sessions by the unmodified official SDK: sync and async, directly and by the gateway's proxy."""

import base64
import http.client
import json
import time
import urllib.parse
from datetime import timedelta

import pytest
from clients import Client
from opensandbox.exceptions import InvalidArgumentException, SandboxApiException
from opensandbox.models.execd import ExecutionHandlers, RunCommandOpts
from opensandbox.models.execd_sync import ExecutionHandlersSync

from harness import BASE

WAYS = [(False, False), (True, False), (False, True), (True, True)]
ENV_FILE = "/workdir/.envs/vars"  # of a directory that is not there yet


def text(execution):
    return "".join(m.text for m in execution.logs.stdout)


class Box:
    """A sandbox whose calls give their results, whichever form of the SDK is behind it."""

    def __init__(self, client, sandbox):
        self.client = client
        self.sandbox = sandbox

    def __getattr__(self, name):
        def call(*args, **kw):
            return self.client(getattr(self.sandbox.commands, name)(*args, **kw))

        return call

    def handlers(self, seen, on_init=None):
        """Handlers that note what they are told, in order."""

        def note(kind):
            def take(m):
                seen.append((kind, m))
                if kind == "init" and on_init:
                    on_init(m)

            return self.client.callback(take)

        names = "on_init on_stdout on_stderr on_error on_execution_complete".split()
        kind = ExecutionHandlers if self.client.loop else ExecutionHandlersSync
        return kind(**{name: note(name[3:]) for name in names})

    def processes(self, what):
        """How many processes have what as their command line."""
        found = self.run(f"for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline; echo; done 2>/dev/null | grep -cx '{what} '")
        return int(text(found))

    def wait_gone(self, what):
        until = time.monotonic() + 20
        while self.processes(what):
            assert time.monotonic() < until, f"{what} is still running"


@pytest.fixture(scope="module", params=WAYS, ids=["sync", "async", "sync-proxy", "async-proxy"])
def box(request, shared):
    asynchronous, by_proxy = request.param
    client = Client(asynchronous)
    config = client.config(shared, use_server_proxy=by_proxy)
    made = client(
        client.Sandbox.create(
            BASE, connection_config=config, timeout=timedelta(minutes=10), env={"EXECD_ENVS": ENV_FILE, "FROM": "create"}
        )
    )
    yield Box(client, made)
    client(made.kill())
    client(made.close())
    client.close()


@pytest.fixture
def session(box):
    made = box.create_session(working_directory="/tmp")
    yield made
    box.delete_session(made)


# ---- streams


def test_nothing_said(box):
    seen = []
    got = box.run("true", handlers=box.handlers(seen))
    assert (got.exit_code, got.error, got.logs.stdout, got.logs.stderr) == (0, None, [], [])
    assert [kind for kind, _ in seen] == ["init", "execution_complete"]


@pytest.mark.parametrize("status", [0, 7])
def test_burst(box, status):
    """513 pieces to each stream while the reader is late; the last without a line's end."""
    program = (
        "import os\n"
        "for i in range(512):\n"
        "    for fd in (1, 2): os.write(fd, b'%d:%03d:' % (fd, i) + b'x' * 4000 + b'\\n')\n"
        "for fd in (1, 2): os.write(fd, '\\u5c3e\\u00e9'.encode())\n"
        f"raise SystemExit({status})"
    )
    seen = []
    got = box.run(["python3", "-c", program], handlers=box.handlers(seen, on_init=lambda m: time.sleep(0.1)))
    for fd, said in ((1, got.logs.stdout), (2, got.logs.stderr)):
        want = [f"{fd}:{i:03}:" + "x" * 4000 + "\n" for i in range(512)] + ["尾é"]
        assert [m.text for m in said] == want
        assert [m.text for kind, m in seen if kind == ("stdout", "stderr")[fd - 1]] == want
    assert seen[0][0] == "init" and [kind for kind, _ in seen].count("init") == 1
    ends = [kind for kind, _ in seen if kind in ("execution_complete", "error")]
    assert ends == [seen[-1][0]] == ["error" if status else "execution_complete"]
    assert got.exit_code == status and (got.complete is None) == (status != 0)


@pytest.mark.parametrize(
    "said", ["a\n\n\nb\rc\n\nlast", "\r\n\r\n", "no end", "\n", "é 尾 \U0001f600 \u2028 \u0085\n", "\x1b[1mbold\x1b[0m\n"]
)
def test_every_character_comes_back(box, said):
    """pains C8, E1: joined texts are what was printed."""
    packed = base64.b64encode(said.encode()).decode()
    assert text(box.run(f"echo {packed} | base64 -d")) == said


def test_a_line_of_20_megabytes(box):
    assert len(text(box.run("head -c 20000000 /dev/zero | tr '\\0' x"))) == 20000000


def test_stdin_is_empty(box):
    assert box.run("cat; read x || echo end").logs.stdout[0].text == "end\n"


# ---- ends


def test_interrupt_from_init_on(box):
    """pains C16: the id of the init event is good for an interrupt at once."""
    interrupt = box.sandbox.commands.interrupt
    if box.client.loop:

        async def on_init(m):
            await interrupt(m.id)

        handlers = ExecutionHandlers(on_init=on_init)
    else:
        handlers = ExecutionHandlersSync(on_init=lambda m: interrupt(m.id))
    got = box.run("sleep 4001 & sleep 4001", handlers=handlers)
    assert got.exit_code not in (0, None) and got.complete is None
    box.wait_gone("sleep 4001")


def test_a_timeout_ends_all_children(box):
    got = box.run("sleep 4002 & sleep 4002", opts=RunCommandOpts(timeout=timedelta(seconds=1)))
    assert got.exit_code not in (0, None) and got.complete is None
    box.wait_gone("sleep 4002")


def test_a_server_in_the_background_stays(box):
    """pains C6: a normal end leaves what the user started with nohup."""
    box.run("nohup sleep 4003 >/dev/null 2>&1 &")
    assert box.processes("sleep 4003") == 1
    box.run("pkill -f 'sleep 400[3]' || kill $(grep -lz '^4003$' /proc/[0-9]*/cmdline | cut -d/ -f3)")
    box.wait_gone("sleep 4003")


def test_ways_to_end_are_told_apart(box):
    """pains C21."""
    assert box.run("exit 3").error.value == "3"
    killed = box.run("kill -9 $$")
    late = box.run("sleep 4004", opts=RunCommandOpts(timeout=timedelta(milliseconds=200)))
    assert killed.exit_code == late.exit_code == -1
    assert killed.error.traceback == ["signal: killed"]
    assert late.error.traceback == ["command timed out after 200 ms", "signal: terminated"]


def test_what_cannot_start(box):
    missing = box.run(["/nope/bin"])
    assert missing.exit_code is None and missing.complete is None
    assert missing.error.value == missing.error.traceback[0] == "cannot execute /nope/bin: No such file or directory"
    with pytest.raises(SandboxApiException) as told:
        box.run("true", opts=RunCommandOpts(working_directory="/nope"))
    assert told.value.status_code == 400 and "/nope" in str(told.value)


def test_identity_and_environment(box):
    opts = RunCommandOpts(uid=65534, gid=65534, envs={"A": "1"}, working_directory="$D")
    opts.envs["D"] = "/usr"
    assert text(box.run('id -u; id -g; printf "%s %s %s" "$A" "$FROM" "$PWD"', opts=opts)) == "65534\n65534\n1 create /usr"


# ---- in the background


def test_background(box):
    """pains B1 to B4: an answer at once, status and logs by id, a cursor that neither skips nor repeats."""
    begun = box.run("mkfifo /tmp/bg; echo one; read x </tmp/bg; echo two >&2; exit 5", opts=RunCommandOpts(background=True))
    assert begun.id and begun.error is None
    status = box.get_command_status(begun.id)
    assert status.running is True and status.exit_code is None and status.finished_at is None
    got, cursor, until = "", 0, time.monotonic() + 20
    while got != "one\n":
        logs = box.get_background_command_logs(begun.id, cursor)
        got, cursor = got + logs.content, logs.cursor
        assert time.monotonic() < until, got
    box.run("echo go >/tmp/bg")
    while box.get_command_status(begun.id).running:
        assert time.monotonic() < until + 20
    logs = box.get_background_command_logs(begun.id, cursor)
    assert logs.content == "two\n"
    assert box.get_background_command_logs(begun.id, logs.cursor).content == ""
    assert box.get_background_command_logs(begun.id, 999999).content == ""
    assert box.get_background_command_logs(begun.id).content == "one\ntwo\n"
    status = box.get_command_status(begun.id)
    assert status.exit_code == 5 and status.finished_at >= status.started_at
    box.run("rm /tmp/bg")


def test_a_background_that_cannot_start(box):
    begun = box.run(["/nope/bin"], opts=RunCommandOpts(background=True))
    status = box.get_command_status(begun.id)  # pains B5
    assert status.running is False and status.exit_code == 255 and "/nope/bin" in status.error


def test_unknown_commands(box):
    for call, status in ((box.get_command_status, 404), (box.get_background_command_logs, 400), (box.interrupt, 500)):
        with pytest.raises(SandboxApiException) as told:
            call("nobody")
        assert told.value.status_code == status and "nobody" in str(told.value)


# ---- the env file


@pytest.mark.parametrize("value", ["plain", "$HOME and ${HOME}", "two\nlines", "a=b", "it's", "", '# "q" \\ `x`', "é尾"])
def test_set_env(box, value):
    """contract/newest.md 2.4: in commands and in sessions made afterwards, byte for byte."""
    box.set_env("E2E_VALUE", "before")
    box.set_env("E2E_VALUE", value)
    assert text(box.run('printf "[%s]" "$E2E_VALUE"')) == f"[{value}]"
    made = box.create_session()
    packed = text(box.run_in_session(made, 'printf "[%s]" "$E2E_VALUE" | base64 -w 0'))
    assert base64.b64decode(packed).decode() == f"[{value}]"
    box.delete_session(made)


def test_set_env_refuses_bad_names(box):
    with pytest.raises(InvalidArgumentException):
        box.set_env("1 BAD", "x")


def test_directories_with_variables_of_the_file(box):
    box.run("mkdir -p /workdir/e2e")
    box.set_env("E2E_DIR", "/workdir/e2e")
    made = box.create_session(working_directory="$E2E_DIR")
    assert text(box.run_in_session(made, "pwd")).strip() == "/workdir/e2e"
    box.delete_session(made)
    made = box.create_session()
    assert text(box.run_in_session(made, "pwd", working_directory="$E2E_DIR")).strip() == "/workdir/e2e"
    box.delete_session(made)
    assert text(box.run("pwd", opts=RunCommandOpts(working_directory="$E2E_DIR"))) == "/workdir/e2e\n"


# ---- sessions


def test_state_stays(box, session):
    box.run_in_session(session, "export A=1; B=2; cd /usr; f() { echo of f; }; alias g=true")
    assert text(box.run_in_session(session, 'printf "%s" "$A $PWD"')) == "1 /usr"
    assert text(box.run_in_session(session, "pwd", working_directory="/etc")).strip() == "/etc"


def test_heredoc(box, session):
    """pains Z1."""
    got = box.run_in_session(session, "cat <<'EOF' >/tmp/heredoc\nhi $A\nEOF")
    assert got.error is None and text(box.run("cat /tmp/heredoc")) == "hi $A\n"
    broken = box.run_in_session(session, "echo 'open")
    assert broken.error is not None
    assert text(box.run_in_session(session, "echo on")).strip() == "on"


def test_exit_and_exec(box, session):
    """pains Z2."""
    got = box.run_in_session(session, "cd /usr; export KEPT=1; exit 3")
    assert got.error.value == "3"
    assert text(box.run_in_session(session, 'printf "%s" "$KEPT $PWD"')) == "1 /usr"
    assert text(box.run_in_session(session, "exec echo replaced")).strip() == "replaced"
    assert text(box.run_in_session(session, 'printf "%s" "$KEPT"')) == "1"


def test_nothing_on_disk(box, session):
    """pains Z3."""
    box.run_in_session(session, "export SECRET=verysecret$((40 + 2))")
    assert text(box.run_in_session(session, 'printf %s "$SECRET"')) == "verysecret42"
    found = box.run("grep -rl verysecret42 /tmp /var/tmp /dev/shm /run /root /workdir 2>/dev/null")
    assert text(found) == ""


def test_a_session_timeout_ends_the_group(box, session):
    got = box.run_in_session(session, "sleep 4005 & sleep 4005", timeout=timedelta(seconds=1))
    assert got.error is not None and got.complete is None
    box.wait_gone("sleep 4005")
    assert text(box.run_in_session(session, "echo on")).strip() == "on"


def test_unknown_sessions(box):
    """pains Z5: never made again behind one's back."""
    gone = box.create_session()
    box.delete_session(gone)
    for call in (lambda: box.run_in_session(gone, "true"), lambda: box.delete_session(gone)):
        with pytest.raises(SandboxApiException) as told:
            call()
        assert told.value.status_code == 404 and told.value.error.code == "CONTEXT_NOT_FOUND"


def test_two_sessions_share_nothing(box):
    """pains Z8."""
    one, two = box.create_session(working_directory="/usr"), box.create_session(working_directory="/etc")
    box.run_in_session(one, "export NAME=one")
    box.run_in_session(two, "export NAME=two")
    assert text(box.run_in_session(one, 'printf "%s" "$NAME $PWD"')) == "one /usr"
    assert text(box.run_in_session(two, 'printf "%s" "$NAME $PWD"')) == "two /etc"
    box.delete_session(one)
    assert text(box.run_in_session(two, 'printf "%s" "$NAME"')) == "two"
    box.delete_session(two)


# ---- a stream that is cut


def test_resume_after_a_cut(box):
    """pains W1, contract/newest.md 2.3: one POST, then the rest by number, once each, in order."""
    endpoint = box.client(box.sandbox.get_endpoint(44772))
    url = urllib.parse.urlsplit("http://" + endpoint.endpoint)

    def ask(method, path, body=None):
        conn = http.client.HTTPConnection(url.hostname, url.port, timeout=30)
        conn.request(method, url.path.rstrip("/") + path, body, dict(endpoint.headers))
        return conn, conn.getresponse()

    def events(resp, count=None):
        got = []
        while count is None or len(got) < count:
            line = resp.readline()
            if not line:
                break
            if line.strip() and json.loads(line)["type"] != "ping":
                got.append(json.loads(line))
        return got

    box.run("mkfifo /tmp/cut")
    loop = "for i in $(seq 20); do echo $i; [ $i != 4 ] || read x </tmp/cut; done"
    conn, resp = ask("POST", "/command", json.dumps({"command": loop}))
    head = events(resp, 5)
    assert [e["type"] for e in head] == ["init"] + ["stdout"] * 4
    resp.close()
    conn.close()
    box.run("echo go >/tmp/cut; rm /tmp/cut")
    until = time.monotonic() + 20
    while True:  # the agent sees that a client left a moment later
        conn, resp = ask("GET", f"/command/{head[0]['text']}/resume?after_eid={head[-1]['eid']}")
        if resp.status == 200:
            break
        assert resp.status == 409 and time.monotonic() < until
        conn.close()
    tail = events(resp)
    conn.close()
    said = [e["text"] for e in head + tail if e["type"] == "stdout"]
    assert said == [f"{i}\n" for i in range(1, 21)]
    assert tail[-1]["type"] == "execution_complete"
