"""Diagnostics by the unmodified SDK 1.1.1, sync and async: of a running sandbox, and of one that is gone."""

import asyncio
from datetime import timedelta

import pytest
from opensandbox import SandboxManager, SandboxSync
from opensandbox.config import ConnectionConfig, ConnectionConfigSync
from opensandbox.exceptions import SandboxApiException
from opensandbox.sandbox import Sandbox
from opensandbox.sync.manager import SandboxManagerSync

from harness import BASE, wait_for

TALK = ["sh", "-c", "echo from the entrypoint; exec tail -f /dev/null"]


def config(gw, kind=ConnectionConfigSync):
    return kind(domain=gw.domain, api_key=gw.key, request_timeout=timedelta(seconds=60))


def test_sync(shared):
    sb = SandboxSync.create(BASE, connection_config=config(shared), entrypoint=TALK)
    with sb:
        logs = wait_for("output", lambda: (lambda d: d if "from the entrypoint" in d.content else None)(
            sb.get_diagnostic_logs("container")))
        assert (logs.sandbox_id, logs.kind, logs.scope, logs.delivery) == (sb.id, "logs", "container", "inline")
        assert logs.content_type.startswith("text/plain") and logs.content_length == len(logs.content.encode())
        assert logs.truncated is False and logs.content_url is None and logs.expires_at is None
        for scope in ("runtime", "lifecycle", "all"):
            assert sb.get_diagnostic_events(scope).scope == scope
        assert "Running" in sb.get_diagnostic_events("lifecycle").content
        assert sb.get_diagnostic_logs("all").warnings
        with pytest.raises(SandboxApiException) as refused:
            sb.get_diagnostic_logs("network")
        assert refused.value.status_code == 400 and refused.value.error.code == "DIAGNOSTICS_SCOPE_UNSUPPORTED"
        sb.kill()
    with SandboxManagerSync.create(config(shared)) as manager:
        assert "from the entrypoint" in manager.get_diagnostic_logs(sb.id, "container").content
        assert "DELETED" in manager.get_diagnostic_events(sb.id, "lifecycle").content
        with pytest.raises(SandboxApiException) as unknown:
            manager.get_diagnostic_logs("00000000-0000-4000-8000-000000000000", "container")
        assert unknown.value.status_code == 404


def test_async(shared):
    async def main():
        sb = await Sandbox.create(BASE, connection_config=config(shared, ConnectionConfig), entrypoint=TALK)
        async with sb:
            assert (await sb.get_diagnostic_events("all")).kind == "events"
            await sb.kill()
        manager = await SandboxManager.create(config(shared, ConnectionConfig))
        async with manager:
            assert "DELETED" in (await manager.get_diagnostic_events(sb.id, "all")).content

    asyncio.run(main())
