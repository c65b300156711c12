"""The main path under ASan+UBSan (gateway and agent) and TSan (gateway): no report, clean exit."""

import http.client
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading

import pytest

from harness import BASE, ROOT

REPORT = ("ERROR: AddressSanitizer", "ERROR: LeakSanitizer", "runtime error:", "WARNING: ThreadSanitizer")


def agent_with_libraries(directory):
    """The sanitized agent is dynamic: it travels with its libraries beside it (design decision 1)."""
    directory.mkdir()
    binary = ROOT / "build/asan/execd"
    shutil.copy(binary, directory / "execd")
    for line in subprocess.run(["ldd", binary], check=True, capture_output=True, text=True).stdout.splitlines():
        parts = line.split()
        if "=>" in parts and parts[2].startswith("/") and not parts[0].startswith(("libc.", "ld-linux")):
            shutil.copy(parts[2], directory / parts[0])
    return directory


def through_the_proxy(gw, sid):
    """A command, an aborted stream, a port without a listener and a signed address."""
    def ask(path, body=None):
        conn = http.client.HTTPConnection("127.0.0.1", gw.port, timeout=60)
        conn.request("POST" if body else "GET", path, body, {"OPEN-SANDBOX-API-KEY": gw.key})
        return conn, conn.getresponse()

    path = f"/v1/sandboxes/{sid}/proxy"
    assert "execution_complete" in ask(f"{path}/44772/command", '{"command":"seq 1 500"}')[1].read().decode()
    cut, reply = ask(f"{path}/44772/command", '{"command":"sleep 30"}')
    assert reply.readline()
    cut.close()
    assert ask(f"{path}/9/x")[1].status == 502
    signed = gw.request("GET", f"/v1/sandboxes/{sid}/endpoints/44772?expires=4000000000").json["endpoint"]
    assert ask("/" + signed.partition("/")[2] + "/ping")[1].status == 200


def exercise(gw, parallel=4):
    """Creates, runs, moves files, pauses, lists and deletes, several at once."""
    failures = []

    def one():
        try:
            sid = gw.create(env={"A": "1"}, metadata={"k": "v"},
                            extensions={"access.renew.extend.seconds": "300"}).json["id"]
            host, port, prefix, headers = gw.agent(sid)
            conn = http.client.HTTPConnection(host, port, timeout=60)
            conn.request("POST", prefix + "/command", json.dumps({"command": "seq 1 2000; echo e >&2; exit 3"}), headers)
            events = conn.getresponse().read().decode()
            assert '"evalue":"3"' in events.replace(" ", ""), events[-300:]
            boundary = "xxBOUNDARYxx"
            form = (
                f'--{boundary}\r\nContent-Disposition: form-data; name="metadata"; filename="metadata"\r\n'
                'Content-Type: application/json\r\n\r\n{"path":"/tmp/f","mode":644}\r\n'
                f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n' + "y" * 100000
                + f"\r\n--{boundary}--\r\n"
            )
            conn.request("POST", prefix + "/files/upload", form,
                         {**headers, "Content-Type": f"multipart/form-data; boundary={boundary}"})
            reply = conn.getresponse()
            assert reply.status == 200, reply.read()
            reply.read()
            conn.request("GET", prefix + "/files/download?path=/tmp/f", headers=headers)
            assert conn.getresponse().read() == b"y" * 100000
            through_the_proxy(gw, sid)
            assert gw.request("POST", f"/v1/sandboxes/{sid}/pause").status == 202
            assert gw.request("POST", f"/v1/sandboxes/{sid}/resume").status == 202
            assert gw.request("GET", f"/v1/sandboxes/{sid}").status == 200
            gw.records()
            assert gw.request("DELETE", f"/v1/sandboxes/{sid}").status == 204
        except BaseException as e:  # noqa: BLE001 - reported by the main thread
            failures.append(repr(e))

    threads = [threading.Thread(target=one) for _ in range(parallel)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(300)
    assert not failures, failures


@pytest.mark.parametrize("variant", ["asan", "tsan"])
def test_main_path(make_gateway, tmp_path, variant):
    kw = {"agent_dir": agent_with_libraries(tmp_path / "agent")} if variant == "asan" else {}
    extra = "[relay]\nenabled = true\n[renew_intent]\nenabled = true\nmin_interval_seconds = 1\n"
    gw = make_gateway(binary=ROOT / f"build/{variant}/sandgate", extra=extra, **kw)
    options = {"ASAN_OPTIONS": "detect_leaks=1:abort_on_error=0", "UBSAN_OPTIONS": "print_stacktrace=1",
               "TSAN_OPTIONS": "halt_on_error=0:second_deadlock_stack=1"}
    gw.start(env=options)
    exercise(gw)
    assert gw.create("nosuch.invalid/x:y").status == 500
    keep = gw.create().json["id"]
    logs = lambda: gw.engine.call("GET", f"/containers/sandbox-{keep}/logs?stderr=1&stdout=1&tail=200")[1]
    agent_log = logs()
    agent_log = agent_log.decode("utf-8", "replace") if isinstance(agent_log, bytes) else json.dumps(agent_log)
    gw.request("DELETE", f"/v1/sandboxes/{keep}")
    gw.stop()
    for report in REPORT:
        assert report not in gw.log_text(), gw.log_text()[-6000:]
        assert report not in agent_log, agent_log[-6000:]


# every subject of the agent by its official clients; the whole of them in the soak run
SUITE = ["sdk/test_sdk_commands.py", "sdk/test_sdk_files.py", "sdk/test_code_interpreter.py", "sdk/test_sdk_metrics.py",
         "sdk/test_sdk_isolated.py", "proxy/test_pty_proxied.py"]
# memory is larger under ASan, and the sanitized agent needs the C library of the image
NOT = "not 300_megabytes and not shell_only and not images"
SOAK = "SANDGATE_SOAK" in os.environ


def test_sdk_suite(tmp_path):
    """A report ends the agent, and with it the test that caused it (-fno-sanitize-recover)."""
    env = {**os.environ, "SANDGATE_TEST_AGENT": str(agent_with_libraries(tmp_path / "agent"))}
    here = ROOT / "tests/integration"
    chosen = NOT if SOAK else NOT + " and not proxy and not async"
    files = [here / name for name in (SUITE if SOAK else SUITE[:-1])]
    done = subprocess.run([sys.executable, "-m", "pytest", "-c", here / "pytest.ini", "-q", "-k", chosen, *files],
                          env=env, cwd=ROOT, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stdout[-6000:]


@pytest.mark.skipif(not SOAK, reason="takes minutes: make soak")
def test_agents_suite(tmp_path):
    env = {**os.environ, "EXECD": str(ROOT / "build/asan/execd"), "ASAN_OPTIONS": "detect_leaks=1"}
    done = subprocess.run([sys.executable, "-m", "pytest", "-c", ROOT / "tests/integration/pytest.ini", "-q",
                           ROOT / "tests/integration/execd"], env=env, cwd=ROOT, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stdout[-6000:]
