"""What a sandbox uses, by the official SDK: its own limits, not the machine's (pains M1)."""

import time
from datetime import timedelta

import pytest

from harness import BASE

# holds memory, and says when it has it
HOLD = "x = bytearray(96 << 20); x[::4096] = b'x' * len(x[::4096]); print('held', flush=True); input()"


@pytest.fixture(params=[False, True], ids=["direct", "proxy"])
def sandbox(request, shared, client):
    config = client.config(shared, use_server_proxy=request.param)
    limits = {"cpu": "500m", "memory": "256Mi"}
    made = client(
        client.Sandbox.create(BASE, connection_config=config, timeout=timedelta(minutes=5), resource=limits)
    )
    yield made
    client(made.kill())
    client(made.close())


def test_limits_and_use(sandbox, client):
    def look():
        m = client(sandbox.get_metrics())
        assert m.cpu_count == 0.5 and m.memory_total_in_mib == 256
        assert 0 <= m.cpu_used_percentage <= 100 and 0 <= m.memory_used_in_mib <= 256
        assert abs(m.timestamp - time.time() * 1000) < 60000
        return m

    idle = look()
    assert idle.memory_used_in_mib < 64

    # pages of a file are not use
    client(sandbox.commands.run("head -c 100000000 /dev/zero >/var/f; cat /var/f >/dev/null; sync"))
    assert look().memory_used_in_mib < 64

    run = client(sandbox.commands.run(f'mkfifo /f; (python3 -c "{HOLD}" <>/f >/out &) ; while ! [ -s /out ]; do :; done'))
    assert run.exit_code == 0
    assert look().memory_used_in_mib > 96

    # a loop has all of half a CPU
    client(sandbox.commands.run("(while :; do :; done) >/dev/null 2>&1 &"))
    until = time.monotonic() + 20
    while look().cpu_used_percentage < 80:
        assert time.monotonic() < until, "a busy loop is not seen"
