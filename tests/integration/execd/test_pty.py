"""PTY sessions: contract/execd.md 9, viewers: contract/newest.md 1.2."""

import http.client
import json
import os
import shutil
import socket
import subprocess
import time
import uuid

import pytest
from agentlib import Fifo, claim, processes
from ptylib import DEADLINE, Client, Session
from websockets.exceptions import InvalidStatus

RING = 1 << 20


def refused(session, query="", headers=None, **options):
    with pytest.raises(InvalidStatus) as caught:
        Client(session.url(query), headers if headers is not None else session.agent.headers, **options)
    response = caught.value.response
    return response.status_code, json.loads(response.body)


def quiet(agent, **body):
    """A session whose shell says nothing by itself."""
    return Session(agent, **{"command": "stty -echo -onlcr; echo ready; exec sh -c 'while read -r l; do eval \"$l\"; done'",
                             **body})


def wait_until(what, done):
    """Looks again with each round trip to the agent: no busy loop."""
    end = time.monotonic() + DEADLINE
    while not done():
        assert time.monotonic() < end, what


# ---- sessions ----


def test_create_list_get_delete(agent):
    first, second = Session(agent), Session(agent)
    assert str(uuid.UUID(first.id)) == first.id
    listed = json.loads(agent.request("GET", "/pty").data)["sessions"]
    assert [s["session_id"] for s in listed] == [second.id, first.id]
    state = first.state()
    assert state == {**state, "session_id": first.id, "running": False, "output_offset": 0, "launch_attempted": False}
    resp = agent.request("DELETE", f"/pty/{first.id}")
    assert (resp.status, resp.data, resp.headers["Content-Length"]) == (200, b"", "0")
    for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/ws")):
        resp = agent.request(method, f"/pty/{first.id}{path}")
        assert resp.status == 404 and json.loads(resp.data)["code"] == "CONTEXT_NOT_FOUND"


@pytest.mark.parametrize("body", ["", "null", "{}", '{"x": 1}', '{"cwd": null, "command": null}', "{} trailing"])
def test_bodies_that_mean_the_defaults(agent, body):
    assert agent.request("POST", "/pty", body=body).status == 201


@pytest.mark.parametrize("body", ["{", '{"cwd": 1}', '{"command": ["a"]}', "[]", '{"envs": {"a=b": "c"}}', '{"gid": 1}'])
def test_broken_bodies(agent, body):
    resp = agent.request("POST", "/pty", body=body)
    assert resp.status == 400 and json.loads(resp.data)["code"] == "INVALID_REQUEST_BODY"


def test_a_bad_cwd_is_one_error_body(agent, tmp_path):
    (tmp_path / "file").write_text("")
    for cwd in (f"{tmp_path}/file", f"{tmp_path}/file/below", "$NOT_SET_ANYWHERE/x"):
        resp = agent.request("POST", "/pty", body={"cwd": cwd})
        assert resp.status == 500
        body = json.loads(resp.data)
        assert body["code"] == "RUNTIME_ERROR" and body["message"]
    assert json.loads(agent.request("GET", "/pty").data) == {"sessions": []}


def test_number_of_sessions_is_limited(agent):
    sessions = [Session(agent) for _ in range(64)]
    resp = agent.request("POST", "/pty")
    assert resp.status == 503 and "delete one first" in json.loads(resp.data)["message"]
    assert sessions[7].delete() == 200
    Session(agent)


# ---- the handshake ----


def test_bad_handshakes(agent):
    session = Session(agent)
    path = f"/pty/{session.id}/ws"
    resp = agent.request("GET", path)
    assert resp.status == 426 and resp.headers["Sec-WebSocket-Version"] == "13"
    assert json.loads(resp.data)["code"] == "UPGRADE_REQUIRED"
    up = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="}
    resp = agent.request("GET", path, headers={**up, "Sec-WebSocket-Version": "7"})
    assert resp.status == 426 and resp.headers["Sec-WebSocket-Version"] == "13"
    resp = agent.request("GET", path, headers={**up, "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "short"})
    assert resp.status == 400 and "Sec-WebSocket-Key" in json.loads(resp.data)["message"]
    assert refused(session, "?mode=wiever")[0] == 400
    assert not session.state()["running"], "none of them started a shell"


def test_the_token_is_wanted(held, tmp_path):
    agent = held()
    assert agent.request("GET", "/pty").status == 503, "not claimed yet"
    assert claim(agent).status == 200
    session = Session(agent)
    assert refused(session, headers={})[0] == 401
    with session.attach() as client:
        client.type("echo token=$EXECD_ACCESS_TOKEN.\n")
        client.see("token=.")


def test_foreign_pages_are_refused_where_no_token_is_wanted(agent):
    session = Session(agent)
    assert refused(session, origin="http://evil.example")[0] == 403
    with session.attach(origin=f"http://127.0.0.1:{agent.port}"):
        pass


# ---- a terminal ----


def test_an_interactive_shell(agent, tmp_path):
    with Session(agent, cwd=f"{tmp_path}/new/dir").attach() as client:
        assert client.connected == {"type": "connected", "session_id": client.connected["session_id"],
                                    "mode": "pty", "role": "holder"}
        client.type("tty; stty size; pwd; echo term=$TERM; echo $((40 + 2))\n")
        seen = client.see("42\r\n")
        assert b"/dev/pts/" in seen and b"24 80" in seen and f"{tmp_path}/new/dir".encode() in seen
        assert b"term=" in seen and b"term=\r" not in seen
        client.send(type="resize", cols=132, rows=50)
        client.type("stty size\n")
        client.see("50 132")


def test_stdin_as_json(agent):
    with quiet(agent).attach() as client:
        client.see("ready")
        client.send(type="stdin", data="echo żółć\n")
        client.see("żółć")


def test_keys_and_signals_reach_what_is_in_front(agent):
    """An interactive shell puts each job into a group of its own."""
    with Session(agent).attach() as client:
        for interrupt in (lambda: client.type("\x03"), lambda: client.send(type="signal", signal="SIGINT")):
            client.out = b""
            client.type("echo be''gin; sleep 1000; echo after=$?\n")
            client.see("begin")
            wait_until("sleep is in front", lambda: b"begin" in client.seen and processes("1000"))
            interrupt()
            client.out = b""
            client.type("echo al''ive\n")
            client.see("alive")
        client.send(type="signal", signal="SIGWHATEVER")
        client.send(type="signal", signal="SIGKILL")
        assert client.text("exit")["exit_code"] == -1


def test_frames_that_are_wrong(agent):
    with quiet(agent).attach() as client:
        client.see("ready")
        client.send(type="nonsense")
        assert client.text("error")["code"] == "INVALID_FRAME"
        client.send(type="resize", cols=0, rows=10)
        assert client.text("error")["code"] == "INVALID_FRAME"
        for ignored in ("{", b"", b"\x07abc"):
            client.ws.send(ignored)
        client.send(type="ping")
        client.text("pong")
        assert client.texts == []
        client.type("echo still here\n")
        client.see("still here")


def test_too_large_a_message_closes(agent):
    session = quiet(agent)
    with session.attach() as client:
        client.see("ready")
        client.ws.send(b"\0" + b"x" * (1 << 20))
        assert client.end()[0] == 1009
    with session.attach() as client:
        client.type("echo still here\n")
        client.see("still here")


def test_environment(start_agent, tmp_path):
    envs = tmp_path / "envs"
    envs.write_text("FROM_FILE='a b'\nDIR=" + str(tmp_path) + "\n")
    agent = start_agent(env={"EXECD_ENVS": str(envs), "TERM": "", "EXECD_ACCESS_TOKEN": "geheim"})
    agent.headers = {"X-EXECD-ACCESS-TOKEN": "geheim"}
    session = Session(agent, cwd="$DIR/sub", envs={"MINE": "1"},
                      command='echo "[$FROM_FILE][$MINE][${EXECD_ACCESS_TOKEN-none}][$PWD][$OLDTERM]"; exit 4')
    with session.attach() as client:
        assert client.text("exit")["exit_code"] == 4
        assert f"[a b][1][none][{tmp_path}/sub][]".encode() in client.seen


@pytest.mark.skipif(os.getuid() != 0, reason="needs root")
def test_another_user(agent, tmp_path):
    tmp_path.chmod(0o755)
    session = Session(agent, uid=65534, command="id -u; test -O $(tty) && echo own; echo x >/dev/tty; echo y >$(tty)")
    with session.attach() as client:
        client.text("exit")
        assert client.seen.split() == [b"65534", b"own", b"x", b"y"]


# ---- the end ----


def test_exit_comes_after_all_output_and_a_new_shell_starts(agent):
    session = Session(agent, command="stty -onlcr; seq 1 30000; exit 7")
    total = sum(len(f"{i}\n") for i in range(1, 30001))
    for turn in (1, 2):
        client = session.attach(f"?since={session.state()['output_offset']}")
        assert client.text("exit") == {"type": "exit", "exit_code": 7}
        assert client.end() == (1000, "process exited")
        assert client.out.endswith(b"30000\n") and len(client.out) == total
        assert client.order[-1] == "exit"
        assert session.state() == {**session.state(), "running": False, "output_offset": turn * total}


def test_exit_without_output_comes_at_once(agent):
    begin = time.monotonic()
    client = Session(agent, command="exit 7").attach()
    assert client.text("exit")["exit_code"] == 7 and client.end() == (1000, "process exited")
    assert time.monotonic() - begin < 5


def test_an_exit_does_not_wait_for_those_that_are_left(agent, tmp_path):
    fifo = Fifo(tmp_path / "fifo")
    for query in ("?pty=0", ""):
        command = f"setsid sh -c 'echo >{fifo}; exec sleep 998' & read x <{fifo}; echo said; exit 3"
        client = Session(agent, command=command).attach(query)
        assert client.text("exit")["exit_code"] == 3
        assert client.seen.strip() == b"said"
    wait_until("they live on", lambda: len(processes("998")) == 2)
    for pid in processes("998"):
        os.kill(pid, 9)


def test_delete_kills_everything_in_the_session(agent):
    session = Session(agent)
    client = session.attach()
    client.type("sleep 997 & sleep 996 & (sleep 995) & sleep 994 | cat\n")
    wait_until("all run", lambda: all(processes(n) for n in ("997", "996", "995", "994")))
    assert session.delete() == 200
    assert session.state() == 404
    assert client.text("exit")["exit_code"] == -1
    assert client.end()[0] == 1000
    wait_until("all are gone", lambda: not any(processes(n) for n in ("997", "996", "995", "994")))


def test_the_agent_ends_in_time_with_an_interactive_shell(agent):
    """Such a shell ignores SIGTERM; a hang-up it does not."""
    client = Session(agent).attach()
    client.type("echo on''ce\n")
    client.see("once")
    begin = time.monotonic()
    agent.proc.terminate()
    assert client.end() == (1001, "the sandbox is stopping")
    assert agent.wait() == 0
    assert time.monotonic() - begin < 5


# ---- pipe mode ----


def test_pipe_mode(agent):
    session = Session(agent, command="tty; echo err >&2; read -r x; echo got $x; exit 2")
    with session.attach("?pty=0") as client:
        assert client.connected["mode"] == "pipe"
        client.until(lambda: client.err == b"err\n" and client.out == b"not a tty\n")
        client.send(type="resize", cols=10, rows=10)
        client.type("line\n")
        assert client.text("exit")["exit_code"] == 2
        assert client.out.endswith(b"got line\n")
    assert session.state()["output_offset"] == len("not a tty\nerr\ngot line\n")


def test_pipe_mode_is_for_who_starts_the_shell(agent):
    session = quiet(agent)
    session.attach().close()
    wait_until("left", lambda: not session.state()["connected"])
    with session.attach("?pty=0") as client:
        assert client.connected["mode"] == "pty"


def test_input_that_nobody_takes(agent, tmp_path):
    fifo = Fifo(tmp_path / "fifo")
    session = Session(agent, command=f"exec <&-; echo ready; read x <{fifo}")
    with session.attach("?pty=0") as client:
        client.see("ready")
        client.type("x")
        assert client.text("error")["code"] == "STDIN_WRITE_FAILED"
        assert client.end()[0] == 1011
    fifo.write("\n")


# ---- replay ----


def test_replay_from_an_offset_has_neither_gap_nor_double(agent, tmp_path):
    fifo = Fifo(tmp_path / "fifo")
    session = Session(agent, command=f"stty -onlcr; seq 1 100; read x <{fifo}; seq 101 5000; read x <{fifo}; echo end")
    client = session.attach()
    client.see("\n100\n")
    seen = len(client.out)
    client.close()
    fifo.write("\n")
    whole = "".join(f"{i}\n" for i in range(1, 5001)).encode()
    wait_until("written without a client", lambda: session.state()["output_offset"] == len(whole))
    with session.attach(f"?since={seen}") as again:
        assert again.order == [3, "connected"]
        assert again.replays == [(seen, whole[seen:])]
    for since, offset in (("0", 0), ("junk", 0), ("-5", 0), ("17", 17), (str(len(whole) - 1), len(whole) - 1)):
        with session.attach(f"?takeover=1&since={since}") as again:
            assert again.replays == [(offset, whole[offset:])]
    with session.attach(f"?takeover=1&since={len(whole)}") as again:
        assert again.replays == [] and again.order == ["connected"]
        fifo.write("\n")
        assert again.text("exit")["exit_code"] == 0
        assert again.out == b"end\n"


def test_what_the_ring_no_longer_has_is_left_out(agent, tmp_path):
    fifo = Fifo(tmp_path / "fifo")
    session = Session(agent, command=f"stty -onlcr; seq 1 400000; read x <{fifo}")
    whole = "".join(f"{i}\n" for i in range(1, 400001)).encode()
    with session.attach() as client:
        client.until(lambda: len(client.out) == len(whole))
        assert client.out == whole
    with session.attach("?takeover=1&since=100", max_size=RING) as client:
        assert client.replays[0][0] == len(whole) - RING
        assert b"".join(d for _, d in client.replays) == whole[-RING:]
        at = client.replays[0][0]
        for offset, data in client.replays:
            assert offset == at
            at += len(data)
    fifo.write("\n")


# ---- one holder ----


def test_a_second_holder_has_to_take_over(agent):
    session = quiet(agent)
    first = session.attach()
    first.see("ready")
    status, body = refused(session)
    assert (status, body["code"]) == (409, "ALREADY_CONNECTED") and "takeover=1" in body["message"]
    second = session.attach("?takeover=1&since=0")
    assert first.end() == (4001, "TAKEN_OVER")
    assert second.seen.startswith(b"ready")
    second.type("echo same shell\n")
    second.see("same shell")
    second.close()
    with session.attach() as third:  # leaving makes room at once
        third.see("same shell")


def raw_client(session, query=""):
    """A holder that never reads: a handshake and no more."""
    sock = socket.create_connection(("127.0.0.1", session.agent.port), DEADLINE)
    sock.sendall(
        f"GET /pty/{session.id}/ws{query} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
    )
    assert sock.recv(12) == b"HTTP/1.1 101"
    return sock


def stalled(session):
    """The offset at which output stands still: the same in many round trips."""
    last, same = -1, 0
    end = time.monotonic() + DEADLINE
    while same < 200:
        assert time.monotonic() < end
        now = session.state()["output_offset"]
        last, same = now, same + 1 if now == last and now else 0
    return last


def test_a_slow_holder_holds_the_shell_and_is_taken_over_at_once(agent):
    session = Session(agent, command="stty -onlcr; seq 1 5000000; exit 5")
    whole = "".join(f"{i}\n" for i in range(1, 5000001)).encode()
    sock = raw_client(session)
    at = stalled(session)
    assert at < len(whole) // 2
    if not agent.sanitized:
        assert agent.rss_kib() < 16 * 1024
    begin = time.monotonic()
    with session.attach(f"?takeover=1&since={at}") as client:
        assert time.monotonic() - begin < 5
        assert client.text("exit")["exit_code"] == 5
        assert client.out == whole[at:], "nothing was lost"
    sock.close()


@pytest.mark.slow
def test_a_holder_that_reads_nothing_is_dropped(agent):
    """contract/execd.md 9: ten seconds."""
    session = Session(agent, command="stty -onlcr; seq 1 5000000; exit 5")
    sock = raw_client(session)
    stalled(session)
    begin = time.monotonic()
    wait_until("dropped", lambda: not session.state()["running"])
    assert time.monotonic() - begin < 15
    sock.close()


def test_a_client_that_is_cut_off_makes_room(agent):
    session = quiet(agent)
    sock = raw_client(session)
    wait_until("attached", lambda: session.state()["connected"])
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    sock.close()  # a reset
    wait_until("left", lambda: not session.state()["connected"])
    with session.attach() as client:
        client.see("ready")


def test_a_flood_of_input_is_held_back(agent, tmp_path):
    """A program that reads late gets everything; meanwhile the agent stays small."""
    fifo = Fifo(tmp_path / "fifo")
    size = 8 << 20
    session = Session(agent, command=f"read x <{fifo}; head -c {size} | cksum; exit 6")
    data = bytes(range(256)) * (size // 256)
    want = subprocess.run(["cksum"], input=data, capture_output=True, check=True).stdout
    sock = raw_client(session, "?pty=0")
    sock.setblocking(False)
    frame = b"\x82\xfe\x7f\xff\0\0\0\0\0"  # masked with zeros
    payload = data
    sent = bytearray()
    for at in range(0, size, 32766):
        part = payload[at : at + 32766]
        sent += b"\x82\xfe" + (len(part) + 1).to_bytes(2, "big") + b"\0\0\0\0\0" + part
    assert len(frame) == 9
    done = 0
    with pytest.raises(BlockingIOError):
        while True:
            done += sock.send(sent[done : done + 65536])
    if not agent.sanitized:
        assert agent.rss_kib() < 16 * 1024
    fifo.write("\n")
    sock.setblocking(True)
    sock.sendall(sent[done:])
    wait_until("ended", lambda: not session.state()["running"])
    assert session.state()["output_offset"] == len(want)
    sock.close()


# ---- viewers ----


def test_viewers_see_all_and_change_nothing(agent):
    session = quiet(agent)
    status, body = refused(session, "?mode=viewer")
    assert (status, body["code"]) == (409, "NOT_RUNNING")
    with session.attach() as holder:
        holder.see("ready")
        viewers = [session.attach("?mode=viewer") for _ in range(3)]
        late = session.attach(f"?mode=viewer&since={session.state()['output_offset']}")
        assert viewers[0].connected["role"] == "viewer" and viewers[0].order == [3, "connected"]
        assert late.order == ["connected"]
        holder.type("echo for all\n")
        for viewer in (*viewers, late):
            viewer.see("for all")
            at = viewer.replays[0][0]
            for offset, data in viewer.replays:
                assert offset == at
                at += len(data)
            viewer.send(type="ping")
            viewer.text("pong")
        asked = [lambda v: v.type("x"), lambda v: v.send(type="stdin", data="x"),
                 lambda v: v.send(type="resize", cols=1, rows=1), lambda v: v.send(type="signal", signal="SIGKILL")]
        for ask in asked:
            ask(viewers[0])
            assert viewers[0].text("error")["code"] == "READ_ONLY"
        viewers[0].type("x")
        assert viewers[0].end()[0] == 1008 and viewers[0].texts[-1]["code"] == "READ_ONLY"
        holder.type("exit 9\n")
        for viewer in (*viewers[1:], late, holder):
            assert viewer.text("exit")["exit_code"] == 9
            assert viewer.end() == (1000, "process exited")


def test_a_slow_viewer_holds_up_nobody(agent):
    session = Session(agent, command="stty -onlcr; read x; seq 1 1000000; exit 5")
    whole = "".join(f"{i}\n" for i in range(1, 1000001)).encode()
    with session.attach() as holder:
        sock = raw_client(session, "?mode=viewer")
        wait_until("it looks on", lambda: session.state()["viewers"] == 1)
        holder.type("\n")
        assert holder.text("exit")["exit_code"] == 5
        assert holder.out.endswith(whole[-RING:])
        if not agent.sanitized:
            assert agent.rss_kib() < 16 * 1024
    sock.close()


def test_viewers_are_limited(agent):
    session = quiet(agent)
    with session.attach() as holder:
        holder.see("ready")
        viewers = [session.attach("?mode=viewer") for _ in range(64)]
        assert refused(session, "?mode=viewer")[0] == 503
        for viewer in viewers:
            viewer.close()
        wait_until("left", lambda: session.state()["viewers"] == 0)


# ---- where it cannot work ----


def test_no_shell(start_agent, tmp_path):
    agent = start_agent(env={"PATH": str(tmp_path)})
    session = Session(agent)
    client = Client(session.url())
    error = client.text("error")
    assert error["code"] == "START_FAILED" and "no shell" in error["error"]
    assert client.end()[0] == 1011
    assert session.state()["launch_failed"] and not session.state()["connected"]


def test_cwd_that_went_away(agent, tmp_path):
    session = Session(agent, cwd=str(tmp_path / "gone"))
    (tmp_path / "gone").rmdir()
    client = Client(session.url())
    assert client.text("error")["code"] == "START_FAILED"
    client.end()


def test_only_sh(start_agent, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sh").symlink_to(shutil.which("dash") or "/bin/sh")
    agent = start_agent(env={"PATH": str(tmp_path / "bin")})
    with Session(agent).attach() as client:
        client.type("echo 0=$0\n")
        client.see("0=sh")


def test_no_devpts(start_agent):
    mounts = "mount -t tmpfs none /dev/pts && mount --bind /dev/null /dev/ptmx"
    wrap = ["unshare", "--mount", "sh", "-c", f'{mounts} && exec "$@"', "sh"]
    if subprocess.run([*wrap, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mounts of its own can be made here")
    session = Session(start_agent(via=wrap), command="echo fine")
    client = Client(session.url())
    error = client.text("error")
    assert error["code"] == "START_FAILED" and "devpts" in error["error"] and "pty=0" in error["error"]
    client.end()
    with session.attach("?pty=0") as client:
        client.text("exit")
        assert client.seen == b"fine\n"


def test_many_come_and_go(agent):
    """Nothing piles up: descriptors are as many as before."""
    session = quiet(agent)
    fds = lambda: len(os.listdir(f"/proc/{agent.proc.pid}/fd"))
    with session.attach() as client:
        client.see("ready")
    wait_until("left", lambda: not session.state()["connected"])
    before = fds()
    for turn in range(50):
        other = Session(agent, command="exit 0")
        if turn % 2:
            other.attach().end()
        else:
            raw_client(other).close()
        wait_until("ended", lambda: not other.state()["running"])
        other.delete()
    for _ in range(50):
        session.attach("?takeover=1").close()
    wait_until("all are gone", lambda: fds() <= before + 2)
    conn = http.client.HTTPConnection("127.0.0.1", agent.port, timeout=DEADLINE)
    conn.request("GET", "/ping")
    assert conn.getresponse().status == 200
    conn.close()
