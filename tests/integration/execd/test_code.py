"""Code and contexts with the kernels that the agent drives itself: Python and shell (contract/execd.md 8.1)."""

import http.client
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import threading

import pytest

from agentlib import Fifo, Stream, binary, processes
from codelib import Codes, Run

PLOT = '''
def get_fignums(): return sorted(figures)
def figure(n=None):
    n = n or len(figures) + 1
    return figures.setdefault(n, Figure(n))
def close(fig): figures.pop(fig.n, None)
def plot(*a):
    show.__signature__ = 1
    figure(1)
def show(): raise RuntimeError("not replaced")
from .figure import Figure
figures = {}
'''
FIGURE = '''
class Figure:
    def __init__(self, n): self.n = n
    def savefig(self, out, format, **kw): out.write(b"png of %d" % self.n)
    def __repr__(self): return "<Figure %d>" % self.n
'''


@pytest.fixture
def codes(agent):
    return Codes(agent)


def children(agent):
    return set(pathlib.Path(f"/proc/{agent.proc.pid}/task/{agent.proc.pid}/children").read_text().split())


def pipes(agent):
    """How many ends of pipes the agent has; sockets are its connections, too."""
    fds = pathlib.Path(f"/proc/{agent.proc.pid}/fd")
    return sum(os.readlink(fd).startswith("pipe:") for fd in fds.iterdir())


def test_value_output_and_count(codes):
    run = codes.run("import sys\nprint('hi')\nprint('oops', file=sys.stderr)\nresult = 2 + 2\nresult")
    assert (run.out, run.err, run.count) == ("hi\n", "oops\n", 1)
    assert run.results == [{"text": "4", "text/plain": "4"}]
    assert run.kinds[-3:] == ["execution_count", "result", "execution_complete"]
    run = codes.run("None")
    assert (run.results, run.count, run.error) == ([], 2, None)
    assert codes.run("result;").results == []
    assert codes.run("_ + 1").text == "5"


def test_state_stays_and_the_default_context_is_one(codes):
    first = codes.run("x = 42")
    second = codes.run("x")
    assert second.text == "42" and first.id == second.id
    assert [c["id"] for c in codes.list()] == [first.id]
    assert codes.run("x", context=first.id).text == "42"


def test_contexts_do_not_share(codes):
    ids = [codes.context() for _ in range(6)]
    assert len(set(ids)) == 6
    for i, ident in enumerate(ids):
        assert codes.run(f"v = {i}", ident).error is None
    assert [codes.run("v", i).text for i in ids] == [str(i) for i in range(6)]
    assert codes.run("v").error["ename"] == "NameError"
    assert sorted(c["id"] for c in codes.list() if c["id"] in ids) == sorted(ids)
    assert codes.delete(ids[0]) == 200
    assert codes.delete(ids[0]) == 404
    assert codes.agent.request("GET", f"/code/contexts/{ids[0]}").status == 404
    assert codes.post("1", {"id": ids[0]})[:2] == (404, "CONTEXT_NOT_FOUND")


def test_delete_by_language(codes, agent):
    python, shell = codes.context(), codes.context("bash")
    codes.run("1")
    assert agent.request("DELETE", "/code/contexts").status == 400
    assert {c["language"] for c in codes.list(language="python")} == {"python"}
    assert agent.request("DELETE", "/code/contexts", language="python").status == 200
    assert [c["id"] for c in codes.list()] == [shell]
    assert codes.list(language="python") == []
    assert codes.post("1", {"id": python})[0] == 404
    assert agent.request("GET", "/code/contexts", language="sql").status == 500


def test_cwd_is_made(codes, tmp_path):
    ident = codes.context(cwd=f"{tmp_path}/a/b")
    assert codes.run("import os; print(os.getcwd())", ident).out == f"{tmp_path}/a/b\n"
    (tmp_path / "a/b/json.py").write_text("raise SystemError('shadowed')")  # the driver's own imports are safe
    (tmp_path / "a/b/own.py").write_text("value = 7")
    assert codes.run("import own; own.value", codes.context(cwd=f"{tmp_path}/a/b")).text == "7"


def test_an_exception_shows_the_code_only(codes):
    codes.run("def f(n):\n    return 1 / n")
    run = codes.run("x = 1\nf(0)")
    assert run.error["ename"] == "ZeroDivisionError" and run.error["evalue"] == "division by zero"
    text = "\n".join(run.error["traceback"])
    assert 'File "Cell In[1]", line 2, in f' in text and "return 1 / n" in text
    assert 'File "Cell In[2]", line 2, in <module>' in text and "<kernel>" not in text
    assert run.count == 2
    assert codes.run("def (").error["ename"] == "SyntaxError"
    chained = codes.run("try:\n    f(0)\nexcept Exception as e:\n    raise KeyError('k') from e").error
    assert chained["ename"] == "KeyError" and "direct cause" in "".join(chained["traceback"])
    odd = codes.run("class E(Exception):\n    def __str__(self): raise ValueError\nraise E").error
    assert odd["ename"] == "E"
    deep = codes.run("def r(n):\n    r(n + 1)\nr(0)").error
    assert deep["ename"] == "RecursionError" and len("".join(deep["traceback"])) < 100000


def test_exit_is_told_and_ends_nothing(codes):
    codes.run("x = 1")
    for code in ("exit()", "quit(3)", "import sys; sys.exit('bye')", "raise SystemExit"):
        assert codes.run(code).error["ename"] == "SystemExit"
    assert codes.run("x").text == "1"


def test_lines_of_notebooks(codes, tmp_path):
    assert codes.run("!echo a\nif True:\n    !echo b\nx = 5 % 3\nx").out == "a\nb\n"
    assert codes.run(f"%matplotlib inline\n%cd {tmp_path}\nimport os\nos.getcwd()").text == repr(str(tmp_path))
    assert codes.run("%%bash\nfor i in 1 2; do echo $i; done").out == "1\n2\n"
    assert "exit status 3" in codes.run("!exit 3").err
    assert codes.run('"""\n!no\n"""').text == repr("\n!no\n")
    error = codes.run("%lsmagic").error
    assert error["ename"] == "UsageError" and "%pip" in error["evalue"]
    assert codes.run("!echo x\ndef (").error["ename"] == "SyntaxError"


def test_print(codes):
    code = "import threading as t\nl = [t.Thread(target=lambda: [print('x' * 50, 'y') for _ in range(200)]) for _ in range(8)]\n"
    run = codes.run(code + "[x.start() for x in l]; [x.join() for x in l]; None")
    assert run.out == ("x" * 50 + " y\n") * 1600
    assert codes.run("print(1, 2, sep='-', end='!'); print(); print(file=None, *'ab')").out == "1-2!\na b\n"
    assert codes.run("print(sep=1)").error["ename"] == "TypeError"


def test_stdin_is_at_its_end(codes):
    assert codes.run("input('name? ')").error["ename"] == "EOFError"
    assert codes.sh("cat; read x || echo end").out == "end\n"


def test_output_of_programs_shows_in_order(codes):
    run = codes.run("import os, subprocess\nprint(1)\nsubprocess.run('echo 2; echo e >&2', shell=True)\n"
                    "os.write(1, b'3\\n')\nos.system('echo 4')\nprint(5); None")
    assert (run.out, run.err) == ("1\n2\n3\n4\n5\n", "e\n")


def test_prints_are_events_of_their_own_lines(codes, tmp_path):
    go = Fifo(tmp_path / "go")
    stream = codes.start(f"print('a')\nopen('{go}').readline()\nprint('b', end='')\nopen('{go}').readline()\nprint('c')")
    assert stream.until("stdout")["text"] == "a\n"
    go.write("x\n")
    assert stream.until("stdout")["text"] == "b"  # not held until the line is complete
    go.write("x\n")
    assert stream.until("stdout")["text"] == "c\n"
    assert stream.rest()[-1]["type"] == "execution_complete"


def test_unicode_and_bytes(codes):
    text = "größe 中文 🎉 \u2028\u0085 \\u0001"
    assert codes.run(f"print({text!r})\n{text!r}").out == text + "\n"
    assert codes.run("'\\ud800' + chr(0) + 'ü'").text == repr("\ud800\0ü")
    assert codes.run("display({'text/plain': '\\ud800' + chr(0)}, raw=True)").results[0]["text"] == "?\ufffd"
    assert codes.run("import os; os.write(1, b'\\xff\\xc3'); None").out == "\ufffd\ufffd"
    run = codes.run("import os\nfor b in 'é🎉'.encode(): os.write(1, bytes([b]))")
    assert run.out == "é🎉"
    assert codes.sh("printf '%s' 'größe 🎉'").out == "größe 🎉"
    assert codes.run("'größe'").text == "'größe'"


def test_rich_results(codes):
    codes.run("class T:\n    def _repr_html_(self): return '<b>t</b>'\n    def _repr_png_(self): return b'png'\n"
              "    def __repr__(self): return 'T'\n")
    assert codes.run("T()").results == [{"text": "T", "text/plain": "T", "text/html": "<b>t</b>", "image/png": "cG5n"}]
    shown = codes.run("display(T(), 1)\n2").results
    assert [r["text"] for r in shown] == ["T", "1", "2"]
    codes.run("class B:\n    def _repr_mimebundle_(self, include=None, exclude=None):\n"
              "        return {'application/json': {'a': [1, float('nan')]}, 'text/plain': 'B'}")
    assert "nan" in codes.run("B()").results[0]["application/json"]
    broken = codes.run("class X:\n    def _repr_html_(self): raise ValueError('no')\nX()")
    assert "X._repr_html_ failed" in broken.err and "text" in broken.results[0]
    assert codes.run("class Y:\n    def __repr__(self): raise ValueError('bad')\nY()").error["ename"] == "ValueError"


def test_plots(start_agent, tmp_path):
    (tmp_path / "matplotlib").mkdir()
    (tmp_path / "matplotlib/__init__.py").write_text("")
    (tmp_path / "matplotlib/pyplot.py").write_text(PLOT)
    (tmp_path / "matplotlib/figure.py").write_text(FIGURE)
    codes = Codes(start_agent(env={"PYTHONPATH": str(tmp_path)}))
    run = codes.run("import os, matplotlib.pyplot as plt\nplt.plot(1)\nplt.show()\nplt.plot(2)\nos.environ['MPLBACKEND']")
    assert [r.get("image/png") for r in run.results] == ["cG5nIG9mIDE=", None, "cG5nIG9mIDE="]
    assert run.text == "<Figure 1>"
    assert codes.run("plt.figure(1)").results == [
        {"text": "<Figure 1>", "text/plain": "<Figure 1>", "image/png": "cG5nIG9mIDE="}
    ]
    assert codes.run("plt.plot(1); 1/0").error["ename"] == "ZeroDivisionError"


def test_top_level_await(codes):
    assert codes.run("import asyncio\nawait asyncio.sleep(0)\nawait asyncio.sleep(0, 'v')").text == "'v'"
    assert codes.run("asyncio.run(asyncio.sleep(0, 'r'))").text == "'r'"
    stream = codes.start("print('in', flush=True)\nawait asyncio.sleep(60)")
    ident = stream.next()["text"]
    stream.until("stdout")
    assert codes.interrupt(ident) == 200
    assert stream.until("error")["error"]["ename"] == "KeyboardInterrupt"
    assert codes.run("await asyncio.sleep(0, 1)").text == "1"


@pytest.mark.parametrize("code", ["import time; print(1); time.sleep(60)", "print(1)\nwhile True: pass",
                                  "import subprocess; print(1); subprocess.run(['sleep', '60'])"])
def test_interrupt_then_reuse(codes, code):
    codes.run("x = 5")
    stream = codes.start(code)
    ident = stream.next()["text"]
    stream.until("stdout")
    assert codes.interrupt(ident) == 200
    assert stream.until("error")["error"]["ename"] == "KeyboardInterrupt"
    assert codes.run("x").text == "5"
    assert codes.interrupt(ident) == 200  # nothing runs: nothing happens
    assert codes.run("x").text == "5"
    assert codes.interrupt("nope") == 500


@pytest.mark.parametrize("language, code, name", [
    ("python", "import time; time.sleep(60)", "KeyboardInterrupt"),
    ("python", "while True: pass", "KeyboardInterrupt"),
    ("bash", "sleep 60", "CommandExecError"),
    ("bash", "while :; do :; done", "CommandExecError"),
])
def test_an_interrupt_works_from_init_on(codes, language, code, name):
    ident = codes.context(language)
    for _ in range(20):
        stream = codes.start(code, ident)
        assert stream.next()["type"] == "init"
        assert codes.interrupt(ident) == 200
        assert stream.until("error")["error"]["ename"] == name
        stream.close()
    os_exit = "import os; os._exit(1)" if language == "python" else "exit 1"
    assert codes.run(os_exit, ident).error["ename"] == "KernelDied"
    stream = codes.start(code, ident)  # its kernel starts anew
    assert codes.interrupt(ident) == 200
    assert stream.until("error")["error"]["ename"] in (name, "KeyboardInterrupt")


@pytest.mark.parametrize("code", [
    "echo 1; sleep 60; echo after",
    "f() { while :; do :; done; }; g() { f; echo inner; }; echo 1; g; echo after",
    "echo 1; (sleep 60; echo sub); echo after",
    "echo 1; y=$(sleep 60; echo sub); echo after",
    "{ echo 1; sleep 60; } | cat; echo after",
    "sleep 60 & echo 1; wait; echo after",
])
def test_interrupt_of_a_shell_skips_the_rest(codes, code):
    codes.sh("x=5; cd /usr")
    stream = codes.start(code, language="bash")
    ident = stream.next()["text"]
    stream.until("stdout")
    assert codes.interrupt(ident) == 200
    events = stream.rest()
    assert events[-1]["error"] == {"ename": "CommandExecError", "evalue": "130", "traceback": ["exit status 130"]}
    assert not [e for e in events if e["type"] == "stdout"]
    assert codes.sh('echo "$x $PWD"; h() { echo fn; }; h').out == "5 /usr\nfn\n"


def test_an_interrupt_is_never_lost(codes):
    """Wherever it meets the start of a pipeline: bash takes one in twenty for the good end of the last program."""
    for _ in range(400 if "SANDGATE_SOAK" in os.environ else 60):
        stream = codes.start("echo 1; sleep 60 | cat; sleep 60; echo after", language="bash")
        ident = stream.next()["text"]
        stream.until("stdout")
        assert codes.interrupt(ident) == 200
        assert stream.rest()[-1]["error"]["evalue"] == "130"


def test_shell_state_and_status(codes):
    run = codes.sh("x='a b'; export Y=2; cd /usr; f() { echo f:$1; }; alias k=v; echo hi; echo no >&2; (exit 3)")
    assert (run.out, run.err, run.count) == ("hi\n", "no\n", 1)
    assert run.error == {"ename": "CommandExecError", "evalue": "3", "traceback": ["exit status 3"]}
    run = codes.sh('echo "$x $Y"; pwd; f 1; env | grep ^Y=')
    assert run.out == "a b 2\n/usr\nf:1\nY=2\n" and run.kinds[-1] == "execution_complete"
    assert codes.sh("cat <<'E'\n$x \\n `no`\nE\nprintf '%s' \"it's\\\\\"").out == "$x \\n `no`\nit's\\"
    for broken in ("if", "echo 'open", "echo )", "for"):
        assert codes.sh(broken).error["evalue"] == "2"
    assert codes.sh('echo "$x"').out == "a b\n"
    assert codes.sh("return 7").error["evalue"] == "7"


def test_long_shell_code(codes):
    code = "".join(f"v{i}='{'x' * 20}'  # line {i}\n" for i in range(20000)) + "echo $v19999"
    assert codes.sh(code).out == "x" * 20 + "\n"
    assert codes.sh("IFS=:; x='a:b'; echo $x").out == "a b\n"
    assert codes.sh("echo $x\n\n").out == "a b\n"


def test_a_shell_that_is_left_is_told(codes):
    codes.sh("x=1")
    error = codes.sh("echo bye; exit 3").error
    assert error["ename"] == "KernelDied" and "exit status 3" in error["evalue"]
    assert codes.sh('echo "x=$x"').out == "x=\n"


def test_an_image_without_bash(start_agent, tmp_path):
    box = shutil.which("busybox")
    if not box:
        pytest.skip("busybox is not installed")
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    for applet in ("sh", "cat", "sleep"):
        (bin_dir / applet).symlink_to(box)
    codes = Codes(start_agent(env={"PATH": str(bin_dir)}))
    assert codes.sh("x=5; f() { echo f$x; }; f").out == "f5\n"
    assert codes.sh("if").error["evalue"] != "0"
    assert codes.sh("f").out == "f5\n"
    stream = codes.start("echo 1; while :; do cat /proc/uptime >/dev/null; done; echo after", language="bash")
    ident = stream.next()["text"]
    stream.until("stdout")
    codes.interrupt(ident)
    assert stream.rest()[-1]["error"]["evalue"] == "130"
    assert codes.sh("f").out == "f5\n"
    status, code, message = codes.post("1", {"language": "python"})
    assert (status, code) == (500, "RUNTIME_ERROR")
    assert "no python3 in PATH" in message and "languages available: bash" in message


@pytest.mark.parametrize("language", ["java", "go", "typescript", "javascript", "sql", "cobol", "x" * 31])
def test_a_language_without_a_kernel(codes, agent, language):
    status, code, message = codes.post("1", {"language": language})
    assert (status, code) == (500, "RUNTIME_ERROR")
    assert language in message and "languages available: python, bash" in message
    resp = agent.request("POST", "/code/context", {"language": language})
    assert resp.status == 500 and "languages available" in json.loads(resp.data)["message"]
    assert codes.list() == []


def test_bad_requests(codes, agent):
    for body in ("", "{", "[]", '{"code":1}', '{"code":""}', "{}", '{"code":"1","context":[]}',
                 '{"code":"1","context":{"language":7}}', '{"code":"a\\u0000b","context":{"language":"python"}}',
                 '{"code":"1","context":{"language":"%s"}}' % ("x" * 32)):
        resp = agent.request("POST", "/code", body)
        assert resp.status == 400 and json.loads(resp.data)["code"] == "INVALID_REQUEST_BODY", body
    for body in ("", "{}", '{"language":""}', '{"language":"python","cwd":5}'):
        assert agent.request("POST", "/code/context", body).status == 400, body
    resp = agent.request("POST", "/code/context", {"language": "python", "cwd": "/proc/nope/x"})
    assert resp.status == 500
    assert agent.request("DELETE", "/code").status == 400
    assert codes.list() == []
    ident = codes.context()
    assert codes.post("1", {"id": ident, "language": "bash"})[0] == 400
    assert codes.run("1", codes.context("PyThOn")).text == "1"


def test_without_a_language_it_is_a_command(codes, agent):
    conn = agent.connect()
    conn.request("POST", "/code", json.dumps({"code": "echo $0; exit 3"}))
    events = Stream(conn, conn.getresponse()).rest()
    assert events[-1]["error"]["evalue"] == "3" and codes.list() == []
    conn.close()


def test_executions_of_one_context_come_in_order(codes, tmp_path):
    go = Fifo(tmp_path / "go")
    first = codes.start(f"l = []\nprint(1)\nopen('{go}').readline()\nl.append(0)")
    ident = first.next()["text"]
    first.until("stdout")
    waiting = []
    for i in range(1, 21):
        stream = codes.start(f"l.append({i})", ident)
        assert stream.next()["type"] == "init"  # it is in the queue
        waiting.append(stream)
    waiting[4].close()  # its client does not wait any longer
    assert codes.run("'other'", codes.context()).text == "'other'"  # another context does not wait
    go.write("x\n")
    for i, stream in enumerate(waiting):
        if i != 4:
            assert stream.rest()[-1]["type"] == "execution_complete"
    assert codes.run("l", ident).text in (str([i for i in range(21) if i != 5]), str(list(range(21))))


def test_the_queue_is_bounded(codes, tmp_path):
    go = Fifo(tmp_path / "go")
    first = codes.start(f"print(1)\nopen('{go}').readline()")
    ident = first.next()["text"]
    first.until("stdout")
    streams = [codes.start("1", ident) for _ in range(32)]
    status, code, message = codes.post("1", {"id": ident})
    assert (status, code) == (503, "SERVICE_UNAVAILABLE") and "32 executions wait" in message
    go.write("x\n")
    assert all(s.rest()[-1]["type"] == "execution_complete" for s in streams)
    assert codes.run("1", ident).text == "1"


def test_two_contexts_run_at_once(codes, tmp_path):
    """Each waits for the other."""
    a, b = Fifo(tmp_path / "a"), Fifo(tmp_path / "b")
    one = codes.start(f"print(open('{a}').readline(), flush=True)\nopen('{b}', 'w').write('2\\n')", codes.context())
    two = codes.start(f"open('{a}', 'w').write('1\\n')\nprint(open('{b}').readline())", codes.context())
    assert one.rest()[-1]["type"] == two.rest()[-1]["type"] == "execution_complete"


def test_the_number_of_contexts_is_bounded(codes, agent):
    ids = [codes.context("bash") for _ in range(64)]
    resp = agent.request("POST", "/code/context", {"language": "bash"})
    body = json.loads(resp.data)
    assert (resp.status, body["code"]) == (500, "RUNTIME_ERROR") and "64 contexts already; delete one" in body["message"]
    assert codes.post("1", {"language": "python"})[0] == 500
    assert codes.delete(ids[0]) == 200
    assert codes.run("1").text == "1"
    assert agent.request("DELETE", "/code/contexts", language="bash").status == 200
    assert len(codes.list()) == 1


def test_large_output(codes, agent):
    run = codes.run("for i in range(200000): print(i)")
    assert run.out == "".join(f"{i}\n" for i in range(200000))
    run = codes.run("import sys\nsys.stdout.write('x' * 20_000_000); None")
    assert len(run.out) == 20_000_000
    assert codes.sh("seq 1 100000").out == "".join(f"{i}\n" for i in range(1, 100001))
    if not agent.sanitized:
        assert agent.rss_kib() < 32 * 1024


def test_large_results_are_cut_and_it_is_said(codes):
    text = codes.run("'x' * 5_000_000").text
    assert text.startswith("'xxx") and text.endswith("more characters]") and len(text) < 1 << 20
    run = codes.run("display({'image/png': b'x' * 4_000_000, 'text/plain': 'p'}, raw=True)")
    assert run.results == [{"text": "p", "text/plain": "p"}] and "image/png" in run.err and "left out" in run.err
    run = codes.run("display({'image/png': b'x' * 2_000_000}, raw=True)")
    assert len(run.results[0]["image/png"]) > 2_000_000
    assert len("".join(codes.run("raise ValueError('y' * 5_000_000)").error["traceback"])) < 100_000


def test_a_slow_client_gets_everything(codes, agent):
    stream = codes.start("for i in range(40):\n    print(str(i) * 500_000)\n    display('d%d' % i)")
    ident = stream.next()["text"]
    assert codes.run("1", codes.context()).text == "1"
    run = Run([{"type": "init", "text": ident}] + stream.rest())
    assert run.out == "".join(f"{str(i) * 500_000}\n" for i in range(40))
    assert [r["text"] for r in run.results] == [repr(f"d{i}") for i in range(40)]


def test_a_client_that_leaves_stops_nothing(codes, tmp_path):
    go, done = Fifo(tmp_path / "go"), Fifo(tmp_path / "done")
    stream = codes.start(f"x = 1\nprint(1)\nopen('{go}').readline()\nprint('y' * 3_000_000)\nx = 2\n"
                         f"open('{done}', 'w').write('done\\n')")
    stream.until("stdout")
    stream.close()
    go.write("x\n")
    assert done.read_line() == "done"
    assert codes.run("x").text == "2"


@pytest.mark.parametrize("code, why", [
    ("import os; os._exit(7)", "exit status 7"),
    ("import os; os.kill(os.getpid(), 9)", "killed by signal 9"),
    ("import ctypes; ctypes.string_at(0)", "killed by signal 11"),
    ("import os, time; os.closerange(3, 64); time.sleep(60)", "closed the kernel's own descriptors"),
])
def test_a_kernel_that_dies_is_told(codes, code, why):
    ident = codes.run("x = 1").id
    run = codes.run("print('before')\n" + code)
    assert run.out == "before\n" and run.error["ename"] == "KernelDied" and why in run.error["evalue"]
    assert run.id == ident
    assert codes.run("x").error["ename"] == "NameError"
    assert codes.run("1").count == 2


def test_a_kernel_that_dies_in_between_is_told_once(codes, agent):
    pid = int(codes.run("import os; os.getpid()").text)
    os.kill(pid, 9)
    run = codes.run("1")
    if run.error is None:  # it ran before the kernel was dead
        run = codes.run("1")
    assert run.error["ename"] == "KernelDied" and "signal 9" in run.error["evalue"]
    run = codes.run("import os; os.getpid()")
    assert run.count == 1 and int(run.text) != pid


def test_what_waits_for_a_dead_kernel_is_told(codes, tmp_path):
    go = Fifo(tmp_path / "go")
    first = codes.start(f"import os\nprint(1)\nopen('{go}').readline()\nos._exit(1)")
    ident = first.next()["text"]
    first.until("stdout")
    second = codes.start("2", ident)
    assert second.next()["type"] == "init"
    go.write("x\n")
    assert first.rest()[-1]["error"]["ename"] == second.rest()[-1]["error"]["ename"] == "KernelDied"
    assert codes.run("3", ident).text == "3"


def test_a_deleted_context_takes_its_processes_along(codes, agent):
    marker = str(87000000 + os.getpid())
    ident = codes.context()
    stream = codes.start(f"import subprocess\nsubprocess.run(['sleep', '{marker}'])\n", ident)
    stream.until("init")
    while not processes(marker):
        agent.status("x")
    assert codes.delete(ident) == 200
    assert stream.rest()[-1]["error"]["ename"] == "ContextDeleted"
    while processes(marker):
        agent.status("x")
    while children(agent):
        agent.status("x")


def test_a_kernel_that_does_not_start(start_agent, tmp_path):
    (tmp_path / "python3").write_text("#!/bin/sh\necho 'no such library' >&2\nexit 5\n")
    (tmp_path / "python3").chmod(0o755)
    codes = Codes(start_agent(env={"PATH": f"{tmp_path}:/usr/bin:/bin"}))
    status, code, message = codes.post("1", {"language": "python"})
    assert (status, code) == (500, "RUNTIME_ERROR")
    assert "did not start: exit status 5: no such library" in message
    assert codes.list() == []
    (tmp_path / "python3").unlink()
    (tmp_path / "python3").symlink_to(sys.executable)
    assert codes.run("1").text == "1"


def test_forks_of_the_code_stay_out_of_it(codes):
    run = codes.run("import os\npid = os.fork()\nprint('child' if pid == 0 else 'parent')\nif pid: os.waitpid(pid, 0); None")
    assert sorted(run.out.split()) == ["child", "parent"] and run.error is None
    run = codes.run("import multiprocessing as m\nwith m.get_context('fork').Pool(2) as p: print(p.map(abs, [-1, -2]))")
    assert run.out == "[1, 2]\n"
    assert codes.run("1").text == "1"


def test_what_the_code_says_in_the_drivers_place_is_checked(codes):
    write = "import os, gc, io\nfd = next(int(f) for f in os.listdir('/proc/self/fd') if int(f) > 2 and " \
        "os.readlink('/proc/self/fd/' + f).startswith('socket:'))\n"
    for line in (b"\n", b"{}\n", b"nonsense\n", b'{"type":"result","data":5}\n', b"[" * 100 + b"\n",
                 b'{"type":"error"}\n', b"[" + b"[]," * 100000 + b"0]\n", b"\xff\x00\n"):
        run = codes.run(write + f"os.write(fd, {line!r}); None")
        assert run.error is None and "a message of the kernel was left out" in run.err, line
    run = codes.run(write + "for i in range(80): os.write(fd, b'x' * 65536)\nos.write(fd, b'\\n'); None")
    assert "longer than" in run.err
    assert codes.run("1").text == "1"


def test_no_secret_and_nothing_on_disk(held, tmp_path):
    from agentlib import claim

    home = tmp_path / "home"
    home.mkdir()
    agent = held(env={"HOME": str(home), "TMPDIR": str(home)}, cwd=home)
    assert claim(agent, env={"API": "s3cret-value"}).status == 200
    codes = Codes(agent)
    assert codes.run("import os; os.environ['API']").text == "'s3cret-value'"
    assert codes.sh("echo $API").out == "s3cret-value\n"
    assert codes.run("key = 'k3y-in-code'").error is None
    found = codes.run("import os\n[k for k, v in os.environ.items() if v in ('tok', 'open sesame')]").text
    assert found == "[]"
    for pid in children(agent):
        cmdline = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
        assert b"k3y-in-code" not in cmdline and b"tok" not in cmdline.split(b"\0")
    assert [p for p in home.rglob("*") if p.is_file()] == []
    assert agent.request("POST", "/code", {"code": "1"}, headers={"X-EXECD-ACCESS-TOKEN": "no"}).status == 401


def test_environment_and_env_file(start_agent, tmp_path):
    (tmp_path / "env").mkdir()
    (tmp_path / "env/.env").write_text("FROM_FILE='a b'\n")
    codes = Codes(start_agent(env={"JUPYTER_TOKEN": "t0k", "MINE": "1"}))
    assert codes.run("import os; [os.environ.get(n) for n in ('FROM_FILE', 'MINE', 'JUPYTER_TOKEN')]").text == \
        "['a b', '1', None]"


def test_the_agent_ends_with_kernels_at_work(start_agent):
    agent = start_agent()
    codes = Codes(agent)
    stream = codes.start("print(1)\nwhile True: pass")
    stream.until("stdout")
    kernels = children(agent)
    agent.proc.terminate()
    try:
        assert stream.rest()[-1]["error"]["ename"] == "KernelDied"
    except (http.client.IncompleteRead, ConnectionError):
        pass  # cut is no clean end either
    agent.wait()
    assert not [p for p in kernels if os.path.exists(f"/proc/{p}/exe")]


def test_two_hundred_runs(codes, agent):
    codes.run("1")
    before = len(os.listdir(f"/proc/{agent.proc.pid}/fd"))
    assert all(codes.run("1+1").text == "2" for _ in range(200))
    assert len(os.listdir(f"/proc/{agent.proc.pid}/fd")) <= before + 1


def test_contexts_come_and_go(codes, agent):
    def cycle():
        for language in ("python", "bash"):
            assert codes.delete(codes.context(language)) == 200

    cycle()
    before = pipes(agent)
    threads = [threading.Thread(target=lambda: [cycle() for _ in range(10)]) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert codes.list() == []
    while children(agent):
        agent.status("x")
    assert pipes(agent) == before


def listens(pid, port):
    rows = pathlib.Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    return any(r.split()[1] == f"0100007F:{port:04X}" and r.split()[3] == "0A" for r in rows)


@pytest.mark.parametrize("env, wanted", [({}, True), ({"JUPYTER_HOST": "http://localhost:44771"}, False),
                                         ({"JUPYTER_HOST": "http://127.0.0.1:1"}, True),
                                         ({"JUPYTER_PORT": "1"}, False), ({"PATH": "/nowhere"}, False)])
def test_the_listener_of_the_code_interpreters_client(env, wanted):
    """In a network namespace of its own, where nobody else has the port."""
    unshare = shutil.which("unshare")
    if not unshare or subprocess.run([unshare, "-n", "true"], capture_output=True).returncode:
        pytest.skip("no network namespaces here")
    full = {"PATH": os.environ["PATH"], **env}
    full.update({k: v for k, v in os.environ.items() if k.endswith("SAN_OPTIONS")})
    probe = "ip link set lo up 2>/dev/null; exec 3<>/dev/tcp/127.0.0.1/44771"
    proc = subprocess.Popen([unshare, "-n", "--", binary(), "--port=0", "--log-level=6"], env=full,
                            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        while b'"listening"' not in (line := proc.stderr.readline()):
            assert line
        said = ""
        if not wanted:
            assert not listens(proc.pid, 44771)
            return
        while not listens(proc.pid, 44771):
            assert proc.poll() is None
        run = ["nsenter", "-t", str(proc.pid), "-n", "bash", "-c", probe]
        said = subprocess.run(run, capture_output=True, text=True)
        assert said.returncode == 0 or "unreachable" in said.stderr, said
    finally:
        proc.kill()
        proc.wait()
        proc.stderr.close()


def test_the_port_may_be_taken(start_agent):
    """An agent whose port for probes is somebody's starts all the same."""
    taken = socket.socket()
    try:
        taken.bind(("127.0.0.1", 44771))
        taken.listen()
    except OSError:
        pass  # somebody else's already
    codes = Codes(start_agent())
    assert codes.run("1").text == "1"
    taken.close()
