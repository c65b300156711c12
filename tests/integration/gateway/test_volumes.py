"""Volumes on a real engine: directories and files of the host, named volumes, buckets with scripts in place of ossfs.
Nothing is left behind, whatever fails and wherever the gateway dies."""

import http.client
import os
import pathlib
import secrets
import stat
import subprocess
import threading
from datetime import timedelta

import pytest
from opensandbox import SandboxSync
from opensandbox.config import ConnectionConfigSync
from opensandbox.models.sandboxes import PVC, Host, Volume

from harness import BASE, NONROOT, TAIL, wait_for

SWEEP = "[sandbox]\nsweep_interval_seconds = 1\n"


def allow(*paths):
    return "[storage]\nallowed_host_paths = [" + ", ".join(f'"{p}"' for p in paths) + "]\n"


def connection(gw):
    return ConnectionConfigSync(domain=gw.domain, api_key=gw.key, request_timeout=timedelta(seconds=60))


def run(gw, sid, command):
    """(exit code, output) of a shell command in the sandbox."""
    sb = SandboxSync.connect(sid, connection_config=connection(gw))
    try:
        execution = sb.commands.run(command)
        return execution.exit_code, "".join(m.text for m in execution.logs.stdout).strip()
    finally:
        sb.close()


def host(path, mount="/data", **more):
    return {"name": "h-" + secrets.token_hex(3), "mountPath": mount, "host": {"path": str(path)}, **more}


def pvc(name, mount="/data", create=True, delete=False, **more):
    """As the SDK sends it, with its nulls."""
    claim = {"claimName": name, "createIfNotExists": create, "deleteOnSandboxTermination": delete, "storageClass": None,
             "storage": None, "accessModes": None}
    return {"name": "v-" + secrets.token_hex(3), "mountPath": mount, "pvc": claim, **more}


def refused(gw, code, *volumes, status=400):
    reply = gw.create(volumes=list(volumes))
    assert (reply.status, reply.json.get("code")) == (status, code), reply.raw
    assert gw.records() == [] and gw.engine.containers(gw.instance) == []
    return reply.json["message"]


@pytest.fixture
def data(tmp_path):
    """A directory of the host that sandboxes may mount."""
    path = tmp_path / "data"
    path.mkdir(mode=0o755)
    return path


@pytest.fixture
def names(engine):
    """Makes names of volumes, which are gone after the test whoever made them."""
    made = []

    def make():
        made.append("sandgate-test-" + secrets.token_hex(6))
        return made[-1]

    yield make
    for name in made:
        engine.call("DELETE", f"/volumes/{name}?force=1")


def exists(gw, name):
    return gw.engine.call("GET", f"/volumes/{name}")[0] == 200


def put(gw, name, driver="local"):
    status, made = gw.engine.call("POST", "/volumes/create", {"Name": name, "Driver": driver})
    assert status == 201, made


# ---- the host ----


def test_host_directory(make_gateway, data):
    gw = make_gateway(extra=allow(data)).start()
    (data / "marker").write_text("from outside")
    sid = gw.create(volumes=[host(data), host(data, "/ro/", readOnly=True)]).json["id"]
    assert run(gw, sid, "cat /data/marker && echo inside > /data/new && ls /data") == (0, "from outsidemarker\nnew")
    assert (data / "new").read_text() == "inside\n"
    assert run(gw, sid, "cat /ro/new; echo x > /ro/other")[0] != 0
    assert not (data / "other").exists()
    reply = gw.request("GET", f"/v1/sandboxes/{sid}")
    assert "volumes" not in reply.json and str(data) not in reply.raw.decode()
    assert gw.request("DELETE", f"/v1/sandboxes/{sid}").status == 204
    sid = gw.create(volumes=[host(data)]).json["id"]  # a workspace that outlives its sandboxes
    assert run(gw, sid, "cat /data/new") == (0, "inside")


def test_missing_directories_are_made_and_owned_as_their_parent(make_gateway, data):
    gw = make_gateway(extra=allow(data)).start()
    os.chown(data, 1000, 1000)
    sid = gw.create(NONROOT, volumes=[host(data / "a", subPath="b/c")]).json["id"]
    made = (data / "a/b/c").stat()
    assert (made.st_uid, made.st_gid, stat.S_IMODE(made.st_mode)) == (1000, 1000, 0o755)
    assert run(gw, sid, "test -d /data")[0] == 0


def test_a_file_can_be_mounted(make_gateway, data):
    (data / "one.txt").write_text("one")
    gw = make_gateway(extra=allow(data)).start()
    sid = gw.create(volumes=[host(data / "one.txt", "/etc/one.txt", readOnly=True)]).json["id"]
    assert run(gw, sid, "cat /etc/one.txt") == (0, "one")


def test_what_is_not_allowed(make_gateway, data, tmp_path):
    gw = make_gateway(extra=allow(data)).start()
    outside = tmp_path / "outside"
    outside.mkdir()
    (data / "etc").symlink_to("/etc")
    (data / "up").symlink_to("../outside")
    (data / "inner").symlink_to("sub")
    (data / "sub").mkdir()
    os.mkfifo(data / "pipe")
    for path in ("/etc", "/", "/var/run", gw.engine.path, outside, f"{data}-not", data / "etc", data / "up",
                 data / "up/new", data / "pipe"):
        refused(gw, "VOLUME::HOST_PATH_NOT_ALLOWED", host(path))
    for path in (f"{data}/../outside", f"{data}//sub", f"{data}/", "relative"):
        refused(gw, "VOLUME::INVALID_HOST_PATH", host(path))
    refused(gw, "VOLUME::HOST_PATH_NOT_ALLOWED", host(data, subPath="etc"))
    refused(gw, "VOLUME::INVALID_SUB_PATH", host(data, subPath="../outside"))
    refused(gw, "VOLUME::INVALID_MOUNT_PATH", host(data, "/opt/opensandbox/agent"))
    refused(gw, "VOLUME::INVALID_MOUNT_PATH", host(data, "/a"), host(data, "/a/"))
    assert list(outside.iterdir()) == []
    sid = gw.create(volumes=[host(data / "inner")]).json["id"]  # a link that stays inside
    assert run(gw, sid, "touch /data/x")[0] == 0
    assert (data / "sub/x").exists()


def swapped(gw, data, go, secret, **request):
    """Creates a sandbox with data/dir, which becomes a link to secret when the container is made and not started yet."""
    gw.start(fault="wait:create.made", env={"SANDGATE_FAULT_FILE": str(go)})
    secret.mkdir()
    (data / "dir").mkdir()
    replies = []
    entrypoint = ["sh", "-c", "echo ran > /data/mark; sleep 300"]
    body = {"image": {"uri": BASE}, "timeout": 300, "entrypoint": entrypoint, **request}
    body["volumes"] = [host(data / "dir"), *request.get("volumes", [])]
    worker = threading.Thread(target=lambda: replies.append(gw.request("POST", "/v1/sandboxes", body)))
    worker.start()
    wait_for("the container is made", lambda: gw.engine.containers(gw.instance))
    (data / "dir").rename(data / "aside")
    (data / "dir").symlink_to(secret)
    go.touch()
    worker.join(60)
    return replies[0]


def test_a_directory_that_is_swapped_after_the_check(make_gateway, data, tmp_path):
    """The engine follows the path once more when it starts the container, and gets what was checked all the same."""
    gw, secret = make_gateway(extra=allow(data)), tmp_path / "secret"
    assert swapped(gw, data, tmp_path / "go", secret).status == 202
    wait_for("the entrypoint ran", (data / "aside/mark").exists)
    assert list(secret.iterdir()) == []
    assert list(pathlib.Path(f"/run/sandgate/{gw.instance}").iterdir()) == []


def without_mounting(directory, binary):
    path = directory / "sandgate-without-mounting"
    path.write_text(f'#!/bin/sh\nexec setpriv --bounding-set=-sys_admin "{binary}" "$@"\n')
    path.chmod(0o755)
    return str(path)


def test_an_agent_that_is_not_ours_gets_nothing_else(make_gateway, engine, names, data, tmp_path):
    """Links of the image lead a volume over the agent, so what is in the volume runs in its place and checks nothing."""
    gw = make_gateway(extra=allow(data) + "[sandbox]\nready_timeout_seconds = 3\n").start()
    secret, volume = tmp_path / "secret", names()
    sid = gw.create(volumes=[pvc(volume)]).json["id"]
    script = "#!/bin/sh\\necho evil > /data/mark; sleep 300\\n"
    commands = f"printf '{script}' > /data/execd; chmod 755 /data/execd; mkdir -p /x/x/x; ln -s /opt/opensandbox/agent /x/x/x/x"
    assert run(gw, sid, commands)[0] == 0
    snapshot = gw.request("POST", f"/v1/sandboxes/{sid}/snapshots").json["id"]
    wait_for("the snapshot", lambda: gw.request("GET", f"/v1/snapshots/{snapshot}").json["status"]["state"] == "Ready")
    gw.request("DELETE", f"/v1/sandboxes/{sid}")
    gw.stop()
    try:
        reply = swapped(gw, data, tmp_path / "go", secret, image=None, snapshotId=snapshot, volumes=[pvc(volume, "/x/x/x/x")])
        assert reply.status >= 400
        assert (data / "aside/mark").read_text() == "evil\n"  # it did run
        assert list(secret.iterdir()) == []
        assert gw.records() == [] and gw.engine.containers(gw.instance) == []
    finally:
        gw.request("DELETE", f"/v1/snapshots/{snapshot}")


def test_a_directory_that_is_swapped_when_the_server_may_not_mount(make_gateway, names, data, tmp_path):
    """Then the agent sees what came of it."""
    gw, secret = make_gateway(extra=allow(data)), tmp_path / "secret"
    gw.binary = without_mounting(tmp_path, gw.binary)
    reply = swapped(gw, data, tmp_path / "go", secret)
    assert reply.status in (400, 500) and "not the directory that was checked" in reply.json["message"]
    assert list(secret.iterdir()) == []
    assert gw.records() == [] and gw.engine.containers(gw.instance) == []
    assert "CAP_SYS_ADMIN" in gw.log_text()
    refused(gw, "VOLUME::PVC_SUBPATH_UNSUPPORTED_DRIVER", pvc(names(), subPath="part"))


def test_an_empty_list_allows_nothing(make_gateway, data):
    gw = make_gateway().start()
    assert "storage.allowed_host_paths" in refused(gw, "VOLUME::HOST_PATH_NOT_ALLOWED", host(data))


@pytest.mark.parametrize("entry", ["{engine}", "/", "{top}", "relative"])
def test_a_list_that_gives_everything_away_is_refused_at_start(make_gateway, engine, entry):
    gw = make_gateway()
    text = entry.format(engine=os.path.dirname(engine.path), top=gw.dir)
    gw.config.write_text(gw.config.read_text() + allow(text))
    gw.start(wait=False)
    assert gw.wait_dead() == 1
    assert "storage.allowed_host_paths" in gw.log_text()


# ---- named volumes ----


def test_named_volume(make_gateway, names):
    gw = make_gateway().start()
    name = names()
    sid = gw.create(volumes=[pvc(name), pvc(name, "/ro", readOnly=True)]).json["id"]
    assert run(gw, sid, "echo 1 > /data/f && cat /ro/f")[0] == 0
    assert run(gw, sid, "echo 2 > /ro/f")[0] != 0
    assert gw.request("DELETE", f"/v1/sandboxes/{sid}").status == 204
    assert exists(gw, name)  # nobody asked for its end
    sid = gw.create(volumes=[pvc(name, create=False, delete=True)]).json["id"]
    assert run(gw, sid, "cat /data/f") == (0, "1")
    assert gw.request("DELETE", f"/v1/sandboxes/{sid}").status == 204
    assert exists(gw, name)  # this sandbox did not make it


def test_a_volume_goes_with_its_maker_when_nobody_else_uses_it(make_gateway, names):
    gw = make_gateway(extra=SWEEP).start()
    alone, shared = names(), names()
    maker = gw.create(volumes=[pvc(alone, delete=True), pvc(shared, "/s", delete=True)]).json["id"]
    user = gw.create(volumes=[pvc(shared)]).json["id"]
    assert gw.request("DELETE", f"/v1/sandboxes/{maker}").status == 204
    assert not exists(gw, alone) and exists(gw, shared)
    assert run(gw, user, "echo still > /data/x")[0] == 0
    assert gw.request("DELETE", f"/v1/sandboxes/{user}").status == 204
    wait_for("the sweep removes it", lambda: not exists(gw, shared))


def test_a_failed_create_leaves_no_volume(make_gateway, names):
    gw = make_gateway().start()
    keep, go, old = names(), names(), names()
    put(gw, old)
    volumes = [pvc(keep), pvc(go, "/go", delete=True), pvc(old, "/old", delete=True)]
    reply = gw.create(volumes=volumes, entrypoint=["/no/such/program"])
    assert reply.json["code"] == "DOCKER::INVALID_ENTRYPOINT", reply.raw
    reply = gw.create("sandgate-no-such-image:none", volumes=volumes)
    assert reply.status == 500 and reply.json["code"] == "DOCKER::SANDBOX_IMAGE_PULL_FAILED", reply.raw
    assert [exists(gw, n) for n in (keep, go, old)] == [False, False, True]
    assert gw.engine.containers(gw.instance) == []


def test_named_volumes_that_are_refused(make_gateway, names):
    gw = make_gateway().start()
    name = names()
    refused(gw, "VOLUME::PVC_NOT_FOUND", pvc(name, create=False))
    assert not exists(gw, name)
    refused(gw, "VOLUME::INVALID_PVC_NAME", pvc("Not_A_Label"))
    first, second = pvc(name), pvc(name, "/b")
    refused(gw, "VOLUME::DUPLICATE_NAME", first, {**second, "name": first["name"]})
    refused(gw, "VOLUME::INVALID_BACKEND", {**pvc(name), "host": {"path": "/x"}})
    refused(gw, "VOLUME::INVALID_BACKEND", {"name": "x", "mountPath": "/x"})
    assert not exists(gw, name)
    agents = [v["Name"] for v in gw.engine.call("GET", "/volumes")[1]["Volumes"] if v["Name"].startswith("sandgate-agent-")]
    assert agents
    refused(gw, "VOLUME::INVALID_PVC_NAME", pvc(agents[0]))


def test_parts_of_a_named_volume(make_gateway, names):
    gw = make_gateway().start()
    name = names()
    sid = gw.create(volumes=[pvc(name, "/one", subPath="a/b"), pvc(name, "/two", subPath="c", readOnly=True),
                             pvc(name, "/all")]).json["id"]
    assert run(gw, sid, "echo 1 > /one/f && cat /all/a/b/f && ls /one") == (0, "1\nf")
    assert run(gw, sid, "echo x > /two/f")[0] != 0
    assert run(gw, sid, "ln -s /etc /all/link && ln -s ../../.. /all/up")[0] == 0
    assert gw.request("DELETE", f"/v1/sandboxes/{sid}").status == 204
    refused(gw, "VOLUME::INVALID_SUB_PATH", pvc(name, subPath="link"))
    refused(gw, "VOLUME::INVALID_SUB_PATH", pvc(name, subPath="up/x"))
    refused(gw, "VOLUME::INVALID_SUB_PATH", pvc(name, subPath="/a"))


def test_expiry_takes_the_volume_along(make_gateway, names):
    import datetime

    gw = make_gateway(extra=SWEEP).start()
    name = names()
    sid = gw.create(volumes=[pvc(name, delete=True)]).json["id"]
    at = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(milliseconds=300)
    gw.request("POST", f"/v1/sandboxes/{sid}/renew-expiration", {"expiresAt": at.isoformat()})
    wait_for("it is gone", lambda: not exists(gw, name))


def test_by_the_sdk(make_gateway, data, names):
    gw = make_gateway(extra=allow(data)).start()
    (data / "marker").write_text("m")
    name = names()
    volumes = [Volume(name="h", host=Host(path=str(data)), mount_path="/h"),
               Volume(name="r", host=Host(path=str(data)), mount_path="/r", read_only=True),
               Volume(name="p", pvc=PVC(claim_name=name), mount_path="/p"),
               Volume(name="s", pvc=PVC(claim_name=name), mount_path="/s", sub_path="only/this")]
    sb = SandboxSync.create(BASE, connection_config=connection(gw), timeout=timedelta(minutes=5), volumes=volumes)
    with sb:
        assert sb.commands.run("cat /h/marker").logs.stdout[0].text.strip() == "m"
        assert sb.commands.run("echo w > /h/w && echo p > /p/p && echo s > /s/s").exit_code == 0
        assert sb.commands.run("echo w > /r/x").exit_code != 0
        assert sb.commands.run("cat /p/only/this/s").logs.stdout[0].text.strip() == "s"
        assert "".join(m.text for m in sb.commands.run("ls /s").logs.stdout).split() == ["s"]
        sb.kill()
    assert (data / "w").read_text() == "w\n"


# ---- deaths of the gateway ----


@pytest.mark.parametrize("delete", [False, True], ids=["keep", "go"])
@pytest.mark.parametrize("step", ["volumes.intent", "volumes.made", "create.held", "create.claimed"])
def test_kill_while_a_volume_is_made(make_gateway, names, step, delete):
    gw = make_gateway(extra=SWEEP)
    name = names()
    gw.start(fault=f"crash:{step}")
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        gw.create(volumes=[pvc(name, delete=delete)])
    assert gw.wait_dead() == -9
    gw.start()
    wait_for("nothing is left", lambda: not exists(gw, name) and gw.records() == [] and
             gw.engine.containers(gw.instance) == [])


@pytest.mark.parametrize("step", ["create.made", "create.held", "create.confirmed"])
def test_kill_while_a_directory_is_held_in_place(make_gateway, data, step):
    """Nothing is mounted any more, and what is in the directory stays."""
    gw = make_gateway(extra=SWEEP + allow(data))
    (data / "kept").touch()
    gw.start(fault=f"crash:{step}")
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        gw.create(volumes=[host(data)])
    assert gw.wait_dead() == -9
    pins = pathlib.Path(f"/run/sandgate/{gw.instance}")
    assert str(pins) in pathlib.Path("/proc/self/mountinfo").read_text()
    gw.start()
    assert str(pins) not in pathlib.Path("/proc/self/mountinfo").read_text()
    assert list(pins.iterdir()) == [] and (data / "kept").exists()


@pytest.mark.parametrize("step,delete", [("create.confirmed", False), ("delete.removed", True), ("delete.removed", False)])
def test_kill_does_not_take_what_is_to_be_kept(make_gateway, names, step, delete):
    gw = make_gateway(extra=SWEEP)
    name = names()
    gw.start(fault=f"crash:{step}")
    try:
        sid = gw.create(volumes=[pvc(name, delete=delete)]).json["id"]
        gw.request("DELETE", f"/v1/sandboxes/{sid}")
    except (http.client.HTTPException, ConnectionError):
        pass
    assert gw.wait_dead() == -9
    gw.start()
    for record in wait_for("the sandbox is settled", lambda: [gw.records()])[0]:
        gw.request("DELETE", f"/v1/sandboxes/{record['id']}")
    wait_for("it is gone", lambda: gw.records() == [] and gw.engine.containers(gw.instance) == [])
    wait_for("the volume is as asked", lambda: exists(gw, name) == (not delete))


# ---- buckets ----

TOOL = """#!/bin/sh
top=$(dirname "$0")
echo "$@" >> $top/args
for a in "$@"; do case $a in passwd_file=*) f=${a#passwd_file=};; *.conf) f=$a;; esac; done
stat -c %a $f >> $top/mode
[ -e $top/fail ] && { cat $f >&2; exit 1; }
mount -t tmpfs bucket $2 && echo content > $2/object
"""
UNMOUNT = '#!/bin/sh\nexec umount "$2"\n'
KEY, SECRET = "key-id-4711", "bucket-secret-0815"


def bucket(mount="/data", **more):
    keys = {"bucket": "bucket-1", "endpoint": "oss.example.com", "accessKeyId": KEY, "accessKeySecret": SECRET}
    return {"name": "o-" + secrets.token_hex(3), "mountPath": mount, "ossfs": {**keys, **more}}


def mounts_below(path):
    with open("/proc/self/mountinfo", encoding="utf-8") as table:
        return [line.split()[4] for line in table if line.split()[4].startswith(str(path))]


@pytest.fixture
def oss(make_gateway, tmp_path):
    """A gateway with scripts for ossfs2 and fusermount, not started; (gateway, directory of scripts, mount root, PATH)."""
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        pytest.skip("mounting needs root and /dev/fuse")
    tools, root = tmp_path / "tools", tmp_path / "buckets"
    tools.mkdir()
    for name, text in (("ossfs2", TOOL), ("fusermount3", UNMOUNT)):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    gw = make_gateway(extra=SWEEP + f'[storage]\nossfs_mount_root = "{root}"\n')
    yield gw, tools, root, {"PATH": f"{tools}:{os.environ['PATH']}"}
    gw.cleanup()
    for point in reversed(mounts_below(root)):
        subprocess.run(["umount", point], check=False)


def test_buckets_need_their_program(make_gateway, tmp_path):
    gw = make_gateway().start(env={"PATH": str(tmp_path)})
    assert "ossfs2" in refused(gw, "VOLUME::UNSUPPORTED_BACKEND", bucket())
    assert "ossfs 1.0" in refused(gw, "VOLUME::UNSUPPORTED_BACKEND", bucket(version="1.0"))
    refused(gw, "VOLUME::INVALID_OSSFS_CREDENTIALS", bucket(accessKeySecret=None))


def test_bucket(oss):
    gw, tools, root, env = oss
    gw.start(env=env)
    one, two = (gw.create(volumes=[{**bucket(), "readOnly": ro}]).json["id"] for ro in (False, True))
    assert len(mounts_below(root)) == 2  # never shared
    assert run(gw, one, "cat /data/object && echo x > /data/new") == (0, "content")
    assert run(gw, two, "cat /data/object && ! test -e /data/new && ! touch /data/y")[0] == 0
    args = (tools / "args").read_text()
    assert SECRET not in args and KEY not in args and (tools / "mode").read_text() == "600\n600\n"
    assert [p for p in root.rglob("*.conf")] == []
    assert gw.request("DELETE", f"/v1/sandboxes/{one}").status == 204
    assert len(mounts_below(root)) == 1
    assert gw.request("DELETE", f"/v1/sandboxes/{two}").status == 204
    assert mounts_below(root) == [] and list(root.glob("*/*")) == []
    (tools / "fail").touch()
    reply = gw.create(volumes=[bucket()])
    assert (reply.status, reply.json["code"]) == (500, "VOLUME::OSSFS_MOUNT_FAILED"), reply.raw
    assert SECRET not in reply.json["message"] and KEY not in reply.json["message"]
    assert mounts_below(root) == [] and list(root.glob("*/*")) == []
    assert SECRET not in gw.log_text() and KEY not in gw.log_text()


@pytest.mark.parametrize("step", ["volumes.mounted", "create.held", "delete.removed"])
def test_kill_with_a_bucket_mounted(oss, step):
    gw, _, root, env = oss
    gw.start(fault=f"crash:{step}", env=env)
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        sid = gw.create(volumes=[bucket()]).json["id"]
        gw.request("DELETE", f"/v1/sandboxes/{sid}")
    assert gw.wait_dead() == -9
    assert len(mounts_below(root)) == 1
    gw.start(env=env)
    wait_for("it is unmounted", lambda: mounts_below(root) == [] and list(root.glob("*/*")) == [])
    wait_for("its record has ended", lambda: gw.records() == [])  # the mount goes first


def test_a_sandbox_with_entrypoint_sees_its_volume_at_once(make_gateway, data):
    """The entrypoint starts after the mounts were compared."""
    gw = make_gateway(extra=allow(data)).start()
    gw.create(volumes=[host(data)], entrypoint=["sh", "-c", "echo started > /data/mark; exec " + " ".join(TAIL)])
    wait_for("the entrypoint has written", (data / "mark").exists)
