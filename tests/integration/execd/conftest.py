"""The agent as a local process, without a container engine.

EXECD names the binary (default: build/execd, else build/debug/execd). Nothing here sleeps: tests wait for
events, for the end of processes or on pipes, always with a deadline.
"""

import hashlib
import json
import os
import select
import subprocess

import pytest

from agentlib import SECRET, Agent, binary

DEADLINE = 20


def read_port(proc):
    """The port from the agent's log; its stderr stays open for the test."""
    while True:
        ready, _, _ = select.select([proc.stderr], [], [], DEADLINE)
        line = proc.stderr.readline() if ready else b""
        assert line, "the agent did not say where it listens"
        entry = json.loads(line)
        if entry["msg"] == "listening":
            return entry["port"]


@pytest.fixture
def start_agent(tmp_path):
    """start_agent(*args, env={...}, cwd=..., program=..., via=[program that executes its arguments],
    further arguments of Popen) -> Agent"""
    agents = []

    def start(*args, env=None, cwd=None, program=None, via=(), **popen):
        full = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "EXECD_ENVS": str(tmp_path / "env" / ".env")}
        full.update({k: v for k, v in os.environ.items() if k.endswith("SAN_OPTIONS")})
        full.update(env or {})
        proc = subprocess.Popen(
            [*via, program or binary(), "--port=0", "--log-level=6", *args],
            env=full,
            cwd=cwd or tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            **popen,
        )
        agent = Agent(proc, 0)
        agents.append(agent)
        agent.port = read_port(proc)
        return agent

    yield start
    for agent in agents:
        agent.stop()


@pytest.fixture
def agent(start_agent):
    return start_agent()


@pytest.fixture
def held(start_agent):
    """held(**kwargs of start_agent) -> Agent that waits for its claim"""

    def start(args=(), **kwargs):
        digest = hashlib.sha256(SECRET.encode()).hexdigest()
        return start_agent("--held", "--id=box-1", f"--claim-sha256={digest}", *args, **kwargs)

    return start
