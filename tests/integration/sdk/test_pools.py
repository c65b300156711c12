"""The SDK's client-side pools against the gateway: in memory and over a real Redis server, sync and async."""

import asyncio
import datetime as dt
import inspect
import os
import secrets
import shutil
import subprocess
import threading

import pytest
import redis
import redis.asyncio
from opensandbox import (
    AcquirePolicy,
    InMemoryAsyncPoolStateStore,
    InMemoryPoolStateStore,
    PoolCreationSpec,
    SandboxPoolAsync,
    SandboxPoolSync,
)
from opensandbox.exceptions import SandboxException
from opensandbox.pool_redis import AsyncRedisPoolStateStore, RedisPoolStateStore

from harness import BASE, wait_for

LIMIT = 60


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory):
    """A Redis server of its own, on a socket file: nothing on the network, nothing on disk. Debian's redis-tools has the
    server's program under another name, which it goes by; the package redis-server would start a service."""
    program = shutil.which("redis-check-rdb")
    assert program, "the package redis-tools is missing"
    path = tmp_path_factory.mktemp("redis") / "redis.sock"
    server = subprocess.Popen(
        ["redis-server", "--port", "0", "--unixsocket", str(path), "--save", "", "--appendonly", "no", "--daemonize", "no"],
        executable=program,
        stdout=subprocess.DEVNULL,
    )
    wait_for("redis answers", lambda: os.path.exists(path) and redis.Redis(unix_socket_path=str(path)).ping())
    yield f"unix://{path}"
    server.terminate()
    assert server.wait(30) == 0


class Pools:
    """Makes pools of either form over either store; stops them and removes what they left."""

    def __init__(self, client, gw, url):
        self.client, self.gw, self.url = client, gw, url
        self.tag = secrets.token_hex(6)
        self.prefix = "test:" + self.tag
        self.pools, self.closers = [], []
        self.memory = None if url else (InMemoryAsyncPoolStateStore() if client.loop else InMemoryPoolStateStore())

    def store(self):
        if self.memory:
            return self.memory
        if not self.client.loop:
            made = redis.Redis.from_url(self.url, decode_responses=True)
            self.closers.append(made.close)
            return RedisPoolStateStore(made, key_prefix=self.prefix)
        made = redis.asyncio.Redis.from_url(self.url, decode_responses=True)
        self.closers.append(made.aclose)
        return AsyncRedisPoolStateStore(made, key_prefix=self.prefix)

    def make(self, max_idle, owner="node-a", **kw):
        kind = SandboxPoolAsync if self.client.loop else SandboxPoolSync
        kw.setdefault("creation_spec", PoolCreationSpec(image=BASE, metadata={"tag": self.tag}))
        pool = kind(
            pool_name="pool",
            owner_id=owner,
            max_idle=max_idle,
            state_store=self.store(),
            connection_config=self.client.config(self.gw),
            primary_lock_ttl=dt.timedelta(seconds=5),
            warmup_health_check_polling_interval=dt.timedelta(milliseconds=50),
            drain_timeout=dt.timedelta(seconds=5),
            **kw,
        )
        self.pools.append(pool)
        return pool

    def tagged(self):
        query = f"/v1/sandboxes?pageSize=200&metadata=tag%3D{self.tag}"
        return [i["id"] for i in self.gw.request("GET", query).json["items"]]

    def wait(self, what, probe):
        """wait_for that lets the event loop of an asynchronous pool run."""
        if not self.client.loop:
            return wait_for(what, probe, LIMIT)

        async def until():
            async with asyncio.timeout(LIMIT):
                while True:
                    value = probe()
                    value = await value if inspect.isawaitable(value) else value
                    if value:
                        return value
                    await asyncio.sleep(0.02)

        return self.client.loop.run_until_complete(until())

    def wait_idle(self, pool, n):
        if not self.client.loop:
            return self.wait(f"{n} idle", lambda: pool.snapshot().idle_count == n)

        async def probe():
            return (await pool.snapshot()).idle_count == n

        return self.wait(f"{n} idle", probe)

    def end(self):
        for pool in self.pools:
            self.client(pool.shutdown(graceful=False))
        for sandbox_id in self.tagged():
            self.gw.request("DELETE", f"/v1/sandboxes/{sandbox_id}")
        for close in self.closers:
            self.client(close())


@pytest.fixture(params=["memory", "redis"])
def pools(request, client, shared):
    url = request.getfixturevalue("redis_url") if request.param == "redis" else None
    made = Pools(client, shared, url)
    yield made
    made.end()


@pytest.fixture
def redis_pools(client, shared, redis_url):
    made = Pools(client, shared, redis_url)
    yield made
    made.end()


def use(client, sandbox, word):
    result = client(sandbox.commands.run(f"echo {word}"))
    assert result.logs.stdout[0].text.rstrip("\n") == word
    client(sandbox.kill())
    client(sandbox.close())


def test_warm_acquire_and_run(client, pools):
    pool = pools.make(2)
    client(pool.start())
    pools.wait_idle(pool, 2)
    warm = set(pools.tagged())
    sandbox = client(pool.acquire(sandbox_timeout=dt.timedelta(minutes=30), policy=AcquirePolicy.FAIL_FAST))
    assert sandbox.id in warm
    left = client(sandbox.get_info()).expires_at - dt.datetime.now(dt.timezone.utc)
    assert dt.timedelta(minutes=29) < left <= dt.timedelta(minutes=30)
    use(client, sandbox, "pool-ok")
    pools.wait_idle(pool, 2)


def test_resize_to_nothing_drains_and_direct_create_helps(client, pools):
    pool = pools.make(1)
    client(pool.start())
    pools.wait_idle(pool, 1)
    client(pool.resize(0))
    pools.wait_idle(pool, 0)
    pools.wait("no sandbox is left", lambda: not pools.tagged())
    with pytest.raises(SandboxException):
        client(pool.acquire(policy=AcquirePolicy.FAIL_FAST))
    use(client, client(pool.acquire(policy=AcquirePolicy.DIRECT_CREATE)), "direct")


def test_a_dead_idle_sandbox_is_passed_over(client, pools):
    pool = pools.make(1)
    client(pool.start())
    pools.wait_idle(pool, 1)
    dead = pools.tagged()[0]
    assert pools.gw.request("DELETE", f"/v1/sandboxes/{dead}").status == 204
    sandbox = client(pool.acquire(policy=AcquirePolicy.DIRECT_CREATE))
    assert sandbox.id != dead
    use(client, sandbox, "alive")


def test_a_graceful_end_and_release_leave_nothing(client, pools):
    pool = pools.make(2)
    client(pool.start())
    pools.wait_idle(pool, 2)
    client(pool.resize(0))
    client(pool.release_all_idle())
    client(pool.shutdown(graceful=True))
    pools.wait("no sandbox is left", lambda: not pools.tagged())


def test_two_nodes_share_what_one_warmed(client, redis_pools):
    first, second = redis_pools.make(2, "node-a"), redis_pools.make(2, "node-b")
    client(first.start())
    redis_pools.wait_idle(first, 2)
    client(second.start())
    warm = set(redis_pools.tagged())
    sandbox = client(second.acquire(policy=AcquirePolicy.FAIL_FAST))
    assert sandbox.id in warm
    use(client, sandbox, "shared")
    client(second.resize(0))
    redis_pools.wait_idle(first, 0)
    redis_pools.wait("no sandbox is left", lambda: not redis_pools.tagged())


def test_threads_take_different_sandboxes(shared, redis_url):
    """Four threads at once, twice as many takers as there are warm ones."""
    from clients import Client

    client = Client(False)
    pools = Pools(client, shared, redis_url)
    try:
        pool = pools.make(2)
        pool.start()
        pools.wait_idle(pool, 2)
        got, failed = [], []

        def take():
            try:
                got.append(pool.acquire(policy=AcquirePolicy.DIRECT_CREATE))
            except SandboxException as e:
                failed.append(e)

        threads = [threading.Thread(target=take) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(LIMIT)
        assert not failed and len({s.id for s in got}) == 4
        for sandbox in got:
            use(client, sandbox, "mine")
    finally:
        pools.end()
        client.close()
