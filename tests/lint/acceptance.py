#!/usr/bin/env python3
"""docs/acceptance.md names tests: each of them is there."""
import os
import re

import source

TABLE = "docs/acceptance.md"
NAME = re.compile(r"((?:gateway|sdk|proxy|execd|unit)/[\w/]+\.(?:py|c))?::(\w+)")


def main():
    report = source.Report("acceptance")
    tests = set()
    for number, line in enumerate(source.read(TABLE).splitlines(), 1):
        path = None
        for found in NAME.finditer(line):
            path = found[1] or path
            full = f"tests/{path}" if path and path.startswith("unit/") else f"tests/integration/{path}"
            tests.add(full)
            pattern = r"^static void {}\(" if full.endswith(".c") else r"^def {}\("
            if not os.path.exists(full) or not re.search(pattern.format(found[2]), source.read(full), re.M):
                report.add(TABLE, number, f"{path}::{found[2]} is not there: name the test that shows this")
    report.close(len(tests))


main()
