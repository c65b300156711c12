"""Where clients of other servers get hurt: used at once, left alone, or told where the sandbox is in vain."""

import http.client
import json
import os
import secrets
import subprocess
import sys
from datetime import timedelta

import pytest
from opensandbox import SandboxSync
from opensandbox.config import ConnectionConfigSync

from harness import BASE, wait_for

SOAK = int(os.environ.get("SANDGATE_SOAK", "1"))

# a client that is killed before it can clean up
LEAVES = """
import os, sys
from datetime import timedelta
from opensandbox import SandboxSync
from opensandbox.config import ConnectionConfigSync
from opensandbox.models.sandboxes import PVC, Volume
domain, key, image, volume = sys.argv[1:]
sandbox = SandboxSync.create(image, connection_config=ConnectionConfigSync(domain=domain, api_key=key), timeout=timedelta(seconds=60),
    volumes=[Volume(name="v", mount_path="/data", pvc=PVC(claim_name=volume, delete_on_sandbox_termination=True))])
print(sandbox.id, flush=True)
os._exit(9)
"""

# prints the headers of what it is asked
ECHO = """
import http.server, json
class Echo(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps(dict(self.headers)).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)
http.server.ThreadingHTTPServer(("", 3000), Echo).serve_forever()
"""


def config(gw, by_proxy):
    return ConnectionConfigSync(domain=gw.domain, api_key=gw.key, use_server_proxy=by_proxy)


@pytest.mark.parametrize("by_proxy", [False, True], ids=["direct", "proxy"])
def test_a_sandbox_is_usable_when_create_returns(shared, by_proxy):
    """pains L2: no health check, a command at once."""
    for _ in range(min(3 * SOAK, 100)):
        sandbox = SandboxSync.create(BASE, connection_config=config(shared, by_proxy), skip_health_check=True)
        with sandbox:
            assert sandbox.commands.run("true").exit_code == 0
            sandbox.kill()


def test_nothing_is_left_of_a_client_that_died(shared):
    """pains X4: its sandbox ends on time, with container and volume. SANDGATE_SOAK: by its own minute."""
    volume = "sandgate-test-" + secrets.token_hex(6)
    command = [sys.executable, "-c", LEAVES, shared.domain, shared.key, BASE, volume]
    client = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert client.returncode == 9, client.stderr
    sid = client.stdout.strip()
    assert shared.state(sid)["state"] == "Running"
    assert shared.engine.call("GET", f"/volumes/{volume}")[0] == 200
    if SOAK == 1:
        assert shared.renew(sid, 0.3)[1] == 200
    wait_for("it expires", lambda: "EXPIRED" in shared.state(sid), 90)
    assert shared.engine.call("GET", f"/containers/sandbox-{sid}/json")[0] == 404
    wait_for("its volume goes along", lambda: shared.engine.call("GET", f"/volumes/{volume}")[0] == 404)


@pytest.mark.parametrize("by_proxy", [False, True], ids=["direct", "proxy"])
def test_no_key_reaches_a_port_of_the_user(shared, by_proxy):
    """pains A2: what the SDK's client for a port sends is echoed by a program in the sandbox."""
    sandbox = SandboxSync.create(BASE, connection_config=config(shared, by_proxy), entrypoint=["python3", "-c", ECHO],
                                 timeout=timedelta(minutes=5))
    with sandbox:
        endpoint = sandbox.get_endpoint(3000)
        host, _, path = endpoint.endpoint.partition("/")
        token = sandbox.get_endpoint(44772).headers["X-EXECD-ACCESS-TOKEN"]
        sent = {"OPEN-SANDBOX-API-KEY": shared.key, "X-EXECD-ACCESS-TOKEN": token, **endpoint.headers, "X-Mine": "1"}
        seen = wait_for("the program listens", lambda: ask(host, "/" + path + "/", sent))
        assert seen["x-mine"] == "1"
        assert shared.key not in json.dumps(seen) and token not in json.dumps(seen)
        sandbox.kill()


def ask(host, path, headers):
    conn = http.client.HTTPConnection(host, timeout=20)
    try:
        conn.request("GET", path, headers=headers)
        reply = conn.getresponse()
        body = reply.read()
    except OSError:
        return None
    finally:
        conn.close()
    return {k.lower(): v for k, v in json.loads(body).items()} if reply.status == 200 else None
