"""Code and contexts on the kernels of a real Jupyter server (contract/execd.md 8.2)."""

import http.client
import json
import signal
import threading

import pytest

from agentlib import Fifo, claim
from codelib import Codes
from harness import wait_for
from jupyterlib import Jupyter, Relay

UNLIMITED = "--ZMQChannelsWebsocketConnection.limit_rate=False"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """It is not at the root of its address."""
    made = Jupyter(tmp_path_factory.mktemp("jupyter"), UNLIMITED, base="/lab/").start()
    yield made
    made.stop()


@pytest.fixture
def own_server(tmp_path):
    """One that a test may end."""
    made = Jupyter(tmp_path)
    yield made
    made.stop()


@pytest.fixture
def codes(server, start_agent):
    return Codes(start_agent(env=server.env))


def test_value_output_and_count(codes, server):
    run = codes.run("import sys\nprint('hi')\nprint('oops', file=sys.stderr)\nresult = 2 + 2\nresult")
    assert (run.out, run.err, run.count) == ("hi\n", "oops\n", 1)
    assert run.results == [{"text": "4", "text/plain": "4"}]
    assert run.kinds[-3:] == ["execution_count", "result", "execution_complete"]
    run = codes.run("None")
    assert (run.results, run.count, run.error) == ([], 2, None)
    session = server.sessions()[run.id]  # the context's id is the session's
    assert session["kernel"]["name"] == "python-image" and session["type"] == "notebook"
    assert codes.run("import os; os.environ['CHOSEN']").text == "'python'"  # not the kernelspec python3


def test_state_stays_and_the_default_context_is_one(codes):
    first = codes.run("x = 42")
    second = codes.run("x")
    assert second.text == "42" and first.id == second.id
    assert [c["id"] for c in codes.list()] == [first.id]


def test_contexts_do_not_share_and_are_removed(codes, server):
    before = server.kernels()
    ids = [codes.context() for _ in range(2)]
    for i, ident in enumerate(ids):
        codes.run(f"v = {i}", ident)
    assert [codes.run("v", i).text for i in ids] == ["0", "1"]
    assert codes.run("v").error["ename"] == "NameError"
    assert codes.delete(ids[0]) == 200
    wait_for("the kernel's end", lambda: ids[0] not in server.sessions())
    assert codes.run("v", ids[1]).text == "1"
    assert codes.agent.request("DELETE", "/code/contexts", language="python").status == 200
    wait_for("the end of all", lambda: server.kernels() == before)


def test_the_end_of_the_agent_removes_its_kernels(codes, server):
    before = server.kernels()
    codes.run("1")
    codes.context("bash")
    assert len(server.kernels() - before) == 2
    codes.agent.proc.terminate()
    codes.agent.wait()
    wait_for("the end of all", lambda: server.kernels() == before)


def test_a_context_that_is_deleted_while_it_starts(codes, server):
    before = server.kernels()
    said = []
    threads = [threading.Thread(target=lambda: said.append(codes.post("1", {"language": "python"}))) for _ in range(3)]
    for t in threads:
        t.start()
    while threads[0].is_alive():
        assert codes.agent.request("DELETE", "/code/contexts", language="python").status == 200
    for t in threads:
        t.join()
    codes.agent.request("DELETE", "/code/contexts", language="python")
    assert any(isinstance(s, tuple) and "deleted while it started" in s[2] for s in said), said
    wait_for("the end of all", lambda: server.kernels() == before)


def test_rich_results(codes):
    code = ("from IPython.display import display, HTML, Image, JSON\nh = display(HTML('<b>t</b>'), display_id=True)\n"
            "display(Image(b'\\x89PNG\\r\\n\\x1a\\nplot', format='png'))\ndisplay(JSON({'a': [1]}))\n"
            "h.update(HTML('<b>u</b>'))\n7")
    results = codes.run(code).results
    assert results[0]["text/html"] == "<b>t</b>" and results[0]["text"].startswith("<IPython")
    assert results[1]["image/png"].strip() == "iVBORw0KGgpwbG90"
    assert json.loads(results[2]["application/json"]) == {"a": [1]}
    assert results[3]["text/html"] == "<b>u</b>"
    assert results[4] == {"text": "7", "text/plain": "7"}
    bundle = "display({'text/plain': 'B', 'image/svg+xml': '<svg/>'}, raw=True)"
    assert codes.run(bundle).results == [{"text": "B", "text/plain": "B", "image/svg+xml": "<svg/>"}]
    run = codes.run("display({'image/png': 'x' * (4 << 20)}, raw=True); 1")
    assert "left out" in run.err and run.text == "1"


def test_a_message_with_buffers_is_read(codes):
    code = ("k = get_ipython().kernel\nk.session.send(k.iopub_socket, 'display_data', "
            "{'data': {'text/plain': 'B'}, 'metadata': {}}, parent=k.get_parent(), buffers=[b'abc', b''])")
    assert {"text": "B", "text/plain": "B"} in codes.run(code).results


def test_an_error_has_its_traceback(codes):
    codes.run("def f(n):\n    return 1 / n")
    run = codes.run("print('before')\nf(0)")
    assert run.out == "before\n" and run.count == 2
    assert (run.error["ename"], run.error["evalue"]) == ("ZeroDivisionError", "division by zero")
    text = "\n".join(run.error["traceback"])
    assert "In[2]" in text and "In[1]" in text
    assert codes.run("raise ValueError('v' * 3_000_000)").error["evalue"].startswith("vvv")
    assert codes.run("input()").error["ename"] == "StdinNotImplementedError"
    assert codes.run("def (").error["ename"] == "SyntaxError"
    assert codes.run("f(1)").text == "1.0"


def test_unicode(codes):
    text = "größe 中文 🎉 \u2028\u0085"
    assert codes.run(f"print({text!r})").out == text + "\n"
    long = codes.run("print('🎉é' * 100_000)")
    assert long.out == "🎉é" * 100_000 + "\n"
    assert codes.run("'größe'").text == "'größe'"
    assert codes.run("print('a\\0b')").out == "a\ufffdb\n"


def test_interrupt_then_reuse(codes):
    codes.run("x = 5")
    for code in ("import time; print(1); time.sleep(60)", "print(1)\nwhile True: pass"):
        stream = codes.start(code)
        ident = stream.next()["text"]
        stream.until("stdout")
        assert codes.interrupt(ident) == 200
        assert stream.until("error")["error"]["ename"] == "KeyboardInterrupt"
        assert codes.run("x").text == "5"
        assert codes.interrupt(ident) == 200  # nothing runs: nothing happens
    assert codes.run("x").text == "5"


def test_an_interrupt_works_from_init_on(codes):
    ident = codes.context()
    for _ in range(10):
        stream = codes.start("import time; time.sleep(60)", ident)
        assert stream.next()["type"] == "init"
        assert codes.interrupt(ident) == 200
        assert stream.until("error")["error"]["ename"] == "KeyboardInterrupt"
        stream.close()
    assert codes.run("1", ident).text == "1"


def test_executions_of_a_context_run_in_order(codes):
    ident = codes.context()
    streams = [codes.start(f"import time; time.sleep(0.01); print({i})", ident) for i in range(10)]
    outs = ["".join(e["text"] for e in s.rest() if e["type"] == "stdout") for s in streams]
    assert outs == [f"{i}\n" for i in range(10)]


def test_output_of_an_earlier_execution_is_not_the_later_ones(codes):
    """What a thread says is said in the name of the execution that it belongs to."""
    codes.run("k = get_ipython().kernel\nold = k.get_parent()\ndef say(kind, **content):\n"
              "    k.session.send(k.iopub_socket, kind, content, parent=old)")
    run = codes.run("say('stream', name='stdout', text='late')\nsay('error', ename='E', evalue='', traceback=[])\n"
                    "say('status', execution_state='idle')\nimport time; time.sleep(0.1)\nprint('end')")
    assert (run.out, run.error) == ("end\n", None)


def test_a_kernel_that_dies_is_no_success(codes, server):
    before = server.kernels()
    for code in ("import os; print('in', flush=True); os._exit(1)", "import os; os.kill(os.getpid(), 9)"):
        codes.run("x = 1")
        run = codes.run(code)
        assert run.error["ename"] == "KernelDied" and "its process ended" in run.error["evalue"]
        again = codes.run("'x' in globals()")
        assert again.text == "False" and again.id == run.id and again.count == 1
    wait_for("the dead ones' removal", lambda: len(server.kernels() - before) == 1)


def test_a_kernel_that_the_server_forgot(codes, server):
    ident = codes.run("x = 1").id
    kernel = server.sessions()[ident]["kernel"]["id"]
    assert codes.run("import os; os.getppid() > 0").text == "True"
    conn = http.client.HTTPConnection("127.0.0.1", server.port)
    conn.request("DELETE", f"{server.base}api/kernels/{kernel}", headers={"Authorization": f"token {server.token}"})
    assert conn.getresponse().status == 204
    conn.close()
    error = codes.run("x").error
    assert error["ename"] == "KernelDied" and "does not know it any more" in error["evalue"]
    assert codes.run("1").text == "1"


def test_a_restart_of_the_server(own_server, start_agent):
    codes = Codes(start_agent(env=own_server.start().env))
    codes.run("x = 1")
    own_server.stop()
    own_server.start()
    error = codes.run("x").error
    assert error["ename"] == "KernelDied" and "server was restarted" in error["evalue"]
    assert codes.run("1 + 1").text == "2"


def test_a_server_that_dies_with_code_under_way(own_server, start_agent):
    codes = Codes(start_agent(env=own_server.start().env))
    stream = codes.start("import time\nprint(1, flush=True)\ntime.sleep(600)")
    stream.until("stdout")
    own_server.stop(signal.SIGKILL)
    own_server.start()
    assert stream.until("error")["error"]["ename"] == "KernelDied"
    assert codes.run("1 + 1").text == "2"
    stream = codes.start("import time\nprint(1, flush=True)\ntime.sleep(600)")
    stream.until("stdout")
    own_server.stop(signal.SIGKILL)
    error = stream.until("error")["error"]
    assert error["ename"] == "ConnectionLost" and "cannot be reached" in error["evalue"]


def test_a_server_that_starts_later(own_server, start_agent):
    codes = Codes(start_agent(env=own_server.reserve().env))
    said = []
    thread = threading.Thread(target=lambda: said.append(codes.run("1 + 1").text))
    thread.start()
    own_server.start()
    thread.join(60)
    assert said == ["2"]


@pytest.mark.parametrize("how", ["busy", "idle"])
def test_a_lost_connection_to_a_living_kernel(own_server, start_agent, tmp_path, how):
    relay = Relay(own_server.start().port)
    codes = Codes(start_agent(env={**own_server.env, "JUPYTER_HOST": f"http://localhost:{relay.port}"}))
    go = Fifo(tmp_path / "go")
    ident = codes.run("x = 1").id
    if how == "busy":
        stream = codes.start(f"print('on', flush=True)\nopen('{go}').readline()\nx += 1")
        stream.until("stdout")
        relay.cut()
        error = stream.until("error")["error"]
        assert error["ename"] == "ConnectionLost" and "keeps its state" in error["evalue"]
        waiting = codes.start("x")  # behind the code that still runs
        assert waiting.next()["type"] == "init"
        go.write("x\n")
        result = waiting.until("result")
        assert result["results"]["text"] == "2"
        assert waiting.rest()[-1]["type"] == "execution_complete"
    else:
        relay.cut()
        assert codes.run("x").text == "1"
    assert [c["id"] for c in codes.list()] == [ident]
    relay.close()


def test_an_interrupt_after_a_lost_connection(own_server, start_agent):
    relay = Relay(own_server.start().port)
    codes = Codes(start_agent(env={**own_server.env, "JUPYTER_HOST": f"http://127.0.0.1:{relay.port}"}))
    stream = codes.start("x = 3\nprint('on', flush=True)\nwhile True: pass")
    ident = stream.next()["text"]
    stream.until("stdout")
    relay.cut()
    assert stream.until("error")["error"]["ename"] == "ConnectionLost"
    waiting = codes.start("print('never')")
    assert waiting.next()["type"] == "init"
    assert codes.interrupt(ident) == 200
    assert waiting.until("error")["error"]["ename"] == "KeyboardInterrupt"
    assert codes.run("x").text == "3"
    relay.close()


def test_refusals(server, start_agent):
    def said(language="python", **env):
        codes = Codes(start_agent(env={**server.env, **env}))
        answer = codes.post("1", {"language": language})
        assert answer[:2] == (500, "RUNTIME_ERROR"), answer
        resp = codes.agent.request("POST", "/code/context", {"language": language})
        assert resp.status == 500 and json.loads(resp.data)["message"] == answer[2]
        assert codes.list() == [] and codes.agent.run("echo hi").stdout == "hi\n"
        return answer[2]

    assert "refuses the token (HTTP 403): JUPYTER_TOKEN" in said(JUPYTER_TOKEN="wrong")
    assert "refuses the token (HTTP 403): JUPYTER_TOKEN" in said(JUPYTER_TOKEN="")
    assert 'the language "java" on the Jupyter server; languages available: ' in said("java")
    assert {"python", "bash"} == set(said("cobol").partition("available: ")[2].split(", "))
    assert "answers HTTP 404" in said(JUPYTER_HOST=f"http://127.0.0.1:{server.port}/elsewhere")
    assert "TLS is not spoken here" in said(JUPYTER_HOST="https://127.0.0.1:1")
    assert "names are not resolved here" in said(JUPYTER_HOST="http://jupyter:8888")
    assert "http://127.0.0.1:44771" in said(JUPYTER_HOST="127.0.0.1:8888")


def test_flags_win_and_an_empty_host_is_none(server, start_agent):
    codes = Codes(start_agent(f"--jupyter-host={server.url}", f"--jupyter-token={server.token}",
                              env={"JUPYTER_HOST": "http://127.0.0.1:1", "JUPYTER_TOKEN": "wrong"}))
    assert codes.run("import os; os.environ['CHOSEN']").text == "'python'"
    codes = Codes(start_agent(env={"JUPYTER_HOST": ""}))
    assert codes.run("import os; 'CHOSEN' in os.environ").text == "False"


def test_only_the_entrypoint_sees_the_server(server, start_agent):
    show = 'echo "$JUPYTER_HOST $JUPYTER_TOKEN"'
    agent = start_agent("--init", "--", "sh", "-c", f"{show}; exec sleep 600", env=server.env)
    assert agent.proc.stdout.readline().decode() == f"{server.url} {server.token}\n"
    assert agent.run(show).stdout == " \n"


def test_a_claim_names_the_server(server, held):
    agent = held(env={"JUPYTER_HOST": "http://127.0.0.1:1"})
    assert claim(agent, env=server.env).status == 200
    assert agent.run('echo "$JUPYTER_HOST $JUPYTER_TOKEN"').stdout == " \n"
    assert Codes(agent).run("import os; os.environ['CHOSEN']").text == "'python'"


def test_working_directories(codes, tmp_path):
    odd = tmp_path / "it's a \"dir\" `x` 🎉"
    assert codes.run("import os; print(os.getcwd())", codes.context(cwd=str(odd))).out == f"{odd}\n"
    assert codes.sh("pwd", codes.context("bash", cwd=str(odd))).out == f"{odd}\n"


def test_bash(codes):
    codes.sh("x='a b'; cd /usr; f() { echo f:$1; }")
    assert codes.sh('echo "$x"; pwd; f 1').out == "a b\n/usr\nf:1\n"
    assert codes.sh("echo out; false").error is not None


def test_much_output_to_a_slow_reader(codes, tmp_path):
    """What the client does not take is not read: the agent stays small, nothing is lost."""
    done = Fifo(tmp_path / "done")
    codes.run("1")
    before = codes.agent.rss_kib()
    stream = codes.start(f"for i in range(320_000): print(f'{{i:063d}}')\nopen('{done}', 'w').write('x\\n')")
    assert done.read_line() == "x"  # all was said before a byte is taken
    assert codes.agent.request("GET", "/ping").status == 200
    out = "".join(e["text"] for e in stream.rest() if e["type"] == "stdout")
    assert out == "".join(f"{i:063d}\n" for i in range(320_000))
    assert codes.run("2").text == "2"
    if not codes.agent.sanitized:
        assert codes.agent.peak_kib() - before < 24 << 10


def test_one_message_of_ten_megabytes(codes):
    run = codes.run("print('x' * 10_000_000)")
    assert run.out == "x" * 10_000_000 + "\n" and run.error is None


def test_a_message_that_is_too_large(codes):
    codes.run("x = 1")
    error = codes.run("x = 2; print('x' * (17 << 20))").error
    assert error["ename"] == "OutputTooLarge" and "16 MiB" in error["evalue"]
    assert codes.run("x").text == "2"
