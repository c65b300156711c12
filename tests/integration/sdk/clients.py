"""The official Python SDK in both of its forms behind one face: what the asynchronous one returns is awaited."""

import asyncio
import inspect
from datetime import timedelta

from opensandbox import Sandbox, SandboxManager, SandboxManagerSync, SandboxSync
from opensandbox.config import ConnectionConfig, ConnectionConfigSync


class Client:
    def __init__(self, asynchronous):
        self.loop = asyncio.new_event_loop() if asynchronous else None
        self.Sandbox = Sandbox if asynchronous else SandboxSync
        self.Manager = SandboxManager if asynchronous else SandboxManagerSync
        self.Config = ConnectionConfig if asynchronous else ConnectionConfigSync

    def __call__(self, value):
        """The result of a call of the SDK."""
        return self.loop.run_until_complete(value) if inspect.isawaitable(value) else value

    def config(self, gw, **kw):
        kw.setdefault("request_timeout", timedelta(seconds=60))
        return self.Config(domain=gw.domain, api_key=gw.key, **kw)

    def callback(self, fn):
        """fn as the SDK wants its callbacks."""
        if not self.loop:
            return fn

        async def call(*args):
            return fn(*args)

        return call

    def close(self):
        if self.loop:
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()
