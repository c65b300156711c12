"""The engine is down, or dies in the middle of a create. Runs on a private engine of its own."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import threading

import pytest

from harness import BUSYBOX, ROOT, Engine, wait_for

SCRIPT = str(ROOT / "deploy/setup/engine.sh")
ENTRY = ["/bin/busybox", "tail", "-f", "/dev/null"]


class Private:
    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="sg-", dir="/tmp")

    def start(self):
        address = subprocess.run([SCRIPT, "--private", self.dir], check=True, capture_output=True, text=True).stdout
        self.engine = Engine(address.strip().removeprefix("unix://"))
        return self.engine

    def stop(self):
        subprocess.run([SCRIPT, "--stop", self.dir], check=True)

    def kill9(self):
        pid = int(next(pathlib.Path(self.dir).glob("**/pid")).read_text())
        os.kill(pid, 9)
        wait_for("the engine is dead", lambda: not pathlib.Path(f"/proc/{pid}/exe").exists())

    def remove(self):
        subprocess.run([SCRIPT, "--remove", self.dir], check=False)
        shutil.rmtree(self.dir, ignore_errors=True)


@pytest.fixture
def private(engine):
    p = Private()
    p.start()
    # the image comes from the main engine: there is no registry
    main, own = (["docker", "-H", f"unix://{e.path}"] for e in (engine, p.engine))
    save = subprocess.Popen([*main, "save", BUSYBOX], stdout=subprocess.PIPE)
    subprocess.run([*own, "load", "-q"], stdin=save.stdout, check=True, stdout=subprocess.DEVNULL)
    save.wait()
    yield p
    p.remove()


def test_starts_without_an_engine_and_recovers(private, make_gateway):
    private.stop()
    gw = make_gateway(on=private.engine).start()
    reply = gw.create(BUSYBOX, ENTRY)
    assert reply.status == 503 and reply.json["code"] == "DOCKER::INITIALIZATION_ERROR", reply.raw
    assert reply.getheader("Retry-After")
    assert gw.request("GET", "/health").status == 200
    assert gw.records() == [] or gw.records()[0]["status"]["state"] == "Stopping"
    private.start()
    wait_for("creates work again", lambda: gw.create(BUSYBOX, ENTRY).status == 202, 60)
    wait_for("what the outage left is gone", lambda: all(r["status"]["state"] == "Running" for r in gw.records()))
    for record in gw.records():
        assert gw.request("DELETE", f"/v1/sandboxes/{record['id']}").status == 204
    assert gw.engine.containers(gw.instance) == []


@pytest.mark.parametrize("step", ["create.made", "create.started"])
def test_engine_dies_in_mid_create(private, make_gateway, step):
    """The gateway waits at the step while the engine is killed, then goes on into the dead engine."""
    gw = make_gateway(on=private.engine)
    pause = gw.dir / "go-on"
    gw.start(fault=f"wait:{step}", env={"SANDGATE_FAULT_FILE": str(pause)})
    replies = []
    worker = threading.Thread(target=lambda: replies.append(gw.create(BUSYBOX, ENTRY)))
    worker.start()
    wait_for("the container is made", lambda: gw.engine.containers(gw.instance), 60)
    private.kill9()
    pause.touch()
    worker.join(120)
    assert replies and replies[0].status >= 500 and set(replies[0].json) == {"code", "message"}, replies
    private.start()
    wait_for("the half-made container is removed", lambda: gw.engine.containers(gw.instance) == [], 90)
    wait_for("and its record", lambda: gw.records() == [])
    assert gw.create(BUSYBOX, ENTRY).status == 202
