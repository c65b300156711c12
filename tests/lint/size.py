#!/usr/bin/env python3
"""Length and complexity: a function fits on a screen. Complexity is pmccabe's modified McCabe number: a switch counts as
one decision, since a flat switch reads like a table."""
import subprocess

import source

FUNCTION_LINES = 100
MAIN_LINES = 59
COMPLEXITY = 15
FILE_LINES = 900

# (file, function): reason why it may be longer or more complex
FUNCTION_EXCEPTIONS = {}
# file: reason why it may be longer
FILE_EXCEPTIONS = {}


def check_functions(report, paths):
    out = subprocess.run(["pmccabe", *paths], check=True, stdout=subprocess.PIPE, text=True).stdout
    for row in out.splitlines():
        modified, _, _, line, lines, where = row.split("\t")[:6]
        path, _, rest = where.partition("(")
        name = rest.partition("): ")[2]
        if (path, name) in FUNCTION_EXCEPTIONS:
            continue
        limit = MAIN_LINES if name == "main" else FUNCTION_LINES
        if int(lines) > limit:
            report.add(path, line, f"{name} has {lines} lines, the limit is {limit}: split it by what it does")
        if int(modified) > COMPLEXITY:
            report.add(path, line, f"{name} has complexity {modified}, the limit is {COMPLEXITY}: move decisions to "
                                   "helpers or a table")


def main():
    report = source.Report("size")
    c_files = source.files("*.c", "*.h", "*.cc")
    paths = c_files + source.files("*.sh", "*.py", "Makefile", "*.mk", ".ci/run")
    for path in paths:
        lines = source.read(path).count("\n")
        if lines > FILE_LINES and path not in FILE_EXCEPTIONS:
            report.add(path, lines, f"file has {lines} lines, the limit is {FILE_LINES}: split it by subject")
    check_functions(report, [p for p in c_files if p.endswith(".c")])
    report.close(len(paths))


main()
