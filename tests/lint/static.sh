#!/bin/sh
# Fails when the agent given as argument is not one self-contained file (design decision 1).
set -eu
if readelf -d "$1" 2>/dev/null | grep -q NEEDED; then
    echo "$1 needs shared libraries" >&2
    exit 1
fi
if readelf -l "$1" | grep -q INTERP; then
    echo "$1 needs a program interpreter" >&2
    exit 1
fi
size=$(stat -c %s "$1")
if [ "$size" -gt $((2 * 1024 * 1024)) ]; then
    echo "$1 has $size bytes, more than 2 MiB" >&2
    exit 1
fi
