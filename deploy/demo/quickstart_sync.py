"""The quick start of the official SDK, synchronous. Connection: OPEN_SANDBOX_DOMAIN, OPEN_SANDBOX_API_KEY."""

from opensandbox import SandboxSync
from opensandbox.config import ConnectionConfigSync

sandbox = SandboxSync.create("sandgate-base:local", connection_config=ConnectionConfigSync())
with sandbox:
    print(f"sandbox {sandbox.id} runs")
    execution = sandbox.commands.run("echo 'Hello Sandbox!'")
    print(execution.logs.stdout[0].text.rstrip())
    sandbox.kill()
    print("sandbox killed")
