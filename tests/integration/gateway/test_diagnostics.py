"""Diagnostics by raw HTTP: descriptors, the older plain text, before and after the end (contract 9)."""

import pytest
from test_wire import UNKNOWN, envelope

from harness import wait_for

KEYS = {"sandboxId", "kind", "scope", "delivery", "contentType", "content", "contentLength", "truncated"}
TALKER = ["sh", "-c", 'i=0; while [ $i -lt 120 ]; do i=$((i+1)); echo "line $i"; done; echo "zażółć"; sleep 600']


@pytest.fixture(scope="module")
def talker(shared):
    sid = shared.create(entrypoint=TALKER, metadata={"app": "talk", "api-key": "hunter2"}).json["id"]
    wait_for("it has talked", lambda: "zażółć" in get(shared, sid, "logs?scope=container").json["content"])
    yield sid
    shared.request("DELETE", f"/v1/sandboxes/{sid}")


def get(gw, sid, rest):
    return gw.request("GET", f"/v1/sandboxes/{sid}/diagnostics/{rest}")


def text_of(reply):
    assert reply.status == 200, reply.raw
    assert reply.getheader("Content-Type") == "text/plain; charset=utf-8"
    return reply.raw.decode()


@pytest.mark.parametrize("asked,scope", [("container", "container"), ("all", "all"), ("%20Container%0a", "container")])
def test_logs_descriptor(shared, talker, asked, scope):
    reply = get(shared, talker, f"logs?scope={asked}")
    assert reply.status == 200 and reply.getheader("Deprecation") is None
    d = reply.json
    assert set(d) == KEYS | ({"warnings"} if scope == "all" else set())
    assert (d["sandboxId"], d["kind"], d["scope"], d["delivery"]) == (talker, "logs", scope, "inline")
    lines = d["content"].splitlines()
    assert len(lines) == 100 and d["truncated"] is True
    assert lines[-1].endswith(" zażółć") and lines[0].endswith(" line 22")
    assert lines[0][:2] == "20" and lines[0][10] == "T"  # the engine's time
    assert d["contentLength"] == len(d["content"].encode())


@pytest.mark.parametrize("kind,good", [("logs", "container, all"), ("events", "runtime, lifecycle, all")])
def test_other_scopes_are_refused(shared, talker, kind, good):
    for scope in ("", "network", "container%20all", "x" * 500):
        reply = get(shared, talker, f"{kind}?scope={scope}")
        envelope(reply, 400, "DIAGNOSTICS_SCOPE_UNSUPPORTED")
        assert good in reply.json["message"]


def test_events_descriptor(shared, talker):
    d = get(shared, talker, "events?scope=LIFECYCLE").json
    assert set(d) == KEYS and d["kind"] == "events" and d["truncated"] is False
    assert "CONTAINER_RUNNING" in d["content"]
    assert get(shared, talker, "events?scope=runtime").status == 200
    assert get(shared, talker, "events?scope=all").json["warnings"]


def test_legacy_text(shared, talker):
    reply = get(shared, talker, "logs")
    assert reply.getheader("Deprecation") == "true" and len(text_of(reply).splitlines()) == 100
    assert len(text_of(get(shared, talker, "logs?tail=3&container=ignored")).splitlines()) == 3
    assert len(text_of(get(shared, talker, "logs?tail=10000")).splitlines()) == 121
    for since in ("1h", "0s", "nonsense", "5", "99999999999d"):
        assert get(shared, talker, f"logs?since={since}").status == 200
    assert len(text_of(get(shared, talker, "logs?since=1h&tail=2")).splitlines()) == 2
    assert "CONTAINER_RUNNING" in text_of(get(shared, talker, "events?limit=500"))
    assert get(shared, talker, "events").getheader("Deprecation") == "true"
    for bad in ("logs?tail=0", "logs?tail=10001", "logs?tail=x", "events?limit=0", "events?limit=501", "summary?tail=0",
                "summary?event_limit=501"):
        envelope(get(shared, talker, bad), 400, "SANDBOX::INVALID_PARAMETER")


def test_inspect_and_summary_mask_secrets(shared, talker):
    token = shared.request("GET", f"/v1/sandboxes/{talker}/endpoints/44772").json["headers"]["X-EXECD-ACCESS-TOKEN"]
    summary = text_of(get(shared, talker, "summary?tail=2&event_limit=5"))
    inspect = text_of(get(shared, talker, "inspect"))
    for text in (inspect, summary):
        assert talker in text and "metadata app: talk" in text and "metadata api-key: ***" in text
        assert "hunter2" not in text and token not in text
    assert summary.index("INSPECT") < summary.index("EVENTS") < summary.index("LOGS")
    assert "line 119" not in summary and "line 120" in summary
    assert "image: " in inspect


def test_they_answer_after_the_end(shared):
    sid = shared.create(entrypoint=["sh", "-c", "echo last words; exit 3"]).json["id"]
    wait_for("the end is seen", lambda: shared.request("GET", f"/v1/sandboxes/{sid}").json["status"]["state"] == "Failed")
    assert "last words" in get(shared, sid, "logs?scope=all").json["content"]
    assert shared.request("DELETE", f"/v1/sandboxes/{sid}").status == 204
    assert shared.request("GET", f"/v1/sandboxes/{sid}").status == 404
    assert "last words" in get(shared, sid, "logs?scope=container").json["content"]
    assert "last words" in text_of(get(shared, sid, "logs?tail=1"))
    assert "DELETED" in get(shared, sid, "events?scope=lifecycle").json["content"]
    summary = text_of(get(shared, sid, "summary"))
    assert "exit code: 3" in summary and "last words" in summary


def test_unknown_sandbox(shared):
    for rest in ("logs", "logs?scope=all", "events", "events?scope=all", "inspect", "summary"):
        envelope(get(shared, UNKNOWN, rest), 404, "DOCKER::SANDBOX_NOT_FOUND")


def test_output_is_bounded(make_gateway):
    gw = make_gateway().start()
    sid = gw.create(entrypoint=["sh", "-c", "yes 0123456789012345678901234567890123456789 | head -c 3000000; echo END; sleep 600"]).json["id"]
    wait_for("all is written", lambda: "END" in get(gw, sid, "logs?scope=container").json["content"])
    text = text_of(get(gw, sid, "logs?tail=10000"))
    assert len(text) <= 1 << 20 and text.rstrip().endswith("END") and "0123456789" in text
