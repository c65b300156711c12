"""A claim's certificates: trusted by the programs of the sandbox, whatever its image allows (common/agent/wire.h)."""

import json

import pytest
from agentlib import claim

pytest.importorskip("harness", reason="needs a container engine")

import boxes  # noqa: E402
from harness import BASE, BUSYBOX, NONROOT  # noqa: E402

HOME = {"/opt/opensandbox": "size=16m,mode=1777"}
VARIABLES = ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS"]

SERVER = """
import http.server, ssl
server = http.server.HTTPServer(("127.0.0.1", 8443), http.server.SimpleHTTPRequestHandler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/tmp/cert", "/tmp/key")
server.socket = context.wrap_socket(server.socket, server_side=True)
print("up", flush=True)
server.serve_forever()
"""
PYTHON = "import urllib.request; print(urllib.request.urlopen('https://localhost:8443/').status)"
CURL = "curl -sS -o /dev/null -w '%{http_code}\\n' https://localhost:8443/"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return boxes.make_certificates(tmp_path_factory.mktemp("ca"))


@pytest.fixture
def box():
    made = []

    def make(*args, **kw):
        made.append(boxes.Box(boxes.engine(), *args, **kw))
        return made[-1]

    yield make
    for one in made:
        one.remove()


def serve(box, certificates):
    for name in ("cert", "key"):
        box.upload(f"/tmp/{name}", (certificates / name).read_bytes())
    stream = box.stream(argv=["python3", "-c", SERVER], cwd="/tmp")
    assert stream.until("stdout")["text"] == "up\n"
    return stream


@pytest.mark.parametrize(
    "image, options",
    [
        (BASE, {}),
        (NONROOT, {}),
        (BASE, {"read_only": True, "Tmpfs": {**HOME, "/tmp": ""}}),
        (NONROOT, {"Tmpfs": HOME}),
    ],
    ids=["root", "nonroot", "read-only", "nonroot-home"],
)
def test_programs_trust_it(box, certificates, image, options):
    trusting = box(image, **options)
    reply = claim(trusting, ca=(certificates / "ca").read_text())
    assert reply.status == 200, reply.data
    stream = serve(trusting, certificates)
    assert trusting.run(CURL).stdout == "200\n"
    assert trusting.run(argv=["python3", "-c", PYTHON]).stdout == "200\n"
    for name in VARIABLES:
        assert (certificates / "ca").read_text().splitlines()[1] in trusting.run(f'cat "${name}"').stdout, name
    stream.close()


def test_without_one_it_is_not_trusted(box, certificates):
    plain = box(BASE)
    assert claim(plain).status == 200
    stream = serve(plain, certificates)
    assert plain.run(CURL).code in (60, 77)  # unknown issuer; no bundle at all
    assert plain.run(f"env | grep -E '^({'|'.join(VARIABLES)})='").code == 1
    stream.close()


def test_what_the_user_has_set_stays(box, certificates):
    ours = box(BASE)
    assert claim(ours, ca=(certificates / "ca").read_text(), env={"SSL_CERT_FILE": "/mine"}).status == 200
    assert ours.run("echo $SSL_CERT_FILE").stdout == "/mine\n"
    assert ours.run("echo $CURL_CA_BUNDLE").stdout != "\n"


def test_a_mounted_bundle_is_not_touched(box, certificates, tmp_path):
    """It belongs to the host, or to more sandboxes."""
    theirs = tmp_path / "bundle"
    theirs.write_text("theirs\n")
    ours = box(BASE, binds=[f"{theirs}:/etc/ssl/certs/ca-certificates.crt"])
    assert claim(ours, ca=(certificates / "ca").read_text()).status == 200
    assert theirs.read_text() == "theirs\n"
    merged = ours.run('cat "$SSL_CERT_FILE"').stdout
    assert "theirs" in merged and (certificates / "ca").read_text().splitlines()[1] in merged


def test_an_image_without_anything(box, certificates):
    bare = box(BUSYBOX, read_only=True, Tmpfs=HOME)
    assert claim(bare, ca=(certificates / "ca").read_text()).status == 200
    assert bare.run('cat "$SSL_CERT_FILE"').stdout == (certificates / "ca").read_text()


def test_the_last_resort(box, certificates):
    bare = box(BUSYBOX, read_only=True, user="1000")
    assert claim(bare, ca=(certificates / "ca").read_text()).status == 200
    assert bare.run("echo $NODE_EXTRA_CA_CERTS").stdout.startswith("/dev/shm/opensandbox-ca.")


def test_no_place_at_all(box, certificates):
    bare = box(BUSYBOX, read_only=True, user="1000", IpcMode="none")
    reply = claim(bare, ca=(certificates / "ca").read_text())
    assert reply.status == 400 and "ca: there is no place for it" in json.loads(reply.data)["message"]
    assert bare.wait() == 127


def test_the_bundle_of_the_image(box, certificates):
    """It keeps what it has, and is made anew with ours by the distribution's own tool."""
    ca = (certificates / "ca").read_text()
    bundle = "/etc/ssl/certs/ca-certificates.crt"
    ours = box(BASE, files={bundle: b"theirs\n"})
    assert claim(ours, ca=ca).status == 200
    assert ours.run("echo $SSL_CERT_FILE").stdout == f"{bundle}\n"
    text = ours.run(f"cat {bundle}").stdout
    assert text.startswith("theirs\n") and ca in text
    assert ours.run("cat /usr/local/share/ca-certificates/*.crt").stdout == ca
    stream = serve(ours, certificates)
    assert ours.run("env -i " + CURL).stdout == "200\n"  # without any variable
    stream.close()


@pytest.mark.parametrize(
    "text, why",
    [
        ("hello", "no line -----BEGIN CERTIFICATE-----"),
        ("-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n", "certificate 1 is broken"),
        ("-----BEGIN PRIVATE KEY-----\nMII=\n-----END PRIVATE KEY-----\n", "leave it out"),
        ("x" * 65537, "ca:"),
    ],
)
def test_a_bad_one_is_refused(held, text, why):
    agent = held()
    reply = claim(agent, ca=text)
    assert reply.status == 400 and why in json.loads(reply.data)["message"]
    assert agent.wait() == 127
