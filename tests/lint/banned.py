#!/usr/bin/env python3
"""Functions that this project does not call (HACKING.md). To allow one, add a row with a reason to ALLOWED."""
import re

import source

NUM = "use num_parse_i64 or num_parse_double (common/base/num.h)"
BOUNDED = "use snprintf, memcpy with a checked length, or struct buf (common/base/buf.h)"
TIME = "use common/base/clock.h"
LOADER = "static glibc loads shared libraries for it: parse the file or use inet_pton"
SHELL = "use spawn (common/proc/spawn.h): no shell, no inherited descriptors"
WAIT = "never wait for time to pass: use a timer of the loop, a condition variable or an event"

BANNED = {
    **dict.fromkeys("strcpy stpcpy strcat strncpy strncat sprintf vsprintf gets".split(), BOUNDED),
    "strtok": "use strcspn/strspn over the bounded text: strtok keeps hidden state and writes to its argument",
    **dict.fromkeys("atoi atol atoll atof strtol strtoul strtoll strtoull strtoimax strtoumax strtod strtof "
                    "strtold".split(), NUM),
    **dict.fromkeys("localtime gmtime ctime asctime mktime".split(), TIME + " (hidden state, local time zone)"),
    **dict.fromkeys("system popen".split(), SHELL),
    "signal": "use common/proc/signals.h (signalfd), or sigaction in a child before exec",
    "dup": "use fcntl(fd, F_DUPFD_CLOEXEC, 3): dup loses close-on-exec",
    **dict.fromkeys("getpwnam getpwuid getgrnam getgrgid getpwnam_r getpwuid_r getgrnam_r getgrgid_r getaddrinfo "
                    "gethostbyname gethostbyname_r".split(), LOADER),
    **dict.fromkeys("alloca strdupa strndupa".split(), "use the request's arena or malloc: the stack has no limit check"),
    **dict.fromkeys("rand srand random srandom drand48".split(), "use rand_bytes (common/base/rand.h)"),
    **dict.fromkeys("usleep sleep".split(), WAIT),
    "strerror": "use err_sys (common/base/err.h) or strerror_r: strerror is not safe in threads",
    **dict.fromkeys("tmpnam tempnam mktemp".split(), "use mkostemp with O_CLOEXEC"),
    **dict.fromkeys("setjmp longjmp sigsetjmp siglongjmp".split(), "jumps skip the release of AUTO_ resources"),
}

# (file or directory, function): reason
ALLOWED = {
    ("tests/unit/common/proc/test_spawn.c", "strtoull"): "hexadecimal masks of /proc",
    ("common/base/num.c", "strtoimax"): "this is the wrapper",
    ("common/base/num.c", "strtod"): "this is the wrapper",
}

CALL = re.compile(r"(?<![\w.>])(" + "|".join(BANNED) + r")\s*\(")


def allowed(path, name):
    if path.startswith("tests/") and name in ("setjmp", "longjmp"):
        return True  # cmocka
    return any(fn == name and (path == where or path.startswith(where + "/")) for where, fn in ALLOWED)


def main():
    report = source.Report("banned")
    paths = source.files("*.c", "*.h", "*.cc")
    for path in paths:
        text = source.code_only(source.read(path))
        for m in CALL.finditer(text):
            if not allowed(path, m.group(1)):
                line = text.count("\n", 0, m.start()) + 1
                report.add(path, line, f"{m.group(1)}() is banned: {BANNED[m.group(1)]}")
    report.close(len(paths))


main()
