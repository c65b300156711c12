"""Many commands at once by the unmodified official SDK, and readers that stand still (pains C1, C9).

5,000 commands per way with SANDGATE_SOAK, 180 without.
"""

import concurrent.futures
import http.client
import json
import os
import threading
import time
import urllib.parse
from datetime import timedelta

import httpx
import pytest
from clients import Client

from harness import BASE

COUNT = 5000 if "SANDGATE_SOAK" in os.environ else 180
PARALLEL = 60
WANT = [f"{i}\n" for i in range(1, 2001)]
RESIDENT_MAX = 16 << 10  # KiB, design: figures to reach


@pytest.fixture(params=[False, True], ids=["direct", "proxy"])
def sandbox(request, shared):
    client = Client(False)
    # with fewer kept connections than threads the client closes one that another thread has just taken: EBADF, one
    # command in 5,000
    kept = httpx.Limits(max_connections=200, max_keepalive_connections=200)
    config = client.config(shared, use_server_proxy=request.param, transport=httpx.HTTPTransport(limits=kept))
    made = client.Sandbox.create(
        BASE, connection_config=config, timeout=timedelta(minutes=30), resource={"cpu": "2", "memory": "1Gi"}
    )
    made.by_proxy = request.param
    yield made
    made.kill()
    made.close()


def resident(sandbox):
    """Highest resident memory of the agent so far, KiB."""
    said = sandbox.commands.run("grep VmHWM /proc/1/status").logs.stdout[0].text
    return int(said.split()[1])


def test_sixty_at_a_time(sandbox):
    def one(_):
        got = sandbox.commands.run("seq 1 2000")
        assert got.exit_code == 0 and got.error is None and got.complete is not None
        assert [m.text for m in got.logs.stdout] == WANT and got.logs.stderr == []

    with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
        for done in concurrent.futures.as_completed([pool.submit(one, i) for i in range(COUNT)]):
            done.result()
    left = sandbox.commands.run("ls -d /proc/[0-9]* | wc -l; grep -l '^State:.Z' /proc/[0-9]*/status | wc -l")
    processes, zombies = (int(m.text) for m in left.logs.stdout)
    assert processes <= 8 and zombies == 0
    assert resident(sandbox) <= RESIDENT_MAX


def test_fifty_that_all_run_at_once(sandbox):
    """Each waits until the last one is there: none is queued behind another."""
    arrived = threading.Barrier(50, timeout=60)

    def one(i):
        got = sandbox.commands.run(f"echo {i} >>/tmp/there; while [ $(wc -l </tmp/there) -lt 50 ]; do :; done; exit {i}")
        arrived.wait()
        return got.exit_code

    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        assert list(pool.map(one, range(50))) == list(range(50))


def test_a_reader_that_stands_still(sandbox):
    """`yes` without end: the agent's memory stays small, others are served, and the rest is whole."""
    endpoint = sandbox.get_endpoint(44772)
    url = urllib.parse.urlsplit("http://" + endpoint.endpoint)
    conn = http.client.HTTPConnection(url.hostname, url.port, timeout=60)
    path = url.path.rstrip("/") + "/command"
    conn.request("POST", path, json.dumps({"command": "timeout 60 yes"}), dict(endpoint.headers))
    stream = conn.getresponse()
    begun = json.loads(stream.readline())
    assert begun["type"] == "init"

    def written():
        """Bytes that `yes` has written."""
        said = sandbox.commands.run("until p=$(pidof yes); do :; done; grep wchar /proc/$p/io").logs.stdout
        return int(said[0].text.split()[1])

    until = time.monotonic() + 30
    last = -1
    while (now := written()) != last:  # until the pipe, the stream and the sockets are full
        last = now
        assert time.monotonic() < until
    assert resident(sandbox) <= RESIDENT_MAX
    assert last < 64 << 20

    sandbox.commands.interrupt(begun["text"])
    ended, size = None, 0
    for line in stream:
        if line.strip():
            event = json.loads(line)
            assert ended is None, "nothing follows the end"
            if event["type"] == "stdout":
                assert event["text"].strip("y\n") == ""
                size += len(event["text"])
            elif event["type"] == "error":
                ended = event
    conn.close()
    assert ended and size > 0
    assert resident(sandbox) <= RESIDENT_MAX
