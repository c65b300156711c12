#!/usr/bin/env bash
# make demo: the official Python SDK's quick start, async and sync, against a gateway of this build on a real engine.
# Makes a small local image, a Python environment and a throw-away database; stops the gateway at the end and leaves
# the engine, the image and the environment for the next run. Needs build/sandgate.
set -eu
cd "$(dirname "$0")/../.."

state=${SANDGATE_STATE:-$HOME/.cache/sandgate}
work=$(mktemp -d)
gateway=

cleanup() {
    [ -z "$gateway" ] || { kill "$gateway" 2>/dev/null && wait "$gateway" 2>/dev/null; } || true
    rm -rf "$work"
}
trap cleanup EXIT

say() { printf '\n== %s\n' "$*"; }

say "engine"
DOCKER_HOST=$(deploy/setup/engine.sh)
export DOCKER_HOST
echo "$DOCKER_HOST"

say "image sandgate-base:local (made on this machine: no registry is needed)"
deploy/setup/images.sh base

say "official Python SDK"
deploy/setup/venv.sh "$state/venv"
"$state/venv/bin/pip" list 2>/dev/null | grep '^opensandbox '

say "gateway"
key=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
cat >"$work/sandgate.toml" <<CONF
[server]
host = "127.0.0.1"
port = 0
api_key = "$key"
[store]
path = "$work/sandgate.db"
[runtime]
type = "docker"
CONF
build/sandgate serve --config "$work/sandgate.toml" 2>"$work/log" &
gateway=$!
port=
for _ in $(seq 300); do
    port=$(sed -n 's/.*"msg":"listening".*"port":\([0-9]*\).*/\1/p' "$work/log")
    [ -z "$port" ] || break
    kill -0 "$gateway" 2>/dev/null || { cat "$work/log" >&2; exit 1; }
    sleep 0.02
done
[ -n "$port" ] || { echo "the gateway does not listen" >&2; cat "$work/log" >&2; exit 1; }
echo "build/sandgate listens on 127.0.0.1:$port, database in $work"

export OPEN_SANDBOX_DOMAIN=127.0.0.1:$port OPEN_SANDBOX_API_KEY=$key
for script in quickstart_async quickstart_sync; do
    say "$script.py"
    "$state/venv/bin/python" "deploy/demo/$script.py" || { tail -n 20 "$work/log" >&2; exit 1; }
done

say "stopping the gateway"
kill "$gateway"
wait "$gateway"
gateway=
echo "done"
