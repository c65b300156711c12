"""File routes as an account: /v1/filesystem/{uid}/{gid} (contract/execd.md 10.5)."""

import json
import os
import shutil
import stat
import tempfile

import pytest

from agentlib import binary
from filelib import B, begin_upload, form, meta, mode_of, nameless, part, refused, root_only, until

NOBODY = 65534
AS = "/v1/filesystem/65534/65534"

pytestmark = root_only


@pytest.fixture
def place():
    """A directory that every account can reach; tmp_path is the user's alone."""
    path = tempfile.mkdtemp(prefix="sandgate-", dir="/tmp")
    os.chmod(path, 0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def own(place):
    """A directory of nobody's."""
    path = place + "/own"
    os.mkdir(path)
    os.chown(path, NOBODY, NOBODY)
    return path


def secret(path, data=b"secret"):
    with open(path, "wb") as f:
        f.write(data)
    os.chmod(path, 0o600)
    return str(path)


def denied(resp):
    assert "permission" in refused(resp, 500, "RUNTIME_ERROR").lower()


def upload(agent, target, data, prefix=AS, **fields):
    headers = {"Content-Type": f"multipart/form-data; boundary={B}"}
    return agent.request("POST", prefix + "/files/upload", form(meta(target, **fields), part("file", data)), headers)


def test_what_is_made_is_the_accounts(agent, own):
    assert upload(agent, f"{own}/sub/f", b"x", mode=640).status == 200
    assert agent.request("POST", AS + "/directories", {f"{own}/d/e": {"mode": 700}}).status == 200
    for name in ("sub", "sub/f", "d", "d/e"):
        st = os.stat(f"{own}/{name}")
        assert (st.st_uid, st.st_gid) == (NOBODY, NOBODY), name
    assert mode_of(f"{own}/sub/f") == 0o640 and mode_of(f"{own}/d/e") == 0o700
    assert upload(agent, f"{own}/root", b"x", prefix="").status == 200
    assert os.stat(f"{own}/root").st_uid == 0, "the thread is the agent again"


def test_every_route_works(agent, own):
    assert upload(agent, f"{own}/a.txt", b"old\nold").status == 200
    assert agent.request("POST", AS + "/files/mv", [{"src": f"{own}/a.txt", "dest": f"{own}/s/b.txt"}]).status == 200
    body = {f"{own}/s/b.txt": {"old": "old", "new": "new"}}
    assert json.loads(agent.request("POST", AS + "/files/replace?verbose=true", body).data)[f"{own}/s/b.txt"] == {
        "replacedCount": 2}
    assert agent.request("POST", AS + "/files/permissions", {f"{own}/s/b.txt": {"mode": 600}}).status == 200
    assert agent.request("GET", AS + "/files/download", path=f"{own}/s/b.txt").data == b"new\nnew"
    assert agent.request("GET", AS + "/files/download", path=f"{own}/s/b.txt", offset=2).data == b"new"
    info = json.loads(agent.request("GET", AS + "/files/info", path=f"{own}/s/b.txt").data)[f"{own}/s/b.txt"]
    assert (info["owner"], info["mode"]) == ("nobody", 600)
    assert len(json.loads(agent.request("GET", AS + "/files/search", path=own, pattern="*.txt").data)) == 1
    assert len(json.loads(agent.request("GET", AS + "/directories/list", path=own, depth=9).data)) == 2
    assert agent.request("DELETE", AS + "/files", path=f"{own}/s/b.txt").status == 200
    assert agent.request("DELETE", AS + "/directories", path=f"{own}/s").status == 200
    assert os.listdir(own) == []


def test_the_kernel_refuses(agent, place, own):
    closed = secret(f"{place}/closed")
    os.mkdir(f"{place}/shut", 0o700)
    inside = secret(f"{place}/shut/f")
    denied(agent.request("GET", AS + "/files/download", path=closed))
    denied(agent.request("GET", AS + "/files/download", path=closed, limit=1))
    denied(agent.request("GET", AS + "/files/info", path=inside))
    denied(agent.request("GET", AS + "/directories/list", path=f"{place}/shut"))
    denied(agent.request("GET", AS + "/directories/list", path=place, depth=2))
    denied(agent.request("GET", AS + "/files/search", path=f"{place}/shut", pattern="*"))
    denied(agent.request("POST", AS + "/directories", {f"{place}/new": {}}))
    denied(agent.request("DELETE", AS + "/directories", path=f"{place}/shut"))
    denied(agent.request("DELETE", AS + "/files", path=closed))
    denied(agent.request("POST", AS + "/files/mv", [{"src": closed, "dest": f"{own}/x"}]))
    denied(agent.request("POST", AS + "/files/permissions", {closed: {"mode": 777}}))
    denied(agent.request("POST", AS + "/files/replace", {closed: {"old": "s", "new": "S"}}))
    denied(upload(agent, f"{place}/new", b"x"))
    denied(upload(agent, closed, b"x"))
    assert open(closed, "rb").read() == b"secret" and mode_of(closed) == 0o600
    assert sorted(os.listdir(place)) == ["closed", "own", "shut"]


def test_an_unreadable_directory_hides_nothing_else_of_a_search(agent, place):
    os.mkdir(f"{place}/shut", 0o700)
    secret(f"{place}/shut/f")
    secret(f"{place}/z")
    found = json.loads(agent.request("GET", AS + "/files/search", path=place, pattern="*").data)
    assert [e["path"] for e in found] == [f"{place}/z"]


def test_a_file_of_another_in_an_own_directory(agent, own):
    """That its directory would allow to replace it does not make it writable."""
    closed = secret(f"{own}/f")
    denied(upload(agent, closed, b"mine"))
    denied(agent.request("POST", AS + "/files/replace", {closed: {"old": "s", "new": "S"}}))
    assert open(closed, "rb").read() == b"secret" and os.stat(closed).st_uid == 0
    os.chmod(closed, 0o666)
    assert upload(agent, closed, b"written").status == 200
    st = os.stat(closed)
    assert (st.st_uid, mode_of(closed), open(closed, "rb").read()) == (0, 0o666, b"written"), "and stays whose it was"
    assert os.listdir(own) == ["f"]


def test_no_owner_that_the_account_could_not_give(agent, own):
    denied(upload(agent, f"{own}/f", b"x", owner="root"))
    denied(upload(agent, f"{own}/f", b"x", group="root"))
    assert os.listdir(own) == []
    assert upload(agent, f"{own}/f", b"x", owner="nobody", group="nogroup").status == 200
    denied(agent.request("POST", AS + "/files/permissions", {f"{own}/f": {"owner": "root"}}))
    denied(agent.request("POST", AS + "/directories", {f"{own}/d": {"owner": "root"}}))


def test_the_agents_groups_are_not_the_accounts(start_agent, place):
    """Agent with group 4242: readable for it, not for the account."""
    agent = start_agent(extra_groups=[4242])
    closed = secret(f"{place}/f")
    os.chown(closed, 65533, 4242)
    os.chmod(closed, 0o040)
    denied(agent.request("GET", AS + "/files/download", path=closed))
    assert agent.request("GET", "/v1/filesystem/65534/4242/files/download", path=closed).data == b"secret"


def test_root_keeps_its_rights(agent, place):
    os.mkdir(f"{place}/d", 0o700)
    os.chown(f"{place}/d", NOBODY, NOBODY)
    assert upload(agent, f"{place}/d/f", b"x", prefix="/v1/filesystem/0/0").status == 200
    assert upload(agent, f"{place}/d/g", b"x", prefix="/v1/filesystem/0/7").status == 200
    assert [(os.stat(f"{place}/d/{n}").st_uid, os.stat(f"{place}/d/{n}").st_gid) for n in "fg"] == [(0, 0), (0, 7)]


def test_paths_are_the_accounts(start_agent, place):
    agent = start_agent(env={"PLACE": place}, cwd=place)
    secret(f"{place}/f")
    assert "PLACE" in refused(agent.request("GET", AS + "/files/info", path="$PLACE/f"), 500, "RUNTIME_ERROR")
    relative = place.lstrip("/") + "/f"
    for path in (relative, f"./{relative}", f"{place}/f"):
        info = json.loads(agent.request("GET", AS + "/files/info", path=path).data)
        assert info[path]["path"] == f"{place}/f"
    refused(agent.request("GET", AS + "/files/info", path="f"), 404, "FILE_NOT_FOUND")
    root = json.loads(agent.request("GET", "/v1/filesystem/0/0/files/info", path="~").data)
    assert root["~"]["path"] == "/root"
    unknown = json.loads(agent.request("GET", "/v1/filesystem/54321/54321/files/info", path="~").data)
    assert unknown["~"]["path"] == "/"


@pytest.mark.parametrize("uid,gid", [("-1", "0"), ("x", "0"), ("0", "4294967295"), ("99999999999", "0"), ("1.0", "0"), ("0", "0x1")])
def test_ids_that_are_none(agent, uid, gid):
    for method, path in (("GET", "files/info"), ("DELETE", "files"), ("POST", "files/upload"), ("GET", "directories/list")):
        message = refused(agent.request(method, f"/v1/filesystem/{uid}/{gid}/{path}"), 400, "INVALID_REQUEST_BODY")
        assert "4294967294" in message


def test_the_largest_ids(agent, place):
    secret(f"{place}/f")
    resp = agent.request("GET", "/v1/filesystem/4294967294/4294967294/files/info", path=f"{place}/f")
    assert resp.status == 200, resp.data


@pytest.fixture
def nobodys(start_agent, place):
    """An agent without privileges."""
    shutil.copy(binary(), f"{place}/execd")
    return start_agent(program=f"{place}/execd", cwd="/", user=NOBODY, group=NOBODY, extra_groups=[],
                       env={"EXECD_ENVS": "/nonexistent/.env", "HOME": "/"})


def test_an_agent_that_cannot_switch(nobodys, place, own):
    for ids in ("0/0", "1/65534", "65534/0"):
        prefix = f"/v1/filesystem/{ids}"
        code = "FILESYSTEM_IDENTITY_UNAVAILABLE"
        refused(nobodys.request("GET", prefix + "/files/info", path=place), 503, code)
        refused(upload(nobodys, f"{own}/f", b"x", prefix=prefix), 503, code)
        refused(upload(nobodys, f"{own}/f", bytes(1 << 20), prefix=prefix), 503, code)
    assert upload(nobodys, f"{own}/f", b"x").status == 200, "itself it is already"
    assert os.listdir(own) == ["f"]


def test_fifos_and_devices_hold_nobody_up(agent, own):
    os.mkfifo(f"{own}/pipe", 0o666)
    os.chown(f"{own}/pipe", NOBODY, NOBODY)
    for path in (f"{own}/pipe", "/dev/zero"):
        refused(agent.request("GET", AS + "/files/download", path=path), 500, "RUNTIME_ERROR")
        refused(agent.request("GET", AS + "/files/download", path=path, limit=1), 500, "RUNTIME_ERROR")
        refused(agent.request("POST", AS + "/files/replace", {path: {"old": "a", "new": "b"}}), 500, "RUNTIME_ERROR")
        refused(upload(agent, path, b"x"), 500, "RUNTIME_ERROR")
    assert stat.S_ISFIFO(os.stat(f"{own}/pipe").st_mode)
    moved = f"{own}/elsewhere"
    assert agent.request("POST", AS + "/files/mv", [{"src": f"{own}/pipe", "dest": moved}]).status == 200


def test_a_client_that_leaves_an_upload(agent, own):
    sock = begin_upload(agent, f"{own}/f", bytes(500000), AS)
    until("bytes arrive", lambda: any(nameless(agent, own)))
    sock.close()
    until("they are given up", lambda: agent.request("GET", "/ping") and not nameless(agent, own))
    assert os.listdir(own) == []


def test_different_accounts_at_once(agent, own):
    """Switches are of one thread each: uploads of two accounts and of the agent interleave."""
    os.chmod(own, 0o777)
    big = bytes(1 << 20)
    socks = {}
    for ids in ("65534/65534", "1/1", "0/0", "65534/1"):
        socks[ids] = begin_upload(agent, f"{own}/{ids.replace('/', '-')}", big, f"/v1/filesystem/{ids}")
    until("all arrive", lambda: len(nameless(agent, own)) == 4)
    for sock in socks.values():
        sock.sendall((f"--{B}--\r\n" + " " * 2000).encode()[:1000])
        assert b" 200 " in sock.recv(4096).split(b"\r\n")[0]
        sock.close()
    for ids in socks:
        st = os.stat(f"{own}/{ids.replace('/', '-')}")
        assert f"{st.st_uid}/{st.st_gid}" == ids and st.st_size == len(big)
    threads = f"/proc/{agent.proc.pid}/task"
    for tid in os.listdir(threads):
        status = open(f"{threads}/{tid}/status").read()
        assert "Uid:\t0\t0\t0\t0\n" in status and "Gid:\t0\t0\t0\t0\n" in status
