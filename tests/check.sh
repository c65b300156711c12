#!/usr/bin/env bash
# make check: installs what is missing, then runs every stage, each timed. A failed stage does not hide the later ones;
# only a failed build ends the run. The whole output of a stage is kept in build/check/.
# Closing line: N passed, M failed[, K skipped].
#
# Environment: CHECK_STAGES (all of them) to run some only.
set -u
cd "$(dirname "$0")/.." || exit 1

readonly STAGES="style build unit-asan unit-tsan fuzz-smoke integration"
readonly LOGS=build/check
MAKE=${MAKE:-make}
summary="" passed=0 failed=0 skipped=0

stage_style() { "$MAKE" --no-print-directory -k fmt-check lint; }
stage_build() { "$MAKE" --no-print-directory -j2 all; }
stage_unit-asan() { "$MAKE" --no-print-directory -j2 BUILD=asan unit; }
stage_unit-tsan() { "$MAKE" --no-print-directory -j2 BUILD=tsan unit; }
stage_fuzz-smoke() { "$MAKE" --no-print-directory -j2 fuzz-smoke; }

stage_integration() {
    if [ -x tests/integration/run.sh ]; then
        tests/integration/run.sh
    else
        echo "integration: there is no tests/integration/run.sh yet"
    fi
}

# Adds a stage's closing line to the totals. A stage without one counts as one test, and one that broke after it had
# counted no failure as one failure.
add_counts() {
    local line=$1 rc=$2 p f s
    read -r p f s <<<"${line//[^0-9]/ }"
    if [ -z "$line" ]; then p=$((rc == 0)); fi
    if [ "$rc" != 0 ] && [ "${f:-0}" = 0 ]; then f=1; fi
    passed=$((passed + p)) failed=$((failed + ${f:-0})) skipped=$((skipped + ${s:-0}))
}

run_stage() {
    local name=$1 log=$LOGS/$1.log start=$SECONDS rc result counts
    echo "== $name"
    "stage_$name" 2>&1 </dev/null | tee "$log"
    rc=${PIPESTATUS[0]}
    counts=$(grep -E '^[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?$' "$log" | tail -n 1)
    add_counts "$counts" "$rc"
    result=ok
    [ "$rc" = 0 ] || result="FAILED, see $log"
    summary+=$(printf '%-12s %4d s  %s%s' "$name" $((SECONDS - start)) "$result" "${counts:+ ($counts)}")$'\n'
    return "$rc"
}

main() {
    local stage
    mkdir -p "$LOGS"
    echo "== packages"
    if ! deploy/setup/packages.sh check; then
        echo "check: the packages above are needed"
        echo "0 passed, 1 failed"
        return 1
    fi
    for stage in ${CHECK_STAGES:-$STAGES}; do
        if ! run_stage "$stage" && [ "$stage" = build ]; then break; fi
    done
    printf '== summary\n%s' "$summary"
    if [ "$skipped" = 0 ]; then
        echo "$passed passed, $failed failed"
    else
        echo "$passed passed, $failed failed, $skipped skipped"
    fi
    [ "$failed" = 0 ]
}

main
