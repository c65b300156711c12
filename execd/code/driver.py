# Runs Python code for the agent (execd/code/embedded.h). Compiled into the agent and sent over a socket, so
# that nothing is written to disk; `control` is its reading end. Code comes as a count of lines and the
# lines; what happened goes back as one JSON object a line (execd/code/frames.h). Output takes no part in
# it: descriptors 1 and 2 are the agent's pipes, also for programs that the code starts. Python 3.6 or later.
import __future__
import _thread
import ast
import builtins
import importlib.util
import json
import linecache
import os
import signal
import sys
import traceback
import types

OWN = "<kernel>"
CELL = "Cell In[%d]"
CELLS_KEPT = 1000  # sources of earlier cells, for tracebacks
TEXT_MAX = 1 << 20  # JSON bytes of one text/plain
DATA_MAX = 3 << 20  # of all types of a value, less room for the frame: as much as an event holds
TRACEBACK_LINES = 32
TRACEBACK_TEXT = 2048
COROUTINE = 0x80  # of code objects

REPRS = (
    ("_repr_html_", "text/html"),
    ("_repr_markdown_", "text/markdown"),
    ("_repr_svg_", "image/svg+xml"),
    ("_repr_png_", "image/png"),
    ("_repr_jpeg_", "image/jpeg"),
    ("_repr_latex_", "text/latex"),
    ("_repr_json_", "application/json"),
    ("_repr_javascript_", "application/javascript"),
)


def note(text):
    try:
        sys.stderr.write("[" + text + "]\n")
    except Exception:
        pass


class Interrupts:
    """SIGINT ends the code under way: not the kernel, and not in the middle of a message."""

    def __init__(self):
        self.main = _thread.get_ident()
        self.running = self.masked = self.pending = False

    def install(self):
        signal.signal(signal.SIGINT, self.on_signal)

    def on_signal(self, number, frame):
        if self.masked:
            self.pending = True
        elif self.running:
            raise KeyboardInterrupt

    def __enter__(self):
        if _thread.get_ident() == self.main:
            self.masked = True

    def __exit__(self, *exc):
        if _thread.get_ident() != self.main:
            return
        self.masked = False
        if self.pending:
            self.pending = False
            if self.running:
                raise KeyboardInterrupt


class Channel:
    def __init__(self, source, interrupts):
        self.source = source
        self.interrupts = interrupts
        self.lock = _thread.allocate_lock()
        self.pid = os.getpid()

    def receive(self):
        """The next code; None: the agent is gone."""
        head = self.source.readline()
        if not head:
            return None
        text = b"".join([self.source.readline() for _ in range(int(head))])
        return text[:-1].decode("utf-8", "replace")

    def send(self, kind, **fields):
        if os.getpid() != self.pid:
            return  # a child of the code has no say here
        fields["type"] = kind
        data = memoryview(json.dumps(fields).encode("ascii") + b"\n")
        with self.interrupts, self.lock:
            while data:
                data = data[os.write(self.source.fileno(), data) :]


# ---- values


def clean(text):
    """Without halves of surrogate pairs, which are no UTF-8."""
    text = str(text)
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()


def plain(value):
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, (bytes, bytearray)):
        import base64

        return base64.b64encode(value).decode("ascii")
    try:
        return json.dumps(value, default=str, allow_nan=False)
    except ValueError:
        return clean(repr(value))


def cut(text):
    kept = text[:TEXT_MAX]
    while len(json.dumps(kept)) > TEXT_MAX:
        kept = kept[: len(kept) // 2]
    return "%s... [%d more characters]" % (kept, len(text) - len(kept))


def fit(data):
    """What of it an event can hold."""
    out = {}
    left = DATA_MAX - 4096
    for mime in sorted(data, key=lambda m: (m != "text/plain", str(m))):
        value = plain(data[mime])
        if mime == "text/plain" and len(json.dumps(value)) > TEXT_MAX:
            value = cut(value)
        size = len(json.dumps(value)) + len(json.dumps(clean(mime))) + 2
        if size > left or len(out) >= 64:
            note("%s of %d bytes was left out: a result holds 3 MiB" % (clean(mime), size))
            continue
        left -= size
        out[clean(mime)] = value
    return out


def method(obj, name):
    if isinstance(obj, type):
        return None
    try:
        found = getattr(obj, name, None)
    except Exception:
        return None
    return found if callable(found) else None


def figure_png(fig):
    import io

    out = io.BytesIO()
    fig.savefig(out, format="png", bbox_inches="tight")
    return out.getvalue()


def represent(obj, name, **how):
    """What the object says of itself; a broken method is told and counts as none."""
    found = method(obj, name)
    try:
        value = found(**how) if found else None
    except NotImplementedError:
        return None
    except Exception as e:
        note("%s.%s failed: %s: %s" % (type(obj).__name__, name, type(e).__name__, e))
        return None
    return value[0] if isinstance(value, tuple) and value else value


def bundle(obj):
    """MIME type to value."""
    data = {}
    figure = getattr(sys.modules.get("matplotlib.figure"), "Figure", None)
    if not method(obj, "_no_such_method_answers_to_this_"):  # else: one that answers to every name
        found = represent(obj, "_repr_mimebundle_", include=None, exclude=None)
        if isinstance(found, dict):
            data.update(found)
        for name, mime in REPRS:
            value = None if mime in data else represent(obj, name)
            if value is not None:
                data[mime] = value
    if figure is not None and isinstance(obj, figure) and "image/png" not in data:
        data["image/png"] = figure_png(obj)
        close = getattr(sys.modules.get("matplotlib.pyplot"), "close", None)
        if close:
            close(obj)  # else it would be shown again at the end
    if "text/plain" not in data:
        data["text/plain"] = repr(obj)
    return fit(data)


# ---- plots


class PlotWatch:
    """Gives pyplot a show() that shows, when it is imported."""

    NAME = "matplotlib.pyplot"

    def __init__(self, show):
        self.show = show

    def find_spec(self, name, path=None, target=None):
        if name != self.NAME:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = getattr(getattr(spec, "loader", None), "exec_module", None)
        if run:

            def show(*args, **kwargs):  # pyplot sets attributes of it: no method
                return self.show(*args, **kwargs)

            def exec_module(module):
                run(module)
                module.show = show

            spec.loader.exec_module = exec_module
        return spec


# ---- errors


def own_frames_out(te, seen):
    """Leaves what the code did: from its first cell on, and nothing of this file."""
    if te is None or id(te) in seen:
        return
    seen.add(id(te))
    stack = te.stack
    first = next((i for i, f in enumerate(stack) if f.filename.startswith("Cell In[")), 0)
    te.stack = traceback.StackSummary.from_list([f for f in stack[first:] if f.filename != OWN])
    for other in [te.__cause__, te.__context__] + list(getattr(te, "exceptions", None) or []):
        own_frames_out(other, seen)


def describe(kind, value, tb):
    """ename, evalue and traceback of an exception."""
    try:
        evalue = clean(value)
    except Exception:
        evalue = "<str() of the exception failed>"
    try:
        te = traceback.TracebackException(kind, value, tb)
        own_frames_out(te, set())
        lines = [clean(line).rstrip("\n") for line in te.format()]
    except Exception as e:
        lines = ["%s: %s" % (kind.__name__, evalue), "[no traceback: %s]" % type(e).__name__]
    if len(lines) > TRACEBACK_LINES:
        half = TRACEBACK_LINES // 2
        lines[half:-half] = ["  [%d frames left out]" % (len(lines) - 2 * half)]
    lines = [t if len(t) <= TRACEBACK_TEXT else t[:TRACEBACK_TEXT] + "..." for t in lines]
    if len(evalue) > 8 * TRACEBACK_TEXT:
        evalue = evalue[: 8 * TRACEBACK_TEXT] + "..."
    return kind.__name__[:200], evalue, lines


# ---- what is no Python


class UsageError(Exception):
    """As IPython calls it."""


def shell(command):
    import subprocess

    status = subprocess.call(command, shell=True)
    if status:
        note("exit status %d" % status)


def magic(line):
    """A line that begins with %: the few that are common in notebooks."""
    name, _, rest = line.partition(" ")
    if name == "pip":
        import shlex

        shell("%s -m pip %s" % (shlex.quote(sys.executable), rest))
    elif name == "cd":
        os.chdir(os.path.expanduser(rest.strip() or "~"))
    elif name != "matplotlib":  # plots are shown in any case
        raise UsageError("%%%s: this kernel knows %%pip, %%cd, %%matplotlib, %%%%bash and !command only" % name)


def without_magic(code):
    """The code with calls of the two functions above in place of such lines; None: it has none."""
    first, _, rest = code.lstrip().partition("\n")
    if first.split()[:1] in (["%%bash"], ["%%sh"]):
        return "__kernel_shell__(%r)" % rest
    out = []
    for line in code.split("\n"):
        text = line.lstrip()
        indent = line[: len(line) - len(text)]
        if text.startswith("!"):
            line = "%s__kernel_shell__(%r)" % (indent, text[1:])
        elif text.startswith("%"):
            line = "%s__kernel_magic__(%r)" % (indent, text[1:])
        out.append(line)
    changed = "\n".join(out)
    return changed if changed != code else None


# ---- running


def whole_print(original):
    """print() in one write: what threads and processes print at the same time stays apart."""

    def print(*values, sep=None, end=None, file=None, flush=False):
        target = sys.stdout if file is None else file
        if target is None:
            return
        if not isinstance(sep, (str, type(None))) or not isinstance(end, (str, type(None))):
            original(*values, sep=sep, end=end, file=file, flush=flush)  # says what is wrong
        target.write((" " if sep is None else sep).join([str(v) for v in values]) + ("\n" if end is None else end))
        if flush:
            target.flush()

    print.__module__ = "builtins"
    print.__qualname__ = "print"
    print.__doc__ = original.__doc__
    return print


class Kernel:
    def __init__(self, source):
        self.interrupts = Interrupts()
        self.channel = Channel(source, self.interrupts)
        self.count = 0
        self.loop = None
        self.flags = 0
        self.shown = None  # what `_` was set to
        self.await_flag = getattr(ast, "PyCF_ALLOW_TOP_LEVEL_AWAIT", 0)
        self.future = {f: getattr(__future__, f).compiler_flag for f in __future__.all_feature_names}
        self.main = types.ModuleType("__main__")
        self.main.__builtins__ = builtins
        sys.modules["__main__"] = self.main

    def prepare(self):
        def leave(code=None):
            raise SystemExit(code)

        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)  # the code reads the end of the file
        os.close(null)
        builtins.display = self.display
        builtins.print = whole_print(builtins.print)
        builtins.__kernel_shell__ = shell
        builtins.__kernel_magic__ = magic
        builtins.exit = builtins.quit = leave  # the original ones close stdin
        sys.argv = [""]
        sys.path.insert(0, "")
        os.environ.setdefault("MPLBACKEND", "Agg")
        sys.meta_path.insert(0, PlotWatch(self.show_plots))
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(encoding="utf-8", errors="backslashreplace")

    def display(self, *objects, **options):
        """Shows values in the cell's output."""
        for obj in objects:
            data = fit(obj) if options.get("raw") and isinstance(obj, dict) else bundle(obj)
            self.channel.send("display", data=data)

    def show_plots(self, *args, **kwargs):
        plt = sys.modules.get("matplotlib.pyplot")
        for number in plt.get_fignums() if hasattr(plt, "get_fignums") else []:
            fig = plt.figure(number)
            self.channel.send("display", data=fit({"image/png": figure_png(fig), "text/plain": repr(fig)}))
            plt.close(fig)

    def wait(self, coroutine):
        """A top-level await: one loop for the life of the kernel."""
        import asyncio

        if self.loop is None or self.loop.is_closed():
            self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        task = self.loop.create_task(coroutine)
        try:
            return self.loop.run_until_complete(task)
        except BaseException:
            if not task.done():
                task.cancel()
                try:
                    self.loop.run_until_complete(task)
                except BaseException:
                    pass
            raise

    def evaluate(self, tree, name, mode):
        code = compile(tree, name, mode, self.flags | self.await_flag, True)
        for flag in self.future.values():
            self.flags |= code.co_flags & flag
        value = eval(code, self.main.__dict__)
        return self.wait(value) if code.co_flags & COROUTINE else value

    def parse(self, code, name):
        flags = ast.PyCF_ONLY_AST | self.flags | self.await_flag
        try:
            return compile(code, name, "exec", flags, True)
        except SyntaxError:
            changed = without_magic(code)
            if changed is None:
                raise
        return compile(changed, name, "exec", flags, True)

    def run(self, code):
        name = CELL % self.count
        linecache.cache[name] = (len(code), None, code.splitlines(True), name)
        linecache.cache.pop(CELL % (self.count - CELLS_KEPT), None)
        tree = self.parse(code, name)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = ast.Expression(tree.body.pop().value)
        if tree.body:
            self.evaluate(tree, name, "exec")
        if last is not None:
            value = self.evaluate(last, name, "eval")
            if value is not None and not code.rstrip().endswith(";"):
                self.give(value)

    def give(self, value):
        names = self.main.__dict__
        data = bundle(value)
        if names.get("_") is self.shown:
            names["_"] = self.shown = value
        self.channel.send("result", count=self.count, data=data)

    def guarded(self, begin, fn, *args):
        """The exception that fn ended with, as sys.exc_info() has it. begin: the agent is told."""
        try:
            try:
                self.interrupts.running = True
                if begin:
                    self.channel.send("busy")
                fn(*args)
            finally:
                self.interrupts.running = False
        except BaseException:
            self.interrupts.running = False
            return sys.exc_info()
        return None

    def step(self, code):
        self.count += 1
        self.interrupts.install()  # the code before may have taken it away
        failure = self.guarded(True, self.run, code)
        if os.getpid() != self.channel.pid:
            os._exit(1 if failure else 0)  # a fork that came back here
        if "matplotlib.pyplot" in sys.modules:
            failure = self.guarded(False, self.show_plots) or failure
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass
        if failure:
            ename, evalue, lines = describe(*failure)
            self.channel.send("error", ename=ename, evalue=evalue, traceback=lines)
        failure = None
        self.channel.send("idle", count=self.count)

    def serve(self):
        self.channel.send("ready")
        while True:
            code = self.channel.receive()
            if code is None:
                return
            self.step(code)


def main(source):
    kernel = Kernel(source)
    kernel.interrupts.install()
    kernel.prepare()
    try:
        kernel.serve()
    except BrokenPipeError:
        pass  # the agent is gone


main(control)  # noqa: F821
