"""The agent in containers of its own, without a gateway: what an image may be like, and what PID 1 owes it."""

import hashlib
import http.client
import io
import os
import pathlib
import secrets
import subprocess
import tarfile
import urllib.parse

import pytest
from agentlib import SECRET, Agent
from agentlib import binary
from harness import Engine, wait_for

AGENT = "/opt/opensandbox/agent/execd"


class Box(Agent):
    """A held agent as PID 1. Its headers are set by agentlib.claim."""

    def __init__(self, engine, image, *, user="", read_only=False, args=None, via=None, binds=(), files=None, **host):
        if b"__asan_init" in pathlib.Path(binary()).read_bytes():
            pytest.skip("a sanitized agent has libraries, which the image has not")
        self.engine = engine
        digest = hashlib.sha256(SECRET.encode()).hexdigest()
        if via:  # a static program of this machine that executes its arguments
            binds = [*binds, f"{via}:/via:ro"]
        entrypoint = [*(["/via"] if via else []), AGENT, *(args or ["--held", "--id=box", f"--claim-sha256={digest}"])]
        status, reply = engine.call(
            "POST",
            f"/containers/create?name=sandgate-test-{secrets.token_hex(6)}",
            {
                "Image": image,
                "Entrypoint": entrypoint,
                "User": user,
                "ExposedPorts": {"44772/tcp": {}},
                "HostConfig": {
                    "Binds": [f"{binary()}:{AGENT}:ro", *binds],
                    "PortBindings": {"44772/tcp": [{"HostIp": "127.0.0.1", "HostPort": ""}]},
                    "ReadonlyRootfs": read_only,
                    **host,
                },
            },
        )
        assert status == 201, reply
        self.container = reply["Id"]
        super().__init__(None, 0)
        try:
            self.put(files or {})
            status, reply = engine.call("POST", f"/containers/{self.container}/start")
            assert status == 204, reply
            self.port = int(self.info()["NetworkSettings"]["Ports"]["44772/tcp"][0]["HostPort"])
            wait_for("the agent answers", self.answers)
        except BaseException:
            self.remove()
            raise

    def put(self, files):
        """Files of the image."""
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as tar:
            for path, content in files.items():
                member = tarfile.TarInfo(path.lstrip("/"))
                member.size, member.mode = len(content), 0o644
                tar.addfile(member, io.BytesIO(content))
        command = ["docker", "-H", f"unix://{self.engine.path}", "cp", "-", f"{self.container}:/"]
        if files:
            subprocess.run(command, input=data.getvalue(), check=True)

    def info(self):
        status, reply = self.engine.call("GET", f"/containers/{self.container}/json")
        assert status == 200, reply
        return reply

    def answers(self):
        try:
            return self.request("GET", "/ping").status == 200
        except (OSError, http.client.HTTPException):
            return False

    def wait(self):
        """The container's exit status; fails after the engine's minute."""
        status, reply = self.engine.call("POST", f"/containers/{self.container}/wait")
        assert status == 200, reply
        return reply["StatusCode"]

    def signal(self, name):
        path = f"/containers/{self.container}/kill?signal={urllib.parse.quote(name, safe='')}"
        status, reply = self.engine.call("POST", path)
        assert status == 204, reply

    def stop(self, seconds=10):
        self.engine.call("POST", f"/containers/{self.container}/stop?t={seconds}")

    def logs(self):
        """What the entrypoint and the agent wrote."""
        host = f"unix://{self.engine.path}"
        done = subprocess.run(["docker", "-H", host, "logs", self.container], capture_output=True, check=True)
        return (done.stdout + done.stderr).decode()

    def remove(self):
        self.engine.call("DELETE", f"/containers/{self.container}?force=1&v=1")

    def upload(self, path, data, mode=644):
        edge = "edge" + secrets.token_hex(8)
        parts = (
            f'--{edge}\r\nContent-Disposition: form-data; name="metadata"; filename="metadata"\r\n'
            f'Content-Type: application/json\r\n\r\n{{"path":"{path}","mode":{mode}}}\r\n'
            f'--{edge}\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n"
        ).encode()
        body = parts + data + f"\r\n--{edge}--\r\n".encode()
        reply = self.request(
            "POST", "/files/upload", body, {"Content-Type": f"multipart/form-data; boundary={edge}"}
        )
        assert reply.status == 200, reply.data

    def download(self, path):
        reply = self.request("GET", "/files/download", path=path)
        assert reply.status == 200, reply.data
        return reply.data


def engine():
    return Engine(os.environ["DOCKER_HOST"].removeprefix("unix://"))


def make_certificates(directory):
    """A CA, and a certificate of it for localhost: paths ca, key and cert below directory."""
    directory = pathlib.Path(directory)

    def openssl(*args):
        subprocess.run(["openssl", *args], cwd=directory, check=True, capture_output=True)

    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl("req", "-x509", *new, "-days", "2", "-subj", "/CN=Test CA", "-keyout", "ca.key", "-out", "ca")
    openssl("req", *new, "-subj", "/CN=localhost", "-keyout", "key", "-out", "request")
    (directory / "names").write_text("subjectAltName=DNS:localhost\n")
    openssl("x509", "-req", "-in", "request", "-CA", "ca", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
            "-extfile", "names", "-out", "cert")
    return directory
