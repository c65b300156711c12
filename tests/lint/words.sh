#!/usr/bin/env bash
# Words: open ends without an issue number, spelling, paths of one machine; and shellcheck over the scripts.
set -eu
cd "$(dirname "$0")/../.."

readonly SELF=tests/lint/words.sh
faults=0

# Prints what stdin has and counts it.
fault() {
    local text
    text=$(cat)
    [ -n "$text" ] || return 0
    printf '%s\n' "$text"
    faults=$((faults + $(grep -c . <<<"$text")))
}

texts() {
    tests/lint/files.sh '*.c' '*.h' '*.cc' '*.S' '*.sh' '*.py' '*.md' '*.sql' '*.mk' 'Makefile' '.ci/run' '*.yaml' '*.toml' |
        grep -v -x -F "$SELF"
}

check_open_ends() {
    texts | xargs grep -n -w -E 'TODO|FIXME|XXX' | grep -v -E '(TODO|FIXME) ?\(?#[0-9]+' |
        sed 's/$/   <- finish it, or name the issue: TODO(#123)/' | fault
}

check_machine_paths() {
    texts | xargs grep -n -E '[/]work/|localhost:[0-9]+/(simple|debian)' |
        sed 's/$/   <- a path of one machine/' | fault
}

check_spelling() {
    if ! command -v codespell >/dev/null; then echo "words: codespell is not installed, spelling skipped"; return; fi
    texts | grep -v '^tests/fuzz/corpus/' |
        xargs codespell --ignore-words tests/lint/words.ignore 2>&1 | fault
}

check_shell() {
    local scripts
    if ! command -v shellcheck >/dev/null; then echo "words: shellcheck is not installed, skipped"; return; fi
    scripts=$(tests/lint/files.sh '*.sh' '.ci/run')
    # shellcheck disable=SC2086 # names are words
    shellcheck --format=gcc --exclude=SC1091 $scripts | fault
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
