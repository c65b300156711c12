"""Snapshots on a real engine: states, restore, what the image must not hold, deletes and their conflicts, kill -9 at
every step: nothing stuck, no image without a record."""

import http.client
import json
import os
import secrets
import threading
import urllib.parse

import pytest

from harness import BASE, wait_for

REPO = "opensandbox-snapshots"
ROUNDS = int(os.environ.get("SANDGATE_SOAK", "1"))
RECOVERED = ["snapshot.loaded", "snapshot.cleaned", "snapshot.made"]  # the image is there: nothing is done twice
CREATE_STEPS = ["snapshot.intent", "snapshot.committed", *RECOVERED, "snapshot.confirmed"]
DELETE_STEPS = ["snapshot.delete_intent", "snapshot.removed", "snapshot.image_removed", "snapshot.deleted"]


def run(gw, sid, script):
    """Output of a shell command in the sandbox."""
    host, port, prefix, headers = gw.agent(sid)
    conn = http.client.HTTPConnection(host, port, timeout=60)
    conn.request("POST", prefix + "/command", json.dumps({"command": script}), headers)
    reply = conn.getresponse()
    assert reply.status == 200, reply.read()
    raw = reply.read().decode()
    conn.close()
    events = [json.loads(line.removeprefix("data:")) for line in raw.splitlines() if "{" in line]
    assert [e["type"] for e in events][-1] == "execution_complete", raw
    return "".join(e.get("text", "") for e in events if e["type"] == "stdout")


def image(gw, snapshot_id):
    status, about = gw.engine.call("GET", f"/images/{REPO}:{snapshot_id}/json")
    assert status in (200, 404), about
    return about if status == 200 else None


def parts(gw, snapshot_id):
    """Images that were needed to make it."""
    filters = urllib.parse.quote(json.dumps({"reference": [f"{REPO}:{snapshot_id}-part*"]}))
    status, images = gw.engine.call("GET", f"/images/json?filters={filters}")
    assert status == 200, images
    return images


def nameless(gw, sid):
    """Images without a name that were made from a sandbox: nobody would ever find and remove them."""
    filters = urllib.parse.quote(json.dumps({"dangling": ["true"]}))
    found = [i["Id"] for i in gw.engine.call("GET", f"/images/json?filters={filters}")[1]]
    return [i for i in found if sid in json.dumps(gw.engine.call("GET", f"/images/{i}/history")[1])]


def snapshots(gw, query=""):
    reply = gw.request("GET", f"/v1/snapshots?pageSize=200{query}")
    assert reply.status == 200, reply.raw
    return reply.json["items"]


def get(gw, snapshot_id):
    return gw.request("GET", f"/v1/snapshots/{snapshot_id}")


def settled(gw, snapshot_id, deadline=30):
    """The snapshot once it is no longer being created; tight loop on purpose (a poll must not disturb it)."""
    return wait_for("the snapshot is finished", lambda: next(
        (s for s in [get(gw, snapshot_id).json] if s["status"]["state"] != "Creating"), None), deadline)


def take(gw, sid, **body):
    made = gw.request("POST", f"/v1/sandboxes/{sid}/snapshots", body or None)
    assert made.status == 202, made.raw
    shot = settled(gw, made.json["id"])
    assert shot["status"]["state"] == "Ready", shot
    return shot


def restore(gw, snapshot_id, **fields):
    return gw.request("POST", "/v1/sandboxes", {"snapshotId": snapshot_id, "timeout": 300, **fields})


def remove_all(gw):
    """Images carry no label of ours, so they are removed by the ids that the records name."""
    if gw.process.poll() is not None:
        gw.start()
    for sandbox in gw.records():
        gw.request("DELETE", f"/v1/sandboxes/{sandbox['id']}")
    for shot in snapshots(gw):
        if shot["status"]["state"] == "Creating":
            settled(gw, shot["id"])
        gw.request("DELETE", f"/v1/snapshots/{shot['id']}")
        gw.engine.call("DELETE", f"/images/{REPO}:{shot['id']}?force=1")


@pytest.fixture
def gw(shared):
    yield shared
    remove_all(shared)


@pytest.fixture
def make(make_gateway):
    made = []

    def one(**kw):
        made.append(make_gateway(**kw))
        return made[-1]

    yield one
    for each in made:
        remove_all(each)


def test_creating_then_ready(gw):
    sid = gw.create().json["id"]
    made = gw.request("POST", f"/v1/sandboxes/{sid}/snapshots", {"name": "first"})
    assert made.status == 202 and made.getheader("Location") == f"/v1/snapshots/{made.json['id']}"
    accepted = made.json
    assert accepted["sandboxId"] == sid and accepted["name"] == "first"
    status = accepted["status"]
    assert (status["state"], status["reason"]) == ("Creating", "snapshot_accepted")
    assert status["message"] == "Snapshot creation accepted."
    shot = settled(gw, accepted["id"])
    assert (shot["status"]["state"], shot["status"]["reason"]) == ("Ready", "snapshot_runtime_ready")
    assert shot["createdAt"] == accepted["createdAt"] and shot["name"] == "first"
    assert shot["status"]["lastTransitionAt"] >= status["lastTransitionAt"]
    assert image(gw, shot["id"])

    page = gw.request("GET", f"/v1/snapshots?sandboxId={sid}&state=Ready").json
    assert page["items"] == [shot]
    assert page["pagination"] == {"page": 1, "pageSize": 20, "totalItems": 1, "totalPages": 1, "hasNextPage": False}
    assert gw.request("GET", f"/snapshots/{shot['id']}").json == shot  # the bare mount
    assert gw.request("DELETE", f"/snapshots/{shot['id']}").status == 204
    assert image(gw, shot["id"]) is None
    gone = get(gw, shot["id"])
    assert gone.status == 404 and gone.json["code"] == "SNAPSHOT::NOT_FOUND"
    assert gw.request("DELETE", f"/v1/snapshots/{shot['id']}").json["code"] == "SNAPSHOT::NOT_FOUND"
    assert gw.request("GET", f"/v1/snapshots?sandboxId={sid}").json["pagination"]["totalPages"] == 0


def test_bodies(gw):
    sid = gw.create().json["id"]
    path = f"/v1/sandboxes/{sid}/snapshots"
    for body in (None, "", "{}", "null", '{"name":null}', '{"name":"' + "n" * 256 + '"}', '{"unknown":1}'):
        made = gw.request("POST", path, body)
        assert made.status == 202, (body, made.raw)
        assert ("name" in made.json) == ("nnn" in (body or ""))
    for body, word in (("[]", "body"), ("{", "JSON"), ('{"name":""}', "name"), ('{"name":1}', "name"),
                       ('{"name":"' + "n" * 257 + '"}', "name")):
        refused = gw.request("POST", path, body)
        assert refused.status == 400 and word in refused.json["message"], (body, refused.raw)
    for shot in snapshots(gw):
        assert settled(gw, shot["id"])["status"]["state"] == "Ready"


def test_list_filters_and_pages(gw):
    one, two = (gw.create().json["id"] for _ in range(2))
    shots = [take(gw, one, name="a"), take(gw, one, name="b"), take(gw, two, name="a")]
    ids = [s["id"] for s in reversed(shots)]
    assert [s["id"] for s in snapshots(gw)] == ids
    assert [s["id"] for s in snapshots(gw, "&name=a")] == [ids[0], ids[2]]
    assert [s["id"] for s in snapshots(gw, f"&name=a&sandboxId={one}")] == [ids[2]]
    assert snapshots(gw, "&name=A") == [] and snapshots(gw, "&state=ready") == []
    assert len(snapshots(gw, "&state=Ready&state=Failed")) == 3
    page = gw.request("GET", "/v1/snapshots?pageSize=2&page=2").json
    assert [s["id"] for s in page["items"]] == ids[2:]
    assert page["pagination"] == {"page": 2, "pageSize": 2, "totalItems": 3, "totalPages": 2, "hasNextPage": False}
    assert gw.request("GET", "/v1/snapshots?page=3&pageSize=2").json["items"] == []
    for bad in ("page=0", "pageSize=0", "pageSize=201", "page=x"):
        assert gw.request("GET", f"/v1/snapshots?{bad}").status == 400


def test_restore_has_the_files_and_nothing_else_of_the_source(gw):
    secret = "secret-" + secrets.token_hex(8)
    sid = gw.create(env={"API_PASSWORD": secret}, metadata={"owner": "source"}).json["id"]
    token = gw.agent(sid)[3]["X-EXECD-ACCESS-TOKEN"]
    run(gw, sid, "mkdir -p /data/deep && echo kept > /data/deep/file && chmod 640 /data/deep/file")
    shot = take(gw, sid)
    about = image(gw, shot["id"])
    known = json.dumps(about)
    assert secret not in known and "API_PASSWORD" not in known and token not in known
    assert sid not in json.dumps([about["Config"].get(k) for k in ("Labels", "Env", "Cmd", "Entrypoint")])
    base = gw.engine.call("GET", f"/images/{BASE}/json")[1]
    assert about["Config"].get("Labels") in (None, {}, base["Config"].get("Labels"))
    assert sorted(about["Config"].get("Env") or []) == sorted(base["Config"].get("Env") or [])

    made = restore(gw, shot["id"], env={"MINE": "1"}, metadata={"owner": "restored"})
    assert made.status == 202, made.raw
    assert made.json["snapshotId"] == shot["id"] and "image" not in made.json
    new = gw.request("GET", f"/v1/sandboxes/{made.json['id']}").json
    assert new["metadata"] == {"owner": "restored"} and "expiresAt" in new and "image" not in new
    assert new["snapshotId"] == shot["id"] and new["entrypoint"] == ["tail", "-f", "/dev/null"]
    seen = run(gw, new["id"], "cat /data/deep/file; stat -c %a /data/deep/file; env; cat /proc/1/cmdline | tr '\\0' ' '")
    assert "kept" in seen and "640" in seen and "MINE=1" in seen
    assert secret not in seen and "API_PASSWORD" not in seen and sid not in seen
    labels = gw.engine.sandbox(new["id"])["Config"]["Labels"]
    assert labels["sandgate.id"] == new["id"]
    forever = gw.request("POST", "/v1/sandboxes", {"snapshotId": shot["id"], "timeout": None})
    assert forever.status == 202 and "expiresAt" not in forever.json


def test_the_snapshot_outlives_its_source(gw):
    sid = gw.create().json["id"]
    run(gw, sid, "echo one > /root/file")
    shot = take(gw, sid)
    run(gw, sid, "echo two > /root/file")
    assert gw.request("DELETE", f"/v1/sandboxes/{sid}").status == 204
    again = restore(gw, shot["id"]).json["id"]
    assert run(gw, again, "cat /root/file").strip() == "one"
    second = take(gw, again)  # a snapshot of what came from a snapshot
    assert run(gw, restore(gw, second["id"]).json["id"], "cat /root/file").strip() == "one"


def test_files_survive_pause_and_resume(gw):
    """S1: ten rounds of random files, pause, resume, compare."""
    sid = gw.create().json["id"]
    sums = ""
    for i in range(10):
        run(gw, sid, f"mkdir -p /data && head -c {1 + i * 70001} /dev/urandom > /data/{i} && sync")
        sums = run(gw, sid, "cd /data && sha256sum *")
        assert gw.request("POST", f"/v1/sandboxes/{sid}/pause").status == 202
        assert gw.request("POST", f"/v1/sandboxes/{sid}/resume").status == 202
        assert run(gw, sid, "cd /data && sha256sum *") == sums
    again = restore(gw, take(gw, sid)["id"]).json["id"]
    assert run(gw, again, "cd /data && sha256sum *") == sums


def test_delete_conflicts_leave_it_ready(gw):
    shot = take(gw, gw.create().json["id"])
    user = restore(gw, shot["id"]).json["id"]
    refused = gw.request("DELETE", f"/v1/snapshots/{shot['id']}")
    assert refused.status == 409 and refused.json["code"] == "SNAPSHOT::DELETE_CONFLICT"
    assert "1 sandbox" in refused.json["message"] and get(gw, shot["id"]).json == shot
    assert gw.request("DELETE", f"/v1/sandboxes/{user}").status == 204

    # a container that is not ours
    status, other = gw.engine.call("POST", "/containers/create", {"Image": f"{REPO}:{shot['id']}", "Cmd": ["true"]})
    assert status == 201, other
    try:
        refused = gw.request("DELETE", f"/v1/snapshots/{shot['id']}")
        assert refused.status == 409 and refused.json["code"] == "SNAPSHOT::DELETE_CONFLICT", refused.raw
        assert get(gw, shot["id"]).json["status"]["state"] == "Ready"
        assert image(gw, shot["id"])
    finally:
        gw.engine.call("DELETE", f"/containers/{other['Id']}?force=1")
    assert gw.request("DELETE", f"/v1/snapshots/{shot['id']}").status == 204
    assert image(gw, shot["id"]) is None


def test_an_image_removed_behind_our_back_is_found_out(gw):
    shot = take(gw, gw.create().json["id"])
    status, why = gw.engine.call("DELETE", f"/images/{REPO}:{shot['id']}?force=1")
    assert status == 200, why
    refused = restore(gw, shot["id"])
    assert refused.status == 409 and refused.json["code"] == "SNAPSHOT::INVALID_RESTORE_CONFIG", refused.raw
    failed = get(gw, shot["id"]).json["status"]
    assert (failed["state"], failed["reason"]) == ("Failed", "snapshot_image_missing")
    assert restore(gw, shot["id"]).json["code"] == "SNAPSHOT::NOT_READY"
    assert len(gw.records()) == 1  # the source: failed restores left nothing
    assert gw.request("DELETE", f"/v1/snapshots/{shot['id']}").status == 204


def test_what_cannot_be_is_refused(gw):
    unknown = "00000000-0000-4000-8000-000000000000"
    reply = gw.request("POST", f"/v1/sandboxes/{unknown}/snapshots")
    assert reply.status == 404 and reply.json["code"] == "DOCKER::SANDBOX_NOT_FOUND"
    assert restore(gw, unknown).json["code"] == "SNAPSHOT::NOT_FOUND"
    both = gw.request("POST", "/v1/sandboxes", {"snapshotId": unknown, "image": {"uri": BASE}, "entrypoint": ["true"]})
    assert both.status == 400 and "Exactly one of image or snapshotId" in both.json["message"]
    sid = gw.create().json["id"]
    assert gw.request("POST", f"/v1/sandboxes/{sid}/pause").status == 202
    reply = gw.request("POST", f"/v1/sandboxes/{sid}/snapshots")
    assert reply.status == 409 and reply.json["code"] == "SNAPSHOT::INVALID_SOURCE_STATE"


def test_a_paused_source_and_the_limit(make):
    gw = make(extra="[snapshots]\nallow_paused = true\nmax = 1\n").start()
    sid = gw.create().json["id"]
    run(gw, sid, "echo frozen > /root/file")
    assert gw.request("POST", f"/v1/sandboxes/{sid}/pause").status == 202
    shot = take(gw, sid)
    assert gw.engine.sandbox(sid)["State"]["Paused"]
    assert gw.request("GET", f"/v1/sandboxes/{sid}").json["status"]["state"] == "Paused"
    reply = gw.request("POST", f"/v1/sandboxes/{sid}/snapshots")
    assert reply.status == 429 and reply.json["code"] == "GENERAL::LIMIT_REACHED"
    assert run(gw, restore(gw, shot["id"]).json["id"], "cat /root/file").strip() == "frozen"


def test_changes_of_the_source_wait_for_the_capture(make, tmp_path):
    """The capture is stopped right after the image was made: a delete waits for it, a renewal does not."""
    go = tmp_path / "go"
    gw = make(extra="[sandbox]\nsweep_interval_seconds = 1\n")
    gw.start(fault="wait:snapshot.made", env={"SANDGATE_FAULT_FILE": str(go)})
    sid, other = (gw.create().json["id"] for _ in range(2))
    made = gw.request("POST", f"/v1/sandboxes/{sid}/snapshots").json["id"]
    wait_for("the image is made", lambda: image(gw, made))
    busy = gw.request("DELETE", f"/v1/snapshots/{made}")
    assert busy.status == 409 and busy.json["code"] == "SNAPSHOT::INVALID_STATE"
    assert restore(gw, made).json["code"] == "SNAPSHOT::NOT_READY"
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(gw.request("DELETE", f"/v1/sandboxes/{sid}").status))
    waiting.start()
    renewal = gw.request("POST", f"/v1/sandboxes/{sid}/renew-expiration", {"expiresAt": "2999-01-01T00:00:00Z"})
    assert renewal.status == 200
    assert gw.request("DELETE", f"/v1/sandboxes/{other}").status == 204  # others are not held up
    assert gw.request("GET", f"/v1/sandboxes/{sid}").json["status"]["state"] == "Running" and not answers
    go.touch()
    waiting.join(60)
    assert answers == [204]
    assert settled(gw, made)["status"]["state"] == "Ready"


def crash(gw, method, path):
    """Sends a request that kills the gateway, at once or soon after its answer."""
    try:
        gw.request(method, path)
    except (http.client.HTTPException, ConnectionError):
        pass
    assert gw.wait_dead() == -9


@pytest.mark.parametrize("step", CREATE_STEPS)
def test_kill_in_create(make, step):
    gw = make().start()
    sid = gw.create().json["id"]
    run(gw, sid, "echo kept > /root/file")
    for _ in range(ROUNDS):
        gw.stop()
        gw.start(fault=f"crash:{step}")
        crash(gw, "POST", f"/v1/sandboxes/{sid}/snapshots")
        gw.start()
        shot = snapshots(gw)[0]
        shot = settled(gw, shot["id"])
        reason = "snapshot_recovery_ready" if step in RECOVERED else "snapshot_runtime_ready"
        assert (shot["status"]["state"], shot["status"]["reason"]) == ("Ready", reason)
        again = restore(gw, shot["id"]).json["id"]
        assert run(gw, again, "cat /root/file").strip() == "kept"
        assert not parts(gw, shot["id"])  # what the engine needed on the way
        assert gw.request("GET", f"/v1/sandboxes/{sid}").json["status"]["state"] == "Running"
        assert run(gw, sid, "echo alive").strip() == "alive"  # and not left frozen
        assert gw.request("DELETE", f"/v1/sandboxes/{again}").status == 204
        assert gw.request("DELETE", f"/v1/snapshots/{shot['id']}").status == 204
        assert image(gw, shot["id"]) is None


def test_kill_in_the_middle_of_a_capture(make):
    """The engine is still at work on the first one when the second is asked for."""
    gw = make().start()
    sid = gw.create().json["id"]
    total = run(gw, sid, "head -c 100000000 /dev/urandom > /root/big && sha256sum /root/big")
    made = gw.request("POST", f"/v1/sandboxes/{sid}/snapshots").json["id"]
    wait_for("the engine captures", lambda: gw.engine.sandbox(sid)["State"]["Paused"])
    gw.kill9()
    gw.start()
    assert settled(gw, made, 120)["status"]["state"] == "Ready"
    assert run(gw, restore(gw, made).json["id"], "sha256sum /root/big") == total
    wait_for("the source goes on", lambda: not gw.engine.sandbox(sid)["State"]["Paused"])
    assert run(gw, sid, "sha256sum /root/big") == total
    assert nameless(gw, sid) == []
    wait_for("so does its record", lambda: gw.request("GET", f"/v1/sandboxes/{sid}").json["status"]["state"] == "Running")


@pytest.mark.parametrize("step", DELETE_STEPS)
def test_kill_in_delete(make, step):
    gw = make().start()
    sid = gw.create().json["id"]
    for _ in range(ROUNDS):
        shot = take(gw, sid)
        gw.stop()
        gw.start(fault=f"crash:{step}")
        crash(gw, "DELETE", f"/v1/snapshots/{shot['id']}")
        gw.start()
        wait_for(f"row gone after {step}", lambda: get(gw, shot["id"]).status == 404)
        assert image(gw, shot["id"]) is None


def test_a_source_lost_while_the_server_was_down(make):
    gw = make().start()
    sid = gw.create().json["id"]
    gw.stop()
    gw.start(fault="crash:snapshot.intent")
    crash(gw, "POST", f"/v1/sandboxes/{sid}/snapshots")
    gw.engine.call("DELETE", f"/containers/sandbox-{sid}?force=1")
    gw.start()
    shot = settled(gw, snapshots(gw)[0]["id"])
    assert (shot["status"]["state"], shot["status"]["reason"]) == ("Failed", "snapshot_recovery_missing_image")
    assert image(gw, shot["id"]) is None
    assert gw.request("DELETE", f"/v1/snapshots/{shot['id']}").status == 204


def test_two_gateways_never_touch_each_others_snapshots_and_volumes(make):
    """With databases of their own on one engine, whatever they do, and whenever they start and stop."""
    one, two = make().start(), make(extra="[sandbox]\nsweep_interval_seconds = 1\n").start()
    name = "sandgate-test-" + secrets.token_hex(6)
    claim = {"claimName": name, "createIfNotExists": True, "deleteOnSandboxTermination": True}
    volume = {"name": "v", "mountPath": "/data", "pvc": claim}
    volume_there = lambda: one.engine.call("GET", f"/volumes/{name}")[0] == 200
    sid = one.create(volumes=[volume]).json["id"]
    shot = take(one, sid)
    assert get(two, shot["id"]).status == 404
    assert two.request("DELETE", f"/v1/snapshots/{shot['id']}").status == 404
    assert restore(two, shot["id"]).status == 404
    guest = two.create(volumes=[volume]).json["id"]  # it was there: not two's
    assert two.request("DELETE", f"/v1/sandboxes/{guest}").status == 204
    assert volume_there()
    guest = two.create(volumes=[volume]).json["id"]
    assert one.request("DELETE", f"/v1/sandboxes/{sid}").status == 204
    assert volume_there()  # in use by the other
    two.kill9()
    two.start()
    assert two.request("GET", f"/v1/sandboxes/{guest}").json["status"]["state"] == "Running"
    assert two.request("DELETE", f"/v1/sandboxes/{guest}").status == 204
    wait_for("its maker takes the volume away", lambda: not volume_there())
    two.stop()  # without sandboxes: its network goes
    two.start()
    assert restore(one, shot["id"]).status == 202
    assert image(one, shot["id"])
    for gw in (one, two):
        assert "without a record" not in gw.log_text() and "of a sandbox that ended" not in gw.log_text()
