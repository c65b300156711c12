"""Move, permissions, replace (contract/execd.md 10)."""

import json
import os
import pwd
import shutil
import socket
import stat
import tempfile

import pytest

from filelib import mode_of, refused, root_only, until


@pytest.fixture
def elsewhere():
    """A directory on another file system."""
    if not os.path.isdir("/dev/shm"):
        pytest.skip("no /dev/shm")
    path = tempfile.mkdtemp(prefix="sandgate-", dir="/dev/shm")
    yield path
    shutil.rmtree(path)


def move(agent, *pairs):
    return agent.request("POST", "/files/mv", [{"src": str(s), "dest": str(d)} for s, d in pairs])


def moved(agent, *pairs):
    resp = move(agent, *pairs)
    assert (resp.status, resp.data) == (200, b""), resp.data


# ---- mv ----


def test_move(agent, tmp_path):
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir/f").write_bytes(b"y")
    (tmp_path / "link").symlink_to("nowhere")
    moved(agent, (tmp_path / "a", tmp_path / "new/deep/b"), (tmp_path / "dir", tmp_path / "new/dir"),
          (tmp_path / "link", "~/new/link"))
    assert os.listdir(tmp_path) == ["new"]
    assert mode_of(tmp_path / "new") == mode_of(tmp_path / "new/deep") == 0o755
    assert (tmp_path / "new/deep/b").read_bytes() == b"x" and (tmp_path / "new/dir/f").read_bytes() == b"y"
    assert os.readlink(tmp_path / "new/link") == "nowhere"
    moved(agent)
    assert agent.request("POST", "/files/mv", "null").status == 200


def test_moves_that_are_refused(agent, tmp_path):
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / "b").write_bytes(b"b")
    (tmp_path / "d").mkdir()
    for dest in ("b", "d", "a"):
        message = refused(move(agent, (tmp_path / "a", tmp_path / dest)), 500, "RUNTIME_ERROR")
        assert "exists already" in message
    refused(move(agent, (tmp_path / "nope", tmp_path / "x/y")), 404, "FILE_NOT_FOUND")
    refused(move(agent, (tmp_path / "d", tmp_path / "d/e")), 500, "RUNTIME_ERROR")
    refused(move(agent, (tmp_path / "a", tmp_path / "b/below")), 500, "RUNTIME_ERROR")
    refused(move(agent, ("/", tmp_path / "root")), 500, "RUNTIME_ERROR")
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "d"]
    assert (tmp_path / "b").read_bytes() == b"b"


@pytest.mark.parametrize("body", ["", "{", "{}", "[1]", '[{"src":"/a"}]', '[{"src":"","dest":"/b"}]', '[{"src":1,"dest":"/b"}]'])
def test_bodies_that_are_no_moves(agent, body):
    refused(agent.request("POST", "/files/mv", body), 400, "INVALID_REQUEST_BODY")


def test_a_bad_pair_is_found_before_anything_moves(agent, tmp_path):
    (tmp_path / "a").write_bytes(b"a")
    body = [{"src": str(tmp_path / "a"), "dest": str(tmp_path / "b")}, {"src": "/x"}]
    assert "[1]" in refused(agent.request("POST", "/files/mv", body), 400, "INVALID_REQUEST_BODY")
    assert os.listdir(tmp_path) == ["a"]


def test_across_file_systems(agent, tmp_path, elsewhere):
    data = os.urandom(3 << 20)
    (tmp_path / "f").write_bytes(data)
    os.chmod(tmp_path / "f", 0o4751)
    os.utime(tmp_path / "f", ns=(10**18, 10**18 + 5))
    if os.geteuid() == 0:
        os.chown(tmp_path / "f", 65534, 65534)
        os.chmod(tmp_path / "f", 0o4751)
    before = os.stat(tmp_path / "f")
    moved(agent, (tmp_path / "f", f"{elsewhere}/sub/f"))
    after = os.stat(f"{elsewhere}/sub/f")
    assert open(f"{elsewhere}/sub/f", "rb").read() == data and os.listdir(tmp_path) == []
    for what in ("st_mode", "st_uid", "st_gid", "st_mtime_ns"):
        assert getattr(before, what) == getattr(after, what)
    assert os.listdir(f"{elsewhere}/sub") == ["f"]


def test_a_tree_across_file_systems(agent, tmp_path, elsewhere):
    tree = tmp_path / "tree"
    (tree / "a/b").mkdir(parents=True)
    (tree / "a/b/f").write_bytes(b"x" * 100)
    (tree / "a/link").symlink_to("b/f")
    (tree / "closed").mkdir(mode=0o710)
    os.mkfifo(tree / "pipe", 0o640)
    bound = socket.socket(socket.AF_UNIX)
    bound.bind(str(tree / "socket"))
    moved(agent, (tree, f"{elsewhere}/t"))
    bound.close()
    assert not tree.exists() and os.listdir(elsewhere) == ["t"]
    there = os.path.join(elsewhere, "t")
    assert open(f"{there}/a/link", "rb").read() == b"x" * 100 and os.readlink(f"{there}/a/link") == "b/f"
    assert mode_of(f"{there}/closed") == 0o710
    assert stat.S_ISFIFO(os.stat(f"{there}/pipe").st_mode) and mode_of(f"{there}/pipe") == 0o640
    assert stat.S_ISSOCK(os.stat(f"{there}/socket").st_mode)


def test_across_file_systems_nothing_is_overwritten(agent, tmp_path, elsewhere):
    (tmp_path / "f").write_bytes(b"new")
    with open(f"{elsewhere}/f", "wb") as f:
        f.write(b"old")
    refused(move(agent, (tmp_path / "f", f"{elsewhere}/f")), 500, "RUNTIME_ERROR")
    assert open(f"{elsewhere}/f", "rb").read() == b"old" and os.listdir(elsewhere) == ["f"]
    assert (tmp_path / "f").read_bytes() == b"new"


# ---- permissions ----


def test_permissions(agent, tmp_path):
    for n in "ab":
        (tmp_path / n).write_bytes(b"x")
    (tmp_path / "link").symlink_to("b")
    body = {str(tmp_path / "a"): {"mode": 640}, "~/link": {"mode": 1755, "owner": None, "group": ""}, "~": {}}
    resp = agent.request("POST", "/files/permissions", body)
    assert (resp.status, resp.data) == (200, b"")
    assert mode_of(tmp_path / "a") == 0o640 and mode_of(tmp_path / "b") == 0o755


@root_only
def test_owners(agent, tmp_path):
    (tmp_path / "f").write_bytes(b"x")
    body = {str(tmp_path / "f"): {"mode": 600, "owner": "nobody", "group": "nogroup"}}
    assert agent.request("POST", "/files/permissions", body).status == 200
    st = os.stat(tmp_path / "f")
    assert (st.st_uid, st.st_gid, mode_of(tmp_path / "f")) == (65534, 65534, 0o600)
    assert pwd.getpwuid(st.st_uid).pw_name == "nobody"
    for wrong in ({"owner": "no such one"}, {"group": "no such one"}):
        body = {str(tmp_path / "f"): {"mode": 777, **wrong}}
        assert "no such one" in refused(agent.request("POST", "/files/permissions", body), 400, "INVALID_REQUEST_BODY")
    assert mode_of(tmp_path / "f") == 0o600


def test_permissions_that_are_refused(agent, tmp_path):
    (tmp_path / "f").write_bytes(b"x")
    (tmp_path / "f").chmod(0o600)

    def ask(body):
        return agent.request("POST", "/files/permissions", body)

    refused(ask({str(tmp_path / "nope"): {"mode": 644}}), 500, "FILE_NOT_FOUND")
    refused(ask({str(tmp_path / "f"): {"mode": 648}}), 500, "RUNTIME_ERROR")
    refused(ask({str(tmp_path / "f"): {"mode": 644}, str(tmp_path / "g"): {"mode": "x"}}), 400, "INVALID_REQUEST_BODY")
    refused(ask("[]"), 400, "INVALID_REQUEST_BODY")
    assert mode_of(tmp_path / "f") == 0o600


# ---- replace ----


def replace(agent, body, **query):
    resp = agent.request("POST", "/files/replace", {str(k): {"old": o, "new": n} for k, (o, n) in body.items()}, **query)
    assert resp.status == 200, resp.data
    return {k: v["replacedCount"] for k, v in json.loads(resp.data).items()} if resp.data else None


def test_replace(agent, tmp_path):
    f, g, h = (tmp_path / n for n in "fgh")
    f.write_bytes(b"a-b-a-b-\xff\x00a")
    g.write_bytes("été".encode())
    h.write_bytes(b"nothing")
    f.chmod(0o640)
    before = os.stat(h)
    assert replace(agent, {f: ("a", "xyz"), "~/g": ("é", "e"), h: ("zzz", "y")}, verbose="true") == {
        str(f): 3, "~/g": 2, str(h): 0}
    assert f.read_bytes() == b"xyz-b-xyz-b-\xff\x00xyz" and g.read_bytes() == b"ete" and mode_of(f) == 0o640
    assert os.stat(h).st_ino == before.st_ino and os.stat(h).st_mtime_ns == before.st_mtime_ns
    for query in ({}, {"verbose": "false"}, {"verbose": "True"}):
        assert replace(agent, {f: ("xyz", "xyz")}, **query) is None
    assert replace(agent, {f: ("b-", "")}, verbose="true") == {str(f): 2}
    assert sorted(os.listdir(tmp_path)) == ["f", "g", "h"]


@pytest.mark.parametrize("old,new", [("aa", "b"), ("ab", "ba"), ("aba", "aab"), ("b", "a"), ("a" * 300, "-")])
def test_as_the_language_does_it(agent, tmp_path, old, new):
    text = ("aabab" * 30000 + "a" * 150000 + "b") * 2
    (tmp_path / "f").write_text(text)
    assert replace(agent, {tmp_path / "f": (old, new)}, verbose="true") == {str(tmp_path / "f"): text.count(old)}
    assert (tmp_path / "f").read_text() == text.replace(old, new)


@pytest.mark.parametrize("shift", [-2, -1, 0, 1, 2, 3])
def test_at_the_edges_of_blocks(agent, tmp_path, shift):
    text = "." * (256 * 1024 + shift - 3) + "needle" + "." * (256 * 1024 - 6) + "needle"
    (tmp_path / "f").write_text(text)
    replace(agent, {tmp_path / "f": ("needle", "pin")})
    assert (tmp_path / "f").read_text() == text.replace("needle", "pin")


def test_what_is_longer_than_a_block(agent, tmp_path):
    old, new = "0123456789" * 60000, "x" * 600001
    (tmp_path / "f").write_text("a" + old + "b" + old[:-1] + old)
    assert replace(agent, {tmp_path / "f": (old, new)}, verbose="true") == {str(tmp_path / "f"): 2}
    assert (tmp_path / "f").read_text() == "a" + new + "b" + old[:-1] + new


def test_a_large_file_in_little_memory(agent, tmp_path):
    block = b"x" * 1048570 + b"needle"
    with open(tmp_path / "big", "wb") as f:
        for _ in range(300):
            f.write(block)
    assert replace(agent, {tmp_path / "big": ("needle", "NEEDLE!")}, verbose="true") == {str(tmp_path / "big"): 300}
    assert os.path.getsize(tmp_path / "big") == 300 * (len(block) + 1)
    if not agent.sanitized:
        assert agent.peak_kib() < 16 * 1024
    os.unlink(tmp_path / "big")


def test_replace_through_a_link(agent, tmp_path):
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    replace(agent, {tmp_path / "link": ("old", "new")})
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_bytes() == b"new"


@root_only
def test_replace_keeps_the_owner(agent, tmp_path):
    (tmp_path / "f").write_bytes(b"old")
    os.chown(tmp_path / "f", 65534, 65534)
    os.chmod(tmp_path / "f", 0o4755)
    replace(agent, {tmp_path / "f": ("old", "new")})
    st = os.stat(tmp_path / "f")
    assert (st.st_uid, st.st_gid, mode_of(tmp_path / "f")) == (65534, 65534, 0o4755)


def test_replacements_that_are_refused(agent, tmp_path):
    (tmp_path / "f").write_bytes(b"old")
    os.mkfifo(tmp_path / "pipe")

    def ask(body, **query):
        return agent.request("POST", "/files/replace", body, **query)

    f, good = str(tmp_path / "f"), {"old": "old", "new": "new"}
    refused(ask({f: {"old": "", "new": "x"}}), 400, "INVALID_REQUEST_BODY")
    refused(ask({f: {"new": "x"}}), 400, "INVALID_REQUEST_BODY")
    refused(ask({f: 1}), 400, "INVALID_REQUEST_BODY")
    refused(ask([]), 400, "INVALID_REQUEST_BODY")
    refused(ask({f: good, "~/f": good}), 400, "INVALID_REQUEST_BODY")
    refused(ask({f: good, str(tmp_path / "nope"): good}), 404, "FILE_NOT_FOUND")
    for wrong in (tmp_path, tmp_path / "pipe"):
        refused(ask({f: good, str(wrong): good}), 500, "RUNTIME_ERROR")
    refused(ask({f"/n{i}": good for i in range(1001)}), 400, "INVALID_REQUEST_BODY")
    refused(ask(b"x" * ((4 << 20) + 1)), 413, "PAYLOAD_TOO_LARGE")
    assert (tmp_path / "f").read_bytes() == b"old", "one that fails leaves all as they were"
    assert sorted(os.listdir(tmp_path)) == ["f", "pipe"]


def test_many_files_at_once(agent, tmp_path):
    for i in range(100):
        (tmp_path / str(i)).write_text(f"old {i}")
    replace(agent, {tmp_path / str(i): ("old", "new") for i in range(100)})
    assert all((tmp_path / str(i)).read_text() == f"new {i}" for i in range(100))
    assert len(os.listdir(tmp_path)) == 100


def test_readers_see_the_old_or_the_new(agent, tmp_path):
    (tmp_path / "f").write_bytes(b"old")
    with open(tmp_path / "f", "rb") as reader:
        replace(agent, {tmp_path / "f": ("old", "new")})
        assert reader.read() == b"old"


def test_others_go_on_meanwhile(agent, tmp_path):
    """A long replacement holds up no other file."""
    with open(tmp_path / "big", "wb") as f:
        f.truncate(1 << 40)
    conn = agent.connect()
    conn.request("POST", "/files/replace", json.dumps({str(tmp_path / "big"): {"old": "a", "new": "bb"}}))
    until("it is under way", lambda: opened(agent, tmp_path / "big"))
    assert agent.request("GET", "/files/info", path=str(tmp_path)).status == 200
    assert opened(agent, tmp_path / "big"), "it still is"
    conn.close()


@pytest.mark.parametrize("how", ["the client leaves", "the agent ends"])
def test_what_nobody_waits_for_is_given_up(start_agent, tmp_path, how):
    """A replacement that would go on for long leaves the file as it was, and holds nobody up."""
    place = tmp_path / "place"
    place.mkdir()
    with open(place / "f", "wb") as f:
        f.write(b"a")
        f.truncate(1 << 40)  # a hole: it takes no room, but long to read
    agent = start_agent()
    conn = agent.connect()
    conn.request("POST", "/files/replace", json.dumps({str(place / "f"): {"old": "b", "new": "c"}}))
    until("the file is read", lambda: opened(agent, place / "f"))
    if how == "the agent ends":
        agent.proc.terminate()
        agent.wait()
    else:
        conn.close()
        until("it is given up", lambda: agent.request("GET", "/ping") and not opened(agent, place / "f"))
    conn.close()
    assert os.listdir(place) == ["f"] and os.path.getsize(place / "f") == 1 << 40


def opened(agent, path):
    fds = f"/proc/{agent.proc.pid}/fd"
    for fd in os.listdir(fds):
        try:
            if os.readlink(f"{fds}/{fd}") == str(path):
                return True
        except OSError:
            pass
    return False
