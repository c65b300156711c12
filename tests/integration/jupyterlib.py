"""A real Jupyter server with real kernels, made from the packages of the tests' own Python."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading

from harness import wait_for

DEADLINE = 60
TOKEN = "f00d"

SPECS = {
    "python-image": {"argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"], "language": "python",
               "display_name": "Python", "env": {"CHOSEN": "python"}},
    "shell": {"argv": [sys.executable, "-m", "bash_kernel", "-f", "{connection_file}"], "language": "bash",
              "display_name": "Bash"},
}


class Jupyter:
    """It takes a free port, and the same one when it is started again."""

    def __init__(self, directory, *options, base="/", ip="127.0.0.1", token=TOKEN):
        self.directory = directory
        self.options = options
        self.base = base
        self.ip = ip
        self.token = token
        self.port = 0
        self.proc = None
        for name, spec in SPECS.items():
            (directory / "data/kernels" / name).mkdir(parents=True)
            (directory / "data/kernels" / name / "kernel.json").write_text(json.dumps(spec))
        (directory / "root").mkdir()

    @property
    def url(self):
        return f"http://{self.ip}:{self.port}{self.base}"

    @property
    def env(self):
        return {"JUPYTER_HOST": self.url, "JUPYTER_TOKEN": self.token}

    def reserve(self):
        """A port that nothing listens on yet."""
        with socket.socket() as s:
            s.bind((self.ip, 0))
            self.port = s.getsockname()[1]
        return self

    def start(self):
        names = {"CONFIG_DIR": "config", "DATA_DIR": "data", "RUNTIME_DIR": "runtime"}
        env = {"PATH": os.environ["PATH"], "HOME": str(self.directory), "IPYTHONDIR": str(self.directory / "ipython"),
               "JUPYTER_PLATFORM_DIRS": "1", **{f"JUPYTER_{k}": str(self.directory / v) for k, v in names.items()}}
        self.proc = subprocess.Popen(
            [sys.executable, "-m", "jupyter_server", f"--ip={self.ip}", f"--port={self.port}", "--no-browser",
             "--allow-root", "--ServerApp.port_retries=0", f"--ServerApp.base_url={self.base}",
             f"--IdentityProvider.token={self.token}", f"--ServerApp.root_dir={self.directory / 'root'}",
             *self.options],
            env=env, cwd=self.directory, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            start_new_session=True, text=True)
        watchdog = threading.Timer(DEADLINE, self.proc.kill)
        watchdog.start()
        said = []
        for line in self.proc.stderr:
            said.append(line)
            found = re.search(r"http://[^/]*:(\d+)/", line)
            if found:
                self.port = int(found[1])
                break
        watchdog.cancel()
        assert self.port and self.proc.poll() is None, "".join(said)
        threading.Thread(target=self.proc.stderr.read, daemon=True).start()
        wait_for("the server's port", self.answers)
        return self

    def answers(self):
        """It names its port before it listens there."""
        try:
            return self.get("api")["version"]
        except OSError:
            return None

    def stop(self, sig=signal.SIGTERM):
        if self.proc and self.proc.poll() is None:
            self.proc.send_signal(sig)
            try:
                self.proc.wait(DEADLINE)
            except subprocess.TimeoutExpired:
                self.proc.kill()
                self.proc.wait()

    def get(self, path):
        conn = http.client.HTTPConnection(self.ip, self.port, timeout=DEADLINE)
        try:
            conn.request("GET", self.base + path, headers={"Authorization": f"token {self.token}"})
            resp = conn.getresponse()
            assert resp.status == 200, resp.read()
            return json.loads(resp.read())
        finally:
            conn.close()

    def sessions(self):
        return {s["id"]: s for s in self.get("api/sessions")}

    def kernels(self):
        return {k["id"] for k in self.get("api/kernels")}


class Relay:
    """Passes connections on to a port, until they are cut."""

    def __init__(self, port):
        self.to = port
        self.pairs = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.to))
            except OSError:  # the client sees a cut connection
                client.close()
                continue
            self.pairs.append((client, server))
            for a, b in ((client, server), (server, client)):
                threading.Thread(target=self.copy, args=(a, b), daemon=True).start()

    @staticmethod
    def copy(a, b):
        try:
            while data := a.recv(1 << 16):
                b.sendall(data)
            b.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def cut(self):
        """Both ends of all connections; new ones are taken."""
        pairs, self.pairs = self.pairs, []
        for pair in pairs:
            for s in pair:
                try:
                    s.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def close(self):
        self.listener.close()
        self.cut()
