"""The quick start of the official SDK, asynchronous. Connection: OPEN_SANDBOX_DOMAIN, OPEN_SANDBOX_API_KEY."""

import asyncio

from opensandbox.config import ConnectionConfig
from opensandbox.exceptions import SandboxException
from opensandbox.sandbox import Sandbox


async def main() -> None:
    try:
        sandbox = await Sandbox.create("sandgate-base:local", connection_config=ConnectionConfig())
        async with sandbox:
            print(f"sandbox {sandbox.id} runs")
            execution = await sandbox.commands.run("echo 'Hello Sandbox!'")
            print(execution.logs.stdout[0].text.rstrip())
            await sandbox.kill()
            print("sandbox killed")
    except SandboxException as e:
        raise SystemExit(f"Sandbox Error: [{e.error.code}] {e.error.message} (request {e.request_id})")


asyncio.run(main())
