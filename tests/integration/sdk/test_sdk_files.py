"""Files by the unmodified SDK 1.1.1, directly and by the gateway's proxy (contract/sdks.md 3.4, E29 to E36)."""

import datetime
import hashlib
import io
import os
from datetime import timedelta

import pytest
from opensandbox import SandboxSync
from opensandbox.config import ConnectionConfigSync
from opensandbox.exceptions import SandboxApiException, SandboxException
from opensandbox.models.filesystem import (
    ContentReplaceEntry,
    DirectoryListEntry,
    MoveEntry,
    SearchEntry,
    SetPermissionEntry,
    WriteEntry,
)

from harness import BASE, NONROOT


@pytest.fixture(scope="module", params=[False, True], ids=["direct", "proxy"])
def by_proxy(request):
    return request.param


@pytest.fixture(scope="module")
def config(by_proxy):
    def make(gw):
        return ConnectionConfigSync(domain=gw.domain, api_key=gw.key, use_server_proxy=by_proxy,
                                    request_timeout=timedelta(seconds=120))

    return make


@pytest.fixture(scope="module")
def sandbox(shared, config):
    sb = SandboxSync.create(BASE, connection_config=config(shared), timeout=timedelta(minutes=10))
    yield sb
    sb.kill()
    sb.close()


@pytest.fixture
def place(sandbox, request):
    """A directory of the test's own inside."""
    path = "/srv/" + hashlib.sha256(request.node.name.encode()).hexdigest()[:12]
    sandbox.files.create_directories([WriteEntry(path=path, mode=755)])
    yield path
    sandbox.files.delete_directories([path])


def out(sandbox, command):
    execution = sandbox.commands.run(command)
    assert execution.exit_code == 0, execution.logs
    return "".join(m.text for m in execution.logs.stdout)


def failure(call, *args, **kw):
    with pytest.raises(SandboxException) as told:
        call(*args, **kw)
    assert isinstance(told.value, SandboxApiException), told.value
    return told.value.status_code, told.value.error.code


def test_directories(sandbox, place):
    files = sandbox.files
    files.create_directories([WriteEntry(path=f"{place}/a/b", mode=755), WriteEntry(path=f"{place}/c", mode=644)])
    info = files.get_file_info([f"{place}/a/b", f"{place}/c"])
    assert [(i.entry_type, i.mode) for i in info.values()] == [("directory", 755), ("directory", 644)]
    assert all(i.owner == "root" and i.group == "root" for i in info.values())
    files.write_file(f"{place}/a/b/f", "x")
    listed = files.list_directory(DirectoryListEntry(path=place, depth=3))
    assert [e.path.removeprefix(place) for e in listed] == ["/a", "/a/b", "/a/b/f", "/c"]
    assert len(files.list_directory(DirectoryListEntry(path=place))) == 2
    files.delete_directories([f"{place}/a", f"{place}/never"])
    assert len(files.list_directory(DirectoryListEntry(path=place))) == 1


def test_write_and_read(sandbox, place):
    files, text = sandbox.files, "Grüße ☕ 你好\nzwei\ndrei"
    before = datetime.datetime.now(datetime.timezone.utc)
    files.write_files([
        WriteEntry(path=f"{place}/t", data=text, mode=644),
        WriteEntry(path=f"{place}/b", data=bytes(range(256)), mode=600, owner="nobody", group="nogroup"),
        WriteEntry(path=f"{place}/s", data=io.BytesIO(b"stream" * 100000)),
        WriteEntry(path=f"{place}/empty", data=""),
    ])
    assert files.read_file(f"{place}/t") == text
    assert files.read_bytes(f"{place}/b") == bytes(range(256))
    assert b"".join(files.read_bytes_stream(f"{place}/s", chunk_size=1000)) == b"stream" * 100000
    assert files.read_bytes(f"{place}/b", range_header="bytes=0-9") == bytes(range(10))
    assert files.read_file(f"{place}/t", offset=2, limit=1) == "zwei"
    assert files.read_file(f"{place}/t", offset=2) == "zwei\ndrei"
    info = files.get_file_info([f"{place}/{n}" for n in ("t", "b", "s", "empty")])
    assert [(i.size, i.mode) for i in info.values()] == [(len(text.encode()), 644), (256, 600), (600000, 755), (0, 755)]
    b = info[f"{place}/b"]
    assert (b.owner, b.group) == ("nobody", "nogroup")
    for i in info.values():
        assert abs(i.modified_at - before) < timedelta(seconds=20) and abs(i.created_at - before) < timedelta(seconds=20)


@pytest.mark.parametrize("size", [1, 18 * 1024, 1 << 20, (8 << 20) + 1])
def test_what_is_written_is_there_for_the_next_command(sandbox, place, size):
    """pains F1."""
    data = os.urandom(size)
    sandbox.files.write_file(f"{place}/f", data)
    assert out(sandbox, f"sha256sum < {place}/f").split()[0] == hashlib.sha256(data).hexdigest()
    assert sandbox.files.read_bytes(f"{place}/f") == data


def test_300_megabytes(sandbox, place):
    """pains F2: by a stream, and back."""
    block = os.urandom(1 << 20)
    digest = hashlib.sha256(block * 300).hexdigest()
    sandbox.files.write_file(f"{place}/big", io.BytesIO(block * 300))
    assert out(sandbox, f"sha256sum < {place}/big").split()[0] == digest
    back = hashlib.sha256()
    for piece in sandbox.files.read_bytes_stream(f"{place}/big"):
        back.update(piece)
    assert back.hexdigest() == digest
    peak = int(out(sandbox, "awk '/^VmHWM/ { print $2 }' /proc/1/status"))
    assert peak <= 16 * 1024, f"{peak} KiB resident"


def test_search_move_delete(sandbox, place):
    files = sandbox.files
    files.write_files([WriteEntry(path=f"{place}/{n}", data=n) for n in ("a.py", "d/b.py", "d/e/c.txt")])

    def found(pattern):
        return [e.path.removeprefix(place) for e in files.search(SearchEntry(path=place, pattern=pattern))]

    assert found("*") == ["/a.py", "/d/b.py", "/d/e/c.txt"]
    assert found("*.py") == found("**/*.py") == ["/a.py", "/d/b.py"]
    files.move_files([MoveEntry(src=f"{place}/a.py", dest=f"{place}/new/z.py"), MoveEntry(src=f"{place}/d/e", dest=f"{place}/e")])
    assert found("*") == ["/d/b.py", "/e/c.txt", "/new/z.py"]
    assert failure(files.read_file, f"{place}/a.py") == (404, "FILE_NOT_FOUND")
    files.delete_files([f"{place}/d/b.py", f"{place}/never"])
    assert found("*.py") == ["/new/z.py"]
    files.move_files([MoveEntry(src=f"{place}/e", dest="/dev/shm/e")])  # another file system
    assert files.read_file("/dev/shm/e/c.txt") == "d/e/c.txt"
    files.delete_directories(["/dev/shm/e"])
    before = out(sandbox, "cd /usr/share && find . -printf '%y %m %U %G %s %p\\n' | grep -v ^d | sort")
    files.move_files([MoveEntry(src="/usr/share", dest=f"{place}/share")])  # of the image: the engine's file system refuses a rename
    files.move_files([MoveEntry(src=f"{place}/share", dest="/usr/share")])
    assert out(sandbox, "cd /usr/share && find . -printf '%y %m %U %G %s %p\\n' | grep -v ^d | sort") == before


def test_permissions(sandbox, place):
    files = sandbox.files
    files.write_files([WriteEntry(path=f"{place}/{n}", data=n) for n in "ab"])
    files.set_permissions([SetPermissionEntry(path=f"{place}/a", mode=755, owner="nobody", group="nogroup"),
                           SetPermissionEntry(path=f"{place}/b", mode=600)])
    a, b = files.get_file_info([f"{place}/a", f"{place}/b"]).values()
    assert (a.mode, a.owner, a.group, b.mode, b.owner) == (755, "nobody", "nogroup", 600, "root")


def test_replace(sandbox, place):
    files = sandbox.files
    files.write_files([WriteEntry(path=f"{place}/a", data="1 2 1 1"), WriteEntry(path=f"{place}/b", data="ää")])
    sandbox.commands.run(f"touch -d 2001-02-03 {place}/a")
    files.replace_contents([ContentReplaceEntry(path=f"{place}/a", old_content="2", new_content="3")])
    assert files.read_file(f"{place}/a") == "1 3 1 1"
    assert files.get_file_info([f"{place}/a"])[f"{place}/a"].modified_at.year > 2001
    counts = files.replace_contents_detailed([
        ContentReplaceEntry(path=f"{place}/a", old_content="1", new_content="one"),
        ContentReplaceEntry(path=f"{place}/b", old_content="nope", new_content=""),
    ])
    assert [(c.path.removeprefix(place), c.replaced_count) for c in counts] == [("/a", 3), ("/b", 0)]
    assert files.read_file(f"{place}/a") == "one 3 one one"


def test_missing_files_are_told_as_such(sandbox, place):
    """pains F7."""
    files, nope = sandbox.files, f"{place}/nope"
    missing = (404, "FILE_NOT_FOUND")
    assert failure(files.read_file, nope) == missing
    assert failure(files.get_file_info, [nope]) == missing
    assert failure(files.move_files, [MoveEntry(src=nope, dest=f"{place}/x")]) == missing
    assert failure(files.set_permissions, [SetPermissionEntry(path=nope, mode=644)]) == (500, "FILE_NOT_FOUND")
    assert failure(files.search, SearchEntry(path=nope, pattern="*")) == missing
    assert failure(files.list_directory, DirectoryListEntry(path=nope)) == missing
    assert failure(files.replace_contents, [ContentReplaceEntry(path=nope, old_content="a", new_content="b")])[0] == 404
    files.delete_files([nope])
    files.delete_directories([nope])


@pytest.mark.parametrize("name", ['报告 "x".txt', "a b+c&d#e%20中.txt", "back\\slash", "it's", "50%", "semi;colon"])
def test_names(sandbox, place, name):
    """pains F4, F5: the query and the headers carry every name as it is."""
    files, path = sandbox.files, f"{place}/{name}"
    files.write_file(path, name)
    assert files.read_file(path) == name
    assert list(files.get_file_info([path])) == [path]
    assert [e.path for e in files.search(SearchEntry(path=place, pattern="*"))] == [path]
    files.move_files([MoveEntry(src=path, dest=path + ".moved")])
    assert [e.path for e in files.list_directory(DirectoryListEntry(path=place))] == [path + ".moved"]
    files.delete_files([path + ".moved"])


def test_home(sandbox):
    sandbox.files.write_file("~/note", "at home")
    assert sandbox.files.read_file("~/note") == "at home" == out(sandbox, "cat ~/note")
    sandbox.files.delete_files(["~/note"])


def test_with_identity(sandbox, place):
    """pains F3: an account of the sandbox with a group, made by the sandbox itself."""
    out(sandbox, "grep -q ^worker: /etc/passwd || { echo 'worker:x:1500:1500::/srv/worker:/bin/sh' >> /etc/passwd; "
                 "echo 'team:x:1600:worker' >> /etc/group; mkdir -p /srv/worker; chown 1500:1500 /srv/worker; }")
    root, worker = sandbox.files, sandbox.files_with_identity(1500, 1500)
    worker.write_file("~/mine", "1", mode=640)
    assert out(sandbox, "stat -c '%u %g %a' /srv/worker/mine").split() == ["1500", "1500", "640"]
    assert worker.read_file("srv/worker/mine") == "1"
    root.write_file(f"{place}/closed", "secret", mode=600)
    assert failure(worker.read_file, f"{place}/closed")[0] == 500
    assert failure(worker.write_file, f"{place}/new", "x")[0] == 500
    out(sandbox, f"chgrp 1600 {place}/closed; chmod 640 {place}/closed")
    assert worker.read_file(f"{place}/closed") == "secret", "by its supplementary group"
    assert failure(sandbox.files_with_identity(1501, 1501).read_file, f"{place}/closed")[0] == 500
    assert failure(worker.replace_contents, [ContentReplaceEntry(path=f"{place}/closed", old_content="s", new_content="S")])[0] == 500
    assert failure(worker.write_files, [WriteEntry(path="~/o", data="x", owner="root")])[0] == 500
    worker.create_directories([WriteEntry(path="~/d/e", mode=700)])
    worker.move_files([MoveEntry(src="~/mine", dest="~/d/e/mine")])
    assert [e.path for e in worker.search(SearchEntry(path="~", pattern="mine"))] == ["/srv/worker/d/e/mine"]
    assert [e.owner for e in worker.list_directory(DirectoryListEntry(path="~", depth=9))] == ["worker"] * 3
    worker.delete_directories(["~/d"])
    root.delete_directories(["/srv/worker"])


def test_an_image_with_a_user(shared, config):
    """pains F3: everything is the user's, and as somebody else nothing can be done."""
    sb = SandboxSync.create(NONROOT, connection_config=config(shared), timeout=timedelta(minutes=5))
    with sb:
        uid, gid = map(int, out(sb, "id -u; id -g").split())
        sb.files.write_file("/tmp/w/f", "old", mode=644)
        out(sb, "echo more >> /tmp/w/f")
        assert sb.files.read_file("/tmp/w/f") == "oldmore\n"
        sb.files_with_identity(uid, gid).write_file("/tmp/w/g", "x")
        assert failure(sb.files_with_identity(0, 0).write_file, "/tmp/w/h", "x") == (503, "FILESYSTEM_IDENTITY_UNAVAILABLE")
        assert out(sb, "stat -c %u /tmp/w /tmp/w/f /tmp/w/g").split() == [str(uid)] * 3
        assert out(sb, "ls -A /tmp/w").split() == ["f", "g"]
        sb.kill()
