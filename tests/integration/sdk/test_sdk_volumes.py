"""Volumes and lifecycle hooks through the unmodified SDK, sync and async."""

import datetime as dt
import secrets

import pytest
from opensandbox.exceptions import SandboxApiException
from opensandbox.models.sandboxes import (
    OSSFS,
    PVC,
    Host,
    LifecycleHook,
    PeriodicLifecycleHook,
    SandboxLifecycle,
    Volume,
)

from harness import BASE, wait_for


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """A directory of the host that sandboxes may mount."""
    return tmp_path_factory.mktemp("shelf")


@pytest.fixture(scope="module")
def gw(tmp_path_factory, engine, shelf):
    from harness import Gateway

    extra = f'[storage]\nallowed_host_paths = ["{shelf}"]\n'
    made = Gateway(tmp_path_factory.mktemp("volumes"), engine, extra=extra).start()
    yield made
    made.cleanup()


@pytest.fixture
def make(gw, client):
    """Makes sandboxes that the test leaves to be killed."""
    made = []

    def create(**kw):
        sb = client(client.Sandbox.create(BASE, connection_config=client.config(gw), timeout=dt.timedelta(minutes=5), **kw))
        made.append(sb)
        return sb

    yield create
    for sb in made:
        try:
            client(sb.kill())
        except SandboxApiException:
            pass  # the test did
        client(sb.close())


def out(execution):
    return "".join(m.text for m in execution.logs.stdout)


def test_a_directory_of_the_host_is_read_and_written(client, make, shelf):
    (shelf / "marker").write_text("from the host")
    sb = make(volumes=[Volume(name="work", host=Host(path=str(shelf)), mount_path="/mnt/data")])
    assert client(sb.files.read_file("/mnt/data/marker")) == "from the host"
    assert client(sb.commands.run("echo back > /mnt/data/answer")).exit_code == 0
    assert (shelf / "answer").read_text() == "back\n"


def test_a_read_only_mount_is_read_only(client, make, shelf):
    sb = make(volumes=[Volume(name="ro", host=Host(path=str(shelf)), mount_path="/mnt/ro", read_only=True)])
    assert client(sb.commands.run("echo x > /mnt/ro/x")).exit_code != 0
    assert not (shelf / "x").exists()


def test_a_workspace_outlives_its_sandboxes(client, make, engine):
    """pains V6: write, delete the sandbox, make another one, read."""
    name = "sandgate-test-" + secrets.token_hex(6)
    volumes = [Volume(name="ws", pvc=PVC(claim_name=name), mount_path="/data")]
    try:
        first = make(volumes=volumes)
        client(first.files.write_file("/data/notes", "kept"))
        client(first.kill())
        second = make(volumes=volumes)
        assert client(second.files.read_file("/data/notes")) == "kept"
        client(second.commands.run("mkdir -p /data/sub && echo deep > /data/sub/f"))
        third = make(volumes=[Volume(name="part", pvc=PVC(claim_name=name), mount_path="/part", sub_path="sub", read_only=True)])
        assert out(client(third.commands.run("ls /part; cat /part/f"))) == "f\ndeep\n"
        assert client(third.commands.run("touch /part/x")).exit_code != 0
        client(second.kill())
        client(third.kill())
    finally:
        engine.call("DELETE", f"/volumes/{name}")


def test_refusals_carry_their_codes(client, make, shelf):
    for volume, code in (
        (Volume(name="etc", host=Host(path="/etc"), mount_path="/x"), "VOLUME::HOST_PATH_NOT_ALLOWED"),
        (Volume(name="up", host=Host(path=str(shelf)), mount_path="/x", sub_path="../up"), "VOLUME::INVALID_SUB_PATH"),
        (Volume(name="proc", host=Host(path=str(shelf)), mount_path="/proc"), "VOLUME::INVALID_MOUNT_PATH"),
        (Volume(name="no", pvc=PVC(claim_name="nosuch", create_if_not_exists=False), mount_path="/x"), "VOLUME::PVC_NOT_FOUND"),
        (
            Volume(name="oss", mount_path="/x", ossfs=OSSFS(bucket="bucket", endpoint="oss.invalid", access_key_id="a", access_key_secret="b")),
            "VOLUME::UNSUPPORTED_BACKEND",
        ),
    ):
        with pytest.raises(SandboxApiException) as raised:
            make(volumes=[volume])
        assert raised.value.status_code == 400 and raised.value.error.code == code


def test_hooks_run_before_and_beside_the_entrypoint(client, make):
    hooks = SandboxLifecycle(
        pre_start=LifecycleHook(command=["sh", "-c", "echo prepared > /root/ready"], timeout_seconds=20),
        periodic=[PeriodicLifecycleHook(name="tick", schedule="@every 1s", command=["sh", "-c", "echo tick >> /root/ticks"])],
    )
    sb = make(lifecycle=hooks, entrypoint=["sh", "-c", "cp /root/ready /root/seen; exec tail -f /dev/null"])
    wait_for("the entrypoint saw what the hook made", lambda: out(client(sb.commands.run("cat /root/seen"))) == "prepared\n")
    wait_for("two ticks", lambda: out(client(sb.commands.run("cat /root/ticks"))).count("tick") >= 2)


def test_a_failing_hook_fails_the_create_and_says_why(client, make):
    hooks = SandboxLifecycle(pre_start=LifecycleHook(command=["sh", "-c", "echo no luck today >&2; exit 9"]))
    with pytest.raises(SandboxApiException) as raised:
        make(lifecycle=hooks)
    assert raised.value.error.code == "DOCKER::SANDBOX_START_FAILED"
    assert "9" in raised.value.error.message and "no luck today" in raised.value.error.message
