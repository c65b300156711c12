"""Create over the wire: fields and their limits, keys, images that take long, hooks, what a program sees of its CPUs."""

import concurrent.futures
import http.client
import json
import signal
import socket
import sqlite3
import threading

import pytest
from opensandbox import SandboxSync
from opensandbox.config import ConnectionConfigSync

from harness import BASE, TAIL, wait_for
from test_images import ENTRY, make_image, registry  # noqa: F401 (fixtures)

PENDING = "[sandbox]\ncreate_wait_seconds = 0\n"


def post(gw, headers=None, **fields):
    body = {"image": {"uri": BASE}, "entrypoint": TAIL, "timeout": 300, **fields}
    return gw.request("POST", "/v1/sandboxes", {k: v for k, v in body.items() if v is not ...}, headers)


def state_of(gw, sid):
    reply = gw.request("GET", f"/v1/sandboxes/{sid}")
    return reply.json["status"]["state"] if reply.status == 200 else reply.status


def run(gw, sid, command):
    """What a command prints."""
    host, port, path, headers = gw.agent(sid)
    conn = http.client.HTTPConnection(host, port, timeout=60)
    conn.request("POST", path + "/command", json.dumps({"command": command}), headers)
    reply = conn.getresponse()
    text = reply.read().decode()
    conn.close()
    assert reply.status == 200, text
    events = [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith(("{", "data: "))]
    return "".join(e.get("text", "") for e in events if e.get("type") in ("stdout", "stderr"))


# ---- fields ----

INVALID = "SANDBOX::INVALID_PARAMETER"
LABEL = "SANDBOX::INVALID_METADATA_LABEL"
ENTRYPOINT = "DOCKER::INVALID_ENTRYPOINT"

BAD_FIELDS = [
    ({"image": ...}, INVALID, "image"),
    ({"image": {"uri": " "}}, INVALID, "image.uri"),
    ({"image": {"uri": BASE, "auth": {"username": "u"}}}, INVALID, "image.auth.password"),
    ({"snapshotId": "x"}, INVALID, "snapshotId"),
    ({"templateId": "t"}, "SANDBOX::API_NOT_SUPPORTED", "templateId"),
    ({"entrypoint": ...}, ENTRYPOINT, "entrypoint"),
    ({"entrypoint": []}, INVALID, "entrypoint"),
    ({"entrypoint": [""]}, ENTRYPOINT, "entrypoint[0]"),
    ({"entrypoint": ["/no/such/program"]}, ENTRYPOINT, "/no/such/program"),
    ({"timeout": 59}, INVALID, "timeout"),
    ({"timeout": 3601}, INVALID, "timeout"),
    ({"timeout": 10**18}, INVALID, "timeout"),
    ({"timeout": "soon"}, INVALID, "timeout"),
    ({"resourceLimits": {"cpu": 1}}, INVALID, "resourceLimits.cpu"),
    ({"resourceLimits": {"cpu": "NaN"}}, INVALID, "resourceLimits.cpu"),
    ({"resourceLimits": {"cpu": "0.001"}}, INVALID, "resourceLimits.cpu"),
    ({"resourceLimits": {"memory": "-1Gi"}}, INVALID, "resourceLimits.memory"),
    ({"resourceLimits": {"memory": "inf"}}, INVALID, "resourceLimits.memory"),
    ({"resourceLimits": {"memory": "1Q"}}, INVALID, "resourceLimits.memory"),
    ({"resourceLimits": {"memory": ""}}, INVALID, "resourceLimits.memory"),
    ({"resourceLimits": {"disk": "1"}}, INVALID, "resourceLimits.disk"),
    ({"resourceLimits": {"gpu": "0"}}, INVALID, "resourceLimits.gpu"),
    ({"resourceLimits": {"foo": "2"}}, INVALID, "resourceLimits.foo"),
    ({"env": {"A=B": "1"}}, INVALID, "env"),
    ({"env": {"A": 1}}, INVALID, "env.A"),
    ({"env": {"OPENSANDBOX_LIFECYCLE": "{}"}}, INVALID, "OPENSANDBOX_LIFECYCLE"),
    ({"env": {"OPENSANDBOX_EGRESS_TOKEN": "x"}}, INVALID, "OPENSANDBOX_EGRESS_TOKEN"),
    ({"metadata": {"opensandbox.io/id": "x"}}, LABEL, "opensandbox.io/id"),
    ({"metadata": {"a": "two words"}}, LABEL, "a"),
    ({"metadata": {"a": 1}}, INVALID, "metadata.a"),
    ({"platform": {"os": "linux"}}, INVALID, "platform.arch"),
    ({"platform": {"os": "plan9", "arch": "amd64"}}, INVALID, "platform.os"),
    ({"platform": {"os": "windows", "arch": "amd64"}}, INVALID, "platform.os"),
    ({"secureAccess": "perhaps"}, INVALID, "secureAccess"),
    ({"extensions": {"poolRef": "p"}}, "SANDBOX::UNSUPPORTED_POOL_REF", "poolRef"),
    ({"extensions": {"poolRef": "p"}, "image": ..., "entrypoint": ...}, "SANDBOX::UNSUPPORTED_POOL_REF", "poolRef"),
    ({"extensions": {"access.renew.extend.seconds": "299"}}, INVALID, "access.renew.extend.seconds"),
    ({"lifecycle": {"preStop": {}}}, INVALID, "preStop"),
    ({"lifecycle": {"preStart": {"command": []}}}, INVALID, "lifecycle.preStart.command"),
    ({"lifecycle": {"preStart": {"command": ["a"], "timeoutSeconds": 10801}}}, INVALID, "timeoutSeconds"),
    ({"lifecycle": {"periodic": [{"name": "n", "schedule": " ", "command": ["a"]}]}}, INVALID, "schedule"),
]


@pytest.fixture(scope="module")
def capped(tmp_path_factory, engine):
    from harness import Gateway

    gw = Gateway(tmp_path_factory.mktemp("capped"), engine, extra="")
    text = gw.config.read_text().replace("[server]\n", "[server]\nmax_sandbox_timeout_seconds = 3600\n")
    gw.config.write_text(text + '[docker.sandbox_env]\nFROM_SERVER = "yes"\nBOTH = "server"\n')
    gw.start()
    yield gw
    gw.cleanup()


@pytest.mark.parametrize("fields,code,text", BAD_FIELDS, ids=[json.dumps(f, default=str)[:60] for f, _, _ in BAD_FIELDS])
def test_a_bad_field_is_named(capped, fields, code, text):
    reply = post(capped, **fields)
    assert reply.status == 400, reply.raw
    assert reply.json["code"] == code, reply.raw
    assert text in reply.json["message"], reply.raw
    assert capped.records() == []


def test_nulls_and_unknown_members_are_no_fields(capped):
    reply = post(capped, resourceLimits=None, resourceRequests={"cpu": "1"}, env={"A": None}, metadata=None, volumes=[],
                 networkPolicy=None, lifecycle=None, platform=None, later={"x": 1})
    assert reply.status == 202, reply.raw
    assert capped.request("DELETE", reply.getheader("Location")).status == 204


def test_extensions_come_back_under_their_full_key(capped):
    kept = {"opensandbox.extensions.team": "a"}
    made = post(capped, extensions={**kept, "other": "b"}).json
    assert made["extensions"] == kept
    assert capped.request("GET", f"/v1/sandboxes/{made['id']}").json["extensions"] == kept
    assert capped.request("DELETE", f"/v1/sandboxes/{made['id']}").status == 204


def test_a_program_sees_its_cpus_and_the_servers_environment(capped):
    made = post(capped, resourceLimits={"cpu": "1", "memory": "256Mi"}, env={"BOTH": "request", "RAYON_NUM_THREADS": "7"})
    assert made.status == 202, made.raw
    sid = made.json["id"]
    assert run(capped, sid, "nproc").strip() == "1"
    seen = run(capped, sid, 'echo "$GOMAXPROCS $OMP_NUM_THREADS $RAYON_NUM_THREADS $FROM_SERVER $BOTH"')
    assert seen.split() == ["1", "1", "7", "yes", "request"]
    assert capped.request("DELETE", f"/v1/sandboxes/{sid}").status == 204


def test_one_item_with_a_space_is_a_command_line(shared):
    """contract 11.1: split into words, shown as it was sent."""
    line = """sh -c 'echo "two words"  $1; exec tail -f /dev/null' x a\\ b"""
    reply = post(shared, entrypoint=[line])
    assert reply.status == 202, reply.raw
    sid = reply.json["id"]
    assert reply.json["entrypoint"] == [line]
    logs = f"/v1/sandboxes/{sid}/diagnostics/logs?scope=container"
    wait_for("it has talked", lambda: "two words a b" in shared.request("GET", logs).json["content"])
    assert shared.request("GET", f"/v1/sandboxes/{sid}").json["entrypoint"] == [line]
    assert shared.request("DELETE", f"/v1/sandboxes/{sid}").status == 204
    for bad in ("sh -c 'echo", "   ", "'' x"):
        reply = post(shared, entrypoint=[bad])
        assert reply.status == 400 and reply.json["code"] == ENTRYPOINT, reply.raw
        assert "entrypoint" in reply.json["message"]


# ---- keys ----


def keyed(gw, key, **fields):
    return post(gw, {"Idempotency-Key": key}, **fields)


def test_a_key_names_one_sandbox_also_after_a_crash(make_gateway):
    gw = make_gateway().start()
    first = keyed(gw, "k" * 255)
    assert first.status == 202, first.raw
    again = keyed(gw, "k" * 255)
    assert again.status == 202 and again.json["id"] == first.json["id"] and again.json["status"]["state"] == "Running"
    assert again.getheader("Location") == first.getheader("Location")
    gw.kill9()
    gw.start()
    assert keyed(gw, "k" * 255).json["id"] == first.json["id"]
    other = keyed(gw, "k" * 255, timeout=301)
    assert other.status == 409 and other.json["code"] == "GENERAL::IDEMPOTENCY_CONFLICT", other.raw
    assert len(gw.engine.containers(gw.instance)) == 1
    assert gw.request("DELETE", f"/v1/sandboxes/{first.json['id']}").status == 204
    spent = keyed(gw, "k" * 255)
    assert spent.status == 409 and "new key" in spent.json["message"], spent.raw


def test_a_client_that_lost_the_answer_asks_again(make_gateway):
    """pains L10: the connection breaks while the sandbox is made; the same request finds it."""
    gw = make_gateway()
    pause = gw.dir / "go-on"
    gw.start(fault="wait:create.held", env={"SANDGATE_FAULT_FILE": str(pause)})
    body = json.dumps({"image": {"uri": BASE}, "entrypoint": TAIL, "timeout": 300}).encode()
    with socket.create_connection(("127.0.0.1", gw.port), 20) as s:
        s.sendall(f"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nOPEN-SANDBOX-API-KEY: {gw.key}\r\nIdempotency-Key: lost\r\n"
                  f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        first = wait_for("it is on record", lambda: gw.records())[0]["id"]
    pause.touch()
    again = keyed(gw, "lost")
    assert again.status == 202 and again.json["id"] == first and again.json["status"]["state"] == "Running", again.raw
    assert len(gw.engine.containers(gw.instance)) == 1


@pytest.mark.parametrize("key", ["", "k" * 256, "caf\u00e9", "a\tb"])
def test_bad_keys(shared, key):
    reply = keyed(shared, key)
    assert reply.status == 400 and "Idempotency-Key" in reply.json["message"], reply.raw


def test_a_failed_create_frees_its_key(shared):
    bad = keyed(shared, "retry", entrypoint=["/no/such/program"])
    assert bad.status == 400 and bad.json["code"] == ENTRYPOINT, bad.raw
    good = keyed(shared, "retry")
    assert good.status == 202, good.raw
    assert shared.request("DELETE", f"/v1/sandboxes/{good.json['id']}").status == 204


def test_parallel_requests_with_one_key(shared):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: keyed(shared, "race"), range(8)))
    assert {r.status for r in replies} == {202}, [r.raw for r in replies]
    assert len({r.json["id"] for r in replies}) == 1 and len(shared.records()) == 1
    assert shared.request("DELETE", f"/v1/sandboxes/{replies[0].json['id']}").status == 204


def test_a_create_that_was_killed_frees_its_key(make_gateway):
    gw = make_gateway().start(fault="crash:create.held")
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        keyed(gw, "k")
    assert gw.wait_dead() == -9
    gw.start()
    wait_for("it is undone", lambda: gw.engine.containers(gw.instance) == [] and gw.records() == [])
    assert keyed(gw, "k").status == 202


# ---- images that take long ----


@pytest.fixture
def slow(make_gateway, registry, make_image):  # noqa: F811
    """A gateway that does not wait, and an image behind a shut door."""
    gw = make_gateway(extra=PENDING).start()
    gw.uri = make_image(registry, "slow/box")
    registry.open.clear()
    return gw


def pending(gw):
    reply = gw.create(gw.uri, ENTRY)
    assert reply.status == 202, reply.raw
    assert reply.json["status"]["state"] == "Pending", reply.raw
    sid = reply.json["id"]
    told = wait_for("the record tells of the pull", lambda: "Pulling" in (
        s := gw.request("GET", f"/v1/sandboxes/{sid}").json["status"])["message"] and s)
    assert told["reason"] == "IMAGE_PULLING" and gw.uri in told["message"]
    return sid


def test_pending_until_the_image_is_there(slow, registry):  # noqa: F811
    sid = pending(slow)
    for port in (44772, 18080, 8080):
        reply = slow.request("GET", f"/v1/sandboxes/{sid}/endpoints/{port}")
        assert reply.status == 404 and reply.json["code"] == "KUBERNETES::POD_IP_NOT_AVAILABLE", reply.raw
        reply = slow.request("GET", f"/v1/sandboxes/{sid}/endpoints/{port}?use_server_proxy=true")
        assert reply.status == 200, reply.raw
    registry.open.set()
    wait_for("it runs", lambda: state_of(slow, sid) == "Running")
    assert slow.request("GET", f"/v1/sandboxes/{sid}/endpoints/44772").status == 200
    host, port, path, headers = slow.agent(sid)
    conn = http.client.HTTPConnection(host, port, timeout=20)
    conn.request("GET", path + "/ping", headers=headers)
    assert conn.getresponse().status == 200
    # the time of the pull is not taken from the sandbox
    record = slow.request("GET", f"/v1/sandboxes/{sid}").json
    assert record["expiresAt"] > record["createdAt"]


def test_a_pull_that_fails_later_is_told(slow, registry):  # noqa: F811
    slow.uri = f"127.0.0.1:{registry.port}/no/such:1"
    sid = pending(slow)
    registry.open.set()
    wait_for("it has ended", lambda: state_of(slow, sid) == 404)
    reply = slow.request("GET", f"/v1/sandboxes/{sid}")
    assert reply.json["code"] == "DOCKER::SANDBOX_NOT_FOUND"
    assert "IMAGE_PULL_FAILED" in reply.json["message"] and slow.uri in reply.json["message"], reply.raw
    assert slow.engine.containers(slow.instance) == []


def test_delete_while_pulling(slow, registry):  # noqa: F811
    sid, other = pending(slow), pending(slow)
    assert slow.request("DELETE", f"/v1/sandboxes/{sid}").status == 204
    assert "DELETED" in slow.request("GET", f"/v1/sandboxes/{sid}").json["message"]
    registry.open.set()
    wait_for("the other one runs", lambda: state_of(slow, other) == "Running")
    assert [c["Labels"]["sandgate.id"] for c in slow.engine.containers(slow.instance)] == [other]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_restart_while_pulling_leaves_nothing(slow, how):
    sid = pending(slow)
    slow.process.send_signal(how)
    assert slow.wait_dead() == (-9 if how == signal.SIGKILL else 0)
    slow.start()
    wait_for("it has ended", lambda: state_of(slow, sid) == 404)
    assert "CREATE_INTERRUPTED" in slow.request("GET", f"/v1/sandboxes/{sid}").json["message"]
    assert slow.records() == [] and slow.engine.containers(slow.instance) == []


def test_a_request_waits_for_the_image(make_gateway, registry, make_image):  # noqa: F811
    gw = make_gateway().start()
    uri = make_image(registry, "waited/box")
    registry.open.clear()
    replies = []
    worker = threading.Thread(target=lambda: replies.append(gw.create(uri, ENTRY)))
    worker.start()
    wait_for("it is on record", lambda: gw.records())
    registry.open.set()
    worker.join(60)
    assert replies and replies[0].status == 202 and replies[0].json["status"]["state"] == "Running", replies[0].raw


@pytest.mark.parametrize("by_proxy", [False, True], ids=["direct", "proxy"])
def test_the_sdk_waits_until_it_is_there(slow, registry, by_proxy):  # noqa: F811
    config = ConnectionConfigSync(domain=slow.domain, api_key=slow.key, use_server_proxy=by_proxy)
    looked_up = f'/endpoints/{{port}}","status":{200 if by_proxy else 404}'

    def let_in():
        wait_for("the SDK looks for it", lambda: looked_up in slow.log_text())
        registry.open.set()

    door = threading.Thread(target=let_in)
    door.start()
    sandbox = SandboxSync.create(slow.uri, connection_config=config, entrypoint=ENTRY)
    door.join()
    assert sandbox.get_info().status.state == "Running"
    assert sandbox.commands.run("/bin/busybox echo here").logs.stdout[0].text.strip() == "here"
    sandbox.kill()
    sandbox.close()


# ---- a store that fails ----

RUNNING = "BEFORE UPDATE OF state ON sandboxes WHEN NEW.state = 'Running'"


@pytest.mark.parametrize(
    "when,recorded",
    [
        ("BEFORE INSERT ON sandboxes", 0),
        ("BEFORE INSERT ON idempotency", 0),
        ("BEFORE INSERT ON events WHEN NEW.type = 'Pending'", 0),
        (RUNNING, 0),
        ("BEFORE INSERT ON events WHEN NEW.type = 'Running'", 0),
        ("BEFORE UPDATE ON sandboxes", 1),  # not even its end can be written
    ],
)
def test_a_write_that_fails_leaves_nothing(make_gateway, when, recorded):
    gw = make_gateway(extra="[sandbox]\nsweep_interval_seconds = 1\n").start()
    with sqlite3.connect(gw.dir / "sandgate.db", timeout=20) as db:
        db.execute(f"CREATE TRIGGER broken {when} BEGIN SELECT RAISE(ABORT, 'on demand'); END")
    reply = keyed(gw, "k")
    assert reply.status == 500, reply.raw
    assert gw.engine.containers(gw.instance) == []
    assert len(gw.records()) == recorded
    with sqlite3.connect(gw.dir / "sandgate.db", timeout=20) as db:
        db.execute("DROP TRIGGER broken")
    wait_for("the sweep writes its end", lambda: gw.records() == [])
    assert keyed(gw, "k").status == 202


# ---- hooks ----


def test_pre_start_runs_before_the_entrypoint(shared):
    reply = post(shared, entrypoint=["sh", "-c", "cat /tmp/made; exec tail -f /dev/null"], env={"WHO": "hook"},
                 lifecycle={"preStart": {"command": ["sh", "-c", 'echo "by the $WHO" > /tmp/made']}})
    assert reply.status == 202, reply.raw
    sid = reply.json["id"]
    assert reply.json["status"]["state"] == "Running"
    assert run(shared, sid, "cat /tmp/made").strip() == "by the hook"
    assert shared.request("DELETE", f"/v1/sandboxes/{sid}").status == 204


def test_pre_start_that_fails_leaves_nothing(shared):
    reply = post(shared, lifecycle={"preStart": {"command": ["sh", "-c", "exit 3"]}})
    assert reply.status == 500 and reply.json["code"] == "DOCKER::SANDBOX_START_FAILED", reply.raw
    assert "preStart" in reply.json["message"] and "status 3" in reply.json["message"]
    assert shared.records() == [] and shared.engine.containers(shared.instance) == []


def test_a_schedule_that_is_none_is_named(shared):
    hook = {"name": "n", "schedule": "often", "command": ["true"]}
    reply = post(shared, lifecycle={"periodic": [hook]})
    assert reply.status == 400 and reply.json["code"] == INVALID, reply.raw
    assert "schedule" in reply.json["message"], reply.raw
    assert shared.engine.containers(shared.instance) == []


def test_periodic_hooks_run(shared):
    hook = {"name": "n", "schedule": "@every 1s", "command": ["sh", "-c", "echo x >> /tmp/ticks"]}
    sid = post(shared, lifecycle={"periodic": [hook]}).json["id"]
    wait_for("it ticks", lambda: run(shared, sid, "cat /tmp/ticks").count("x") >= 2)
    assert shared.request("DELETE", f"/v1/sandboxes/{sid}").status == 204


def test_a_long_hook_is_not_waited_for_and_can_be_deleted(make_gateway):
    gw = make_gateway(extra=PENDING).start()
    hook = {"preStart": {"command": ["sh", "-c", "until test -e /tmp/go; do sleep 0.1; done"], "timeoutSeconds": 10800}}
    sid = post(gw, lifecycle=hook).json["id"]
    wait_for("it is started", lambda: gw.engine.containers(gw.instance))
    assert state_of(gw, sid) == "Pending"
    assert gw.request("DELETE", f"/v1/sandboxes/{sid}").status == 204
    assert gw.engine.containers(gw.instance) == []
    sid = post(gw, lifecycle=hook).json["id"]
    wait_for("it is started", lambda: gw.engine.containers(gw.instance))
    gw.stop()  # in bounded time, although the hook goes on
    assert gw.engine.containers(gw.instance) == []
    gw.start()
    assert "CREATE_INTERRUPTED" in gw.request("GET", f"/v1/sandboxes/{sid}").json["message"]
