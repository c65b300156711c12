#!/usr/bin/env python3
"""Resident memory per idle stream of a proxy, and what is left after all clients are gone.

Usage: idle_streams.py BACKEND_PORT STREAMS NAME:PORT:PID ..."""
import asyncio
import os
import sys

REQUEST = b"GET /idle HTTP/1.1\r\nHost: a\r\n\r\n"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Accel-Buffering: no\r\nTransfer-Encoding: chunked\r\n\r\n"


def rss_kb(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))


def sockets(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


async def backend(reader, writer):
    await reader.readuntil(b"\r\n\r\n")
    writer.write(HEAD + b"5\r\ntick\n\r\n")
    await writer.drain()
    try:
        await reader.read(1)
    except asyncio.CancelledError:  # the run is over
        pass
    writer.close()


async def run(name, port, pid, count):
    before, open_before = rss_kb(pid), sockets(pid)
    writers = []
    for _ in range(count):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(REQUEST)
        await reader.readuntil(b"tick\n\r\n")
        writers.append(writer)
    during = rss_kb(pid)
    for writer in writers:
        writer.transport.abort()
    for _ in range(500):
        if sockets(pid) <= open_before:
            break
        await asyncio.sleep(0.01)
    print(f"{name}: {count} idle streams, {(during - before) * 1024 / count:.0f} bytes each; "
          f"{sockets(pid) - open_before} sockets left after all were aborted")


async def main():
    server = await asyncio.start_server(backend, "127.0.0.1", int(sys.argv[1]), backlog=1024)
    for arg in sys.argv[3:]:
        name, port, pid = arg.split(":")
        await run(name, int(port), int(pid), int(sys.argv[2]))
    server.close()


asyncio.run(main())
