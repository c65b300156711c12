"""The last line behind the expiry: agents end their sandboxes when there is no gateway to do it. Takes minutes."""

import datetime
import os
import time

import pytest

from harness import BUSYBOX, wait_for

GRACE = 60  # seconds: WATCHDOG_GRACE_MS

pytestmark = pytest.mark.skipif(os.environ.get("SANDGATE_SOAK") is None, reason="takes minutes: make soak")


def test_sandboxes_end_without_a_gateway(make_gateway):
    gw = make_gateway().start()
    dies, lives = (gw.create(BUSYBOX, ["sleep", "1000"], 60).json for _ in range(2))
    assert gw.renew(lives["id"], 600)[1] == 200
    wait_for("the agent was told", lambda: "not told" not in gw.log_text())
    gw.kill9()
    ends = datetime.datetime.fromisoformat(dies["expiresAt"]).timestamp() + GRACE

    def ended():
        return not gw.engine.sandbox(dies["id"])["State"]["Running"]

    wait_for("the agent ends it", ended, ends - time.time() + 15)
    assert time.time() >= ends - 1
    assert gw.engine.sandbox(lives["id"])["State"]["Running"]
    gw.start()
    assert gw.state(lives["id"])["state"] == "Running"
    wait_for("it is removed", lambda: isinstance(gw.state(dies["id"]), str), 30)
