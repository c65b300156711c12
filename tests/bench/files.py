#!/usr/bin/env python3
"""A large file up and down: raw HTTP and the SDK against the agent alone, raw HTTP through a gateway when one is named;
beside them what nginx, dd and a copy of the same bytes take. Numbers only; removes what it made.

Usage: files.py [--mib 300] [--rounds 3] [--other BINARY] [--gateway HOST:PORT --key KEY --image IMAGE]
Needs build/execd and, for the SDK's rows, a Python that has it (~/.cache/sandgate/venv/bin/python).
"""
import argparse
import contextlib
import io
import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time

from agents import Agent, free_port, in_a_sandbox, options, send_head

B = "sandgate-bench"
READ = 1 << 20


def upload(where, source, target, chunked):
    """The SDK's form: chunks of 64 KiB without a length, or one with a length."""
    head = (f'--{B}\r\nContent-Disposition: form-data; name="metadata"; filename="metadata"\r\n'
            f'Content-Type: application/json\r\n\r\n{json.dumps({"path": target, "mode": 644})}\r\n'
            f'--{B}\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n').encode()
    tail = f"\r\n--{B}--\r\n".encode()
    size = os.path.getsize(source)
    headers = {"Content-Type": f"multipart/form-data; boundary={B}"}
    headers |= {"Transfer-Encoding": "chunked"} if chunked else {"Content-Length": len(head) + size + len(tail)}
    with socket.create_connection((where.host, where.port)) as sock, open(source, "rb") as f:
        send_head(sock, "POST", "/files/upload", where, headers)
        if chunked:
            for data in (head, *iter(lambda: f.read(65536), b""), tail):
                sock.sendall(b"%x\r\n%s\r\n" % (len(data), data))
            sock.sendall(b"0\r\n\r\n")
        else:
            sock.sendall(head)
            sock.sendfile(f)
            sock.sendall(tail)
        answer = sock.recv(4096)
    assert b" 200 " in answer[:20], answer


def download(where, path, size):
    got, room = 0, bytearray(READ)
    with socket.create_connection((where.host, where.port)) as sock:
        send_head(sock, "GET", path, where, {"Connection": "close"})
        while n := sock.recv_into(room):
            if not got:
                assert b" 200 " in room[:20], bytes(room[:n])
            got += n
    assert got >= size, got


@contextlib.contextmanager
def nginx(directory):
    port = free_port()
    conf = pathlib.Path(directory, "nginx.conf")
    conf.write_text(f"user root; worker_processes 1; daemon off; pid {directory}/nginx.pid; error_log {directory}/nginx.log;"
                    f"events {{}} http {{ access_log off; sendfile on; server {{ listen 127.0.0.1:{port};"
                    f"root {directory}; }} }}")
    proc = subprocess.Popen(["nginx", "-c", conf, "-p", directory], stderr=subprocess.DEVNULL)
    where = argparse.Namespace(host="127.0.0.1", port=port, prefix="", headers={})
    until = time.monotonic() + 10
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port)).close()
            break
    yield where
    proc.terminate()
    proc.wait()


def row(name, size, rounds, fn, fresh=None):
    """fresh: a file that is removed before each round."""
    took = []
    for _ in range(rounds):
        if fresh:
            pathlib.Path(fresh).unlink(missing_ok=True)
        begin = time.perf_counter()
        fn()
        took.append(time.perf_counter() - begin)
    print(f"{name:44} {size / min(took) / 1e6:8.0f} MB/s  (best of {rounds}, {min(took):.2f} s)", flush=True)


def sdk_rows(agent, source, target, size, rounds):
    try:
        from opensandbox.config import ConnectionConfigSync
        from opensandbox.models.filesystem import WriteEntry
        from opensandbox.models.sandboxes import SandboxEndpoint
        from opensandbox.sync.adapters.filesystem_adapter import FilesystemAdapterSync
    except ImportError:
        print("this Python has no SDK: its rows are left out")
        return
    files = FilesystemAdapterSync(ConnectionConfigSync(api_key="-"), SandboxEndpoint(endpoint=f"{agent.host}:{agent.port}"))

    def put():
        with open(source, "rb") as f:
            files.write_files([WriteEntry(path=target, data=io.BufferedReader(f.raw))])

    def get():
        assert sum(map(len, files.read_bytes_stream(target))) == size

    row("SDK: write_files from a stream", size, rounds, put)
    row("SDK: read_bytes_stream", size, rounds, get)


def gateway_rows(args, source, size):
    with in_a_sandbox(args) as ways:
        for name, where in ways:
            row(f"{name}: up", size, args.rounds, lambda w=where: upload(w, source, "/srv/up", False))
            row(f"{name}: down", size, args.rounds, lambda w=where: download(w, "/files/download?path=/srv/up", size))


def other_rows(args, directory, source, target, size):
    other = Agent(directory, args.other)
    try:
        row("another agent, raw: up, with a length", size, args.rounds, lambda: upload(other, source, target, False), target)
        row("another agent, raw: up, chunks of 64 KiB", size, args.rounds, lambda: upload(other, source, target, True), target)
        row("another agent, raw: up, over a file", size, args.rounds, lambda: upload(other, source, target, False))
        row("another agent, raw: down", size, args.rounds,
            lambda: download(other, f"/files/download?path={source}", size))
        print(f"the other agent's VmHWM: {other.peak_kib() / 1024:.1f} MiB")
    finally:
        other.stop()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    options(parser)
    args = parser.parse_args()
    directory = tempfile.mkdtemp(prefix="sandgate-bench-")
    os.chmod(directory, 0o755)
    source, target = directory + "/source", directory + "/target"
    block = os.urandom(1 << 20)
    with open(source, "wb") as f:
        for _ in range(args.mib):
            f.write(block)
    size = os.path.getsize(source)
    agent = Agent(directory)
    try:
        quiet = {"stderr": subprocess.DEVNULL, "check": True}
        row("dd, file to file, 1 MiB blocks", size, args.rounds,
            lambda: subprocess.run(["dd", f"if={source}", f"of={target}", "bs=1M"], **quiet))
        row("dd, pipe to file, 64 KiB blocks", size, args.rounds,
            lambda: subprocess.run(f"cat {source} | dd of={target} bs=64k iflag=fullblock", shell=True, **quiet))
        row("raw: up, with a length", size, args.rounds, lambda: upload(agent, source, target, False), target)
        row("raw: up, chunks of 64 KiB", size, args.rounds, lambda: upload(agent, source, target, True), target)
        row("raw: up, over a file that is there", size, args.rounds, lambda: upload(agent, source, target, False))
        if shutil.which("nginx"):
            with nginx(directory) as where:
                row("nginx: down", size, args.rounds, lambda: download(where, "/source", size))
        row("raw: down", size, args.rounds, lambda: download(agent, f"/files/download?path={source}", size))
        sdk_rows(agent, source, target, size, args.rounds)
        print(f"the agent's VmHWM: {agent.peak_kib() / 1024:.1f} MiB (at most 16)")
        if args.other:
            other_rows(args, directory, source, target, size)
        if args.gateway:
            gateway_rows(args, source, size)
    finally:
        agent.stop()
        shutil.rmtree(directory)


main()
