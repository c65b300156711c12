"""Snapshots through the unmodified official SDK 1.1.1, sync and async; the sync part is upstream's only snapshot suite
(Java SnapshotE2ETest) call by call."""

import asyncio
import time
from datetime import timedelta

import pytest
from opensandbox import SandboxSync
from opensandbox.config import ConnectionConfig, ConnectionConfigSync
from opensandbox.exceptions import SandboxApiException
from opensandbox.manager import SandboxManager
from opensandbox.models.sandboxes import SnapshotFilter
from opensandbox.sandbox import Sandbox
from opensandbox.sync.manager import SandboxManagerSync

from harness import BASE, wait_for

LIMIT = timedelta(seconds=60)


@pytest.fixture(params=[False, True], ids=["direct", "proxy"])
def connect(request, shared):
    """Makes the SDK's configuration for the gateway."""

    def make(kind=ConnectionConfigSync):
        return kind(domain=shared.domain, api_key=shared.key, request_timeout=LIMIT, use_server_proxy=request.param)

    return make


def text(execution):
    return "".join(m.text for m in execution.logs.stdout).strip()


def test_sync(connect):
    manager = SandboxManagerSync.create(connect())
    source = SandboxSync.create(BASE, connection_config=connect(), env={"OF_SOURCE": "1"})
    restored = None
    try:
        source.commands.run("echo kept > /root/file")
        accepted = source.create_snapshot("nightly")
        assert accepted.status.state == "Creating" and accepted.status.reason == "snapshot_accepted"
        assert accepted.status.message == "Snapshot creation accepted."
        assert accepted.sandbox_id == source.id and accepted.name == "nightly"
        ready = wait_for("it is ready", lambda: next(
            (s for s in [manager.get_snapshot(accepted.id)] if s.status.state != "Creating"), None))
        assert ready.status.state == "Ready" and ready.status.reason and ready.status.message
        assert ready.created_at == accepted.created_at
        assert ready.status.last_transition_at >= accepted.status.last_transition_at >= accepted.created_at

        page = manager.list_snapshots(SnapshotFilter(sandbox_id=source.id, states=["Ready"], name="nightly"))
        assert page.snapshot_infos == [ready]
        assert (page.pagination.total_items, page.pagination.total_pages) == (1, 1)
        assert not page.pagination.has_next_page

        restored = SandboxSync.create(snapshot_id=ready.id, connection_config=connect(), metadata={"from": "snapshot"})
        assert text(restored.commands.run("cat /root/file")) == "kept"
        assert text(restored.commands.run("printf %s \"$OF_SOURCE\"")) == ""
        info = restored.get_info()
        assert info.snapshot_id == ready.id and info.image is None and info.metadata == {"from": "snapshot"}

        with pytest.raises(SandboxApiException) as refused:
            manager.delete_snapshot(ready.id)
        assert refused.value.status_code == 409 and refused.value.error.code == "SNAPSHOT::DELETE_CONFLICT"
        restored.kill()
        restored = None
        manager.delete_snapshot(ready.id)
        with pytest.raises(SandboxApiException) as gone:
            manager.get_snapshot(ready.id)
        assert gone.value.status_code == 404 and gone.value.error.code == "SNAPSHOT::NOT_FOUND"
        page = manager.list_snapshots(SnapshotFilter(sandbox_id=source.id))
        assert page.snapshot_infos == [] and page.pagination.total_pages == 0
    finally:
        source.kill()
        if restored:
            restored.kill()


def test_async(connect):
    async def until_ready(manager, snapshot_id):
        until = time.monotonic() + 30
        while (info := await manager.get_snapshot(snapshot_id)).status.state == "Creating":
            assert time.monotonic() < until
        return info

    async def main():
        manager = await SandboxManager.create(connect(ConnectionConfig))
        source = await Sandbox.create(BASE, connection_config=connect(ConnectionConfig))
        await source.commands.run("echo kept > /root/file")
        ready = await until_ready(manager, (await manager.create_snapshot(source.id)).id)
        assert ready.status.state == "Ready" and ready.name is None
        await source.kill()
        restored = await Sandbox.create(snapshot_id=ready.id, connection_config=connect(ConnectionConfig), timeout=None)
        assert text(await restored.commands.run("cat /root/file")) == "kept"
        assert (await restored.get_info()).expires_at is None
        await restored.kill()
        page = await manager.list_snapshots(SnapshotFilter(states=["Ready"], page=1, page_size=1))
        assert page.snapshot_infos == [ready]
        await manager.delete_snapshot(ready.id)
        page = await manager.list_snapshots(SnapshotFilter())
        assert page.snapshot_infos == []

    asyncio.run(main())
