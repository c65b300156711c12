#!/usr/bin/env python3
"""Commands by raw HTTP: the time of `true` against what starting the same shell costs where the agent is, and a million
lines. The agent alone, another agent when one is named, and sandboxes of a gateway when one is named. Numbers only;
removes what it made.

Usage: command.py [--count 200] [--lines 1000000] [--other BINARY] [--gateway HOST:PORT --key KEY --image IMAGE]
Needs build/execd and build/release/bench/spawn (`make bench-command` makes both).
"""
import argparse
import http.client
import json
import os
import shutil
import statistics
import tempfile
import time

from agents import ROOT, Agent, in_a_sandbox, options

SPAWN = ROOT / "build/release/bench/spawn"
B = "sandgate-bench"


class Client:
    """One kept connection to an agent."""

    def __init__(self, where):
        self.where = where
        self.conn = http.client.HTTPConnection(where.host, where.port, timeout=300)

    def post(self, path, body, kind="application/json"):
        self.conn.request("POST", self.where.prefix + path, body, {**self.where.headers, "Content-Type": kind})
        reply = self.conn.getresponse()
        assert reply.status == 200, reply.read()
        return reply

    def run(self, command):
        """The events of a command."""
        raw = self.post("/command", json.dumps({"command": command})).read()
        return [json.loads(line.removeprefix(b"data:")) for line in raw.split(b"\n") if line.strip()]

    def text(self, command):
        return "".join(e["text"] for e in self.run(command) if e["type"] == "stdout").strip()

    def put(self, source, target):
        meta = json.dumps({"path": target, "mode": 755})
        with open(source, "rb") as f:
            body = (f'--{B}\r\nContent-Disposition: form-data; name="metadata"; filename="metadata"\r\n'
                    f'Content-Type: application/json\r\n\r\n{meta}\r\n'
                    f'--{B}\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n').encode() + f.read()
        self.post("/files/upload", body + f"\r\n--{B}--\r\n".encode(), f"multipart/form-data; boundary={B}").read()


def command_row(name, client, helper, count):
    took = []
    for _ in range(count):
        begin = time.perf_counter()
        assert "execution_complete" in [e["type"] for e in client.run("true")]
        took.append(time.perf_counter() - begin)
    shell = client.text("x=$(readlink -f /proc/$$/exe); echo $x")
    client.put(SPAWN, helper)
    alone = int(client.text(f"{helper} {shell}")) / 1000
    p50 = statistics.median(took) * 1000
    print(f"{name:28} true p50 {p50:7.2f} ms, {os.path.basename(shell)} alone {alone:5.2f} ms, ratio {p50 / alone:6.2f}",
          flush=True)


def lines_row(name, client, count):
    mark = b'"type":"stdout"'
    begin = time.perf_counter()
    reply = client.post("/command", json.dumps({"command": f"seq 1 {count}"}))
    seen, rest = 0, b""
    while part := reply.read1(1 << 20):
        part = rest + part
        seen += part.count(mark)
        rest = part[1 - len(mark):]
    took = time.perf_counter() - begin
    assert seen == count, seen
    print(f"{name:28} {count} lines in {took:6.2f} s, {count / took:9.0f} lines/s", flush=True)


def rows(name, where, args, directory):
    client = Client(where)
    command_row(name, client, directory + "/spawn", args.count)
    lines_row(name, client, args.lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--lines", type=int, default=1000000)
    options(parser)
    args = parser.parse_args()
    directory = tempfile.mkdtemp(prefix="sandgate-bench-")
    try:
        for name, binary in (("the agent alone", ROOT / "build/execd"), ("another agent alone", args.other)):
            if not binary:
                continue
            agent = Agent(directory, binary)
            try:
                rows(name, agent, args, directory)
                print(f"{name:28} VmHWM {agent.peak_kib() / 1024:.1f} MiB", flush=True)
            finally:
                agent.stop()
        if args.gateway:
            with in_a_sandbox(args) as ways:
                for name, where in ways:
                    rows(name, where, args, "/srv")
    finally:
        shutil.rmtree(directory)


main()
