"""The unmodified code interpreter client 1.1.1 in a sandbox that is made as the official image is: its entrypoint starts
a Jupyter server beside the agent, which JUPYTER_HOST and JUPYTER_TOKEN name. The server's packages are the tests' own."""

import asyncio
import sys
import sysconfig
import threading

import pytest
from code_interpreter import CodeInterpreter, CodeInterpreterSync, SupportedLanguage
from opensandbox import Sandbox, SandboxSync
from opensandbox.config import ConnectionConfig, ConnectionConfigSync
from opensandbox.exceptions import SandboxApiException
from opensandbox.models.execd_sync import ExecutionHandlersSync
from opensandbox.models.sandboxes import Host, Volume

from harness import BASE, Gateway

SITE = sysconfig.get_path("purelib")
ENV = {"JUPYTER_HOST": "http://127.0.0.1:44771", "JUPYTER_PORT": "44771", "JUPYTER_TOKEN": "f00d", "PYTHONPATH": "/site"}
START = "python3 -m jupyter_server --allow-root --ip=127.0.0.1 --port=$JUPYTER_PORT --no-browser --IdentityProvider.token=$JUPYTER_TOKEN"
SANDBOX = {
    "image": BASE,
    "env": ENV,
    "entrypoint": ["sh", "-c", f"{START} >/dev/null 2>&1"],
    "volumes": [Volume(name="site", host=Host(path=SITE), mount_path="/site", read_only=True)],
}
pytestmark = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the image has Python 3.11: other packages do not run")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory, engine):
    made = Gateway(tmp_path_factory.mktemp("gw"), engine, extra=f'[storage]\nallowed_host_paths = ["{SITE}"]\n').start()
    yield made
    made.cleanup()


@pytest.fixture
def interpreter(gateway):
    config = ConnectionConfigSync(domain=gateway.domain, api_key=gateway.key)
    with SandboxSync.create(connection_config=config, **SANDBOX) as sandbox:
        with CodeInterpreterSync.create(sandbox=sandbox) as made:
            yield made
        sandbox.kill()


def out(execution):
    return "".join(m.text for m in execution.logs.stdout)


def test_results_state_and_errors(interpreter):
    codes = interpreter.codes
    result = codes.run("import sys\nprint(sys.version)\nresult = 2 + 2\nresult")
    assert result.result[0].text == "4" and out(result).startswith("3.") and result.error is None and result.complete
    assert codes.run("result").result[0].text == "4"
    context = codes.create_context(SupportedLanguage.PYTHON)
    failed = codes.run("print('before')\nresult", context=context)
    assert failed.error.name == "NameError" and out(failed) == "before\n" and failed.id == context.id
    assert codes.run("import os; os._exit(1)", context=context).error.name == "KernelDied"
    assert codes.run("1 + 1", context=context).result[0].text == "2"
    with pytest.raises(SandboxApiException, match='no kernel for the language "java" on the Jupyter server.*: python'):
        codes.create_context(SupportedLanguage.JAVA)
    seen = interpreter.commands.run("echo \"<$JUPYTER_HOST$JUPYTER_TOKEN>\"")
    assert seen.text == "<>"


def test_contexts_are_managed(interpreter):
    codes = interpreter.codes
    made = [codes.create_context(SupportedLanguage.PYTHON) for _ in range(2)]
    assert [c.id for c in codes.list_contexts(SupportedLanguage.PYTHON)] == [c.id for c in made]
    codes.delete_context(made[0].id)
    with pytest.raises(SandboxApiException, match="context not found"):
        codes.get_context(made[0].id)
    codes.delete_contexts(SupportedLanguage.PYTHON)
    assert codes.list_contexts(SupportedLanguage.PYTHON) == []


def test_interrupt_and_run_on(interpreter):
    started = threading.Event()
    ids, results = [], []
    handlers = ExecutionHandlersSync(on_init=lambda m: ids.append(m.id), on_stdout=lambda m: started.set())
    context = interpreter.codes.create_context(SupportedLanguage.PYTHON)
    code = "import time\nprint('on')\nfor i in range(600): time.sleep(0.1)"
    thread = threading.Thread(
        target=lambda: results.append(interpreter.codes.run(code, context=context, handlers=handlers))
    )
    thread.start()
    assert started.wait(20)
    interpreter.codes.interrupt(ids[0])
    thread.join(20)
    assert results[0].error.name == "KeyboardInterrupt"
    assert interpreter.codes.run("i < 600", context=context).result[0].text == "True"


def test_asynchronous_contexts_at_once(gateway):
    async def main():
        config = ConnectionConfig(domain=gateway.domain, api_key=gateway.key, use_server_proxy=True)
        async with await Sandbox.create(connection_config=config, **SANDBOX) as sandbox:
            codes = (await CodeInterpreter.create(sandbox=sandbox)).codes
            contexts = await asyncio.gather(*[codes.create_context(SupportedLanguage.PYTHON) for _ in range(3)])
            got = await asyncio.gather(*[codes.run(f"{i} * 10", context=c) for i, c in enumerate(contexts)])
            assert [e.result[0].text for e in got] == ["0", "10", "20"]
            await sandbox.kill()

    asyncio.run(main())
