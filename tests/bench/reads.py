#!/usr/bin/env python3
"""Reads of a gateway with many records: GET of one sandbox, the first page, a filtered page. Numbers only; nothing fails.

The records are written into the database beforehand and the engine's socket does not exist: nothing disturbs, and a read
that asked the engine would fail.

Usage: reads.py [--binary build/sandgate] [--records 10,1000,10000] [--seconds 3] [--connections 16] [--rounds 3] [--keep DIR]
"""
import argparse
import json
import pathlib
import re
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import uuid

KEY = "bench"
ROW = {
    "reason": "CONTAINER_RUNNING", "message": "Sandbox container started successfully.", "image": "python:3.12-slim",
    "entrypoint": json.dumps(["tail", "-f", "/dev/null"], separators=(",", ":")), "extensions": "{}", "platform_os": "",
    "platform_arch": "", "address": "192.0.2.7", "agent_port": 44772, "host_address": "127.0.0.1", "host_port": 40000,
}


class Gateway:
    def __init__(self, binary, directory):
        self.binary, self.dir = binary, pathlib.Path(directory)
        self.db, self.log, self.port, self.process = self.dir / "s.db", self.dir / "log", None, None
        (self.dir / "c.toml").write_text(
            f'[server]\nhost = "127.0.0.1"\nport = 0\napi_key = "{KEY}"\n[store]\npath = "{self.db}"\n'
            f'[engine]\nsocket = "{self.dir}/no-engine"\n[runtime]\ntype = "docker"\n')

    def start(self):
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([self.binary, "serve", "--config", str(self.dir / "c.toml")], stderr=log, stdout=log)
        until = time.monotonic() + 60
        while time.monotonic() < until and self.process.poll() is None:
            found = re.search(r'"msg":"listening".*?"port":(\d+)', self.log.read_text())
            if found:
                self.port = int(found[1])
                return self
            time.sleep(0.02)
        raise SystemExit(f"the gateway did not start: {self.log.read_text()[-2000:]}")

    def stop(self):
        self.process.terminate()
        self.process.wait(60)

    def fill(self, count):
        """Live records, and as many that ended; the ids of the live ones."""
        now = int(time.time() * 1000)
        ids = []
        con = sqlite3.connect(self.db)
        for n in range(2 * count):
            sid = str(uuid.uuid4())
            ended = n % 2
            row = {**ROW, "id": sid, "state": "Terminated" if ended else "Running", "transition_ms": now - n,
                   "created_ms": now - n, "expires_ms": 0 if ended else now + 864000000 + n, "token": "" if ended else "t" * 64,
                   "metadata": json.dumps({"project": f"p{n % 100}", "run": str(n)}), "ended_ms": now if ended else 0}
            names = ", ".join(row)
            con.execute(f"INSERT INTO sandboxes ({names}) VALUES ({', '.join('?' * len(row))})", list(row.values()))
            if not ended:
                ids.append(sid)
        con.commit()
        con.close()
        return ids


def measure(gw, path, connections, seconds, script):
    text = subprocess.run(
        ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-H", f"OPEN-SANDBOX-API-KEY: {KEY}", "-s", str(script),
         "--latency", f"http://127.0.0.1:{gw.port}{path}"], check=True, capture_output=True, text=True).stdout
    for bad in re.findall(r"(?:Socket errors|Non-2xx).*", text):
        print(f"  {path}: {bad}", file=sys.stderr)
    return float(re.search(r"Requests/sec:\s*([\d.]+)", text)[1]), re.search(r"99%\s+(\S+)", text)[1]


def spread(directory, ids):
    """A script for wrk that asks for another sandbox each time."""
    script = directory / "one.lua"
    names = ",".join(f'"{i}"' for i in ids)
    script.write_text(f"local ids = {{{names}}}\nlocal n = 0\nfunction request()\n  n = n % #ids + 1\n"
                      'return wrk.format("GET", "/v1/sandboxes/" .. ids[n])\nend\n')
    return script


def run(args, count):
    with tempfile.TemporaryDirectory(prefix="sandgate-reads-") as directory:
        gw = Gateway(args.binary, directory).start()  # makes the tables
        gw.stop()
        ids = gw.fill(count)
        gw.start()
        plain = gw.dir / "plain.lua"
        plain.write_text("")
        cases = [("get", f"/v1/sandboxes/{ids[0]}", spread(gw.dir, ids)), ("list", "/v1/sandboxes", plain),
                 ("list state", "/v1/sandboxes?state=Running", plain),
                 ("list metadata", "/v1/sandboxes?metadata=project%3Dp4", plain)]
        try:
            for name, path, script in cases:
                if args.only and args.only != name:
                    continue
                results = [measure(gw, path, args.connections, args.seconds, script) for _ in range(args.rounds)]
                rate = statistics.median(r for r, _ in results)
                print(f"{count:6} records  {name:14} {rate:8.0f} requests/s   99%: {results[-1][1]}", flush=True)
        finally:
            gw.stop()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--binary", default="build/sandgate")
    p.add_argument("--records", default="10,1000,10000")
    p.add_argument("--seconds", type=int, default=3)
    p.add_argument("--connections", type=int, default=16)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--only", default="", help="get, list, list state, list metadata")
    args = p.parse_args()
    for count in args.records.split(","):
        run(args, int(count))


main()
