#!/usr/bin/env bash
# Every header compiles alone, has #pragma once, and is quiet.
set -eu
cd "$(dirname "$(readlink -f "$0")")/../.."

readonly FLAGS=(-std=gnu11 -D_GNU_SOURCE -I. -Wall -Wextra -Werror -Wno-unused-function -fsyntax-only -x c)

check_one() {
    local header=$1 text
    if ! grep -q '^#pragma once$' "$header"; then
        echo "$header:1: add #pragma once"
        return 1
    fi
    if ! text=$(printf '#include "%s"\n' "$header" | gcc "${FLAGS[@]}" - 2>&1); then
        printf '%s:1: does not compile alone: include what it uses\n%s\n' "$header" "$text"
        return 1
    fi
}

main() {
    local faults=0 status headers
    if [ "${1:-}" = --one ]; then
        shift
        for header in "$@"; do check_one "$header" || faults=1; done
        return "$faults"
    fi
    headers=$(tests/lint/files.sh '*.h')
    status=0
    [ -z "$headers" ] || xargs -P 2 -n 8 "$0" --one <<<"$headers" || status=1
    echo "headers: $(grep -c . <<<"$headers") files, $([ $status = 0 ] && echo no || echo some) faults"
    return "$status"
}

main "$@"
