"""PID 1 of a container (contract/execd.md 12.3 and 12.4, newest.md 2.6), seen from inside and from the engine."""

import pytest
from agentlib import claim

pytest.importorskip("harness", reason="needs a container engine")

import boxes  # noqa: E402
from harness import BASE, BUSYBOX, wait_for  # noqa: E402

TRAPS = (
    "for s in HUP USR1 USR2 WINCH; do trap \"echo got $s\" $s; done; trap 'echo bye >/bye; exit 7' TERM; "
    "echo ready; while :; do sleep 60 & wait $!; done"
)
ZOMBIES = "ps -o stat= -o ppid= ax | grep -c '^Z' || :"


@pytest.fixture
def box():
    made = []

    def make(image=BASE, entrypoint=None, **kw):
        made.append(boxes.Box(boxes.engine(), image, **kw))
        reply = claim(made[-1], entrypoint=entrypoint or ["sleep", "1000"])
        assert reply.status == 200, reply.data
        return made[-1]

    yield make
    for one in made:
        one.remove()


def test_who_is_who(box):
    ours = box()
    assert ours.run("cat /proc/1/comm").stdout == "execd\n"
    assert ours.run("echo $PPID").stdout == "1\n"
    assert ours.run("ps -o ppid= -C sleep").stdout.split() == ["1"]


def test_orphans_leave_no_zombies(box):
    ours = box()
    ours.run("for i in $(seq 20); do (setsid sh -c 'sleep 0.0$RANDOM' >/dev/null 2>&1 &); done")
    wait_for("all are gone", lambda: ours.run("pgrep -f 'sleep 0'").code == 1)
    assert ours.run(ZOMBIES).stdout == "0\n"


def test_zombies_under_load(box):
    """Short orphans, and some that live on: none of the dead is left, round after round."""
    ours = box()
    before = int(ours.run("ls -d /proc/[0-9]* | wc -l").stdout)
    for _ in range(20):
        ours.run("for i in $(seq 50); do (true &); done; sleep 1000 & kill $!")
        assert ours.run(ZOMBIES).stdout == "0\n"
    after = int(ours.run("ls -d /proc/[0-9]* | wc -l").stdout)
    assert after <= before + 2


def test_it_cannot_be_killed_or_read_from_inside(box):
    ours = box()
    assert ours.run("kill -9 1; echo alive").stdout == "alive\n"
    for name in ("environ", "mem", "maps", "fd/0", "root"):
        done = ours.run(f"cat /proc/1/{name}")
        assert done.error and "denied" in done.stderr.lower(), name


def test_signals_reach_the_entrypoint(box):
    ours = box(entrypoint=["sh", "-c", TRAPS])
    wait_for("it is ready", lambda: "ready" in ours.logs())
    for name in ("HUP", "USR1", "USR2", "WINCH"):
        assert ours.run(f"kill -{name} 1").code == 0
        wait_for(f"{name} is there", lambda name=name: f"got {name}\n" in ours.logs())
    assert ours.info()["State"]["Running"]


def test_the_entrypoints_status_is_the_containers(box):
    ours = box(entrypoint=["sh", "-c", "exit 42"])
    assert ours.wait() == 42
    state = ours.info()
    assert state["State"]["Status"] == "exited" and state["RestartCount"] == 0


@pytest.mark.parametrize("image", [BASE, BUSYBOX])
def test_a_stop_from_inside(box, image):
    ours = box(image, entrypoint=["sh", "-c", "trap 'exit 7' TERM; echo ready; while :; do sleep 60 & wait $!; done"])
    wait_for("it is ready", lambda: "ready" in ours.logs())
    ours.stream(command="kill 1").close()
    assert ours.wait() == 7


def test_a_stop_by_the_engine(box):
    """The entrypoint cleans up, its status is the container's, and its files are still there."""
    ours = box(entrypoint=["sh", "-c", TRAPS])
    wait_for("it is ready", lambda: "ready" in ours.logs())
    ours.stop()
    assert ours.wait() == 7
    status, tar = ours.engine.call("GET", f"/containers/{ours.container}/archive?path=/bye")
    assert status == 200 and b"bye\n" in tar


@pytest.mark.parametrize("name", ["SIGINT", "SIGQUIT", "SIGRTMIN+3"])
def test_other_signals_that_mean_stop(box, name):
    """What images name as their STOPSIGNAL: a web server QUIT, a database INT, an init system RTMIN+3."""
    ours = box(entrypoint=["sh", "-c", TRAPS])
    wait_for("it is ready", lambda: "ready" in ours.logs())
    ours.signal(name)
    assert ours.wait() == 7


def test_an_end_waits_for_nobody_elses_output(box):
    """A daemon that keeps the container's output open does not keep the container."""
    ours = box(entrypoint=["sh", "-c", "setsid sleep 1000 & exit 3"])
    assert ours.wait() == 3
