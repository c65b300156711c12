#!/usr/bin/env bash
# Makes a Python virtual environment with pinned packages for the tests, from the index that pip is configured for.
#
# Usage:   venv.sh DIR [REQUIREMENT...]      a requirement is a file or a pip specification;
#                                            default: requirements.txt beside this script
# Inputs:  PYTHON (python3), pip's own configuration
# Output:  DIR/bin/python; DIR/.stamp, the hash of requirements and Python version. Same stamp: nothing is done.
set -eu
shopt -s inherit_errexit

here=$(cd "$(dirname "$0")" && pwd)
readonly here
readonly PYTHON=${PYTHON:-python3}

# arguments_of REQUIREMENT...: fills `arguments` for pip.
arguments_of() {
    local requirement
    arguments=()
    for requirement in "$@"; do
        [ ! -f "$requirement" ] || arguments+=(-r)
        arguments+=("$requirement")
    done
}

stamp_of() {
    local requirement
    {
        "$PYTHON" -c 'import sys; print(sys.version, sys.prefix)'
        for requirement in "$@"; do
            if [ -f "$requirement" ]; then cat "$requirement"; else echo "$requirement"; fi
        done
    } | sha256sum | cut -c1-32
}

is_current() {
    [ "$(cat "$1/.stamp" 2>/dev/null)" = "$2" ] && [ -x "$1/bin/python" ]
}

main() {
    local dir stamp arguments
    [ $# -gt 0 ] || { echo "usage: venv.sh DIR [REQUIREMENT...]" >&2; return 1; }
    dir=$1
    shift
    [ $# -gt 0 ] || set -- "$here/requirements.txt"
    stamp=$(stamp_of "$@")
    if is_current "$dir" "$stamp"; then return 0; fi
    arguments_of "$@"
    mkdir -p "$dir"
    exec 9<"$dir"
    flock 9
    if is_current "$dir" "$stamp"; then return 0; fi # another call was faster
    "$PYTHON" -m venv --clear "$dir"
    "$dir/bin/python" -m pip --quiet --disable-pip-version-check install "${arguments[@]}" >&2
    echo "$stamp" >"$dir/.stamp"
    echo "venv: made $dir" >&2
}

main "$@"
