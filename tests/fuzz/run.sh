#!/usr/bin/env bash
# Runs libFuzzer programs, two at a time: first every seed of tests/fuzz/corpus/<target>/, then fuzzing for some seconds.
# What fuzzing finds on the way stays in build/fuzz/corpus/<target>/; an input that crashes goes to build/fuzz/crash/.
# Closing line: N passed, M failed - counted in targets.
#
# Usage: run.sh SECONDS TARGET ...
set -eu
cd "$(dirname "$(readlink -f "$0")")/../.."

readonly OUT=build/fuzz
readonly JOBS=2

run_one() {
    local seconds=$1 target=$2 log=$OUT/$2.log rc=0
    mkdir -p "$OUT/corpus/$target" "$OUT/crash" "tests/fuzz/corpus/$target"
    rm -f "$OUT/$target.failed"
    ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 \
        timeout --kill-after=5 $((seconds + 60)) "$OUT/fuzz_$target" -max_total_time="$seconds" -timeout=10 \
        -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="$OUT/crash/$target-" \
        "$OUT/corpus/$target" "tests/fuzz/corpus/$target" >"$log" 2>&1 </dev/null || rc=$?
    if [ "$rc" = 0 ]; then
        printf 'ok   fuzz %s (%d seeds, %s runs)\n' "$target" \
            "$(find "tests/fuzz/corpus/$target" -type f | wc -l)" \
            "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")"
        return 0
    fi
    {
        grep -v -E '^#[0-9]+[[:space:]]+(INITED|NEW|REDUCE|RELOAD|pulse)|^NEW_FUNC' "$log" | tail -n 60
        echo "FAIL fuzz $target (exit status $rc); the input: $(sed -n 's/.*Test unit written to //p' "$log")"
    } >"$OUT/$target.failed"
}

main() {
    local seconds target failed=0 total
    if [ "$1" = --one ]; then
        run_one "$2" "$3"
        return 0
    fi
    seconds=$1
    shift
    total=$#
    printf '%s\n' "$@" | xargs -P "$JOBS" -I TARGET "$0" --one "$seconds" TARGET
    for target in "$@"; do
        if [ -e "$OUT/$target.failed" ]; then
            cat "$OUT/$target.failed"
            failed=$((failed + 1))
        fi
    done
    echo "$((total - failed)) passed, $failed failed"
    [ "$failed" = 0 ]
}

main "$@"
