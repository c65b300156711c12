"""The unmodified code interpreter client 1.1.1 against the kernels of the agent, directly and by the gateway's proxy:
every line of its README, in both of its forms. Only the image differs: one with nothing but python3 and bash."""

import asyncio
import threading
from datetime import timedelta

import httpx
import pytest
from code_interpreter import CodeInterpreter, CodeInterpreterSync, SupportedLanguage
from opensandbox import Sandbox, SandboxSync
from opensandbox.config import ConnectionConfig, ConnectionConfigSync
from opensandbox.exceptions import SandboxApiException
from opensandbox.models.execd import ExecutionHandlers
from opensandbox.models.execd_sync import ExecutionHandlersSync

from harness import BASE, BUSYBOX, NONROOT


@pytest.fixture(params=[False, True], ids=["direct", "proxy"])
def by_proxy(request):
    return request.param


@pytest.fixture
def interpreter(shared, by_proxy):
    config = ConnectionConfigSync(
        domain=shared.domain, api_key=shared.key, request_timeout=timedelta(seconds=60), use_server_proxy=by_proxy
    )
    sandbox = SandboxSync.create(BASE, connection_config=config, env={"PYTHON_VERSION": "3.11"})
    with sandbox:
        with CodeInterpreterSync.create(sandbox=sandbox) as made:
            yield made
        sandbox.kill()


def out(execution):
    return "".join(m.text for m in execution.logs.stdout)


def test_quick_start(shared, by_proxy):
    async def main():
        config = ConnectionConfig(
            domain=shared.domain, api_key=shared.key, request_timeout=timedelta(seconds=60), use_server_proxy=by_proxy
        )
        sandbox = await Sandbox.create(
            BASE,
            connection_config=config,
            entrypoint=["tail", "-f", "/dev/null"],
            env={"PYTHON_VERSION": "3.11", "JAVA_VERSION": "17", "NODE_VERSION": "20", "GO_VERSION": "1.24"},
        )
        async with sandbox:
            interpreter = await CodeInterpreter.create(sandbox=sandbox)
            context = await interpreter.codes.create_context(SupportedLanguage.PYTHON)
            result = await interpreter.codes.run(
                "import sys\nprint(sys.version)\nresult = 2 + 2\nresult", context=context
            )
            assert result.result and result.result[0].text == "4"
            assert out(result).startswith("3.") and result.error is None and result.complete
            assert result.id == context.id and result.execution_count == 1
            result = await interpreter.codes.run("print('hi')", language=SupportedLanguage.PYTHON)
            assert out(result) == "hi\n"
            await sandbox.kill()

    asyncio.run(main())


def test_synchronous_quick_start(shared, by_proxy):
    config = ConnectionConfigSync(
        domain=shared.domain,
        api_key=shared.key,
        request_timeout=timedelta(seconds=60),
        transport=httpx.HTTPTransport(limits=httpx.Limits(max_connections=20)),
        use_server_proxy=by_proxy,
    )
    sandbox = SandboxSync.create(BASE, connection_config=config, env={"PYTHON_VERSION": "3.11"})
    with sandbox:
        interpreter = CodeInterpreterSync.create(sandbox=sandbox)
        result = interpreter.codes.run("result = 2 + 2\nresult")
        assert result.result and result.result[0].text == "4"
        sandbox.kill()


def test_packages_are_installed_at_run_time(interpreter):
    """The image has no pip: what it would leave behind in the user's own place is imported all the same."""
    site = "$(python3 -m site --user-site)"
    execution = interpreter.commands.run(f"mkdir -p {site} && echo 'value = 7' >{site}/installed.py")
    assert execution.exit_code == 0
    assert interpreter.codes.run("import installed\ninstalled.value").result[0].text == "7"


def test_default_language_context_and_persistence(interpreter):
    execution = interpreter.codes.run("result = 2 + 2\nresult", language=SupportedLanguage.PYTHON)
    assert execution.result and execution.result[0].text == "4"
    interpreter.codes.run("x = 42", language=SupportedLanguage.PYTHON)
    execution = interpreter.codes.run("result = x\nresult", language=SupportedLanguage.PYTHON)
    assert execution.result and execution.result[0].text == "42"


def test_python_with_state_persistence(interpreter):
    ctx = interpreter.codes.create_context(SupportedLanguage.PYTHON)
    first = interpreter.codes.run("users = ['Alice', 'Bob', 'Charlie']\nprint(len(users))", context=ctx)
    assert out(first) == "3\n"
    second = interpreter.codes.run("users.append('Dave')\nprint(users)\nresult = users\nresult", context=ctx)
    assert out(second) == "['Alice', 'Bob', 'Charlie', 'Dave']\n"
    assert second.result[0].text == "['Alice', 'Bob', 'Charlie', 'Dave']"


def test_streaming_output_handling(shared, by_proxy):
    seen = []

    async def on_stdout(msg):
        seen.append(("STDOUT", msg.text, asyncio.get_running_loop().time()))

    async def on_stderr(msg):
        seen.append(("STDERR", msg.text, 0))

    async def main():
        config = ConnectionConfig(domain=shared.domain, api_key=shared.key, use_server_proxy=by_proxy)
        async with await Sandbox.create(BASE, connection_config=config) as sandbox:
            interpreter = await CodeInterpreter.create(sandbox=sandbox)
            handlers = ExecutionHandlers(on_stdout=on_stdout, on_stderr=on_stderr)
            ctx = await interpreter.codes.create_context(SupportedLanguage.PYTHON)
            await interpreter.codes.run(
                "import time\nfor i in range(5):\n    print(i)\n    time.sleep(0.5)", context=ctx, handlers=handlers
            )
            await sandbox.kill()

    asyncio.run(main())
    assert [text for _, text, _ in seen] == [f"{i}\n" for i in range(5)]
    assert seen[-1][2] - seen[0][2] > 1.5  # in real time


@pytest.mark.parametrize("language", [SupportedLanguage.JAVA, SupportedLanguage.GO, SupportedLanguage.TYPESCRIPT])
def test_a_language_that_the_image_lacks(interpreter, language):
    """What the README's other examples meet here: an error that says what there is."""
    with pytest.raises(SandboxApiException, match="languages available: python, bash"):
        interpreter.codes.create_context(language)
    with pytest.raises(SandboxApiException, match=f"no kernel for the language .*{language}"):
        interpreter.codes.run("1", language=language)


def test_multi_language_context_isolation(interpreter):
    py_ctx = interpreter.codes.create_context(SupportedLanguage.PYTHON)
    sh_ctx = interpreter.codes.create_context(SupportedLanguage.BASH)
    other = interpreter.codes.create_context(SupportedLanguage.PYTHON)
    assert out(interpreter.codes.run("x = 1\nprint('Running in Python')", context=py_ctx)) == "Running in Python\n"
    assert out(interpreter.codes.run("x=2; echo Running in bash $x", context=sh_ctx)) == "Running in bash 2\n"
    assert interpreter.codes.run("x", context=other).error.name == "NameError"
    assert interpreter.codes.run("x", context=py_ctx).result[0].text == "1"


def test_errors(interpreter):
    inits = []
    handlers = ExecutionHandlersSync(on_init=lambda m: inits.append(m.id))
    execution = interpreter.codes.run("print('before')\nundefined_name", handlers=handlers)
    assert execution.error.name == "NameError" and "undefined_name" in execution.error.value
    assert any("Cell In[1]" in line for line in execution.error.traceback)
    assert out(execution) == "before\n" and execution.exit_code is None
    assert inits == [execution.id] and execution.id
    execution = interpreter.codes.run("exit 3", language=SupportedLanguage.BASH)
    assert execution.error.name == "KernelDied"


def test_context_management(interpreter):
    codes = interpreter.codes
    made = [codes.create_context(SupportedLanguage.BASH) for _ in range(3)]
    assert all(c.language == "bash" for c in made)
    assert codes.get_context(made[0].id).language == "bash"
    listed = codes.list_contexts(SupportedLanguage.BASH)
    assert [c.id for c in listed] == [c.id for c in made]
    codes.delete_context(made[0].id)
    with pytest.raises(SandboxApiException, match="context not found"):
        codes.get_context(made[0].id)
    with pytest.raises(SandboxApiException):
        codes.delete_context(made[0].id)
    codes.delete_contexts(SupportedLanguage.BASH)
    assert codes.list_contexts(SupportedLanguage.BASH) == []
    with pytest.raises(SandboxApiException, match="context not found"):
        codes.run("echo", context=made[1])


def test_interrupt_and_reuse(interpreter):
    started = threading.Event()
    ids, results = [], []
    handlers = ExecutionHandlersSync(on_init=lambda m: ids.append(m.id), on_stdout=lambda m: started.set())
    ctx = interpreter.codes.create_context(SupportedLanguage.PYTHON)
    code = "import time\nprint('on')\nfor i in range(600): time.sleep(0.1)"
    thread = threading.Thread(
        target=lambda: results.append(interpreter.codes.run(code, context=ctx, handlers=handlers))
    )
    thread.start()
    assert started.wait(20)
    interpreter.codes.interrupt(ids[0])
    thread.join(20)
    assert results[0].error.name == "KeyboardInterrupt"
    assert interpreter.codes.run("i < 600", context=ctx).result[0].text == "True"
    with pytest.raises(SandboxApiException):
        interpreter.codes.interrupt("no-such-id")


def test_concurrent_contexts(shared, by_proxy):
    async def main():
        config = ConnectionConfig(domain=shared.domain, api_key=shared.key, use_server_proxy=by_proxy)
        async with await Sandbox.create(BASE, connection_config=config) as sandbox:
            codes = (await CodeInterpreter.create(sandbox=sandbox)).codes
            contexts = await asyncio.gather(*[codes.create_context(SupportedLanguage.PYTHON) for _ in range(4)])
            got = await asyncio.gather(*[codes.run(f"{i} * 10", context=c) for i, c in enumerate(contexts)])
            assert [e.result[0].text for e in got] == ["0", "10", "20", "30"]
            got = await asyncio.gather(*[codes.run(f"{i} * 10", context=contexts[0]) for i in range(8)])
            assert sorted(int(e.result[0].text) for e in got) == [i * 10 for i in range(8)]
            await sandbox.kill()

    asyncio.run(main())


def test_large_output_and_unicode(interpreter):
    execution = interpreter.codes.run("for i in range(20000): print('größe', i, '\\u2028\\u0085 🎉')")
    assert out(execution) == "".join(f"größe {i} \u2028\u0085 🎉\n" for i in range(20000))


def test_a_killed_kernel_is_told(interpreter):
    execution = interpreter.codes.run("import os; os.kill(os.getpid(), 9)")
    assert execution.error.name == "KernelDied" and execution.complete is None
    assert interpreter.codes.run("1 + 1").result[0].text == "2"


def test_as_an_ordinary_user(shared, by_proxy):
    config = ConnectionConfigSync(domain=shared.domain, api_key=shared.key, use_server_proxy=by_proxy)
    with SandboxSync.create(NONROOT, connection_config=config) as sandbox:
        codes = CodeInterpreterSync.create(sandbox=sandbox).codes
        assert codes.run("import os; os.getuid(), os.getcwd()").result[0].text == "(1000, '/home/app')"
        assert out(codes.run("id -u", language=SupportedLanguage.BASH)) == "1000\n"
        sandbox.kill()


def test_an_image_with_a_shell_only(shared):
    config = ConnectionConfigSync(domain=shared.domain, api_key=shared.key)
    with SandboxSync.create(BUSYBOX, connection_config=config) as sandbox:
        codes = CodeInterpreterSync.create(sandbox=sandbox, skip_health_check=True).codes
        assert out(codes.run("x=1; echo $x", language=SupportedLanguage.BASH)) == "1\n"
        with pytest.raises(SandboxApiException, match="no python3 in PATH; languages available: bash"):
            codes.run("1")
        sandbox.kill()


def test_an_image_that_names_a_jupyter_server_is_not_answered_for(shared):
    """Its own server may still be starting: the client has to go on waiting for it."""
    config = ConnectionConfigSync(domain=shared.domain, api_key=shared.key)
    env = {"JUPYTER_HOST": "http://127.0.0.1:44771", "JUPYTER_PORT": "44771"}
    with SandboxSync.create(BASE, connection_config=config, env=env) as sandbox:
        interpreter = CodeInterpreterSync.create(sandbox=sandbox, skip_health_check=True)
        assert interpreter.ping() and not interpreter.is_healthy()
        sandbox.kill()
