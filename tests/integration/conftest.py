"""Fixtures of the gateway and SDK suites."""

import os
import subprocess

import pytest
from harness import BUSYBOX, Engine, Gateway, Private


@pytest.fixture(scope="session")
def engine():
    return Engine(os.environ["DOCKER_HOST"].removeprefix("unix://"))


@pytest.fixture(scope="module")
def shared(tmp_path_factory, engine):
    """A gateway that the tests of a file share when they do nothing to it."""
    gw = Gateway(tmp_path_factory.mktemp("shared"), engine).start()
    yield gw
    gw.cleanup()


@pytest.fixture
def make_gateway(tmp_path, engine):
    """Makes gateways that are cleaned up at the end of the test; the first start is the caller's."""
    made = []

    def make(on=engine, **kw):
        directory = tmp_path / f"gw{len(made)}"
        directory.mkdir()
        gw = Gateway(directory, on, **kw)
        made.append(gw)
        return gw

    yield make
    for gw in made:
        gw.cleanup()


@pytest.fixture
def private(engine):
    p = Private()
    p.start()
    # the image comes from the main engine: there is no registry
    main, own = (["docker", "-H", f"unix://{e.path}"] for e in (engine, p.engine))
    save = subprocess.Popen([*main, "save", BUSYBOX], stdout=subprocess.PIPE)
    subprocess.run([*own, "load", "-q"], stdin=save.stdout, check=True, stdout=subprocess.DEVNULL)
    save.wait()
    yield p
    p.remove()
