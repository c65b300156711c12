"""Lists, metadata patches, and what this runtime does not have: pools and templates."""

import concurrent.futures

import pytest
from test_wire import envelope


def find(gw, query):
    reply = gw.request("GET", f"/v1/sandboxes?{query}")
    assert reply.status == 200, reply.raw
    return [i["id"] for i in reply.json["items"]]


def test_filters_follow_changes(make_gateway):
    gw = make_gateway().start()
    a, b = (gw.create(metadata={"app": "x", "n": n}).json["id"] for n in "12")
    assert find(gw, "metadata=app%3Dx") == [b, a]
    assert find(gw, "metadata=app%3Dx%26n%3D1") == [a]
    assert find(gw, "metadata=app%3Dx&state=Paused") == []
    assert gw.request("POST", f"/v1/sandboxes/{a}/pause").status == 202
    assert find(gw, "metadata=app%3Dx&state=pAUSED") == [a]
    assert find(gw, "state=Running") == [b] and find(gw, "state=Paused&state=Running") == [b, a]
    # works in any state, shows at once, and what is deleted stays deleted
    reply = gw.request("PATCH", f"/v1/sandboxes/{a}/metadata", {"n": None, "app": "y", "new": ""})
    assert reply.status == 200 and reply.json["metadata"] == {"app": "y", "new": ""}
    assert gw.request("PATCH", f"/v1/sandboxes/{a}/metadata", {"z": "1"}).json["metadata"] == {"app": "y", "new": "", "z": "1"}
    assert find(gw, "metadata=app%3Dx") == [b] and find(gw, "metadata=n%3D1") == [] and find(gw, "metadata=new%3D") == [a]
    gw.kill9()
    gw.start()
    assert gw.request("GET", f"/v1/sandboxes/{a}").json["metadata"] == {"app": "y", "new": "", "z": "1"}
    assert find(gw, "metadata=z%3D1") == [a]


@pytest.mark.parametrize("query", ["metadata=a%3D1%26", "metadata=%26a%3D1", "metadata=a%3D1%26%26b%3D1", "metadata=%26"])
def test_an_empty_part_of_the_filter(shared, query):
    envelope(shared.request("GET", f"/v1/sandboxes?{query}"), 400, "INVALID_METADATA_FORMAT")


@pytest.mark.parametrize("what", ["sandboxes", "snapshots"])
def test_too_many_states_are_an_error_not_all_of_them(shared, what):
    assert shared.request("GET", f"/v1/{what}?" + "&".join(["state=Paused"] * 64)).status == 200
    reply = shared.request("GET", f"/v1/{what}?" + "&".join(["state=Paused"] * 65))
    envelope(reply, 400, "SANDBOX::INVALID_PARAMETER")
    assert reply.json["message"].startswith("state: ")


def test_parallel_patches_lose_nothing(make_gateway):
    gw = make_gateway().start()
    sid = gw.create(metadata={"first": "1"}).json["id"]

    def patch(n):
        return gw.request("PATCH", f"/v1/sandboxes/{sid}/metadata", {f"k{n}": str(n)}).status

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert set(pool.map(patch, range(50))) == {200}
    metadata = gw.request("GET", f"/v1/sandboxes/{sid}").json["metadata"]
    assert metadata == {"first": "1", **{f"k{n}": str(n) for n in range(50)}}


def test_reserved_keys_have_a_bare_code_in_patches(shared):
    sid = shared.create().json["id"]
    try:
        path = f"/v1/sandboxes/{sid}/metadata"
        for value in ("1", None):
            envelope(shared.request("PATCH", path, {"opensandbox.io/id": value}), 400, "INVALID_METADATA_LABEL")
        envelope(shared.request("PATCH", path, {"a b": "1"}), 400, "SANDBOX::INVALID_METADATA_LABEL")
        envelope(shared.request("PATCH", path, {"a": 1}), 400, "SANDBOX::INVALID_PARAMETER")
        envelope(shared.request("PATCH", path, ["a"]), 400, "SANDBOX::INVALID_PARAMETER")
        full = {f"k{n}": "" for n in range(1024)}
        assert shared.request("PATCH", path, full).status == 200
        envelope(shared.request("PATCH", path, {"one-more": ""}), 400, "SANDBOX::INVALID_PARAMETER")
        assert shared.request("PATCH", path, {"k0": None, "one-more": ""}).status == 200
    finally:
        shared.request("DELETE", f"/v1/sandboxes/{sid}")


CAPACITY = {"bufferMax": 1, "bufferMin": 0, "poolMax": 2, "poolMin": 0}
POOL = {"name": "warm", "template": {"spec": {}}, "capacitySpec": CAPACITY}


@pytest.mark.parametrize("mount", ["", "/v1"])
def test_pools_are_not_of_this_runtime(shared, mount):
    for method, path, body in (("POST", "", POOL), ("GET", "", None), ("GET", "/warm", None), ("DELETE", "/warm", None),
                               ("PUT", "/warm", {"capacitySpec": CAPACITY})):
        reply = shared.request(method, f"{mount}/pools{path}", body)
        envelope(reply, 501, "KUBERNETES::POOL_NOT_SUPPORTED")
        assert "client-side pool" in reply.json["message"]


@pytest.mark.parametrize("change", [{"name": "UPPER"}, {"name": ""}, {"name": "x" * 254}, {"name": None}, {"template": "x"},
                                    {"capacitySpec": {}}, {"capacitySpec": {**CAPACITY, "poolMin": -1}}, {"capacitySpec": None}])
def test_pool_bodies_are_checked_first(shared, change):
    envelope(shared.request("POST", "/v1/pools", {**POOL, **change}), 400, "SANDBOX::INVALID_PARAMETER")
    if "capacitySpec" in change:
        envelope(shared.request("PUT", "/v1/pools/warm", change), 400, "SANDBOX::INVALID_PARAMETER")


@pytest.mark.parametrize("mount", ["", "/v1"])
def test_templates_are_not_of_this_runtime(shared, mount):
    for method, path, body in (("POST", "", {"name": "t"}), ("GET", "", None), ("GET", "/t", None), ("DELETE", "/t", None)):
        envelope(shared.request(method, f"{mount}/templates{path}", body), 501, "FSB::API_NOT_SUPPORTED")
    envelope(shared.request("POST", f"{mount}/templates", b"{"), 400, "SANDBOX::INVALID_PARAMETER")
    envelope(shared.request("POST", f"{mount}/templates", b""), 400, "SANDBOX::INVALID_PARAMETER")


def test_template_id_in_a_create_stays_400(shared):
    reply = shared.request("POST", "/v1/sandboxes", {"templateId": "t", "timeout": 60})
    envelope(reply, 400, "SANDBOX::API_NOT_SUPPORTED")
