"""kill -9 while a file is written: the old content or the new one, and nothing beside it."""

import json
import os

from filelib import begin_upload, nameless, until


def test_in_an_upload(start_agent, tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    (place / "f").write_bytes(b"old")
    for target in ("f", "new"):
        agent = start_agent()
        sock = begin_upload(agent, place / target, bytes(500000))
        until("bytes arrive", lambda: any(nameless(agent, place)))
        agent.proc.kill()
        agent.wait()
        sock.close()
        assert os.listdir(place) == ["f"] and (place / "f").read_bytes() == b"old"


def test_in_a_replacement(start_agent, tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    old = b"a" * (16 << 20)
    caught = 0
    for _ in range(20):
        (place / "f").write_bytes(old)
        agent = start_agent()
        conn = agent.connect()
        conn.request("POST", "/files/replace", json.dumps({str(place / "f"): {"old": "a", "new": "bb"}}))
        until("bytes are written", lambda: any(nameless(agent, place)) or os.path.getsize(place / "f") != len(old))
        agent.proc.kill()
        agent.wait()
        conn.close()
        assert os.listdir(place) == ["f"]
        caught += (place / "f").read_bytes() == old
        assert caught or (place / "f").read_bytes() == b"bb" * len(old)
        if caught:
            return
    raise AssertionError("never killed in the middle")
