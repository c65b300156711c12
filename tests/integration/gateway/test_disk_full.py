"""The disk that the database lies on is full: changes are refused with words, reads and sandboxes go on, nothing is lost."""

import errno
import subprocess

import pytest
from harness import Gateway, wait_for


@pytest.fixture
def small(tmp_path, engine):
    """A gateway whose database has a file system of 4 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)], check=True)
    gw = Gateway(disk, engine).start()
    yield gw
    gw.cleanup()
    subprocess.run(["umount", str(disk)], check=True)


def fill(path):
    with open(path, "wb", buffering=0) as f:
        for size in (65536, 1024, 1):
            try:
                while True:
                    f.write(b"x" * size)
            except OSError as e:
                assert e.errno == errno.ENOSPC


def refused(reply):
    assert reply.status == 500 and set(reply.json) == {"code", "message"} and "full" in reply.json["message"], reply.raw


def test_a_full_disk_is_survived(small):
    path = f"/v1/sandboxes/{small.create().json['id']}"
    before = small.request("GET", path).json
    fill(small.dir / "filler")
    # what the log of the database still has room for may succeed
    wait_for("the disk is full for the database, too",
             lambda: small.request("PATCH", path + "/metadata", {"k": "v" * 60}).status == 500)
    refused(small.create())
    refused(small.request("POST", path + "/renew-expiration", {"expiresAt": "2099-01-01T00:00:00Z"}))
    refused(small.request("DELETE", path))
    assert small.request("GET", path).json["expiresAt"] == before["expiresAt"]
    assert small.request("GET", "/health").status == 200 and len(small.records()) == 1
    assert len(small.engine.containers(small.instance)) == 1
    (small.dir / "filler").unlink()
    wait_for("changes are taken again", lambda: small.request("PATCH", path + "/metadata", {"k": "v"}).status == 200)
    other = f"/v1/sandboxes/{small.create().json['id']}"
    for one in (path, other):
        assert small.request("DELETE", one).status == 204
    assert small.records() == [] and small.engine.containers(small.instance) == []
