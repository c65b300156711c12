"""Isolated sessions (contract/execd.md 13, newest.md 3.3): namespaces that are really made, and what is left of them,
which is nothing. On this machine as root, and in containers that allow it or do not."""

import hashlib
import json
import os
import pathlib
import signal
import time
import uuid

import pytest

from agentlib import Fifo, Stream, claim, processes

STORE = pathlib.Path("/var/lib/execd/isolation")
ROUTES = [
    ("GET", "sessions"), ("POST", "session"), ("GET", "session/x"), ("DELETE", "session/x"), ("POST", "session/x/run"),
    ("GET", "session/x/runs/y"), ("GET", "session/x/runs/y/logs"), ("GET", "session/x/diff"),
    ("POST", "session/x/commit"), ("GET", "session/x/files/info"), ("GET", "session/x/files/download"),
    ("POST", "session/x/files/upload"), ("POST", "session/x/files/mv"), ("GET", "session/x/files/search"),
    ("POST", "session/x/files/permissions"), ("POST", "session/x/files/replace"), ("DELETE", "session/x/files"),
    ("GET", "session/x/directories/list"), ("POST", "session/x/directories"), ("DELETE", "session/x/directories"),
]


def has_admin():
    with open("/proc/self/status") as f:
        caps = next(int(line.split()[1], 16) for line in f if line.startswith("CapEff"))
    return os.geteuid() == 0 and caps >> 21 & 1


needs_root = pytest.mark.skipif(not has_admin(), reason="needs root with CAP_SYS_ADMIN")


def capabilities(agent):
    reply = agent.request("GET", "/v1/isolated/capabilities")
    assert reply.status == 200, reply.data
    return json.loads(reply.data)


class Session:
    def __init__(self, agent, path, mode="rw", **body):
        self.agent = agent
        reply = agent.request("POST", "/v1/isolated/session", {"workspace": {"path": str(path), "mode": mode}, **body})
        assert reply.status == 201, reply.data
        self.made = json.loads(reply.data)
        self.id = self.made["session_id"]
        assert str(uuid.UUID(self.id)) == self.id

    def call(self, method, path="", /, body=None, **query):
        return self.agent.request(method, f"/v1/isolated/session/{self.id}{path}", body, **query)

    def stream(self, code, **body):
        conn = self.agent.connect()
        conn.request("POST", f"/v1/isolated/session/{self.id}/run", json.dumps({"code": code, **body}),
                     self.agent.headers)
        reply = conn.getresponse()
        assert reply.status == 200, reply.read()
        assert reply.getheader("Content-Type") == "text/event-stream"
        return Stream(conn, reply)

    def events(self, code, **body):
        stream = self.stream(code, **body)
        try:
            return stream.rest()
        finally:
            stream.close()

    def run(self, code, **body):
        """(lines, error or None); checks the shape of the whole."""
        *out, last = self.events(code, **body)
        assert all(e["type"] == "stdout" for e in out)
        assert last["type"] in ("execution_complete", "error")
        return [e["text"] for e in out], last.get("error")

    def lines(self, code, **body):
        lines, error = self.run(code, **body)
        assert error is None, error
        return lines

    def get(self):
        reply = self.call("GET")
        return json.loads(reply.data) if reply.status == 200 else reply.status

    def wait_status(self, status):
        """Each look is a round trip, so this is no busy loop."""
        for _ in range(100000):
            now = self.get()
            if now == status or isinstance(now, dict) and now["status"] == status:
                return now
        raise AssertionError(f"it did not become {status}")

    def background(self, code, **body):
        reply = self.call("POST", "/run", {"code": code, "background": True, **body})
        assert reply.status == 202, reply.data
        return json.loads(reply.data)["run_id"]

    def run_status(self, run):
        return json.loads(self.call("GET", f"/runs/{run}").data)

    def wait_ended(self, run):
        for _ in range(100000):
            status = self.run_status(run)
            if not status["running"]:
                return status
        raise AssertionError("the run did not end")

    def delete(self):
        reply = self.call("DELETE")
        assert reply.status in (200, 204), reply.data


def code_of(reply):
    body = json.loads(reply.data)
    assert set(body) == {"code", "message"} and body["message"]
    return reply.status, body["code"]


def shells(session_id):
    """What of a session runs: its directory is an argument of its keeper and of its init."""
    return processes(f"{STORE}/{session_id}")


def alive(pid):
    """Zombies of other parents are not ours to collect."""
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    except OSError:
        return False


def gone(pids, path):
    until = time.monotonic() + 20
    while any(map(alive, pids)) or path.exists():
        assert time.monotonic() < until, f"{pids}, {path} are left"


@pytest.fixture
def workspace(tmp_path):
    path = tmp_path / "ws"
    path.mkdir()
    (path / "f").write_text("old\n")
    return path


# ---- where there can be none ----


def check_unavailable(agent, *words):
    told = capabilities(agent)
    assert told["available"] is False and told["isolator"] == "bwrap"
    assert told["userns_available"] is False and told["commit_supported"] is told["diff_supported"] is False
    for word in words:
        assert word in told["message"]
    for method, path in ROUTES:
        reply = agent.request(method, f"/v1/isolated/{path}", {} if method == "POST" else None)
        assert code_of(reply) == (503, "SERVICE_UNAVAILABLE"), (method, path, reply.data)
        assert "isolation unavailable" in json.loads(reply.data)["message"]


@pytest.fixture
def box():
    pytest.importorskip("harness", reason="needs a container engine")
    import boxes

    made = []

    def make(image, **kw):
        made.append(boxes.Box(boxes.engine(), image, **kw))
        assert claim(made[-1], entrypoint=["sleep", "1000"]).status == 200
        return made[-1]

    yield make
    for one in made:
        one.remove()


def test_a_plain_container(box):
    from harness import BASE

    check_unavailable(box(BASE), "mount, pid, ipc, uts, net", "bootstrap.execd.isolation=enable")


def test_an_image_with_another_user(box):
    from harness import NONROOT

    check_unavailable(box(NONROOT, CapAdd=["SYS_ADMIN"]), "image whose user is root")


@pytest.mark.parametrize("image", ["BASE", "BUSYBOX", "MUSL"])
def test_a_container_that_allows_it(box, image):
    import boxes
    import harness

    digest = hashlib.sha256(boxes.SECRET.encode()).hexdigest()
    agent = box(getattr(harness, image), CapAdd=["SYS_ADMIN"], SecurityOpt=["apparmor=unconfined", "no-new-privileges"],
                args=["--held", "--id=box", f"--claim-sha256={digest}", "--isolation"])
    told = capabilities(agent)
    assert told["available"] and told["userns_available"] and told["message"] == ""
    assert told["hardening"]["init_mode"] == "pid1" and told["hardening"]["signal_shield"]
    # without the token: it is asked for from inside
    assert agent.request("GET", "/v1/isolated/capabilities", None, {"X-EXECD-ACCESS-TOKEN": "no"}).status == 200

    one = Session(agent, "/data/ws", "overlay", share_net=False)  # the root is an overlay itself
    assert one.lines("echo $$; pwd; echo new >f; cat f; grep -c : /proc/net/dev") == ["2", "/data/ws", "new", "1"]
    assert agent.run("cat /data/ws/f").code != 0
    assert one.run("sleep 60; echo no", timeout_seconds=1)[1]["ename"] == "RuntimeError"
    assert one.lines("echo $A", envs={"A": "it's"}) == ["it's"]
    assert one.wait_ended(one.background("echo x; exit 7"))["exit_code"] == 7
    assert one.call("GET", "/files/download", path="/data/ws/f").data == b"new\n"
    # the capability is the agent's: nobody else mounts
    bounding = "grep CapBnd /proc/self/status"
    for line in (*one.lines(bounding), agent.run(bounding).stdout):
        assert not int(line.split()[1], 16) >> 21 & 1
    assert agent.run("mount -t tmpfs none /tmp").code != 0
    one.delete()
    assert agent.run(f"ls {STORE}").stdout == ""
    assert agent.run("ls -d /proc/[0-9]* | wc -l").stdout.strip() < "9"


def test_an_agent_killed_in_its_container(box):
    """PID 1 of the sandbox is gone, and all with it, whatever sessions did."""
    from harness import BASE, wait_for

    agent = box(BASE, CapAdd=["SYS_ADMIN"], SecurityOpt=["apparmor=unconfined"])
    Session(agent, "/data/ws").run("sleep 1000 &")
    agent.signal("KILL")
    wait_for("the container is over", lambda: not agent.info()["State"]["Running"])


# ---- sessions ----

@needs_root
def test_a_world_of_its_own(agent, workspace, tmp_path):
    session = Session(agent, workspace)
    assert session.made["workspace"] == {"path": str(workspace), "mode": "rw"} and session.made["created_at"]
    inside = dict(line.split("=", 1) for line in session.lines(
        'for n in mnt pid ipc uts net user; do echo "$n=$(readlink /proc/self/ns/$n)"; done'))
    for name, value in inside.items():
        same = os.readlink(f"/proc/{agent.proc.pid}/ns/{name}") == value
        assert same == (name in ("net", "user")), name
    assert session.lines("echo $$; ls /proc | grep -c '^[0-9]*$' ") == ["2", "4"]
    assert session.lines("kill -9 1; echo alive") == ["alive"]
    assert session.lines(f"echo x >made; cat f; ls -A {STORE}; ls -A /run") == ["old", "execd"]
    for code in ("touch /etc/x", "mount -t tmpfs none /mnt", "unshare -m true", "unshare -U true", "chroot / true",
                 "echo 1 >/proc/sys/kernel/printk", "mknod z b 8 0", "cat /proc/1/environ", "hostname x"):
        assert session.run(code)[1], code
    status = dict(line.split(":\t") for line in session.lines("grep -E '^(Cap|Seccomp:|NoNewPrivs)' /proc/self/status"))
    assert status["Seccomp"] == "2" and status["NoNewPrivs"] == "1" and status["CapInh"] == "0" * 16
    for cap in (6, 7):  # accounts may be changed
        assert int(status["CapEff"], 16) >> cap & 1
    for cap in (12, 16, 18, 19, 21, 27):  # nets, modules, chroot, ptrace, mounts, devices
        assert not int(status["CapBnd"], 16) >> cap & 1
    assert (workspace / "made").read_text() == "x\n"


@needs_root
def test_the_network(agent, workspace):
    shared, own = Session(agent, workspace), Session(agent, workspace, share_net=False)
    ns = os.readlink(f"/proc/{agent.proc.pid}/ns/net")
    assert shared.lines("readlink /proc/self/ns/net") == [ns] != own.lines("readlink /proc/self/ns/net")
    assert own.lines("grep -c : /proc/net/dev; cat /sys/class/net/lo/operstate >/dev/null; echo ok")[0] == "1"
    # the loopback interface is up: a server and a client meet
    assert own.lines("python3 -c 'import socket; s = socket.create_server((\"127.0.0.1\", 0));"
                     "socket.create_connection(s.getsockname()); print(\"met\")'") == ["met"]


@needs_root
def test_state_and_runs(agent, workspace):
    session = Session(agent, workspace)
    assert session.lines("export A=1; B=2; f() { echo f; }; cd /var") == []
    assert session.lines('echo "$A $B $PWD"; f') == ["1 2 /var", "f"]
    assert session.lines('echo "$A $C"; A=5; exit 0', envs={"C": "a'b\"c\nd $HOME"}) == ["1 a'b\"c", "d $HOME"]
    assert session.lines("echo $A${C-none}") == ["1none"]
    assert session.run("exit 3", envs={"X": ""})[1] == {"ename": "ExitError", "evalue": "3", "traceback": []}
    assert session.run("echo a; echo; printf b; false") == (["a", "\n", "b"], {
        "ename": "ExitError", "evalue": "1", "traceback": []})
    lines, error = session.run("if")
    assert "syntax" in lines[0] and error["evalue"] == "2"
    assert session.lines("cat <<'E'\nhere 'doc' \\\nE\n") == ["here 'doc' \\"]
    assert session.lines("printf '\\377x\\n' # comment") == ["\ufffdx"]
    assert session.lines("read x; echo \"[$x]\"") == ["[]"]
    for envs in ({"1x": "v"}, {"": "v"}, {"a-b": "v"}):
        assert code_of(session.call("POST", "/run", {"code": "echo", "envs": envs})) == (400, "INVALID_REQUEST_BODY")
    for body in ({}, {"code": ""}, {"code": 1}, {"code": "x", "timeout_seconds": -1}):
        assert code_of(session.call("POST", "/run", body)) == (400, "INVALID_REQUEST_BODY")


@needs_root
def test_much_output_to_a_slow_client(agent, workspace):
    session = Session(agent, workspace)
    stream = session.stream("seq 2000000; echo end")
    assert stream.next()["text"] == "1"
    # the client does not read: the shell waits instead of filling the agent's memory
    assert agent.sanitized or agent.rss_kib() < 96 << 10
    events = stream.rest()
    stream.close()
    assert len(events) == 2000001 and events[-2]["text"] == "end"
    assert agent.sanitized or agent.peak_kib() < 96 << 10


@needs_root
def test_runs_queue(agent, workspace):
    session = Session(agent, workspace)
    gate = Fifo(workspace / "gate")
    first = session.stream("echo one; read x <gate; echo $x; export Q=1")
    assert first.next()["text"] == "one"
    second, third = session.stream("echo two$Q"), session.stream("echo three")
    third.close()  # waits, and is gone before its turn
    gate.write("go\n")
    assert first.next()["text"] == "go" and first.next()["type"] == "execution_complete"
    assert [e.get("text") for e in second.rest()] == ["two1", None]
    assert session.lines("echo four") == ["four"]


@needs_root
def test_timeout_and_leaving(agent, workspace):
    session = Session(agent, workspace)
    lines, error = session.run("echo begun; sleep 1000; echo no", timeout_seconds=1)
    assert lines == ["begun"] and error["ename"] == "RuntimeError" and "timeout" in error["evalue"]
    assert session.lines("echo alive") == ["alive"]
    gone_fifo = Fifo(workspace / "left")
    stream = session.stream("trap 'echo left >left; exit 1' INT; echo begun; sleep 1000", envs={"A": "1"})
    assert stream.next()["text"] == "begun"
    stream.close()
    assert gone_fifo.read_line() == "left"
    assert session.lines("echo alive") == ["alive"]
    # what takes no notice keeps the shell, not the client
    _, error = session.run("trap '' INT; echo begun; sleep 5; trap - INT", timeout_seconds=1)
    assert "timeout" in error["evalue"]
    assert session.lines("echo after") == ["after"]


@needs_root
def test_the_end_of_a_shell(agent, workspace):
    session = Session(agent, workspace)
    run = session.background("sleep 1000")
    pids = shells(session.id)
    assert len(pids) == 2
    assert session.run("exit 0")[1] == {"ename": "RuntimeError", "evalue": "session process has exited", "traceback": []}
    assert session.get()["status"] == "dead"
    assert session.run("echo")[1]["evalue"] == "session process has exited"
    assert code_of(session.call("POST", "/run", {"code": "x", "background": True})) == (400, "RUNTIME_ERROR")
    ended = session.run_status(run)
    assert ended["running"] is False and ended["error"] == "session terminated" and "exit_code" not in ended
    assert session.call("GET", "/files/download", path=str(workspace / "f")).data == b"old\n"
    session.delete()
    gone(pids, STORE / session.id)
    assert session.get() == 404


@needs_root
def test_background(agent, workspace):
    session = Session(agent, workspace)
    gate = Fifo(workspace / "gate")
    run = session.background("echo $V; echo err >&2; read x <gate; echo $x; exit 7", envs={"V": "v"})
    status = session.run_status(run)
    assert status["session_id"] == session.id and status["run_id"] == run and status["running"]
    assert "exit_code" not in status and "finished_at" not in status and status["started_at"]
    assert session.lines("echo mine") == ["mine"]  # beside it
    gate.write("go\n")
    status = session.wait_ended(run)
    assert status["exit_code"] == 7 and "error" not in status and status["finished_at"]
    logs = session.call("GET", f"/runs/{run}/logs")
    assert logs.data == b"v\nerr\ngo\n" and logs.getheader("EXECD-ISOLATED-TAIL-CURSOR") == "9"
    assert logs.getheader("Content-Type").startswith("text/plain")
    assert session.call("GET", f"/runs/{run}/logs", cursor=2).data == b"err\ngo\n"
    assert session.call("GET", f"/runs/{run}/logs", cursor=9).data == b""
    assert code_of(session.call("GET", f"/runs/{run}/logs", cursor=-1)) == (400, "INVALID_REQUEST_BODY")
    for path in ("/runs/no-such-run", "/runs/no-such-run/logs"):
        assert code_of(session.call("GET", path)) == (404, "SESSION_NOT_FOUND")
    assert session.wait_ended(session.background("if"))["exit_code"] == 2
    assert sorted(os.listdir(workspace)) == ["f", "gate"] and not list((STORE / session.id / "io").iterdir())
    for body in ({"workspace": {"path": str(workspace), "mode": "ro"}},
                 {"overlays": [{"path": str(workspace), "persist": False}]}):
        made = agent.request("POST", "/v1/isolated/session", body)
        path = f"/v1/isolated/session/{json.loads(made.data)['session_id']}/run"
        assert code_of(agent.request("POST", path, {"code": "x", "background": True})) == (400, "RUNTIME_ERROR")


@needs_root
def test_idle(agent, workspace):
    session = Session(agent, workspace, idle_timeout_seconds=1)
    pids = shells(session.id)
    assert session.get()["idle_remaining_seconds"] == 1
    gate = Fifo(workspace / "gate")
    run = session.background("read x <gate")  # holds it up
    assert session.run("sleep 1.5")[1] is None
    assert session.get()["status"] == "active"
    gate.write("go\n")
    session.wait_ended(run)
    session.wait_status(404)
    gone(pids, STORE / session.id)
    assert "idle_remaining_seconds" not in Session(agent, workspace).get()


# ---- mounts ----


@needs_root
def test_modes(agent, workspace, tmp_path):
    overlay, scratch = Session(agent, workspace, "overlay"), None
    assert overlay.lines("cat f; echo new >f; rm -f f; echo again >f; mkdir d; echo g >d/g; cat f") == ["old", "again"]
    assert (workspace / "f").read_text() == "old\n" and os.listdir(workspace) == ["f"]
    listed = json.loads(overlay.call("GET", "/directories/list", path=str(workspace)).data)
    assert [os.path.basename(e["path"]) for e in listed] == ["d", "f"]

    reply = agent.request("POST", "/v1/isolated/session", {
        "workspace": {"path": str(workspace)},
        "overlays": [{"path": str(workspace / "below"), "mode": "rw"}, {"path": str(tmp_path / "s"), "persist": False},
                     {"path": str(tmp_path / "r"), "mode": "ro"}]})
    assert reply.status == 201, reply.data
    made = json.loads(reply.data)
    assert "workspace" not in made and [o["mode"] for o in made["overlays"]] == ["overlay", "rw", "overlay", "ro"]
    assert [o.get("persist") for o in made["overlays"]] == [True, None, False, None]
    scratch = Session.__new__(Session)
    scratch.agent, scratch.id = agent, made["session_id"]
    scratch.lines(f"echo x >below/x; echo y >{tmp_path}/s/y; echo z >z")
    assert scratch.run(f"echo x >{tmp_path}/r/x")[1]
    assert (workspace / "below/x").read_text() == "x\n"
    assert not (workspace / "z").exists() and not list((tmp_path / "s").iterdir())
    assert scratch.call("GET", "/files/download", path=f"{tmp_path}/s/y").data == b"y\n"


@needs_root
def test_profiles_and_accounts(agent, workspace):
    private = Session(agent, workspace)
    assert private.lines("ls -A /tmp | wc -l; touch /tmp/mine; stat -c %a /tmp")[1] == "1777"
    assert not os.path.exists("/tmp/mine")
    os.chmod(workspace, 0o777)
    for parent in workspace.parents:
        if str(parent) != "/" and parent.owner() == "root" and str(parent) != "/tmp":
            os.chmod(parent, 0o755)
    account = Session(agent, workspace, uid=4321, gid=4322, profile="balanced")
    assert account.lines("id -u; id -g; id -G; touch mine; ls -d /tmp/*/ >/dev/null && echo seen") == [
        "4321", "4322", "4322", "seen"]
    assert (workspace / "mine").stat().st_uid == 4321
    assert "CapEff:\t0000000000000000" in account.lines("grep CapEff /proc/self/status")
    reply = account.call("POST", "/directories", {str(workspace / "dir"): {"mode": 755}})
    assert reply.status == 200 and (workspace / "dir").stat().st_uid == 4321
    assert account.call("GET", "/files/download", path="/etc/shadow").status >= 400

    if capabilities(agent)["userns_available"]:  # not with the threads of a sanitizer
        named = Session(agent, workspace, uid=77, uid_mode="userns")
        assert named.lines("id -u; echo x >named; cat /proc/self/uid_map | wc -l") == ["77", "1"]
        assert (workspace / "named").stat().st_uid == os.geteuid()
        assert named.run("unshare -m true")[1]
    assert code_of(agent.request("POST", "/v1/isolated/session", {"workspace": {"path": "/tmp"}, "gid": 1})) == (
        400, "INVALID_REQUEST_BODY")


@needs_root
def test_environment(start_agent, workspace):
    agent = start_agent(env={"MY_API_KEY": "k", "GH_TOKEN": "t", "AWS_X": "a", "PLAIN": "p", "EXECD_ACCESS_TOKEN": "tok"})
    agent.headers = {"X-EXECD-ACCESS-TOKEN": "tok"}

    def names(**body):
        return {line.split("=")[0] for line in Session(agent, workspace, **body).lines("env")}

    strict = names()
    assert {"PLAIN", "PATH"} <= strict and not {"MY_API_KEY", "GH_TOKEN", "AWS_X", "EXECD_ENVS"} & strict
    assert {"MY_API_KEY", "AWS_X"} <= names(profile="balanced")
    assert "PLAIN" not in names(env_passthrough={"mode": "deny", "keys": ["PL*"]})
    allowed = names(env_passthrough={"mode": "allow", "keys": ["*_API_KEY"]})
    assert {"MY_API_KEY", "PATH"} <= allowed and "PLAIN" not in allowed
    assert "EXECD_ACCESS_TOKEN" not in names(env_passthrough={"mode": "allow", "keys": ["*"]})


@needs_root
def test_binds(agent, workspace, tmp_path):
    base = pathlib.Path("/data")
    made = not base.exists()
    source = base / f"sandgate-test-{uuid.uuid4().hex}"
    source.mkdir(parents=True)
    dest = tmp_path / "dest"
    dest.mkdir()
    try:
        (source / "f").write_text("s\n")
        (source / "out").symlink_to("/etc")
        rw = Session(agent, workspace, binds=[{"source": str(source), "dest": str(dest)}])
        rw.lines(f"cat {dest}/f; echo x >{dest}/x")
        assert (source / "x").read_text() == "x\n" and not list(dest.iterdir())
        ro = Session(agent, workspace, extra_writable=[str(source)],
                     binds=[{"source": str(source), "dest": str(dest), "readonly": True}])
        assert ro.run(f"echo y >{dest}/y")[1] and ro.lines(f"echo y >{source}/y") == []
        for bad in ({"binds": [{"source": "/etc"}]}, {"binds": [{"source": str(source / "out"), "dest": str(dest)}]},
                    {"binds": [{"source": f"{source}/../../etc", "dest": str(dest)}]}, {"extra_writable": ["/etc"]},
                    {"binds": [{"source": str(source), "dest": str(tmp_path / "missing")}]},
                    {"binds": [{"source": str(source / "missing"), "dest": str(dest)}]},
                    {"binds": [{"source": str(source / "f"), "dest": str(dest)}]},
                    {"binds": [{"source": str(source), "dest": str(workspace)}]}):
            reply = agent.request("POST", "/v1/isolated/session", {"workspace": {"path": str(workspace)}, **bad})
            assert code_of(reply) == (400, "RUNTIME_ERROR"), (bad, reply.data)
    finally:
        for path in source.iterdir():
            path.unlink()
        source.rmdir()
        if made:
            base.rmdir()


@needs_root
@pytest.mark.parametrize("body, code", [
    ({}, "RUNTIME_ERROR"),
    ({"workspace": {}}, "INVALID_REQUEST_BODY"),
    ({"workspace": {"path": "ws"}}, "RUNTIME_ERROR"),
    ({"workspace": {"path": "/"}}, "RUNTIME_ERROR"),
    ({"workspace": {"path": "/var"}}, "RUNTIME_ERROR"),  # the agent's own directories are below
    ({"workspace": {"path": "/proc/1"}}, "RUNTIME_ERROR"),
    ({"workspace": {"path": "/tmp/../etc"}}, "RUNTIME_ERROR"),
    ({"workspace": {"path": "/tmp/"}}, "RUNTIME_ERROR"),
    ({"workspace": {"path": "/dev/null/x"}}, "RUNTIME_ERROR"),
    ({"workspace": {"path": "/etc/passwd"}}, "RUNTIME_ERROR"),
    ({"workspace": {"path": "/tmp", "mode": "x"}}, "RUNTIME_ERROR"),
    ({"overlays": [{"path": "/tmp"}, {"path": "/tmp"}]}, "RUNTIME_ERROR"),
    ({"overlays": [{"path": "/tmp", "mode": "rw", "persist": True}]}, "RUNTIME_ERROR"),
    ({"overlays": [{"path": f"/tmp/sandgate-none/{i}"} for i in range(17)]}, "INVALID_REQUEST_BODY"),
    ({"workspace": {"path": "/proc/self/root"}}, "RUNTIME_ERROR"),
    ({"workspace": {"path": "/tmp"}, "profile": "x"}, "RUNTIME_ERROR"),
    ({"workspace": {"path": "/tmp"}, "uid_mode": "x"}, "RUNTIME_ERROR"),
    ({"workspace": {"path": "/tmp"}, "uid": -1}, "INVALID_REQUEST_BODY"),
    ({"workspace": {"path": "/tmp"}, "idle_timeout_seconds": -1}, "INVALID_REQUEST_BODY"),
    ({"workspace": {"path": "/tmp"}, "env_passthrough": {"mode": "x"}}, "RUNTIME_ERROR"),
])
def test_bad_creates(agent, body, code):
    assert code_of(agent.request("POST", "/v1/isolated/session", body)) == (400, code)


@needs_root
def test_links_lead_nowhere(agent, workspace, tmp_path):
    for where in ("/", "/proc/sys", "/var/lib", "/dev"):
        link = tmp_path / f"link{where.replace('/', '-')}"
        link.symlink_to(where)
        reply = agent.request("POST", "/v1/isolated/session", {"workspace": {"path": str(link)}})
        assert code_of(reply) == (400, "RUNTIME_ERROR"), (where, reply.data)
    (tmp_path / "link").symlink_to(workspace)
    session = Session(agent, tmp_path / "link")
    assert session.lines("cat f; echo x >g") == ["old"] and (workspace / "g").exists()
    # a link that the session makes shows what the session sees
    (tmp_path / "outside").write_text("secret\n")  # below /tmp, which the session has of its own
    session.lines(f"ln -s {tmp_path}/outside a; echo mine >/tmp/mine; ln -s /tmp/mine b")
    assert session.call("GET", "/files/download", path=f"{workspace}/a").status == 404
    assert session.call("GET", "/files/download", path=f"{tmp_path}/link/a").status == 404
    assert session.call("GET", "/files/download", path=f"{tmp_path}/link/b").data == b"mine\n"
    assert not os.path.exists("/tmp/mine")


@needs_root
def test_not_found(agent, workspace):
    for method, path in ROUTES[2:]:
        body = {"code": "x"} if path.endswith("run") else [] if method == "POST" else None
        reply = agent.request(method, f"/v1/isolated/{path}", body)
        assert code_of(reply) == (404, "SESSION_NOT_FOUND"), (method, path, reply.data)
    session = Session(agent, workspace)
    for method, path in (("GET", "/diff"), ("POST", "/commit")):
        assert code_of(session.call(method, path)) == (503, "NOT_SUPPORTED")


@needs_root
def test_too_many(agent, workspace):
    sessions = [Session(agent, workspace, "overlay") for _ in range(64)]
    reply = agent.request("POST", "/v1/isolated/session", {"workspace": {"path": str(workspace)}})
    assert code_of(reply) == (503, "SERVICE_UNAVAILABLE") and b"64" in reply.data
    listed = json.loads(agent.request("GET", "/v1/isolated/sessions").data)["sessions"]
    assert [s["session_id"] for s in listed] == [s.id for s in sessions]
    for session in sessions:
        session.delete()
        assert not (STORE / session.id).exists() and not shells(session.id)
    Session(agent, workspace).delete()


# ---- nothing is left ----


@needs_root
def test_a_delete_leaves_nothing(agent, workspace):
    def open_files():
        return [f for f in map(os.readlink, pathlib.Path(f"/proc/{agent.proc.pid}/fd").iterdir())
                if not f.startswith("socket:")]  # of clients

    Session(agent, workspace).delete()
    before = len(open_files())
    session = Session(agent, workspace, "overlay")
    session.lines("setsid sh -c 'trap \"\" INT TERM HUP; echo $$ >pid; while :; do sleep 1000; done' "
                  ">/dev/null 2>&1 & while ! [ -s pid ]; do :; done; mkdir -p a/b; echo x >a/b/c; chmod 0 a")
    stream = session.stream("echo begun; sleep 1000")
    assert stream.next()["text"] == "begun"
    run = session.background("sleep 1000")
    assert session.run_status(run)["running"]
    pids = shells(session.id)
    session.delete()
    assert stream.rest()[-1]["error"]["evalue"] == "session terminated"
    stream.close()
    assert session.get() == 404
    assert not (STORE / session.id).exists()
    gone(pids, STORE / session.id)
    mounts = pathlib.Path("/proc/self/mountinfo").read_text()
    assert session.id not in mounts
    assert len(open_files()) == before


@needs_root
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_end_of_the_agent_leaves_nothing(start_agent, workspace, how):
    agent = start_agent()
    sessions = [Session(agent, workspace, mode) for mode in ("overlay", "rw")]
    pids = []
    for session in sessions:
        session.lines("(trap '' INT TERM HUP; exec sleep 1000) >/dev/null 2>&1 &")
        pids += shells(session.id)
    assert len(pids) == 4
    agent.proc.send_signal(how)
    agent.wait()
    for session in sessions:
        gone(pids, STORE / session.id)


@needs_root
def test_a_killed_keeper_is_cleaned_up_by_the_next_agent(start_agent, workspace):
    first = start_agent()
    session = Session(first, workspace, "overlay")
    other = start_agent()
    alive = Session(other, workspace, "overlay")
    pids = shells(session.id)
    first.proc.kill()
    os.kill(min(pids), signal.SIGKILL)
    first.wait()
    gone(pids, STORE / "none")
    third = start_agent()
    assert capabilities(third)["available"]
    assert not (STORE / session.id).exists()
    assert (STORE / alive.id).exists() and alive.lines("cat f") == ["old"]
