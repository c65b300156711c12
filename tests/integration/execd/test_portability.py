"""One agent, unchanged, in every kind of image: any libc or none, any shell or none, any user, a root that cannot be
written, and on a kernel that lacks the newer system calls."""

import json
import pathlib
import subprocess
import sys

import pytest
from agentlib import claim

pytest.importorskip("harness", reason="needs a container engine")

import boxes  # noqa: E402
from harness import BASE, BUSYBOX, MUSL, NONROOT, STATIC  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
HOME = {"/opt/opensandbox": "size=16m,mode=1777"}
IMAGES = {
    "debian": (BASE, {}),
    "busybox": (BUSYBOX, {}),
    "musl": (MUSL, {}),
    "scratch": (STATIC, {}),
    "nonroot": (NONROOT, {}),
    "stranger": (BASE, {"user": "12345:12345"}),  # in no passwd file
    "read-only": (BASE, {"read_only": True, "Tmpfs": {**HOME, "/tmp": "mode=1777"}}),
    "read-only-busybox": (BUSYBOX, {"read_only": True, "user": "12345", "Tmpfs": HOME}),
    "read-only-scratch": (STATIC, {"read_only": True, "Tmpfs": HOME}),
    "no-capabilities": (BASE, {"CapDrop": ["ALL"]}),
}


@pytest.fixture(scope="session")
def enosys(tmp_path_factory):
    path = tmp_path_factory.mktemp("enosys") / "enosys"
    subprocess.run(["gcc", "-static", "-Os", "-o", path, HERE / "enosys.c"], check=True)
    path.parent.chmod(0o755)
    return path


@pytest.fixture(params=[False, True], ids=["", "enosys"])
def via(request, enosys):
    return enosys if request.param else None


@pytest.fixture
def box():
    made = []

    def make(image, entrypoint, **kw):
        made.append(boxes.Box(boxes.engine(), image, **kw))
        reply = claim(made[-1], entrypoint=entrypoint, env={"FROM_CLAIM": "c"})
        assert reply.status == 200, reply.data
        return made[-1]

    yield make
    for one in made:
        one.remove()


def wait_entrypoint(image):
    return ["/hello", "wait"] if image == STATIC else ["sleep", "1000"]


@pytest.mark.parametrize("name", IMAGES)
def test_all_of_it_works(box, via, name):
    image, options = IMAGES[name]
    ours = box(image, wait_entrypoint(image), via=via, **options)

    if image == STATIC:
        done = ours.run(argv=["/hello", "a b"])
        assert done.code == 0 and done.out[:2] == ["/hello\n", "a b\n"] and "FROM_CLAIM=c\n" in done.out
        reply = ours.request("POST", "/command", {"command": "true"})
        assert b"CommandExecError" in reply.data or reply.status >= 400  # there is no shell: said, not crashed
    else:
        done = ours.run("echo out; echo err >&2; echo $FROM_CLAIM; exit 3")
        assert (done.stdout, done.stderr, done.code) == ("out\nc\n", "err\n", 3)
        assert ours.run(argv=["sh", "-c", "exit 9"]).code == 9
        assert ours.run("sleep 1000", timeout=100).error
    if image == MUSL:
        assert ours.run("hello-musl").stdout == "hello from musl, root\n"

    data = bytes(range(256)) * 5000
    place = "/tmp/deep/f" if "scratch" not in name and name != "read-only-busybox" else "/opt/opensandbox/deep/f"
    ours.upload(place, data, 600)
    assert ours.download(place) == data
    info = json.loads(ours.request("GET", "/files/info", path=place).data)[place]
    assert info["size"] == len(data) and info["mode"] == 600
    assert ours.request("DELETE", "/files", path=place).status == 200

    metrics = json.loads(ours.request("GET", "/metrics").data)
    assert metrics["cpu_count"] > 0 and 0 < metrics["mem_used_mib"] <= metrics["mem_total_mib"]

    ours.stop()
    assert ours.wait() == 143


def test_background_and_interrupt_without_newer_calls(start_agent, enosys, tmp_path):
    """On this machine itself: what waits for children and closes descriptors has its other way."""
    agent = start_agent(via=[enosys])
    assert "Function not implemented" in agent.run(argv=[sys.executable, "-c", "import os; os.pidfd_open(1)"]).stderr
    stream = agent.stream(command="echo up; sleep 1000")
    ident = stream.until("init")["text"]
    stream.until("stdout")
    assert agent.request("DELETE", "/command", id=ident).status == 200
    assert stream.until("error")["error"]["ename"] == "CommandExecError"
    stream.close()
    done = agent.run("ls -l /proc/self/fd")
    assert "socket:" not in done.stdout and "anon_inode" not in done.stdout  # nothing of the agent's leaks
    started = agent.run("true", background=True)
    assert agent.wait_ended(started.id)["exit_code"] == 0
