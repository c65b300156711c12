"""Upload, download, info, deletion (contract/execd.md 10)."""

import hashlib
import json
import os
import stat
import urllib.parse

import pytest

from filelib import (B, begin_upload, form, meta, mode_of, nameless, no_leftovers, part, refused, root_only, send,
                     until, upload)

# ---- upload ----


@pytest.mark.parametrize("size", [0, 1, 18 * 1024, 65536, 1 << 20, (3 << 20) + 17])
@pytest.mark.parametrize("chunk", [None, 4096, 100000])
def test_upload_sizes(agent, tmp_path, size, chunk):
    data = os.urandom(size)
    target = tmp_path / "new" / "dir" / "f.bin"
    send(agent, target, data, chunk, mode=644)
    assert agent.run(f"sha256sum < {target}").stdout.split()[0] == hashlib.sha256(data).hexdigest()
    assert mode_of(target) == 0o644
    no_leftovers(target.parent)


def test_upload_in_tiny_pieces(agent, tmp_path):
    data = f"\r\n--{B}x\r\n--{B[:-1]}\r\n-".encode() * 5
    body = form(meta(tmp_path / "a", mode=600), part("file", data.replace(f"--{B}x".encode(), b"--B"), "a"))
    assert upload(agent, body, 1).status == 200
    assert (tmp_path / "a").read_bytes() == data.replace(f"--{B}x".encode(), b"--B")


def test_upload_300_megabytes_in_constant_memory(agent, tmp_path):
    block = os.urandom(1 << 20)
    head = meta(tmp_path / "big", mode=644) + part("file", b"", "big")[:-2]

    def body():
        yield head
        for _ in range(300):
            yield block
        yield f"\r\n--{B}--\r\n".encode()

    headers = {"Content-Type": f"multipart/form-data; boundary={B}"}
    resp = agent.request("POST", "/files/upload", body(), headers)
    assert resp.status == 200
    assert os.path.getsize(tmp_path / "big") == 300 << 20
    if not agent.sanitized:
        assert agent.rss_kib() < 16 * 1024
    os.unlink(tmp_path / "big")


def test_several_pairs_in_any_order(agent, tmp_path):
    a, b, c = (tmp_path / n for n in "abc")
    body = form(part("file", b"AAA", "x"), meta(a, mode=640), meta(b), meta(c, mode=0), part("other", b"?"),
                part("file", b"BBB", "y"), part("file", b"", "z"))
    assert upload(agent, body).status == 200
    assert (a.read_bytes(), b.read_bytes(), c.read_bytes()) == (b"AAA", b"BBB", b"")
    assert (mode_of(a), mode_of(b), mode_of(c)) == (0o640, 0o755, 0o755)
    no_leftovers(tmp_path)


def test_metadata_without_a_filename(agent, tmp_path):
    body = form(part("metadata", json.dumps({"path": str(tmp_path / "a")}).encode()), part("file", b"x"))
    assert upload(agent, body).status == 200
    assert (tmp_path / "a").read_bytes() == b"x"


def test_the_filename_is_never_the_target(agent, tmp_path):
    body = form(meta(tmp_path / "right"), part("file", b"x", str(tmp_path / "wrong")))
    assert upload(agent, body).status == 200
    assert not (tmp_path / "wrong").exists()


def test_overwrite_is_atomic_and_keeps_what_was_not_asked(agent, tmp_path):
    target = tmp_path / "f"
    target.write_bytes(b"old content")
    target.chmod(0o604)
    with open(target, "rb") as reader:
        send(agent, target, b"new")
        assert reader.read() == b"old content"
    assert target.read_bytes() == b"new" and mode_of(target) == 0o604
    send(agent, target, b"newer", mode=640)
    assert mode_of(target) == 0o640


def test_through_links(agent, tmp_path):
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "dangling").symlink_to("sub/later")
    send(agent, tmp_path / "link", b"new")
    send(agent, tmp_path / "dangling", b"made")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_bytes() == b"new"
    assert (tmp_path / "sub" / "later").read_bytes() == b"made"


def test_paths(agent, tmp_path):
    send(agent, "~/home.txt", b"1")
    send(agent, "rel/../rel.txt", b"2")
    send(agent, "$HOME/${HOME}.txt", b"3")
    assert (tmp_path / "home.txt").read_bytes() == b"1" and (tmp_path / "rel.txt").read_bytes() == b"2"
    assert os.path.exists(f"{tmp_path}{tmp_path}.txt")
    refused(upload(agent, form(meta("/x/$NOT_SET_AT_ALL"), part("file", b"x"))), 500, "RUNTIME_ERROR")


@root_only
def test_owner(agent, tmp_path):
    send(agent, tmp_path / "f", b"x", owner="nobody", group="nogroup", mode=600)
    st = os.stat(tmp_path / "f")
    assert (st.st_uid, st.st_gid) == (65534, 65534)
    send(agent, tmp_path / "f", b"y")
    assert os.stat(tmp_path / "f").st_uid == 65534, "an overwrite keeps the owner"
    resp = upload(agent, form(meta(tmp_path / "g", owner="no such one"), part("file", b"x")))
    assert "no such one" in refused(resp, 400, "INVALID_FILE_METADATA")
    assert not (tmp_path / "g").exists()


def test_upload_faults(agent, tmp_path):
    ok, file = meta(tmp_path / "never"), part("file", b"x")
    refused(agent.request("POST", "/files/upload", b"x", {"Content-Type": "text/plain"}), 400, "INVALID_FILE")
    refused(agent.request("POST", "/files/upload"), 400, "INVALID_FILE")
    refused(upload(agent, form(file)), 400, "INVALID_FILE_METADATA")
    refused(upload(agent, form(ok)), 400, "INVALID_FILE_CONTENT")
    refused(upload(agent, form()), 400, "INVALID_FILE_METADATA")
    refused(upload(agent, form(ok, file, file)), 400, "INVALID_FILE")
    refused(upload(agent, form(part("metadata", b"{"), file)), 400, "INVALID_FILE_METADATA")
    refused(upload(agent, form(part("metadata", b'{"path":""}'), file)), 400, "INVALID_FILE_METADATA")
    refused(upload(agent, form(part("metadata", b'{"mode":644}'), file)), 400, "INVALID_FILE_METADATA")
    refused(upload(agent, form(meta(tmp_path / "never", mode=648), file)), 500, "RUNTIME_ERROR")
    refused(upload(agent, ok + file), 400, "INVALID_FILE")
    refused(upload(agent, form(part("metadata", b" " * 65537), file)), 400, "INVALID_FILE_METADATA")
    assert os.listdir(tmp_path) == []


def test_what_is_no_file_is_not_replaced(agent, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for target in (tmp_path, tmp_path / "fifo", "/dev/null"):
        refused(upload(agent, form(meta(target), part("file", b"x"))), 500, "RUNTIME_ERROR")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    (tmp_path / "plain").write_bytes(b"x")
    refused(upload(agent, form(meta(tmp_path / "plain" / "below"), part("file", b"x"))), 500, "RUNTIME_ERROR")


def test_an_error_is_told_after_a_large_body(agent, tmp_path):
    body = form(part("metadata", b"{"), part("file", bytes(30 << 20)))
    refused(upload(agent, body), 400, "INVALID_FILE_METADATA")
    refused(upload(agent, body, 65536), 400, "INVALID_FILE_METADATA")


def test_a_client_that_leaves_leaves_nothing(agent, tmp_path):
    (tmp_path / "f").write_bytes(b"old")
    sock = begin_upload(agent, tmp_path / "f", bytes(500000))
    until("bytes arrive", lambda: any(nameless(agent, tmp_path)))
    assert os.listdir(tmp_path) == ["f"], "what is not complete has no name"
    sock.close()
    until("they are given up", lambda: agent.request("GET", "/ping") and not nameless(agent, tmp_path))
    assert os.listdir(tmp_path) == ["f"] and (tmp_path / "f").read_bytes() == b"old"


def test_more_files_than_the_agent_keeps_open(agent, tmp_path):
    pairs = [p for i in range(200) for p in (meta(tmp_path / str(i), mode=640), part("file", str(i).encode()))]
    assert upload(agent, form(*pairs)).status == 200
    assert len(os.listdir(tmp_path)) == 200
    assert all((tmp_path / str(i)).read_bytes() == str(i).encode() for i in range(200))
    assert mode_of(tmp_path / "199") == 0o640
    too_many = [p for i in range(1001) for p in (meta(tmp_path / "x" / str(i)), part("file", b""))]
    refused(upload(agent, form(*too_many)), 400, "INVALID_FILE")
    assert not os.path.exists(tmp_path / "x") or os.listdir(tmp_path / "x") == []


# ---- download ----


def get(agent, path, headers=None, **query):
    return agent.request("GET", "/files/download", headers=headers, path=str(path), **query)


def test_download(agent, tmp_path):
    data = os.urandom(1 << 20)
    (tmp_path / "f.bin").write_bytes(data)
    resp = get(agent, tmp_path / "f.bin")
    assert resp.status == 200 and resp.data == data
    assert resp.getheader("Content-Type") == "application/octet-stream"
    assert resp.getheader("Content-Length") == str(len(data))
    assert resp.getheader("Content-Disposition") == 'attachment; filename="f.bin"'
    assert resp.getheader("Accept-Ranges") == "bytes"
    assert resp.getheader("Last-Modified").endswith(" GMT")
    (tmp_path / "empty").write_bytes(b"")
    resp = get(agent, tmp_path / "empty")
    assert (resp.status, resp.data, resp.getheader("Content-Length")) == (200, b"", "0")


@pytest.mark.parametrize("value,want,content_range", [
    ("bytes=0-9", b"0123456789", "bytes 0-9/36"),
    ("bytes=30-", b"uvwxyz", "bytes 30-35/36"),
    ("bytes=-3", b"xyz", "bytes 33-35/36"),
    ("bytes=35-9223372036854775807", b"z", "bytes 35-35/36"),
    ("bytes=1-2,5-6", b"12", "bytes 1-2/36"),
])
def test_ranges(agent, tmp_path, value, want, content_range):
    (tmp_path / "f").write_bytes(b"0123456789abcdefghijklmnopqrstuvwxyz")
    resp = get(agent, tmp_path / "f", {"Range": value})
    assert (resp.status, resp.data) == (206, want)
    assert resp.getheader("Content-Range") == content_range
    assert resp.getheader("Content-Length") == str(len(want))


def test_ranges_that_cannot_be_served(agent, tmp_path):
    (tmp_path / "f").write_bytes(b"0123456789")
    resp = get(agent, tmp_path / "f", {"Range": "bytes=10-"})
    refused(resp, 416, "UNKNOWN")
    assert resp.getheader("Content-Range") == "bytes */10"
    assert resp.getheader("Content-Length") == str(len(resp.data))
    refused(get(agent, tmp_path / "f", {"Range": "lines=1-2"}), 416, "UNKNOWN")


def test_conditions(agent, tmp_path):
    (tmp_path / "f").write_bytes(b"0123456789")
    date = get(agent, tmp_path / "f").getheader("Last-Modified")
    assert get(agent, tmp_path / "f", {"If-Modified-Since": date}).status == 304
    assert get(agent, tmp_path / "f", {"If-Range": date, "Range": "bytes=0-0"}).status == 206
    old = "Sun, 06 Nov 1994 08:49:37 GMT"
    assert get(agent, tmp_path / "f", {"If-Modified-Since": old}).status == 200
    assert get(agent, tmp_path / "f", {"If-Range": old, "Range": "bytes=0-0"}).status == 200
    assert get(agent, tmp_path / "f", {"If-Unmodified-Since": date}).status == 200
    refused(get(agent, tmp_path / "f", {"If-Unmodified-Since": old}), 412, "PRECONDITION_FAILED")


@pytest.mark.parametrize("query,want", [
    ({"offset": 2, "limit": 2}, b"two\nthree"), ({"limit": 1}, b"one"), ({"offset": 4}, b""),
    ({"offset": 3}, b"three"), ({"offset": 9, "limit": 1}, b""),
])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_lines(agent, tmp_path, query, want, end):
    (tmp_path / "f").write_bytes(end.join([b"one", b"two", b"three", b""]))
    resp = get(agent, tmp_path / "f", **query)
    assert (resp.status, resp.data) == (200, want)
    assert resp.getheader("Content-Type") == "text/plain; charset=utf-8"


@pytest.mark.parametrize("query", [{"offset": 0}, {"limit": "x"}, {"limit": -1}])
def test_lines_that_are_none(agent, tmp_path, query):
    (tmp_path / "f").write_bytes(b"x")
    refused(get(agent, tmp_path / "f", **query), 400, "INVALID_REQUEST_BODY")
    refused(get(agent, tmp_path / "f", {"Range": "bytes=0-0"}, limit=1), 400, "INVALID_REQUEST_BODY")


def test_what_is_no_file_is_not_read(agent, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")
    refused(get(agent, tmp_path), 500, "RUNTIME_ERROR")
    refused(get(agent, tmp_path / "fifo"), 500, "RUNTIME_ERROR")
    refused(get(agent, "/dev/zero"), 500, "RUNTIME_ERROR")
    refused(get(agent, tmp_path / "loop"), 500, "RUNTIME_ERROR")
    refused(get(agent, tmp_path / "nope"), 404, "FILE_NOT_FOUND")
    refused(get(agent, "/etc/passwd/below"), 404, "FILE_NOT_FOUND")
    refused(agent.request("GET", "/files/download"), 400, "MISSING_QUERY")


@pytest.mark.parametrize("name", ['报告 "x".txt', "a b+c&d#e%20.txt", "cr\r\nX-Evil: 1", "back\\slash", "$HOME_x"])
def test_names_with_a_will_of_their_own(agent, tmp_path, name):
    if name == "$HOME_x":
        (tmp_path / name).write_bytes(b"x")  # a name that exists is not expanded
    else:
        send(agent, tmp_path / name, b"x")
    resp = get(agent, tmp_path / name)
    assert (resp.status, resp.data) == (200, b"x") and resp.getheader("X-Evil") is None
    disposition = resp.getheader("Content-Disposition")
    if "filename*=" in disposition:
        assert urllib.parse.unquote(disposition.split("UTF-8''")[1]) == name
    info = json.loads(agent.request("GET", "/files/info", path=str(tmp_path / name)).data)
    assert info[str(tmp_path / name)]["path"] == str(tmp_path / name)


# ---- info and deletion ----


def test_info(agent, tmp_path):
    (tmp_path / "f").write_bytes(b"12345")
    (tmp_path / "f").chmod(0o640)
    (tmp_path / "l").symlink_to("f")
    (tmp_path / "empty").write_bytes(b"")
    os.mkfifo(tmp_path / "p")
    asked = [str(tmp_path / n) for n in ("f", "l", "empty", "p")] + ["~/f", str(tmp_path) + "//."]
    infos = json.loads(agent.request("GET", "/files/info", path=asked).data)
    assert list(infos) == asked
    f = infos[asked[0]]
    assert (f["type"], f["size"], f["mode"], f["path"]) == ("file", 5, 640, asked[0])
    assert f["modified_at"].endswith("Z") and f["created_at"].endswith("Z") and f["owner"] and f["group"]
    assert [infos[a]["type"] for a in asked[1:]] == ["symlink", "file", "other", "file", "directory"]
    assert infos[asked[2]]["size"] == 0 and infos["~/f"]["path"] == asked[0]
    assert json.loads(agent.request("GET", "/files/info").data) == {}
    refused(agent.request("GET", "/files/info", path=[asked[0], str(tmp_path / "nope")]), 404, "FILE_NOT_FOUND")


def test_delete(agent, tmp_path):
    for n in "ab":
        (tmp_path / n).write_bytes(b"x")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "dir").mkdir()
    paths = [str(tmp_path / n) for n in ("a", "b", "nope", "dangling")]
    resp = agent.request("DELETE", "/files", path=paths)
    assert (resp.status, resp.data) == (200, b"")
    assert os.listdir(tmp_path) == ["dir"]
    refused(agent.request("DELETE", "/files", path=str(tmp_path / "dir")), 500, "RUNTIME_ERROR")


# ---- directories ----


def test_make_directories(agent, tmp_path):
    body = {str(tmp_path / "a/b"): {"mode": 750, "owner": None, "group": ""}, "~/c": {}, str(tmp_path): {"mode": 700}}
    before = mode_of(tmp_path)
    resp = agent.request("POST", "/directories", body)
    assert (resp.status, resp.data) == (200, b"")
    assert mode_of(tmp_path / "a/b") == 0o750 and mode_of(tmp_path / "a") == 0o755
    assert (tmp_path / "c").is_dir() and mode_of(tmp_path) == before
    (tmp_path / "f").write_bytes(b"")
    refused(agent.request("POST", "/directories", {str(tmp_path / "f/x"): {}}), 500, "RUNTIME_ERROR")
    assert agent.request("POST", "/directories", "null").status == 200
    refused(agent.request("POST", "/directories", "[]"), 400, "INVALID_REQUEST_BODY")
    refused(agent.request("POST", "/directories", {str(tmp_path / "d"): {"mode": "x"}}), 400, "INVALID_REQUEST_BODY")


def listed(agent, path, **query):
    resp = agent.request("GET", "/directories/list", path=str(path), **query)
    assert resp.status == 200, resp.data
    return [(e["path"], e["type"]) for e in json.loads(resp.data)]


def test_list_directories(agent, tmp_path):
    for name in ("b/z", "b/y/deep", "a"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "B.txt").write_bytes(b"x")
    (tmp_path / "link").symlink_to("b")
    top = [("B.txt", "file"), ("a", "directory"), ("b", "directory"), ("link", "symlink")]
    two = top[:3] + [("b/y", "directory"), ("b/z", "directory")] + top[3:]
    full = two[:4] + [("b/y/deep", "directory")] + two[4:]
    for query, want in [({}, top), ({"depth": 1}, top), ({"depth": 0}, []), ({"depth": 2}, two), ({"depth": 99}, full)]:
        assert listed(agent, tmp_path, **query) == [(f"{tmp_path}/{n}", t) for n, t in want]
    assert listed(agent, tmp_path / "a") == []
    assert len(listed(agent, tmp_path, depth=2**63 - 1)) == 7
    refused(agent.request("GET", "/directories/list"), 400, "MISSING_QUERY")
    for query in ({"depth": -1}, {"depth": "x"}):
        refused(agent.request("GET", "/directories/list", path=str(tmp_path), **query), 400, "INVALID_REQUEST_BODY")
    refused(agent.request("GET", "/directories/list", path=str(tmp_path / "nope")), 404, "FILE_NOT_FOUND")
    for name in ("link", "B.txt"):
        refused(agent.request("GET", "/directories/list", path=str(tmp_path / name)), 400, "INVALID_REQUEST_BODY")


def test_remove_directories(agent, tmp_path):
    (tmp_path / "keep").write_bytes(b"x")
    (tmp_path / "a/b/c").mkdir(parents=True)
    (tmp_path / "a/b/f").write_bytes(b"x")
    (tmp_path / "a/link").symlink_to(tmp_path)
    resp = agent.request("DELETE", "/directories", path=[str(tmp_path / "a"), str(tmp_path / "nope")])
    assert (resp.status, resp.data) == (200, b"")
    assert os.listdir(tmp_path) == ["keep"]
    for path in (tmp_path / "keep", "/", "//.", "/proc/.."):
        refused(agent.request("DELETE", "/directories", path=str(path)), 500, "RUNTIME_ERROR")
    assert (tmp_path / "keep").exists()
