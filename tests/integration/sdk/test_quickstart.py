"""The unmodified official SDK 1.1.1 against the gateway: create, run, files, info, kill; directly and by its proxy."""

import asyncio
from datetime import timedelta

import opensandbox
import pytest
from opensandbox import SandboxSync
from opensandbox.config import ConnectionConfig, ConnectionConfigSync
from opensandbox.exceptions import SandboxApiException, SandboxException
from opensandbox.models.execd import ExecutionHandlers, RunCommandOpts
from opensandbox.models.filesystem import WriteEntry
from opensandbox.sandbox import Sandbox

from harness import BASE, BUSYBOX, NONROOT, STATIC


@pytest.fixture(params=[False, True], ids=["direct", "proxy"])
def by_proxy(request):
    return request.param


@pytest.fixture
def config(by_proxy):
    """Makes the SDK's configuration for a gateway."""

    def make(gw, kind=ConnectionConfigSync, **kw):
        limit = timedelta(seconds=60)
        return kind(domain=gw.domain, api_key=gw.key, request_timeout=limit, use_server_proxy=by_proxy, **kw)

    return make


@pytest.fixture
def sandbox(shared, config):
    sb = SandboxSync.create(BASE, connection_config=config(shared), timeout=timedelta(minutes=5))
    yield sb
    sb.kill()
    sb.close()


def text(execution):
    return "".join(m.text for m in execution.logs.stdout)


def test_async_quick_start(shared, config):
    async def main():
        sb = await Sandbox.create(BASE, connection_config=config(shared, ConnectionConfig))
        async with sb:
            execution = await sb.commands.run("echo 'Hello Sandbox!'")
            assert execution.logs.stdout[0].text.rstrip("\n") == "Hello Sandbox!"
            assert execution.exit_code == 0
            await sb.kill()

    asyncio.run(main())


def test_sync_quick_start(shared, config):
    sb = SandboxSync.create(BASE, connection_config=config(shared))
    with sb:
        execution = sb.commands.run("echo 'Hello Sandbox!'")
        assert execution.logs.stdout[0].text.rstrip("\n") == "Hello Sandbox!"
        sb.kill()
    assert shared.request("GET", f"/v1/sandboxes/{sb.id}").status == 404


def test_streaming_handlers_see_events_in_order(shared, config):
    seen = []

    async def note(kind, value):
        seen.append((kind, value))

    async def main():
        cfg = config(shared, ConnectionConfig)
        async with await Sandbox.create(BASE, connection_config=cfg) as sb:
            handlers = ExecutionHandlers(
                on_init=lambda m: note("init", m.id),
                on_stdout=lambda m: note("out", m.text.rstrip("\n")),
                on_stderr=lambda m: note("err", m.text.rstrip("\n")),
                on_execution_complete=lambda m: note("complete", m.execution_time_in_millis),
            )
            await sb.commands.run(
                'for i in {1..3}; do echo "Count $i"; done; echo oops >&2', handlers=handlers
            )
            await sb.kill()

    asyncio.run(main())
    kinds = [k for k, _ in seen]
    assert kinds[0] == "init" and kinds[-1] == "complete" and kinds.count("init") == 1
    assert [v for k, v in seen if k == "out"] == ["Count 1", "Count 2", "Count 3"]
    assert [v for k, v in seen if k == "err"] == ["oops"]


def test_failing_command_reports_its_status_and_no_completion(sandbox):
    execution = sandbox.commands.run("echo gone >&2; exit 7")
    assert execution.exit_code == 7
    assert execution.error.name == "CommandExecError" and execution.error.value == "7"
    assert execution.complete is None


def test_environment_directory_and_argv(shared, config):
    sb = SandboxSync.create(BASE, connection_config=config(shared), env={"GREETING": "hi"})
    with sb:
        assert text(sb.commands.run("printf %s \"$GREETING\"")) == "hi"
        opts = RunCommandOpts(working_directory="/usr", envs={"X": "1"})
        assert text(sb.commands.run('pwd; printf %s "$X"', opts=opts)) == "/usr\n1"
        assert text(sb.commands.run('printf %s "$X"')) == ""
        assert text(sb.commands.run(["printf", "%s", "$HOME;'x'"])) == "$HOME;'x'"
        sb.kill()


def test_timeout_ends_the_whole_group(sandbox):
    opts = RunCommandOpts(timeout=timedelta(milliseconds=500))
    execution = sandbox.commands.run("sleep 4321 & sleep 4321", opts=opts)
    assert execution.exit_code not in (0, None)
    assert text(sandbox.commands.run("pgrep -fc 'sleep 432[1]' || true")).strip() == "0"


def test_files_round_trip(sandbox):
    data = "zażółć gęślą jaźń\n" * 1000
    sandbox.files.write_files([WriteEntry(path="/tmp/deep/er/a.txt", data=data, mode=640)])
    assert sandbox.files.read_file("/tmp/deep/er/a.txt") == data
    info = sandbox.files.get_file_info(["/tmp/deep/er/a.txt"])["/tmp/deep/er/a.txt"]
    assert info.size == len(data.encode()) and info.mode == 640 and info.owner == "root"
    sandbox.files.delete_files(["/tmp/deep/er/a.txt"])
    with pytest.raises(SandboxApiException) as raised:
        sandbox.files.read_file("/tmp/deep/er/a.txt")
    assert "FILE_NOT_FOUND" in str(raised.value) or "not found" in str(raised.value).lower()


def test_binary_files_of_every_size(sandbox):
    for size in (0, 1, 18 * 1024, 1 << 20):
        data = bytes(i * 7 & 255 for i in range(1 << 10)) * (size // 1024 + 1)
        data = data[:size]
        sandbox.files.write_file("/tmp/b.bin", data)
        assert sandbox.files.read_bytes("/tmp/b.bin") == data


def test_get_info_echoes_the_request(shared, config):
    sb = SandboxSync.create(
        BASE, connection_config=config(shared), metadata={"project": "demo"}, timeout=timedelta(minutes=5),
        extensions={"opensandbox.extensions.team": "a"}, resource={"cpu": "500m", "memory": "256Mi"},
    )
    with sb:
        info = sb.get_info()
        assert info.id == sb.id and info.status.state == "Running"
        assert info.metadata == {"project": "demo"}
        assert info.entrypoint == ["tail", "-f", "/dev/null"]
        assert info.image.image == BASE if hasattr(info.image, "image") else True
        assert abs((info.expires_at - info.created_at).total_seconds() - 300) < 1
        limits = shared.engine.sandbox(sb.id)["HostConfig"]
        assert limits["Memory"] == 256 << 20 and limits["NanoCpus"] == 500_000_000
        sb.kill()


def test_connect_pause_and_resume(shared, sandbox, config):
    sandbox.commands.run("echo kept > /tmp/kept")
    sandbox.pause()
    assert sandbox.get_info().status.state == "Paused"
    resumed = SandboxSync.resume(sandbox.id, connection_config=config(shared))
    assert text(resumed.commands.run("cat /tmp/kept")) == "kept\n"
    resumed.close()
    other = SandboxSync.connect(sandbox.id, connection_config=config(shared))
    assert other.get_info().status.state == "Running"
    other.close()


def test_set_env_persists_between_commands(sandbox):
    for value in ("plain", "$HOME ${HOME}", "two\nlines", "a=b", "it's", ""):
        sandbox.commands.set_env("MY_VALUE", value)
        assert text(sandbox.commands.run('printf "[%s]" "$MY_VALUE"')) == f"[{value}]"


@pytest.mark.parametrize("image", [BASE, NONROOT, BUSYBOX])
def test_images_with_a_shell(shared, image, config):
    entrypoint = ["/bin/busybox", "tail", "-f", "/dev/null"] if image == BUSYBOX else None
    kw = {"entrypoint": entrypoint} if entrypoint else {}
    sb = SandboxSync.create(image, connection_config=config(shared), **kw)
    with sb:
        assert text(sb.commands.run("echo ok")) == "ok\n"
        sb.commands.set_env("A", "1")
        assert text(sb.commands.run("echo $A")) == "1\n"
        who = text(sb.commands.run("id -u")).strip()
        assert who == ("1000" if image == NONROOT else "0")
        sb.files.write_file("/tmp/x", "y")
        assert sb.files.read_file("/tmp/x") == "y"
        sb.kill()


def test_image_with_one_static_binary_only(shared, config):
    sb = SandboxSync.create(STATIC, connection_config=config(shared), entrypoint=["/hello", "wait"])
    with sb:
        execution = sb.commands.run(["/hello", "one", "two"])
        assert execution.exit_code == 0, execution
        lines = text(execution).splitlines()
        assert "one" in lines and "two" in lines
        failed = sb.commands.run("echo no shell here")
        assert failed.exit_code != 0 and failed.error is not None
        sb.kill()


def test_read_only_root(make_gateway, config):
    gw = make_gateway(extra="[sandbox]\nread_only_root = true\n").start()
    sb = SandboxSync.create(BASE, connection_config=config(gw))
    with sb:
        assert sb.commands.run("echo x > /etc/x").exit_code != 0
        sb.commands.set_env("A", "1")
        assert text(sb.commands.run("echo $A")) == "1\n"
        sb.kill()


def test_unknown_image_is_an_api_error_with_its_code(shared, config):
    with pytest.raises(SandboxException) as raised:
        SandboxSync.create("nosuch.invalid/nosuch:tag", connection_config=config(shared))
    assert raised.value.error.code == "DOCKER::SANDBOX_IMAGE_PULL_FAILED"


def test_exceptions_carry_the_request_id(shared, config):
    cfg = config(shared, headers={"X-Request-ID": "trace-123"})
    with pytest.raises(SandboxException) as raised:
        SandboxSync.connect("00000000-0000-4000-8000-000000000000", connection_config=cfg)
    assert raised.value.request_id == "trace-123"


def test_sdk_is_the_published_one():
    from importlib.metadata import version

    assert version("opensandbox") == "1.1.1" and opensandbox.__file__.find("site-packages") > 0
