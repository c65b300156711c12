#!/usr/bin/env bash
# Runs cmocka programs, two at a time, each under a time limit. Prints the output of those that fail, whole, one line for
# the others, and at the end: N passed, M failed[, K skipped] - counted in test functions.
#
# Usage:        run_unit.sh PROGRAM ...
# Environment:  UNIT_JOBS (2), UNIT_TIMEOUT seconds per program (60); ASAN_OPTIONS and the like are added to ours.
set -eu

readonly JOBS=${UNIT_JOBS:-2}
readonly LIMIT=${UNIT_TIMEOUT:-60}

# LeakSanitizer cannot work while another process traces us (a debugger, strace).
is_traced() {
    ! grep -q '^TracerPid:[[:space:]]*0$' /proc/self/status
}

sanitizer_options() {
    local leaks=1
    if is_traced; then
        leaks=0
        echo "unit: traced, so leaks are not looked for" >&2
    fi
    export ASAN_OPTIONS="detect_leaks=$leaks:detect_stack_use_after_return=1:strict_string_checks=1:abort_on_error=0:${ASAN_OPTIONS:-}"
    export UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1:${UBSAN_OPTIONS:-}"
    export TSAN_OPTIONS="halt_on_error=0:exitcode=66:second_deadlock_stack=1:${TSAN_OPTIONS:-}"
    export MALLOC_PERTURB_=${MALLOC_PERTURB_:-165}
}

# Runs one program; leaves output, exit status and counts in DIR. Called by xargs.
run_one() {
    local dir=$1 program=$2 name rc=0 start total passed skipped failed
    name=$(tr / _ <<<"$program")
    start=$(date +%s%N)
    timeout --kill-after=5 "$LIMIT" "$program" >"$dir/$name.out" 2>&1 </dev/null || rc=$?
    total=$(sed -n 's/^\[==========\] Running \([0-9]*\) test(s).*/\1/p' "$dir/$name.out" | awk '{ n += $1 } END { print n + 0 }')
    passed=$(grep -c '^\[       OK \]' "$dir/$name.out" || true)
    skipped=$(grep -c '^\[  SKIPPED \] [^0-9]' "$dir/$name.out" || true)
    failed=$((total - passed - skipped))
    [ "$failed" -ge 0 ] || failed=0
    # a crash, a leak report or a failed group set-up is one failure even when every function passed
    if [ "$rc" != 0 ] && [ "$failed" -le 0 ]; then failed=1; fi
    [ "$total" != 0 ] || [ "$failed" != 0 ] || failed=1
    echo "$passed $failed $skipped" >"$dir/$name.counts"
    if [ "$failed" = 0 ]; then
        printf 'ok   %s (%d in %d ms)\n' "$program" "$passed" $((($(date +%s%N) - start) / 1000000))
        return 0
    fi
    {
        cat "$dir/$name.out"
        [ "$rc" != 124 ] && [ "$rc" != 137 ] || echo "time limit of $LIMIT s reached"
        echo "FAIL $program (exit status $rc)"
    } >"$dir/$name.failed"
}

main() {
    local dir file passed=0 failed=0 skipped=0 p f s
    if [ "${1:-}" = --one ]; then
        run_one "$2" "$3"
        return 0
    fi
    if [ $# = 0 ]; then
        echo "unit: no test program was given" >&2
        return 1
    fi
    sanitizer_options
    dir=$(mktemp -d)
    # shellcheck disable=SC2064 # the directory of now
    trap "rm -rf '$dir'" EXIT
    printf '%s\n' "$@" | xargs -P "$JOBS" -I PROGRAM "$0" --one "$dir" PROGRAM
    for file in "$dir"/*.failed; do
        [ ! -e "$file" ] || cat "$file"
    done
    for file in "$dir"/*.counts; do
        read -r p f s <"$file"
        passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    done
    if [ "$skipped" = 0 ]; then
        echo "$passed passed, $failed failed"
    else
        echo "$passed passed, $failed failed, $skipped skipped"
    fi
    [ "$failed" = 0 ]
}

main "$@"
