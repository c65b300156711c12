#!/usr/bin/env bash
# Prints the files of the project whose names match one of the given globs, sorted. Sourceless trees (a release tar) are
# searched, a clone is asked: what is ignored by git is no part of the project.
#
# Usage: files.sh GLOB ...        e.g. files.sh '*.c' '*.h'
set -eu

main() {
    local glob find_args=()
    if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
        git ls-files --cached --others --exclude-standard -- "$@" | sort -u |
            while IFS= read -r file; do
                if [ -f "$file" ]; then printf '%s\n' "$file"; fi
            done
        return
    fi
    for glob in "$@"; do find_args+=(-o -name "${glob##*/}"); done
    find . \( -path ./build -o -path ./.git \) -prune -o -type f \( "${find_args[@]:1}" \) -print |
        sed 's|^\./||' | sort
}

main "$@"
