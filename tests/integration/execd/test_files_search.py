"""Search (contract/execd.md 10.1)."""

import json
import os
import subprocess

import pytest

from filelib import refused


@pytest.fixture
def tree(tmp_path):
    top = tmp_path / "top"
    for name in ("b/deep", "a", "empty"):
        (top / name).mkdir(parents=True)
    for name in ("a.py", "b/x.py", "b/deep/y.py", "b/deep/y.txt", "a/.hidden", "B.PY", "na me+&#中.py"):
        (top / name).write_bytes(b"x")
    (top / "link").symlink_to("b")
    (top / "dangling.py").symlink_to("nowhere")
    os.mkfifo(top / "pipe")
    return top


def found(agent, path, **query):
    resp = agent.request("GET", "/files/search", path=str(path), **query)
    assert resp.status == 200, resp.data
    assert resp.getheader("Content-Type") == "application/json"
    return [os.path.relpath(e["path"], path) for e in json.loads(resp.data)]


EVERYTHING = ["B.PY", "a/.hidden", "a.py", "b/deep/y.py", "b/deep/y.txt", "b/x.py", "dangling.py", "link", "na me+&#中.py", "pipe"]


@pytest.mark.parametrize("pattern,want", [
    (None, EVERYTHING), ("", EVERYTHING), ("*", EVERYTHING), ("**", EVERYTHING),
    ("*.py", ["a.py", "b/deep/y.py", "b/x.py", "dangling.py", "na me+&#中.py"]),
    ("**/*.py", ["a.py", "b/deep/y.py", "b/x.py", "dangling.py", "na me+&#中.py"]),
    ("[xy].{py,txt}", ["b/deep/y.py", "b/deep/y.txt", "b/x.py"]),
    ("!(*.py)", ["B.PY", "a/.hidden", "b/deep/y.txt", "link", "pipe"]),
    ("*中.py", ["na me+&#中.py"]), ("b/*", []), ("deep", []), ("nope", []),
])
def test_patterns(agent, tree, pattern, want):
    assert found(agent, tree, **({} if pattern is None else {"pattern": pattern})) == want


def test_entries_are_as_info_has_them(agent, tree):
    (entry,) = json.loads(agent.request("GET", "/files/search", path=str(tree), pattern="y.txt").data)
    info = json.loads(agent.request("GET", "/files/info", path=entry["path"]).data)
    assert info == {entry["path"]: entry}


def test_a_path_that_is_no_directory_is_the_only_candidate(agent, tree):
    for name in ("a.py", "link", "dangling.py"):
        assert found(agent, tree / name) == ["."]
        assert found(agent, tree / name, pattern="zzz") == []
    assert found(agent, tree / "empty") == []


def test_searches_that_are_refused(agent, tree):
    def ask(**query):
        return agent.request("GET", "/files/search", **query)

    refused(ask(), 400, "MISSING_QUERY")
    refused(ask(path="", pattern="*"), 400, "MISSING_QUERY")
    refused(ask(path=str(tree / "nope"), pattern="*"), 404, "FILE_NOT_FOUND")
    for bad in ("[", "{a", "!a", "x" * 1025):
        assert "error searching files" in refused(ask(path=str(tree), pattern=bad), 500, "RUNTIME_ERROR")
        assert ask(path=str(tree / "empty"), pattern=bad).data == b"[]"


@pytest.fixture
def deep(tmp_path):
    """Python's own removal, which pytest uses, fails at such depths."""
    yield tmp_path / "d"
    subprocess.run(["rm", "-rf", str(tmp_path / "d")], check=True)


def test_deep_and_wide(agent, deep, tmp_path):
    """Levels as far as a path can go, many names in one directory; the list is longer than what stays in memory."""
    path, depth = str(deep), 0
    while len(path) < 4080:
        os.mkdir(path)
        path, depth = path + "/d", depth + 1
    with open(os.path.dirname(path) + "/leaf", "wb"):
        pass
    assert len(found(agent, tmp_path, pattern="leaf")) == 1 and depth > 1900
    assert agent.request("DELETE", "/directories", path=str(deep)).status == 200
    assert os.listdir(tmp_path) == []
    wide = tmp_path / "wide"
    wide.mkdir()
    names = sorted(f"name-{i}" for i in range(20000))
    for name in names:
        os.close(os.open(wide / name, os.O_CREAT))
    assert found(agent, wide) == names
    if not agent.sanitized:
        assert agent.peak_kib() < 16 * 1024
    assert len(json.loads(agent.request("GET", "/directories/list", path=str(wide)).data)) == 20000
    for name in names:
        os.unlink(wide / name)


def test_no_pattern_takes_long(agent, tree):
    (tree / ("a" * 250)).write_bytes(b"")
    assert found(agent, tree, pattern="*a" * 100 + "b") == []
    assert found(agent, tree, pattern="{a,aa}*" * 60) == ["a" * 250]
