#!/usr/bin/env python3
"""Many creates at once against a running gateway, and how long reads take meanwhile. Numbers only; removes what it made.

Usage: burst.py URL KEY IMAGE [COUNT]      e.g. burst.py http://127.0.0.1:8080 change-me sandgate-base:local 100
"""
import concurrent.futures
import http.client
import json
import statistics
import sys
import threading
import time
import urllib.parse

TAIL = ["tail", "-f", "/dev/null"]


def main():
    url, key, image = urllib.parse.urlsplit(sys.argv[1]), sys.argv[2], sys.argv[3]
    count = int(sys.argv[4]) if len(sys.argv) > 4 else 100
    headers = {"OPEN-SANDBOX-API-KEY": key, "Content-Type": "application/json"}
    stop = threading.Event()

    def call(method, path, body=None):
        conn = http.client.HTTPConnection(url.netloc, timeout=300)
        begin = time.perf_counter()
        conn.request(method, path, json.dumps(body) if body else None, headers)
        reply = conn.getresponse()
        raw = reply.read()
        conn.close()
        return reply.status, raw, (time.perf_counter() - begin) * 1000

    def poll(path):
        times = []
        while not stop.is_set():
            times.append(call("GET", path)[2])
            stop.wait(0.005)
        return sorted(times)

    def create(_):
        body = {"image": {"uri": image}, "entrypoint": TAIL, "timeout": 600, "resourceLimits": {"memory": "64Mi"}}
        return call("POST", "/v1/sandboxes", body)

    with concurrent.futures.ThreadPoolExecutor(count + 4) as pool:
        reads = {path: pool.submit(poll, path) for path in ("/health", "/v1/sandboxes")}
        begin = time.perf_counter()
        made = list(pool.map(create, range(count)))
        total = time.perf_counter() - begin
        stop.set()
        ids = [json.loads(raw)["id"] for status, raw, _ in made if status == 202]
        took = sorted(ms for _, _, ms in made)
        print(f"{len(ids)} of {count} creates succeeded in {total:.1f} s; one: p50 {statistics.median(took):.0f} ms,"
              f" max {took[-1]:.0f} ms")
        for path, times in ((p, f.result()) for p, f in reads.items()):
            print(f"GET {path} meanwhile: n={len(times)} p50 {statistics.median(times):.1f} ms,"
                  f" p99 {times[int(len(times) * 0.99)]:.1f} ms, max {times[-1]:.1f} ms")
        list(pool.map(lambda i: call("DELETE", f"/v1/sandboxes/{i}"), ids))


if __name__ == "__main__":
    main()
