#!/usr/bin/env bash
# Integration tests: real engine, real agent, unmodified official SDK. Sets up what they need (engine, local images,
# Python environment, programs) and runs pytest over tests/integration.
#
# Usage: tests/integration/run.sh [pytest arguments]
# Environment: SANDGATE_BIN, EXECD_BIN (programs under test; default the release build).
# Closing line: N passed, M failed.
set -euo pipefail
cd "$(dirname "$0")/../.."

state=${SANDGATE_STATE:-$HOME/.cache/sandgate}
DOCKER_HOST=$(deploy/setup/engine.sh)
export DOCKER_HOST SANDGATE_STATE=$state
deploy/setup/images.sh
deploy/setup/venv.sh "$state/venv"
deploy/setup/node.sh >/dev/null
REGISTRY_BIN=$(deploy/setup/unpack.sh "$state/unpacked" docker-registry usr/bin/docker-registry)
export REGISTRY_BIN
make --no-print-directory -j2 all
# the sanitized programs of the runs under tests/integration/gateway/test_sanitized.py
make --no-print-directory -j2 BUILD=asan all
make --no-print-directory -j2 BUILD=tsan build/tsan/sandgate

export SANDGATE_BIN=${SANDGATE_BIN:-$PWD/build/sandgate} EXECD_BIN=${EXECD_BIN:-$PWD/build/execd}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
rc=0
"$state/venv/bin/python" -m pytest -c tests/integration/pytest.ini tests/integration "$@" 2>&1 | tee "$log" ||
    rc=${PIPESTATUS[0]}
count() { sed -n -E "s/(^|.*[ =])([0-9]+) $1.*/\2/p" "$log" | tail -n 1; }
passed=$(count passed) failed=$(count failed) errors=$(count error)
echo "${passed:-0} passed, $((${failed:-0} + ${errors:-0})) failed"
exit "$rc"
