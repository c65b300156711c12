"""What is told of sandboxes that are gone: the 404's reason, the record with include=ended (design decision 15)."""

import datetime

from test_wire import UNKNOWN, envelope

from harness import wait_for


def ended(gw, sid):
    return gw.request("GET", f"/v1/sandboxes/{sid}?include=ended")


def test_a_deleted_sandbox(make_gateway):
    gw = make_gateway().start()
    sid = gw.create(metadata={"app": "x"}).json["id"]
    live = ended(gw, sid).json
    assert live["status"]["state"] == "Running" and "endedAt" not in live and "exitCode" not in live
    assert gw.request("DELETE", f"/v1/sandboxes/{sid}").status == 204
    gone = gw.request("GET", f"/v1/sandboxes/{sid}")
    envelope(gone, 404, "DOCKER::SANDBOX_NOT_FOUND")
    record = ended(gw, sid).json
    assert record["endedAt"] in gone.json["message"] and "DELETED" in gone.json["message"]
    assert record["id"] == sid and record["metadata"] == {"app": "x"} and record["image"] == live["image"]
    assert record["status"]["state"] == "Terminated" and record["status"]["reason"] == "DELETED"
    assert record["status"]["lastTransitionAt"] == record["endedAt"]
    # nothing can be done to it any more
    for method, rest, body in (("POST", "/pause", None), ("POST", "/resume", None), ("DELETE", "", None),
                               ("PATCH", "/metadata", {"a": "b"}), ("GET", "/endpoints/80", None)):
        envelope(gw.request(method, f"/v1/sandboxes/{sid}{rest}", body), 404, "DOCKER::SANDBOX_NOT_FOUND")
    gw.stop()
    gw.start()  # and it is kept
    assert ended(gw, sid).json == record


def test_an_expired_sandbox_that_had_exited(make_gateway):
    gw = make_gateway().start()
    sid = gw.create(entrypoint=["sh", "-c", "exit 4"]).json["id"]
    wait_for("the end is seen", lambda: gw.request("GET", f"/v1/sandboxes/{sid}").json["status"]["state"] == "Failed")
    at = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(milliseconds=200)
    assert gw.request("POST", f"/v1/sandboxes/{sid}/renew-expiration", {"expiresAt": at.isoformat()}).status == 200
    wait_for("it is gone", lambda: gw.request("GET", f"/v1/sandboxes/{sid}").status == 404)
    record = ended(gw, sid).json
    assert record["exitCode"] == 4 and record["endedAt"] >= record["createdAt"]


def test_lists_with_ended_ones(make_gateway):
    gw = make_gateway().start()
    ids = [gw.create(metadata={"n": str(i % 2)}).json["id"] for i in range(3)]
    assert gw.request("DELETE", f"/v1/sandboxes/{ids[1]}").status == 204

    def listed(query):
        reply = gw.request("GET", f"/v1/sandboxes?{query}")
        assert reply.status == 200, reply.raw
        items = [i["id"] for i in reply.json["items"]]
        assert reply.json["pagination"]["totalItems"] == len(items)
        return items

    assert listed("") == [ids[2], ids[0]]
    assert listed("include=ended") == [ids[2], ids[1], ids[0]]
    assert listed("include=ended&state=terminated") == [ids[1]]
    assert listed("include=ended&metadata=n%3D0") == [ids[2], ids[0]]
    assert listed("state=Terminated") == []
    page = gw.request("GET", "/v1/sandboxes?include=ended&pageSize=1&page=2").json
    assert page["items"][0]["id"] == ids[1] and page["pagination"]["totalPages"] == 3


def test_other_values_of_include(shared):
    for value in ("", "all", "Ended", "ended,live"):
        envelope(shared.request("GET", f"/v1/sandboxes?include={value}"), 400, "SANDBOX::INVALID_PARAMETER")
        envelope(shared.request("GET", f"/v1/sandboxes/{UNKNOWN}?include={value}"), 400, "SANDBOX::INVALID_PARAMETER")
    envelope(shared.request("GET", f"/v1/sandboxes/{UNKNOWN}?include=ended"), 404, "DOCKER::SANDBOX_NOT_FOUND")


def test_a_create_that_failed(make_gateway):
    """Its id is in no answer, but its record tells what was tried and why it failed."""
    gw = make_gateway().start()
    assert gw.create(image="nosuch.invalid/no:tag", metadata={"try": "1"}).status == 500
    assert gw.records() == []
    found = gw.request("GET", "/v1/sandboxes?include=ended&state=failed&metadata=try%3D1").json["items"]
    assert len(found) == 1 and "nosuch.invalid/no:tag" in found[0]["status"]["message"]
    sid = found[0]["id"]
    assert ended(gw, sid).json == found[0] and "exitCode" not in found[0]
    events = gw.request("GET", f"/v1/sandboxes/{sid}/diagnostics/events?scope=lifecycle").json["content"]
    assert "Failed" in events and "nosuch.invalid/no:tag" in events
    assert gw.request("GET", f"/v1/sandboxes/{sid}/diagnostics/logs?scope=all").json["content"] == "(no logs)"
