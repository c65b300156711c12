#!/usr/bin/env bash
# Fetches a program out of a Debian package without installing it: the package's scripts do not run, so no service of
# its starts on this machine.
#
# Usage:   unpack.sh DIR PACKAGE PATH    e.g. unpack.sh ~/.cache/x docker-registry usr/bin/docker-registry
# Output:  the program's path below DIR; a second call finds it there
set -eu
shopt -s inherit_errexit

fetch() {
    apt-get -q download "$1" >&2 || { apt-get -q update >&2 && apt-get -q download "$1" >&2; }
}

main() {
    local dir=$1 package=$2 path=$3 part
    if [ ! -x "$dir/$package/$path" ]; then
        mkdir -p "$dir"
        part=$(mktemp -d "$dir/part.XXXXXX")
        (cd "$part" && fetch "$package" && dpkg-deb -x ./*.deb files && rm -f ./*.deb)
        mv -T "$part/files" "$dir/$package" 2>/dev/null || true # another call was faster
        rm -rf "$part"
    fi
    [ -x "$dir/$package/$path" ]
    echo "$dir/$package/$path"
}

main "$@"
