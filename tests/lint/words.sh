#!/usr/bin/env bash
# Words: open ends without an issue number, spelling, paths of one machine; and shellcheck over the scripts.
set -eu
cd "$(dirname "$0")/../.."

readonly SELF=tests/lint/words.sh
faults=0

# Prints the lines of its argument and counts them.
fault() {
    [ -n "$1" ] || return 0
    printf '%s\n' "$1"
    faults=$((faults + $(grep -c . <<<"$1")))
}

texts() {
    tests/lint/files.sh '*.c' '*.h' '*.cc' '*.S' '*.sh' '*.py' '*.md' '*.sql' '*.mk' 'Makefile' '.ci/run' '*.yaml' '*.toml' |
        grep -v -x -F "$SELF"
}

check_open_ends() {
    fault "$(texts | xargs grep -n -w -E 'TODO|FIXME|XXX' | grep -v -E '(TODO|FIXME) ?\(?#[0-9]+' |
        sed 's/$/   <- finish it, or name the issue: TODO(#123)/')"
}

check_machine_paths() {
    fault "$(texts | xargs grep -n -E '[/]work/' | sed 's/$/   <- a path of one machine/')"
}

check_spelling() {
    if ! command -v codespell >/dev/null; then echo "words: codespell is not installed, spelling skipped"; return; fi
    fault "$(texts | xargs codespell --ignore-words tests/lint/words.ignore 2>&1)"
}

check_shell() {
    local scripts
    if ! command -v shellcheck >/dev/null; then echo "words: shellcheck is not installed, skipped"; return; fi
    scripts=$(tests/lint/files.sh '*.sh' '.ci/run')
    # shellcheck disable=SC2086 # names are words
    fault "$(shellcheck --format=gcc --exclude=SC1091 $scripts)"
}

main() {
    check_open_ends
    check_machine_paths
    check_spelling
    check_shell
    echo "words: $(texts | wc -l) files, $faults faults"
    [ "$faults" = 0 ]
}

main
