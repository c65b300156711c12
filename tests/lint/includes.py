#!/usr/bin/env python3
"""Direction of includes. One directory is one program or a layer of the shared library:

    base <- json, proc <- http <- programs         programs never include each other
    api, proxy, dify -> domain -> {store, runtime}   nothing points back

A layer may include itself and what its row of MAY names. A library's header belongs to the directories of its row in
OWNERS, also by way of a project header. To change the architecture, change the tables here and say why in the commit.
"""
import functools
import os
import re

import source

RECORD = {"gateway/sandbox.h", "gateway/snapshot.h"}  # plain records: known all over the gateway
TOP = {"gateway/app.h", "gateway/config.h"} | RECORD  # struct app and the options: not for what domain stands on
ALL_COMMON = {"common/base", "common/json", "common/proc", "common/http", "common/agent", "common/front", "common/ws"}
AGENT = {"execd/api", "execd/exec", "execd/fs", "execd/code", "execd/pty", "execd/isolated", "execd/metrics"}

# directory: project directories or headers it may include besides itself; the longest prefix of a path decides
MAY = {
    "common/base": set(),
    "common/agent": set(),
    "common/front": {"common/base"},
    "common/json": {"common/base"},
    "common/proc": {"common/base"},
    "common/http": {"common/base", "common/json", "common/proc"},
    "common/ws": {"common/base", "common/json", "common/http"},
    "gateway": ALL_COMMON | {"gateway/api", "gateway/domain", "gateway/store", "gateway/runtime", "gateway/proxy",
                             "gateway/dify"},
    "gateway/api": ALL_COMMON | TOP | {"gateway/domain"},
    "gateway/dify": ALL_COMMON | TOP | {"gateway/domain"},
    "gateway/proxy": ALL_COMMON | TOP | {"gateway/domain"},
    # proc: the programs that mount buckets (ossfs.c)
    "gateway/domain": {"common/base", "common/json", "common/proc", "common/agent", "gateway/store",
                       "gateway/runtime/runtime.h"} | TOP,
    "gateway/store": {"common/base", "common/json"} | RECORD,
    "gateway/runtime": {"common/base", "common/json", "common/proc", "common/agent",
                        "gateway/runtime/docker/docker.h"} | RECORD,
    "gateway/runtime/docker": {"common/base", "common/json", "common/proc", "common/agent", "gateway/runtime"} | RECORD,
    "execd": ALL_COMMON | AGENT,
    "execd/api": ALL_COMMON | AGENT | {"execd"},
    # the work writes its output to the HTTP layer's streams; accounts (passwd, group) are files
    "execd/exec": ALL_COMMON | {"execd/fs"},
    "execd/fs": ALL_COMMON,
    "execd/code": ALL_COMMON | {"execd/exec", "execd/fs"},
    "execd/pty": ALL_COMMON | {"execd/exec", "execd/fs"},
    # a session's shell is an embedded kernel in a cage
    "execd/isolated": ALL_COMMON | {"execd/exec", "execd/fs", "execd/code"},
    "execd/metrics": {"common/base"},
    "execd/jail": {"common/base"},
    "egress": ALL_COMMON,
}

# header of a library: directories that may see it
OWNERS = {
    "sqlite3.h": ["gateway/store"],
    "curl/curl.h": ["gateway/runtime", "gateway/proxy"],
    "microhttpd.h": ["common/http"],
    "seccomp.h": ["execd/jail"],
    "toml++/": ["gateway/config_toml.cc"],
    "netdb.h": [],  # resolving needs shared libraries (banned.py); the agent must not
    "openssl/": ["egress"],
}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)', re.MULTILINE)


@functools.lru_cache(maxsize=None)
def includes_of(path):
    """[(line, name, is_project)]"""
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group(0).count("\n"), source.read(path), flags=re.DOTALL)
    return [(text.count("\n", 0, m.start()) + 1, m.group(1) or m.group(2), m.group(1) is not None)
            for m in INCLUDE.finditer(text)]


def inside(path, where):
    return path == where or path.startswith(where + "/")


def layer_of(path):
    return max((d for d in MAY if inside(path, d)), key=len, default=None)


def owners_of(header):
    for name, dirs in OWNERS.items():
        if header == name or (name.endswith("/") and header.startswith(name)):
            return dirs
    return None


@functools.lru_cache(maxsize=None)
def libraries(path):
    """{owned library header: the chain of project headers to it}, through every project header."""
    found = {}
    for _, name, project in includes_of(path):
        if project and os.path.exists(name):
            for lib, chain in libraries(name).items():
                found.setdefault(lib, (name,) + chain)
        elif not project and owners_of(name) is not None:
            found[name] = ()
    return found


def permitted(path, name):
    layer, target = layer_of(path), layer_of(name)
    if layer is None or target == layer:
        return True
    return any(name == d or target == d for d in MAY[layer])


def check_project(report, path, line, name):
    if not os.path.exists(name):
        generated = name.endswith(".gen.h")
        if not generated:
            report.add(path, line, f'"{name}" does not exist; name project headers by their path from the top')
        return
    if re.search(r"(^|[/_])internal\.h$", name) and os.path.dirname(name) != os.path.dirname(path):
        report.add(path, line, f'"{name}" is private to {os.path.dirname(name)}/; use its public header')
    elif not permitted(path, name):
        layer = layer_of(path)
        may = ", ".join(sorted(MAY[layer])) or "nothing else of the project"
        report.add(path, line, f'{layer} must not include "{name}"; it may include: {may}')


def check(report, path):
    for line, name, project in includes_of(path):
        if project:
            check_project(report, path, line, name)
    for lib, chain in libraries(path).items():
        dirs = owners_of(lib)
        if not any(inside(path, d) for d in dirs):
            line = next(n for n, name, _ in includes_of(path) if name == (chain[0] if chain else lib))
            by = f" (by way of {' -> '.join(chain)})" if chain else ""
            report.add(path, line, f"<{lib}> belongs to {', '.join(dirs) or 'nobody'}{by}")


def main():
    report = source.Report("includes")
    paths = [p for p in source.files("*.c", "*.h", "*.cc") if not p.startswith("tests/")]
    for path in paths:
        check(report, path)
    report.close(len(paths))


main()
