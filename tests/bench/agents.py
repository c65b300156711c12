"""For the benchmarks: an agent as a process of this machine, ours or another one, and agents of sandboxes."""

import argparse
import contextlib
import http.client
import json
import os
import pathlib
import socket
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Agent:
    """Where an agent answers: host, port, prefix of its paths and headers of its requests."""

    def __init__(self, directory, binary=ROOT / "build/execd"):
        env = {"PATH": os.environ["PATH"], "HOME": directory, "EXECD_ENVS": directory + "/.env"}
        self.host, self.port, self.prefix, self.headers = "127.0.0.1", free_port(), "", {}
        self.proc = subprocess.Popen([binary, f"--port={self.port}"], env=env, cwd=directory, stdin=subprocess.DEVNULL,
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 20
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection((self.host, self.port)).close()
                return
            assert self.proc.poll() is None and time.monotonic() < until, f"{binary} does not listen"

    def peak_kib(self):
        with open(f"/proc/{self.proc.pid}/status", encoding="ascii") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmHWM"))

    def stop(self):
        self.proc.terminate()
        self.proc.wait()


def api(gateway, key, method, path, body=None):
    conn = http.client.HTTPConnection(gateway, timeout=120)
    conn.request(method, path, json.dumps(body) if body else None, {"OPEN-SANDBOX-API-KEY": key})
    reply = conn.getresponse()
    raw = reply.read()
    conn.close()
    assert reply.status < 300, raw
    return json.loads(raw) if raw else None


@contextlib.contextmanager
def in_a_sandbox(args):
    """Of a sandbox of args.gateway: pairs of a name and where its agent answers, directly and by the proxy."""
    body = {"image": {"uri": args.image}, "entrypoint": ["tail", "-f", "/dev/null"], "timeout": 600, "resourceLimits": {}}
    sid = api(args.gateway, args.key, "POST", "/v1/sandboxes", body)["id"]

    def ways():
        for name, query in (("direct", ""), ("proxy", "?use_server_proxy=true")):
            found = api(args.gateway, args.key, "GET", f"/v1/sandboxes/{sid}/endpoints/44772{query}")
            netloc, _, prefix = found["endpoint"].partition("/")
            host, port = netloc.split(":")
            yield f"in a sandbox, {name}", argparse.Namespace(
                host=host, port=int(port), prefix="/" + prefix if prefix else "", headers=found.get("headers") or {})

    try:
        yield ways()
    finally:
        api(args.gateway, args.key, "DELETE", f"/v1/sandboxes/{sid}")


def send_head(sock, method, path, where, headers):
    lines = [f"{method} {where.prefix}{path} HTTP/1.1", f"Host: {where.host}:{where.port}"]
    lines += [f"{k}: {v}" for k, v in {**where.headers, **headers}.items()]
    sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())


def options(parser):
    for name in ("--gateway", "--key", "--image"):
        parser.add_argument(name)
    parser.add_argument("--other", help="another agent's binary, to be measured beside ours")
