#!/usr/bin/env bash
# Lays out what is needed to link the agent again with another libmicrohttpd (LGPL-2.1 section 6): its object files and
# one script. Called by make relink.
#
# Usage: relink.sh DIR LINK_COMMAND LIBRARIES OBJECT ...
set -eu

main() {
    local dir=$1 link=$2 libs=$3 object name
    shift 3
    rm -rf "$dir"
    mkdir -p "$dir/objects"
    for object in "$@"; do
        name=${object#build/obj/static/}
        cp "$object" "$dir/objects/${name//\//_}"
    done
    cat >"$dir/relink.sh" <<SCRIPT
#!/bin/sh
# Links the agent. LIBDIR holds your libmicrohttpd.a, built with ./configure --disable-https --disable-shared.
set -eu
libdir=\$(cd "\${1:?usage: relink.sh LIBDIR}" && pwd)
cd "\$(dirname "\$0")"
$link objects/*.o -o execd -L"\$libdir" $libs
echo "made \$PWD/execd"
SCRIPT
    chmod +x "$dir/relink.sh"
    echo "$dir: $# object files; run $dir/relink.sh LIBDIR"
}

main "$@"
