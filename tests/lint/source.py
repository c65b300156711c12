"""What the checks of this directory share: the list of files, and C text without comments and literals."""
import re
import subprocess
import sys

_TOKEN = re.compile(
    r"""/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL)


def files(*globs):
    out = subprocess.run(["tests/lint/files.sh", *globs], check=True, stdout=subprocess.PIPE, text=True).stdout
    return out.splitlines()


def read(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read()


def _blank(match):
    """Same number of lines, so that positions stay true."""
    text = match.group(0)
    return '""' if text[0] == '"' else " " + "\n" * text.count("\n")


def code_only(text):
    """C text whose comments are blanks and whose string literals are empty."""
    return _TOKEN.sub(_blank, text)


class Report:
    def __init__(self, name):
        self.name = name
        self.faults = 0

    def add(self, path, line, text):
        self.faults += 1
        print(f"{path}:{line}: {text}")

    def close(self, checked):
        """The one summary line, and the exit status."""
        print(f"{self.name}: {checked} files, {self.faults} fault{'' if self.faults == 1 else 's'}")
        sys.exit(1 if self.faults else 0)
