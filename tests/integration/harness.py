"""A gateway as a process of its own, the engine by its API, waiting with a deadline instead of sleeping."""

import datetime
import http.client
import json
import os
import pathlib
import re
import secrets
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import time
import urllib.parse

import openapi

ROOT = pathlib.Path(__file__).resolve().parents[2]
BASE, NONROOT, BUSYBOX, STATIC, MUSL = (
    f"sandgate-{n}:local" for n in ("base", "nonroot", "busybox", "static", "musl")
)
ENGINE_SCRIPT = str(ROOT / "deploy/setup/engine.sh")
TAIL = ["tail", "-f", "/dev/null"]


def wait_for(what, probe, deadline=20.0):
    """Returns probe()'s first true value; fails at the deadline."""
    until = time.monotonic() + deadline
    while True:
        value = probe()
        if value:
            return value
        if time.monotonic() > until:
            raise AssertionError(f"not within {deadline} s: {what}")
        time.sleep(0.02)


class Engine:
    """The engine's API over its socket."""

    def __init__(self, path):
        self.path = path

    def call(self, method, path, body=None):
        conn = http.client.HTTPConnection("localhost", timeout=60)
        conn.sock = socket.socket(socket.AF_UNIX)
        conn.sock.connect(self.path)
        data = None if body is None else json.dumps(body)
        conn.request(method, path, data, {"Content-Type": "application/json"})
        reply = conn.getresponse()
        raw = reply.read()
        conn.close()
        return reply.status, json.loads(raw) if raw[:1] in (b"{", b"[") else raw

    def containers(self, instance, role="sandbox"):
        """Containers of a gateway; role None: also its short-lived helpers."""
        labels = [f"sandgate.instance={instance}"] + ([f"sandgate.role={role}"] if role else [])
        filters = urllib.parse.quote(json.dumps({"label": labels}))
        status, items = self.call("GET", f"/containers/json?all=1&filters={filters}")
        assert status == 200, items
        return items

    def sandbox(self, sandbox_id):
        status, info = self.call("GET", f"/containers/sandbox-{sandbox_id}/json")
        assert status == 200, info
        return info


class Private:
    """An engine of our own, for what would hurt others."""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="sg-", dir="/tmp")

    def start(self):
        command = [ENGINE_SCRIPT, "--private", self.dir]
        address = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        self.engine = Engine(address.strip().removeprefix("unix://"))
        return self.engine

    def stop(self):
        subprocess.run([ENGINE_SCRIPT, "--stop", self.dir], check=True)

    def kill9(self):
        pid = int(next(pathlib.Path(self.dir).glob("**/pid")).read_text())
        os.kill(pid, 9)
        wait_for("the engine is dead", lambda: not pathlib.Path(f"/proc/{pid}/exe").exists())

    def remove(self):
        subprocess.run([ENGINE_SCRIPT, "--remove", self.dir], check=False)
        shutil.rmtree(self.dir, ignore_errors=True)


class Gateway:
    """One gateway process over a database in a directory of its own."""

    def __init__(self, directory, engine, binary=None, extra="", agent_dir=None):
        self.dir, self.engine = pathlib.Path(directory), engine
        self.binary = str(binary or os.environ["SANDGATE_BIN"])
        self.key = "key-" + secrets.token_hex(8)
        self.config = self.dir / "sandgate.toml"
        self.process, self.port, self.instance, self.starts = None, None, None, 0
        agent_dir = agent_dir or os.environ.get("SANDGATE_TEST_AGENT")
        agent = f'[agent]\ndir = "{agent_dir}"\n' if agent_dir else ""
        self.config.write_text(
            f'[server]\nhost = "127.0.0.1"\nport = 0\napi_key = "{self.key}"\n'
            f'[store]\npath = "{self.dir}/sandgate.db"\n'
            f'[engine]\nsocket = "{engine.path}"\npull_timeout_seconds = 20\n{agent}{extra}'
        )

    def log_text(self):
        return (self.dir / f"log-{self.starts}").read_text()

    def start(self, fault=None, env=None, wait=True):
        self.starts += 1
        self.held = bool(fault) and fault.startswith("hold")
        full = {**os.environ, **(env or {})}
        full.pop("DOCKER_HOST", None)  # the socket is in the configuration
        if fault:
            full["SANDGATE_FAULT"] = fault
        with open(self.dir / f"log-{self.starts}", "wb") as log:
            self.process = subprocess.Popen(
                [self.binary, "serve", "--config", str(self.config)], stderr=log, stdout=log, env=full
            )
        if wait:
            wait_for("gateway listens", self._listening, 60)
        return self

    def _listening(self):
        if self.process.poll() is not None:
            raise AssertionError(f"gateway ended with {self.process.returncode}: {self.log_text()[-3000:]}")
        found = re.search(r'"msg":"listening".*"port":(\d+).*"instance":"([0-9a-f-]+)"', self.log_text())
        if found:
            self.port, self.instance = int(found[1]), found[2]
        return found

    @property
    def domain(self):
        return f"127.0.0.1:{self.port}"

    def request(self, method, path, body=None, headers=None, timeout=60):
        conn = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        data = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
        try:
            conn.request(method, path, data, {"OPEN-SANDBOX-API-KEY": self.key, **(headers or {})})
            reply = conn.getresponse()
            raw = reply.read()
        finally:
            conn.close()
        reply.json = json.loads(raw) if raw[:1] in (b"{", b"[") else None
        reply.raw = raw
        openapi.validate(method, path, reply.status, reply.getheader("Content-Type"), reply.json)
        return reply

    def create(self, image=BASE, entrypoint=TAIL, timeout=300, **fields):
        body = {"image": {"uri": image}, "entrypoint": entrypoint, "timeout": timeout, **fields}
        return self.request("POST", "/v1/sandboxes", body)

    def records(self):
        reply = self.request("GET", "/v1/sandboxes?pageSize=200")
        assert reply.status == 200, reply.raw
        return reply.json["items"]

    def agent(self, sandbox_id):
        """(host, port, path prefix, headers) of the sandbox's agent."""
        reply = self.request("GET", f"/v1/sandboxes/{sandbox_id}/endpoints/44772")
        assert reply.status == 200, reply.raw
        host, _, path = reply.json["endpoint"].partition("/")
        name, _, port = host.partition(":")
        return name, int(port), "/" + path, reply.json["headers"]

    def state(self, sandbox_id):
        """The sandbox's status object, or the message of its 404."""
        reply = self.request("GET", f"/v1/sandboxes/{sandbox_id}")
        return reply.json["status"] if reply.status == 200 else reply.json["message"]

    def renew(self, sandbox_id, seconds):
        """(when it would end, the answer's status)"""
        at = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
        at = at.replace(microsecond=at.microsecond // 1000 * 1000)
        body = {"expiresAt": at.isoformat()}
        return at, self.request("POST", f"/v1/sandboxes/{sandbox_id}/renew-expiration", body).status

    def column(self, sandbox_id, name):
        """What the database holds about the sandbox, ended or not."""
        with sqlite3.connect(f"file:{self.dir}/sandgate.db?mode=ro", uri=True) as db:
            row = db.execute(f"SELECT {name} FROM sandboxes WHERE id = ?", (sandbox_id,)).fetchone()
        return row and row[0]

    def kill9(self):
        self.process.kill()
        self.process.wait(30)

    def wait_dead(self, deadline=60):
        return self.process.wait(deadline)

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            assert self.process.wait(60) == 0, self.log_text()[-3000:]

    def cleanup(self):
        """Stops the process and removes what this instance left on the engine, by its label."""
        if self.process and self.process.poll() is None and self.held:
            self.kill9()  # a held request never ends
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill9()
        if not self.instance:
            return
        for item in self.engine.containers(self.instance, None):
            self.engine.call("DELETE", f"/containers/{item['Id']}?force=1&v=1")
        self.engine.call("DELETE", f"/networks/sandgate-{self.instance[:8]}")
        held = f"/run/sandgate/{self.instance}"  # of a create that a kill cut off
        for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
            if line.split()[4].startswith(held + "/"):
                subprocess.run(["umount", "-l", line.split()[4]], check=False)
        table = f"sandgate_{self.instance[:8]}"
        subprocess.run(["nft", "delete", "table", "inet", table], stderr=subprocess.DEVNULL, check=False)
