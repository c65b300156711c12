#!/usr/bin/env bash
# The checks of this directory must find what they are for: runs them over a small bad tree.
set -eu
cd "$(dirname "$0")/../.."

faults=0

plant() { # FILE, content on stdin
    mkdir -p "$tree/$(dirname "$1")"
    cat >"$tree/$1"
}

# Runs CHECK in the bad tree; it must fail and say every TEXT.
finds() {
    local check=$1 out text
    shift
    if out=$(cd "$tree" && "tests/lint/$check" 2>&1); then
        echo "tests/lint/$check:1: says nothing about the bad tree"
        faults=$((faults + 1))
    fi
    for text in "$@"; do
        if ! grep -q -F -- "$text" <<<"$out"; then
            echo "tests/lint/$check:1: does not say: $text"
            faults=$((faults + 1))
        fi
    done
}

plant_bad_tree() {
    local i
    mkdir -p "$tree/tests"
    cp -r tests/lint "$tree/tests/lint"
    plant common/base/low.h <<<'struct no_once;'
    plant common/base/low.c <<<'#include "common/json/up.h"'
    plant common/json/up.h <<<$'#pragma once\nuint32_t needs_stdint(void);'
    plant common/http/internal.h <<<$'#pragma once\n#include <microhttpd.h>'
    plant gateway/store/db.h <<<$'#pragma once\n#include <sqlite3.h>'
    plant gateway/domain/d.c <<<$'#include "gateway/store/db.h"\n#include "gateway/api/api.h"\n#include <curl/curl.h>'
    plant gateway/api/api.h <<<'#pragma once'
    plant gateway/api/a.c <<<$'#include "common/http/internal.h"\n#include "execd/x.h"\n#include "gone.h"'
    plant execd/x.h <<<'#pragma once'
    plant execd/bad.c <<<$'/* strcpy( in a comment */ const char *s = "atoi(";\nint f(char *d) { strcpy(d, s); return atoi (d) + x.rand(); }'
    { echo 'int main(void)'; echo '{'; for i in $(seq 60); do echo '    f();'; done; echo '}'; } | plant execd/main.c
    {
        echo 'int g(int x)'; echo '{'
        for i in $(seq 16); do echo "    if (x == $i) return $i;"; done
        for i in $(seq 90); do echo '    f();'; done
        echo '    return 0;'; echo '}'
        for i in $(seq 800); do echo; done
    } | plant execd/long.c
    printf '/* %s%s: later; reci%s */\n' TO DO eve | plant execd/words.c
    plant docs/acceptance.md <<<'| A1 | a | gateway/test_none.py::test_none |'
    printf '#!/bin/sh\necho %s1\n' '$' | plant deploy/bad.sh
}

main() {
    tree=$(mktemp -d)
    # shellcheck disable=SC2064 # the directory of now
    trap "rm -rf '$tree'" EXIT
    plant_bad_tree
    finds includes.py \
        'common/base/low.c:1: common/base must not include "common/json/up.h"' \
        'gateway/domain/d.c:2: gateway/domain must not include "gateway/api/api.h"' \
        'gateway/domain/d.c:3: <curl/curl.h> belongs to gateway/runtime, gateway/proxy' \
        'gateway/domain/d.c:1: <sqlite3.h> belongs to gateway/store (by way of gateway/store/db.h)' \
        'gateway/api/a.c:1: "common/http/internal.h" is private to common/http/' \
        'gateway/api/a.c:2: gateway/api must not include "execd/x.h"' \
        'gateway/api/a.c:3: "gone.h" does not exist'
    finds banned.py 'execd/bad.c:2: strcpy() is banned' 'execd/bad.c:2: atoi() is banned' ', 2 faults'
    finds size.py 'execd/main.c:1: main has 63 lines' 'execd/long.c:1: g has 110 lines' 'g has complexity 17' \
        'execd/long.c:910: file has 910 lines'
    finds headers.sh 'common/base/low.h:1: add #pragma once' 'common/json/up.h:1: does not compile alone'
    finds words.sh 'execd/words.c:1:' 'name the issue' '==> receive' 'deploy/bad.sh:2:'
    finds acceptance.py 'docs/acceptance.md:1: gateway/test_none.py::test_none is not there'
    echo "selftest: 6 checks, $faults faults"
    [ "$faults" = 0 ]
}

main
