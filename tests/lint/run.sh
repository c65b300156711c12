#!/usr/bin/env bash
# Runs every check of this directory, two at a time, and prints their output one after another.
# Closing line: N passed, M failed.
set -eu
cd "$(dirname "$0")/../.."

readonly CHECKS="includes.py banned.py size.py headers.sh words.sh acceptance.py selftest.sh"

main() {
    local check dir passed=0 failed=0
    dir=$(mktemp -d)
    # shellcheck disable=SC2064 # the directory of now
    trap "rm -rf '$dir'" EXIT
    # shellcheck disable=SC2016 # expands in the inner shell
    tr ' ' '\n' <<<"$CHECKS" | LC_ALL=C.UTF-8 PYTHONDONTWRITEBYTECODE=1 xargs -P 2 -I CHECK \
        sh -c 'tests/lint/CHECK >"$0/CHECK.out" 2>&1 && : >"$0/CHECK.ok"; :' "$dir"
    for check in $CHECKS; do
        cat "$dir/$check.out"
        if [ -e "$dir/$check.ok" ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
    done
    echo "$passed passed, $failed failed"
    [ "$failed" = 0 ]
}

main
