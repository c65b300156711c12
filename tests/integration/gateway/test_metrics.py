"""/metrics is what Prometheus reads, and counts what happened."""

import concurrent.futures
import datetime

from prometheus_client.parser import text_string_to_metric_families
from test_wire import UNKNOWN

from harness import wait_for


def scrape(gw):
    """{family: {(sample, labels...): value}}, by the parser of the official client."""
    reply = gw.request("GET", "/metrics")
    assert reply.status == 200 and reply.getheader("Content-Type").startswith("text/plain; version=0.0.4")
    families = list(text_string_to_metric_families(reply.raw.decode()))
    names = [f.name for f in families]
    assert len(names) == len(set(names)), "a family in two places"
    for f in families:
        assert f.type in ("counter", "gauge", "histogram"), f.name
        if f.type == "histogram":
            check_histogram(f)
    return {f.name: {(s.name, *sorted(s.labels.items())): s.value for s in f.samples} for f in families}


def check_histogram(family):
    series = {}
    for s in family.samples:
        key = tuple(sorted((k, v) for k, v in s.labels.items() if k != "le"))
        series.setdefault(key, []).append(s)
    for samples in series.values():
        buckets = [s.value for s in samples if s.name.endswith("_bucket")]
        assert buckets == sorted(buckets) and samples[len(buckets) - 1].labels["le"] == "+Inf"
        count = [s.value for s in samples if s.name.endswith("_count")]
        assert count == [buckets[-1]]


def operations(gw):
    return {tuple(v for _, v in key[1:]): value for key, value in scrape(gw)["sandgate_sandbox_operations"].items()}


def test_what_happened_is_counted(make_gateway):
    gw = make_gateway().start()
    sid = gw.create().json["id"]
    gw.create(resourceLimits={"memory": "lots"})
    gw.create(image="nosuch.invalid/no:tag")
    gw.request("POST", f"/v1/sandboxes/{sid}/pause")
    gw.request("POST", f"/v1/sandboxes/{sid}/pause")
    gw.request("DELETE", f"/v1/sandboxes/{UNKNOWN}")
    done = operations(gw)
    assert done["create", "ok"] == 1 and done["create", "failed"] + done["create", "refused"] >= 1
    assert done["pause", "ok"] == 1 and done["pause", "refused"] == 1 and done["delete", "refused"] == 1
    m = scrape(gw)
    states = {key[1][1]: value for key, value in m["sandgate_sandboxes"].items()}
    assert states["Paused"] == 1 and states["Running"] == 0 and set(states) >= {"Pending", "Stopping", "Terminated", "Failed"}
    phases = m["sandgate_create_duration_seconds"]
    for phase in ("store", "start", "claim", "total"):
        assert phases["sandgate_create_duration_seconds_count", ("phase", phase)] >= 1
    assert m["sandgate_expiry_lag_seconds"][("sandgate_expiry_lag_seconds",)] == 0
    assert gw.request("DELETE", f"/v1/sandboxes/{sid}").status == 204
    m = scrape(gw)
    assert m["sandgate_ended_records"][("sandgate_ended_records",)] >= 1
    assert m["process_resident_memory_bytes"] and m["process_open_fds"] and m["sandgate_build_info"]
    assert m["sandgate_requests_api"][("sandgate_requests_api_total",)] > 5
    assert m["sandgate_proxied_response_bytes"][("sandgate_proxied_response_bytes_total",)] == 0


def test_clients_reports_become_a_histogram(shared):
    event = {"eventType": "sandbox.create", "createDurationMs": 40, "success": True, "image": "x", "sdkLanguage": "ignored"}
    for agent in ("OpenSandbox-Python-SDK/1.1.1", "OpenSandbox-Strange-SDK/1", "curl/8", 'a"b{}\\'):
        reply = shared.request("POST", "/v1/metrics/events", event, headers={"User-Agent": agent})
        assert reply.status == 204 and reply.raw == b""
    reply = shared.request("POST", "/v1/metrics/events", {**event, "success": False}, headers={"User-Agent": "OpenSandbox-Go-SDK/1"})
    assert reply.status == 204
    h = scrape(shared)["sandgate_client_create_duration_seconds"]
    name = "sandgate_client_create_duration_seconds"
    assert h[f"{name}_count", ("language", "python"), ("success", "true")] == 1
    assert h[f"{name}_bucket", ("language", "python"), ("le", "0.05"), ("success", "true")] == 1
    assert h[f"{name}_bucket", ("language", "python"), ("le", "0.025"), ("success", "true")] == 0
    assert h[f"{name}_count", ("language", "other"), ("success", "true")] == 3
    assert h[f"{name}_count", ("language", "go"), ("success", "false")] == 1


def test_the_stream_of_events_is_watched(make_gateway):
    gw = make_gateway().start()
    name = "sandgate_engine_events_connected"
    wait_for("the stream is open", lambda: scrape(gw)[name][(name,)] == 1)
    assert scrape(gw)["sandgate_engine_events_reconnects"][("sandgate_engine_events_reconnects_total",)] == 0


def test_snapshots_are_counted(make_gateway):
    gw = make_gateway().start()
    sid = gw.create().json["id"]
    snap = gw.request("POST", f"/v1/sandboxes/{sid}/snapshots").json["id"]
    ready = ("sandgate_snapshots", ("state", "Ready"))
    wait_for("it is ready", lambda: scrape(gw)["sandgate_snapshots"].get(ready) == 1)
    assert gw.request("DELETE", f"/v1/snapshots/{snap}").status == 204
    assert not scrape(gw)["sandgate_snapshots"].get(ready)


def test_expiries_are_counted_with_their_lag(make_gateway):
    gw = make_gateway().start()
    sid = gw.create().json["id"]
    at = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(milliseconds=200)
    assert gw.request("POST", f"/v1/sandboxes/{sid}/renew-expiration", {"expiresAt": at.isoformat()}).status == 200
    wait_for("it is counted", lambda: operations(gw)["expire", "ok"] == 1)
    assert scrape(gw)["sandgate_expiry_removal_lag_seconds"][("sandgate_expiry_removal_lag_seconds_count",)] == 1


def test_the_key_is_needed_and_many_may_ask_at_once(shared):
    assert shared.request("GET", "/metrics", headers={"OPEN-SANDBOX-API-KEY": ""}).status == 401
    assert shared.request("GET", "/v1/metrics").status == 404
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        for m in pool.map(lambda _: scrape(shared), range(100)):
            assert "sandgate_sandboxes" in m


def test_reads_ask_the_engine_nothing(make_gateway):
    gw = make_gateway().start()
    sid = gw.create().json["id"]

    def calls():
        return {k: v for family, samples in scrape(gw).items() if family.startswith("sandgate_engine_calls")
                for k, v in samples.items()}

    before = calls()
    assert any(before.values())
    for _ in range(50):
        assert gw.request("GET", f"/v1/sandboxes/{sid}").status == 200
        assert gw.request("GET", "/v1/sandboxes").status == 200
        assert gw.request("GET", "/v1/sandboxes?include=ended&state=Running&metadata=a%3Db").status == 200
    grown = {k: v - before.get(k, 0) for k, v in calls().items() if v != before.get(k, 0)}
    # the sweep may look at the engine meanwhile, once or twice; 150 reads may not
    assert all(n < 10 for n in grown.values()), grown
