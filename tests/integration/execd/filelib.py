"""What the tests of files share: forms, uploads, refusals."""

import json
import os
import socket
import stat

import pytest

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
B = "----sandgate-boundary"


def part(name, data, filename=None, ctype=None):
    head = f'--{B}\r\nContent-Disposition: form-data; name="{name}"'
    if filename is not None:
        head += f'; filename="{filename}"'
    if ctype:
        head += f"\r\nContent-Type: {ctype}"
    return head.encode() + b"\r\n\r\n" + data + b"\r\n"


def meta(path, **fields):
    body = {"path": str(path), **fields}
    return part("metadata", json.dumps(body).encode(), "metadata", "application/json")


def form(*parts):
    return b"".join(parts) + f"--{B}--\r\n".encode()


def upload(agent, body, chunk=None):
    headers = {"Content-Type": f"multipart/form-data; boundary={B}"}
    if chunk is None:
        return agent.request("POST", "/files/upload", body, headers)
    pieces = (body[i : i + chunk] for i in range(0, len(body), chunk))
    return agent.request("POST", "/files/upload", pieces, headers)  # chunked


def send(agent, path, data, chunk=None, **fields):
    resp = upload(agent, form(meta(path, **fields), part("file", data, "any name")), chunk)
    assert (resp.status, resp.data) == (200, b""), resp.data
    return resp


def refused(resp, status, code):
    error = json.loads(resp.data)
    assert (resp.status, error["code"]) == (status, code), error
    assert error["message"]
    return error["message"]


def mode_of(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def no_leftovers(directory):
    assert [n for n in os.listdir(directory) if n.startswith(".upload")] == []


def nameless(agent, directory):
    """Sizes of the files without a name that the agent is writing in a directory."""
    sizes = []
    fds = f"/proc/{agent.proc.pid}/fd"
    for fd in os.listdir(fds):
        try:
            target = os.readlink(f"{fds}/{fd}")
            if target.startswith(f"{directory}/") and target.endswith(" (deleted)"):
                sizes.append(os.stat(f"{fds}/{fd}").st_size)
        except OSError:
            pass
    return sizes


def until(what, probe):
    """Looks again and again: each look is a system call or a round trip, so this is no busy loop."""
    for _ in range(200000):
        value = probe()
        if value:
            return value
    raise AssertionError(what)


def begin_upload(agent, target, data, prefix=""):
    """An upload that misses its last bytes; the socket it comes through."""
    body = meta(target) + part("file", data)
    sock = socket.create_connection(("127.0.0.1", agent.port))
    head = (f"POST {prefix}/files/upload HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary={B}\r\n"
            f"Content-Length: {len(body) + 1000}\r\n\r\n")
    sock.sendall(head.encode() + body)
    return sock
