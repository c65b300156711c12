"""The unmodified official command line client against the gateway, directly and by the gateway's proxy. Each call is a
process of its own that knows a sandbox by its id only."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from harness import BASE, wait_for

OSB = pathlib.Path(sys.executable).with_name("osb")


class Client:
    def __init__(self, gw, home, by_proxy):
        way = "--use-server-proxy" if by_proxy else "--no-use-server-proxy"
        self.command = [OSB, "--domain", gw.domain, "--api-key", gw.key, "--protocol", "http", "--no-color", way]
        self.env = {**os.environ, "HOME": str(home), "NO_COLOR": "1", "COLUMNS": "200"}

    def start(self, *args):
        return subprocess.Popen(
            [*self.command, *args], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )

    def __call__(self, *args, stdin="", code=0):
        done = subprocess.run(
            [*self.command, *args], env=self.env, input=stdin, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == code, f"{args}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def json(self, *args):
        at = args.index("--") if "--" in args else len(args)
        return json.loads(self(*args[:at], "-o", "json", *args[at:]))


@pytest.fixture(scope="module", params=[False, True], ids=["direct", "proxy"])
def osb(request, shared, tmp_path_factory):
    return Client(shared, tmp_path_factory.mktemp("home"), request.param)


@pytest.fixture(scope="module")
def sandbox(osb):
    made = osb.json("sandbox", "create", "-i", BASE, "-t", "5m", "-m", "from=cli", "-e", "A=from create")["id"]
    yield made
    osb("sandbox", "kill", made)


def test_life(osb, sandbox):
    got = osb.json("sandbox", "get", sandbox)
    assert got["id"] == sandbox and got["status"]["state"] == "Running" and got["metadata"] == {"from": "cli"}
    listed = osb.json("sandbox", "list", "-s", "Running", "-m", "from=cli")
    assert sandbox in json.dumps(listed)
    assert "true" in osb("sandbox", "health", sandbox, "-o", "json").lower()
    assert osb("sandbox", "endpoint", sandbox, "-p", "8080")
    osb("sandbox", "renew", sandbox, "-t", "30m")
    osb("sandbox", "pause", sandbox)
    assert osb.json("sandbox", "get", sandbox)["status"]["state"] == "Paused"
    osb("sandbox", "resume", sandbox)
    assert osb.json("sandbox", "get", sandbox)["status"]["state"] == "Running"


def test_a_killed_one_is_gone(osb):
    made = osb.json("sandbox", "create", "-i", BASE, "-t", "5m")["id"]
    osb("sandbox", "kill", made)
    osb("sandbox", "get", made, code=1)
    assert made not in osb("sandbox", "list", "-o", "json")


def test_commands(osb, sandbox):
    """Every byte comes back: this client prints texts as they are, and adds one newline at the very end."""
    run = ["command", "run", sandbox, "-o", "raw", "--"]
    assert osb(*run, "sh", "-c", "echo one; echo; echo two").rstrip("\n") == "one\n\ntwo"
    assert osb(*run, "printenv", "A").strip() == "from create"
    osb(*run, "sh", "-c", "exit 3", code=1)
    assert osb("command", "run", sandbox, "-w", "/tmp", "-o", "raw", "--", "pwd").strip() == "/tmp"
    literal = ["command", "run", sandbox, "--argv", "-o", "raw", "--", "printf", "%s|", "$HOME", "", "a b"]
    assert osb(*literal).strip() == "$HOME||a b|"


def test_background(osb, sandbox):
    started = osb.json("command", "run", sandbox, "-d", "--", "sh", "-c", "echo logged; sleep 1000")
    ident = next(v for k, v in started.items() if k.endswith("id") and v != sandbox)
    assert osb.json("command", "status", sandbox, ident)["running"] is True
    wait_for("its output", lambda: "logged" in osb("command", "logs", sandbox, ident, "-o", "raw"))
    osb("command", "interrupt", sandbox, ident)
    assert osb.json("command", "status", sandbox, ident)["running"] is False


def test_files(osb, sandbox, tmp_path):
    data = os.urandom(300000)
    (tmp_path / "up").write_bytes(data)
    osb("file", "mkdir", sandbox, "/tmp/d", "--mode", "0755")
    osb("file", "upload", sandbox, str(tmp_path / "up"), "/tmp/d/bin")
    osb("file", "download", sandbox, "/tmp/d/bin", str(tmp_path / "down"))
    assert (tmp_path / "down").read_bytes() == data
    osb("file", "write", sandbox, "/tmp/d/text", "-c", "héllo", "--mode", "0640")
    assert osb("file", "cat", sandbox, "/tmp/d/text").rstrip("\n") == "héllo"
    osb("file", "write", sandbox, "/tmp/d/piped", stdin="from stdin\n")
    assert osb("file", "cat", sandbox, "/tmp/d/piped").startswith("from stdin")
    info = osb("file", "info", sandbox, "/tmp/d/text", "-o", "json")
    assert "640" in info and "/tmp/d/text" in info
    osb("file", "rm", sandbox, "/tmp/d/text")
    osb("file", "cat", sandbox, "/tmp/d/text", code=1)
    osb("file", "rmdir", sandbox, "/tmp/d")


def test_search(osb, sandbox):
    osb("file", "write", sandbox, "/tmp/d/a.txt", "-c", "1")
    assert "/tmp/d/a.txt" in osb("file", "search", sandbox, "/tmp/d", "-p", "*.txt", "-o", "json")


def test_changes_of_files(osb, sandbox):
    osb("file", "write", sandbox, "/tmp/a", "-c", "old old")
    osb("file", "replace", sandbox, "/tmp/a", "--old", "old", "--new", "new")
    osb("file", "chmod", sandbox, "/tmp/a", "--mode", "0600")
    osb("file", "mv", sandbox, "/tmp/a", "/tmp/b")
    assert osb("file", "cat", sandbox, "/tmp/b").strip() == "new new"


def test_sessions(osb, sandbox):
    made = osb.json("command", "session", "create", sandbox, "-w", "/tmp")
    ident = next(v for k, v in made.items() if k.endswith("id") and v != sandbox)
    run = ["command", "session", "run", sandbox, ident, "-o", "raw"]
    osb(*run, "--", "export", "B=kept")
    assert osb(*run, "--", "printenv", "B").strip() == "kept"
    assert osb(*run, "--", "pwd").strip() == "/tmp"
    assert osb(*run, "-w", "/usr", "--", "pwd").strip() == "/usr"
    osb("command", "session", "delete", sandbox, ident)
    osb(*run, "--", "pwd", code=1)


def test_metrics(osb, sandbox):
    got = osb.json("sandbox", "metrics", sandbox)
    assert got["cpu_count"] == 1 and 0 <= got["memory_used_in_mib"] <= got["memory_total_in_mib"] == 2048, got


def test_metrics_are_watched(osb, sandbox):
    watching = osb.start("sandbox", "metrics", sandbox, "--watch", "-o", "raw")
    try:
        lines = [watching.stdout.readline().decode() for _ in range(2)]
        assert all("cpu" in line for line in lines), lines
    finally:
        watching.terminate()
        watching.wait(30)
        watching.stdout.close()
        watching.stderr.close()
