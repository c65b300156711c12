"""Isolated sessions by the unmodified SDK 1.1.1, sync and async, directly and by the gateway's proxy
(contract/newest.md 2.7 and 3.3): a sandbox made with the extension, and one made without."""

import uuid
from datetime import timedelta

import pytest
from opensandbox.exceptions import SandboxException
from opensandbox.models.execd import ExecutionHandlers
from opensandbox.models.execd_sync import ExecutionHandlersSync
from opensandbox.models.filesystem import (
    ContentReplaceEntry,
    DirectoryListEntry,
    MoveEntry,
    SearchEntry,
    SetPermissionEntry,
    WriteEntry,
)
from opensandbox.models.isolated import (
    BindMount,
    CreateIsolatedSessionRequest,
    EnvPassthroughSpec,
    IsolatedOverlaySpec,
    IsolatedRunOpts,
    IsolatedWorkspaceSpec,
)

from harness import BASE, wait_for

EXTENSION = {"bootstrap.execd.isolation": "enable"}


@pytest.fixture(params=[False, True], ids=["direct", "proxy"])
def by_proxy(request):
    return request.param


@pytest.fixture
def sandbox(shared, client, by_proxy):
    config = client.config(shared, use_server_proxy=by_proxy)
    made = client(client.Sandbox.create(BASE, connection_config=config, timeout=timedelta(minutes=5),
                                        extensions=EXTENSION, env={"MY_API_KEY": "hidden", "PLAIN": "seen"}))
    yield made
    client(made.kill())
    client(made.close())


def request(path="/tmp", mode="rw", **kw):
    return CreateIsolatedSessionRequest(workspace=IsolatedWorkspaceSpec(path=path, mode=mode), **kw)


def text(execution):
    return "\n".join(line.text for line in execution.logs.stdout)


def test_sessions(sandbox, client):
    iso = sandbox.isolation
    can = client(iso.capabilities())
    assert can.available and can.isolator == "bwrap" and can.setpriv_available and can.userns_available
    assert can.hardening.init_mode == "pid1" and can.hardening.signal_shield
    for layer in (can.hardening.cap_drop, can.hardening.seccomp, can.hardening.landlock, can.hardening.ebpf):
        assert layer.state == "active" or layer.message

    one = client(iso.create(request(idle_timeout_seconds=600)))
    two = client(iso.create(request("/workspace", "overlay")))
    assert uuid.UUID(one.session_id) and one.info.created_at
    listed = {s.session_id: s for s in client(iso.list())}
    assert set(listed) == {one.session_id, two.session_id}
    assert all(s.status == "active" and s.created_at for s in listed.values())
    assert 0 < listed[one.session_id].idle_remaining_seconds <= 600

    # a process of its own world, with a state of its own
    assert text(client(one.run("echo $$"))) == "2"
    assert client(one.run("export A=1; cd /var")).exit_code == 0
    assert text(client(one.run('echo "$A $PWD"'))) == "1 /var"
    assert text(client(one.run('echo "$A $B"', opts=IsolatedRunOpts(envs={"B": "it's"})))) == "1 it's"
    assert text(client(one.run('echo "${B-none}"'))) == "none"
    assert text(client(two.run('echo "${A-none}"; ls /proc | grep -c "^[0-9]*$"'))).startswith("none\n")

    seen = []
    kind = ExecutionHandlers if client.loop else ExecutionHandlersSync
    failed = client(one.run("echo out; echo err >&2; (exit 7)",
                            handlers=kind(on_stdout=client.callback(lambda m: seen.append(m.text)))))
    assert seen == ["out", "err"] and failed.exit_code == 7
    assert failed.error.name == "ExitError" and failed.error.value == "7" and failed.complete is None

    late = client(one.run("sleep 60; echo no", opts=IsolatedRunOpts(timeout_seconds=1)))
    assert late.error.name == "RuntimeError" and "timeout" in late.error.value and text(late) == ""
    assert text(client(one.run("echo alive"))) == "alive"

    again = client(iso.attach(one.session_id))
    assert again.info.workspace.path == "/tmp" and again.info.workspace.mode == "rw"
    assert again.info.idle_timeout_seconds == 600 and again.info.profile == "strict"
    assert client(again.get()).status == "active"
    client(again.delete())
    for call in (one.delete, one.get, lambda: one.run("echo"), lambda: iso.attach(one.session_id)):
        with pytest.raises(SandboxException):
            client(call())
    assert [s.session_id for s in client(iso.list())] == [two.session_id]

    assert client(two.run("exit 3")).error.value == "session process has exited"
    assert client(two.get()).status == "dead"
    client(two.delete())


def test_what_the_sandbox_gets_for_it(sandbox, client, shared):
    host = shared.engine.sandbox(sandbox.id)["HostConfig"]
    assert host["CapAdd"] in (["SYS_ADMIN"], ["CAP_SYS_ADMIN"]) and not host["Privileged"]
    assert "SYS_ADMIN" not in " ".join(host["CapDrop"]) and "/proc/kcore" in host["MaskedPaths"]
    assert "no-new-privileges" in str(host["SecurityOpt"]) and "seccomp=unconfined" not in host["SecurityOpt"]

    # but no program of it can mount, and none in a session
    status = "grep -E '^(CapBnd|CapPrm|CapInh|Seccomp):' /proc/self/status; cat /proc/sys/kernel/ns_last_pid >/dev/null"
    one = client(sandbox.isolation.create(request()))
    for run in (client(sandbox.commands.run(status)), client(one.run(status))):
        told = dict(line.split(":") for line in "".join(m.text + "\n" for m in run.logs.stdout).split("\n") if line)
        assert told["Seccomp"].strip() == "2"
        for name in ("CapBnd", "CapPrm", "CapInh"):
            assert not int(told[name], 16) >> 21 & 1, name
    for code in ("mount -t tmpfs none /tmp", "unshare -m true", "echo x >/proc/sys/kernel/core_pattern",
                 "mknod /tmp/disk b 8 0"):
        assert client(one.run(code)).exit_code != 0, code
    assert client(sandbox.commands.run("mount -t tmpfs none /tmp")).exit_code != 0
    assert client(sandbox.commands.run("echo x >/proc/sys/kernel/core_pattern")).exit_code != 0
    # the environment: the agent's is nobody's, secrets stay outside unless they are named
    env = text(client(one.run("env")))
    assert "PLAIN=seen" in env and "hidden" not in env and "EXECD" not in env
    named = client(sandbox.isolation.create(request(env_passthrough=EnvPassthroughSpec(mode="allow", keys=["MY_*"]))))
    env = text(client(named.run("env")))
    assert "MY_API_KEY=hidden" in env and "PLAIN" not in env and "PATH=" in env


def test_modes(sandbox, client):
    def out(command):
        return "".join(m.text for m in client(sandbox.commands.run(command)).logs.stdout).strip()

    client(sandbox.commands.run("mkdir -p /data/src /data/lower /mnt/here; echo old >/data/lower/f; echo s >/data/src/f"))
    session = client(sandbox.isolation.create(CreateIsolatedSessionRequest(
        overlays=[IsolatedOverlaySpec(path="/data/lower"),
                  IsolatedOverlaySpec(path="/srv/direct", mode="rw"),
                  IsolatedOverlaySpec(path="/srv/direct/locked", mode="ro"),
                  IsolatedOverlaySpec(path="/srv/gone", persist=False)],
        binds=[BindMount(source="/data/src", dest="/mnt/here", readonly=True)],
        uid=1000, gid=1000, share_net=False)))
    assert text(client(session.run("pwd; id -u"))) == "/data/lower\n1000"
    assert text(client(session.run("cat f /mnt/here/f"))) == "old\ns"
    assert client(session.run("touch /mnt/here/g")).exit_code != 0
    assert client(session.run("touch /srv/direct/locked/g")).exit_code != 0
    assert client(session.run("touch /srv/gone/g")).exit_code == 0
    assert client(session.run("echo new >/srv/direct/g; touch /etc/g")).exit_code != 0
    assert out("cat /srv/direct/g; ls /srv/gone; ls -n /srv/direct/g | cut -d' ' -f3") == "new\n1000"
    assert text(client(session.run("cat /proc/net/dev | grep -c :"))) == "1"

    root = client(sandbox.isolation.create(request("/data/lower", "overlay")))
    client(root.run("echo changed >f; echo more >g"))
    assert text(client(root.run("cat f g"))) == "changed\nmore"
    assert out("cat /data/lower/f; ls /data/lower") == "old\nf"
    named = client(sandbox.isolation.create(request("/data/lower", "overlay", uid=4321, uid_mode="userns")))
    assert text(client(named.run("id -u"))) == "4321"

    tmp = client(sandbox.isolation.create(request("/workspace", "rw")))
    client(tmp.run("touch /tmp/mine"))
    assert text(client(root.run("ls /tmp/mine 2>/dev/null || echo none"))) == "none"

    for bad in (dict(binds=[BindMount(source="/etc", dest="/mnt/here")]), dict(extra_writable=["/etc"]),
                dict(profile="loose"), dict(uid_mode="magic")):
        with pytest.raises(SandboxException):
            client(sandbox.isolation.create(request(**bad)))
    for path, mode in (("/", "rw"), ("relative", "rw"), ("/proc/x", "rw"), ("/tmp/..", "rw"), ("/tmp", "w")):
        with pytest.raises(SandboxException):
            client(sandbox.isolation.create(request(path, mode)))
    with pytest.raises(SandboxException):
        client(sandbox.isolation.create(CreateIsolatedSessionRequest()))


@pytest.mark.parametrize("mode", ["rw", "overlay"])
def test_files(sandbox, client, mode):
    client(sandbox.commands.run("mkdir -p /srv/ws; printf base >/srv/ws/base; chmod 644 /srv/ws/base"))
    session = client(sandbox.isolation.create(request("/srv/ws", mode)))
    files = session.files
    client(files.write_file("/srv/ws/a.txt", "text", mode=644))
    client(files.write_file("/srv/ws/b.bin", bytes(range(256))))
    assert client(files.read_file("/srv/ws/a.txt")) == "text"
    assert client(files.read_bytes("/srv/ws/b.bin")) == bytes(range(256))
    assert text(client(session.run("cat a.txt"))) == "text"
    info = client(files.get_file_info(["/srv/ws/a.txt"]))["/srv/ws/a.txt"]
    assert info.size == 4 and info.mode == 644
    client(files.create_directories([WriteEntry(path="/srv/ws/sub", mode=755)]))
    client(files.move_files([MoveEntry(src="/srv/ws/b.bin", dest="/srv/ws/sub/c.txt")]))
    client(files.set_permissions([SetPermissionEntry(path="/srv/ws/base", mode=755)]))
    client(files.replace_contents([ContentReplaceEntry(path="/srv/ws/base", old_content="base", new_content="new")]))
    assert client(files.read_file("/srv/ws/base")) == "new"
    found = client(files.search(SearchEntry(path="/srv/ws", pattern="*.txt")))
    assert {f.path for f in found} == {"/srv/ws/a.txt", "/srv/ws/sub/c.txt"}
    listed = client(files.list_directory(DirectoryListEntry(path="/srv/ws", depth=1)))
    assert {f.path for f in listed} == {"/srv/ws/a.txt", "/srv/ws/base", "/srv/ws/sub"}
    client(files.delete_files(["/srv/ws/a.txt"]))
    client(files.delete_directories(["/srv/ws/sub"]))
    with pytest.raises(SandboxException):
        client(files.get_file_info(["/srv/ws/a.txt"]))
    outside = client(sandbox.files.get_file_info(["/srv/ws/base"]))["/srv/ws/base"]
    assert (client(sandbox.files.read_file("/srv/ws/base")), outside.mode) == (
        ("new", 755) if mode == "rw" else ("base", 644))

    locked = client(sandbox.isolation.create(request("/srv/ws", "ro")))
    assert client(locked.files.read_file("/srv/ws/base")) in ("new", "base")
    with pytest.raises(SandboxException):
        client(locked.files.write_file("/srv/ws/no", "x"))
    with pytest.raises(SandboxException):
        client(locked.files.write_file("/etc/no", "x"))


def test_background(sandbox, client):
    session = client(sandbox.isolation.create(request()))

    def finish(run):
        wait_for("the run ends", lambda: not client(session.run_status(run.run_id)).running)
        return client(session.run_status(run.run_id))

    run = client(session.run_background('echo "$V"; echo err >&2; exit 7', opts=IsolatedRunOpts(envs={"V": "v"})))
    assert run.session_id == session.session_id and run.started_at
    done = finish(run)
    assert done.exit_code == 7 and done.error is None and done.finished_at
    logs = client(session.run_logs(run.run_id))
    assert logs.text == "v\nerr\n" and logs.cursor == 6
    assert client(session.run_logs(run.run_id, cursor=logs.cursor)).text == ""
    assert client(session.run_logs(run.run_id, cursor=2)).text == "err\n"
    assert text(client(session.run("echo mine"))) == "mine"

    slow = client(session.run_background("mkfifo /tmp/gate; cat /tmp/gate; echo passed"))
    assert client(session.run_status(slow.run_id)).running
    assert client(session.run("while ! [ -p /tmp/gate ]; do :; done; echo open >/tmp/gate")).exit_code == 0
    assert finish(slow).exit_code == 0
    assert client(session.run_logs(slow.run_id)).text == "open\npassed\n"
    for call in (session.run_status, session.run_logs):
        with pytest.raises(SandboxException) as e:
            client(call("no-such-run"))
        assert e.value.status_code == 404
    locked = client(sandbox.isolation.create(request(mode="ro")))
    with pytest.raises(SandboxException) as e:
        client(locked.run_background("echo"))
    assert e.value.status_code == 400


def test_once_and_contexts(sandbox, client):
    async def scoped():
        async with sandbox.isolation.session(request()) as s:
            await s.run("export A=1")
            return await s.run("echo $A")

    assert text(client(sandbox.isolation.run_once("echo $$", workspace="/tmp", workspace_mode="rw"))) == "2"
    if client.loop:
        result = client(scoped())
    else:
        with sandbox.isolation.session(request()) as s:
            s.run("export A=1")
            result = s.run("echo $A")
    assert text(result) == "1"
    assert client(sandbox.isolation.list()) == []


def test_without_the_extension(shared, client, by_proxy):
    config = client.config(shared, use_server_proxy=by_proxy)
    sb = client(client.Sandbox.create(BASE, connection_config=config, timeout=timedelta(minutes=5)))
    try:
        can = client(sb.isolation.capabilities())
        assert not can.available and "bootstrap.execd.isolation=enable" in can.message
        host = shared.engine.sandbox(sb.id)["HostConfig"]
        assert not host["CapAdd"] and "apparmor=unconfined" not in str(host["SecurityOpt"])
        for call in (sb.isolation.list, lambda: sb.isolation.create(request()),
                     lambda: sb.isolation.attach(str(uuid.uuid4()))):
            with pytest.raises(SandboxException) as e:
                client(call())
            assert e.value.status_code == 503
    finally:
        client(sb.kill())
        client(sb.close())
