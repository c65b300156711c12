#!/usr/bin/env bash
# Builds the previous version of the gateway with its agent, once, for test_upgrade.py.
#
# Usage:   previous.sh DIR     DIR is a cache; prints the path of the program
# Exit:    2 when the history of this clone does not reach back to that version
set -eu
shopt -s inherit_errexit

# The last state of main before the schema's latest migrations: the release that an upgrade starts from.
readonly PREVIOUS=6c195de
root=$(cd "$(dirname "$0")/../../.." && pwd)
readonly root

main() {
    local dir=$1/$PREVIOUS part
    if [ ! -x "$dir/build/sandgate" ]; then
        git -C "$root" cat-file -e "$PREVIOUS^{commit}" 2>/dev/null || return 2
        part=$dir.part.$$
        mkdir -p "$part/build"
        git -C "$root" archive "$PREVIOUS" | tar -x -C "$part"
        # the same library archive, when its recipe is the same
        if cmp -s "$root/deploy/static/libmicrohttpd.sh" "$part/deploy/static/libmicrohttpd.sh"; then
            cp -a "$root/build/static" "$part/build/"
        fi
        make -C "$part" --no-print-directory -j2 all >"$part/make.log" 2>&1 || { tail -n 30 "$part/make.log" >&2; return 1; }
        mv -T "$part" "$dir" 2>/dev/null || rm -rf "$part" # another run was faster
    fi
    echo "$dir/build/sandgate"
}

main "$@"
