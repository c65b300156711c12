"""The life of a sandbox through the unmodified SDK, sync and async: renew, pause, manager, expiry, health check."""

import datetime as dt
import http.client
import secrets

import pytest
from opensandbox.exceptions import SandboxApiException, SandboxException, SandboxReadyTimeoutException
from opensandbox.models.sandboxes import SandboxFilter

from harness import BASE, wait_for

MINUTES = dt.timedelta(minutes=5)


@pytest.fixture
def sandbox(shared, client):
    sb = client(client.Sandbox.create(BASE, connection_config=client.config(shared), timeout=MINUTES))
    yield sb
    try:
        client(sb.kill())
    except SandboxException:
        pass  # the test ended it
    client(sb.close())


@pytest.fixture
def manager(shared, client):
    made = client(client.Manager.create(connection_config=client.config(shared)))
    yield made
    client(made.close())


def out(execution):
    return "".join(m.text for m in execution.logs.stdout)


def states(manager, client, **query):
    return [i.id for i in client(manager.list_sandbox_infos(SandboxFilter(**query))).sandbox_infos]


def test_renew_moves_the_expiry_in_both_directions(client, sandbox):
    before = client(sandbox.get_info()).expires_at
    granted = client(sandbox.renew(dt.timedelta(minutes=30))).expires_at
    assert granted > before
    assert client(sandbox.get_info()).expires_at == granted
    shorter = client(sandbox.renew(dt.timedelta(minutes=2))).expires_at
    assert shorter < before
    assert client(sandbox.get_info()).expires_at == shorter


def test_pause_and_resume_keep_files_and_processes(shared, client, sandbox):
    client(sandbox.commands.run("nohup sleep 4242 >/dev/null 2>&1 & echo kept > /tmp/kept"))
    client(sandbox.pause())
    assert client(sandbox.get_info()).status.state == "Paused"
    resumed = client(client.Sandbox.resume(sandbox_id=sandbox.id, connection_config=client.config(shared)))
    assert client(resumed.get_info()).status.state == "Running"
    assert out(client(resumed.commands.run("cat /tmp/kept; pgrep -fc 'sleep 424[2]'"))) == "kept\n1\n"
    client(resumed.close())


def test_pause_twice_and_resume_of_a_running_one_are_conflicts(client, sandbox, manager):
    with pytest.raises(SandboxApiException) as raised:
        client(manager.resume_sandbox(sandbox.id))
    assert raised.value.status_code == 409 and raised.value.error.code == "DOCKER::SANDBOX_NOT_PAUSED"
    client(sandbox.pause())
    with pytest.raises(SandboxApiException) as raised:
        client(sandbox.pause())
    assert raised.value.status_code == 409 and raised.value.error.code == "DOCKER::SANDBOX_NOT_RUNNING"
    client(manager.resume_sandbox(sandbox.id))
    assert client(sandbox.get_info()).status.state == "Running"


def test_a_sandbox_without_timeout_never_expires_and_cannot_be_renewed(shared, client):
    sb = client(client.Sandbox.create(BASE, connection_config=client.config(shared), timeout=None))
    try:
        assert client(sb.get_info()).expires_at is None
        with pytest.raises(SandboxApiException) as raised:
            client(sb.renew(MINUTES))
        assert raised.value.status_code == 409 and raised.value.error.code == "DOCKER::INVALID_EXPIRATION"
    finally:
        client(sb.kill())
        client(sb.close())


def test_a_custom_health_check_decides(shared, client):
    config = client.config(shared)
    asked = []

    def healthy(sb):
        asked.append(sb.id)
        return len(asked) >= 3

    sb = client(client.Sandbox.create(BASE, connection_config=config, health_check=client.callback(healthy)))
    assert len(asked) == 3 and asked[0] == sb.id
    client(sb.kill())
    client(sb.close())


def test_a_health_check_on_a_port_of_the_user(shared, client):
    """README "Custom Health Check": the endpoint of port 80 is reachable once the program listens."""
    config = client.config(shared)
    entry = ["python3", "-m", "http.server", "80"]

    if client.loop:

        async def healthy(sb):
            return answers((await sb.get_endpoint(80)).endpoint)

    else:

        def healthy(sb):
            return answers(sb.get_endpoint(80).endpoint)

    sb = client(client.Sandbox.create(BASE, connection_config=config, entrypoint=entry, health_check=healthy))
    client(sb.kill())
    client(sb.close())


def answers(endpoint):
    host, _, path = endpoint.partition("/")
    conn = http.client.HTTPConnection(host, timeout=5)
    try:
        conn.request("GET", "/" + path + "/")
        return conn.getresponse().status == 200
    except OSError:
        return False
    finally:
        conn.close()


def test_a_sandbox_that_never_gets_healthy_is_removed_by_the_sdk(shared, client):
    tag = secrets.token_hex(6)
    with pytest.raises(SandboxReadyTimeoutException):
        client(
            client.Sandbox.create(
                BASE,
                connection_config=client.config(shared),
                metadata={"tag": tag},
                ready_timeout=dt.timedelta(seconds=1),
                health_check=client.callback(lambda sb: False),
            )
        )
    assert shared.request("GET", f"/v1/sandboxes?metadata=tag%3D{tag}").json["items"] == []


def test_the_manager_lists_by_state_and_metadata(client, shared, sandbox, manager):
    tag = secrets.token_hex(6)
    client(manager.patch_sandbox_metadata(sandbox.id, {"tag": tag, "role": "a"}))
    other = client(client.Sandbox.create(BASE, connection_config=client.config(shared), metadata={"tag": tag, "role": "b"}))
    try:
        assert states(manager, client, metadata={"tag": tag}) == [other.id, sandbox.id]
        assert states(manager, client, metadata={"tag": tag, "role": "a"}) == [sandbox.id]
        client(other.pause())
        assert states(manager, client, states=["RUNNING"], metadata={"tag": tag}) == [sandbox.id]
        assert states(manager, client, states=["Paused"], metadata={"tag": tag}) == [other.id]
        assert len(states(manager, client, states=["Running", "Paused"], metadata={"tag": tag})) == 2
        page = client(manager.list_sandbox_infos(SandboxFilter(metadata={"tag": tag}, page_size=1, page=2)))
        assert [i.id for i in page.sandbox_infos] == [sandbox.id]
        assert page.pagination.total_items == 2 and not page.pagination.has_next_page
    finally:
        client(other.kill())
        client(other.close())


def test_metadata_is_merged_and_a_null_removes(client, sandbox, manager):
    info = client(sandbox.patch_metadata({"a": "1", "b": "2"}))
    assert info.metadata == {"a": "1", "b": "2"}
    assert client(manager.patch_sandbox_metadata(sandbox.id, {"a": None, "c": "3"})).metadata == {"b": "2", "c": "3"}
    assert client(sandbox.patch_metadata({})).metadata == {"b": "2", "c": "3"}
    assert client(sandbox.get_info()).metadata == {"b": "2", "c": "3"}
    with pytest.raises(SandboxApiException) as raised:
        client(sandbox.patch_metadata({"opensandbox.io/id": "x"}))
    assert raised.value.status_code == 400 and raised.value.error.code == "INVALID_METADATA_LABEL"


def test_the_manager_kills(client, sandbox, manager):
    client(manager.kill_sandbox(sandbox.id))
    with pytest.raises(SandboxApiException) as raised:
        client(manager.get_sandbox_info(sandbox.id))
    assert raised.value.status_code == 404 and "DELETED" in raised.value.error.message


def test_the_manager_renews_and_pauses(client, sandbox, manager):
    granted = client(manager.renew_sandbox(sandbox.id, dt.timedelta(minutes=20))).expires_at
    assert client(manager.get_sandbox_info(sandbox.id)).expires_at == granted
    client(manager.pause_sandbox(sandbox.id))
    assert client(manager.get_sandbox_info(sandbox.id)).status.state == "Paused"


def test_ttl_runs_while_paused(client, sandbox, manager):
    client(sandbox.pause())
    client(sandbox.renew(dt.timedelta(seconds=1)))

    def gone():
        try:
            return not client(manager.get_sandbox_info(sandbox.id))
        except SandboxApiException as e:
            return "EXPIRED" in e.error.message

    wait_for("the paused sandbox expires", gone)


def test_files_survive_pause_and_resume(shared, client, sandbox):
    """pains S1."""
    for i in range(10):
        data = secrets.token_bytes(50_000)
        client(sandbox.files.write_file(f"/root/f{i}", data))
        client(sandbox.pause())
        client(client.Sandbox.resume(sandbox_id=sandbox.id, connection_config=client.config(shared), skip_health_check=True))
        assert client(sandbox.files.read_bytes(f"/root/f{i}")) == data


def test_unknown_ids_are_api_errors(client, manager):
    unknown = "00000000-0000-4000-8000-000000000000"
    for call in (manager.get_sandbox_info, manager.kill_sandbox, manager.pause_sandbox, manager.resume_sandbox):
        with pytest.raises(SandboxApiException) as raised:
            client(call(unknown))
        assert raised.value.status_code == 404 and raised.value.error.code == "DOCKER::SANDBOX_NOT_FOUND"
