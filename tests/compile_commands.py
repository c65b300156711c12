#!/usr/bin/env python3
"""Reads what `make -n -B` prints and writes compile_commands.json for editors and clang-tidy to stdout."""
import json
import os
import shlex
import sys


def entries(text):
    for line in text.replace("\\\n", " ").splitlines():
        try:
            words = shlex.split(line)
        except ValueError:
            continue  # a line of a script, not a command of the compiler
        if len(words) > 3 and words[0] in ("gcc", "g++", "clang", "clang++") and "-c" in words:
            file = words[words.index("-c") + 1]
            if file.endswith((".c", ".cc")):
                yield {"directory": os.getcwd(), "file": file, "arguments": words}


json.dump(list({e["file"]: e for e in entries(sys.stdin.read())}.values()), sys.stdout, indent=1)
print()
