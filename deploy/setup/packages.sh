#!/usr/bin/env bash
# Installs the Debian or Ubuntu packages that a group of targets needs. Says what is missing, and nothing when all is
# there. Never upgrades what is installed.
#
# Usage:   packages.sh [build|check|demo|engine ...]      build is the default
#            build   compile the programs
#            engine  run a container engine and make test images (same as demo)
#            check   build + engine + every test and lint tool
# Exit:    0 all present; 1 something is missing and cannot be installed here (the command to run is printed)
set -eu
shopt -s inherit_errexit

readonly APT_OPTIONS=(-q -y --no-install-recommends -o DPkg::Lock::Timeout=300)

readonly BUILD="gcc g++ make pkg-config libc6-dev libmicrohttpd-dev libcurl4-openssl-dev libsqlite3-dev
    libjansson-dev libmd-dev libseccomp-dev libtomlplusplus-dev dpkg-dev nftables ca-certificates"
readonly ENGINE="docker.io iptables iproute2 mmdebstrap busybox-static musl-tools gcc libc6-dev python3 python3-venv curl
    ca-certificates"
readonly CHECK="clang clang-format-14 libclang-rt-14-dev llvm libcmocka-dev pmccabe shellcheck codespell
    nginx-light caddy redis-tools wrk git"

packages_of() {
    case $1 in
        build) echo "$BUILD" ;;
        engine | demo) echo "$ENGINE" ;;
        check) echo "$BUILD $ENGINE $CHECK" ;;
        *) echo "packages: unknown group '$1' (build, engine, demo, check)" >&2; return 1 ;;
    esac
}

is_installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# A working engine of another package (docker-ce, a remote one) must not be replaced by docker.io.
is_provided() {
    is_installed "$1" && return 0
    [ "$1" = docker.io ] && command -v docker >/dev/null && docker version >/dev/null 2>&1
}

missing_of() {
    local package
    for package in $(printf '%s\n' "$@" | sort -u); do
        is_provided "$package" || printf '%s ' "$package"
    done
}

# Prints the prefix that makes a command root; fails when there is none.
root_prefix() {
    if [ "$(id -u)" = 0 ]; then echo env; return 0; fi
    sudo -n true 2>/dev/null && echo sudo
}

install_missing() {
    local prefix log missing=("$@")
    if ! prefix=$(root_prefix); then
        echo "packages: not root; please run: apt-get install --no-install-recommends ${missing[*]}" >&2
        return 1
    fi
    log=$(mktemp)
    if "$prefix" apt-get "${APT_OPTIONS[@]}" update >"$log" 2>&1 &&
        "$prefix" DEBIAN_FRONTEND=noninteractive \
            apt-get "${APT_OPTIONS[@]}" install "${missing[@]}" >>"$log" 2>&1 </dev/null; then
        rm -f "$log"
        return 0
    fi
    tail -n 30 "$log" >&2
    echo "packages: installation failed; the whole log is in $log" >&2
    return 1
}

main() {
    local group names="" missing
    [ $# -gt 0 ] || set -- build
    for group in "$@"; do
        names="$names $(packages_of "$group")"
    done
    # shellcheck disable=SC2086 # names are words
    read -r -a missing <<<"$(missing_of $names)"
    if [ "${#missing[@]}" = 0 ]; then return 0; fi
    echo "packages: missing: ${missing[*]}" >&2
    install_missing "${missing[@]}"
    echo "packages: installed" >&2
}

main "$@"
