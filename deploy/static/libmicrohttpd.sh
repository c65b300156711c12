#!/usr/bin/env bash
# Builds a static libmicrohttpd for static-pie programs, from the distribution's source package with its patches.
# The distribution's own archive needs GnuTLS, which cannot be linked statically; here HTTPS, both authentications, the
# postprocessor and the error texts' translations are off, epoll, poll and upgrade are on.
#
# Usage:   libmicrohttpd.sh OUTDIR
# Inputs:  CC (cc), SANDGATE_CACHE (CACHE; ~/.cache/sandgate), the machine's package sources (read only: they are
#          used as source entries under a private apt configuration)
# Output:  OUTDIR/lib/libmicrohttpd.a, OUTDIR/include/microhttpd.h, OUTDIR/libmicrohttpd.stamp
#          CACHE/src/libmicrohttpd/ the source package, so that it is downloaded once per machine
#          CACHE/built/libmicrohttpd-HASH/ the result, so that it is built once per machine, script and compiler
# Exit:    0 built or already there; 1 failed, with the end of the log
set -euo pipefail
shopt -s inherit_errexit

here=$(cd "$(dirname "$0")" && pwd)
readonly here
readonly CC=${CC:-cc}
readonly CACHE=${SANDGATE_CACHE:-$HOME/.cache/sandgate}
readonly SOURCE=$CACHE/src/libmicrohttpd

# Debian 12. Another version (another distribution, a security update) is taken as apt has verified it.
readonly PINNED_DSC=libmicrohttpd_0.9.75-6.dsc
readonly PINNED_SUMS="\
c0f8a9cd77c41285d2d48fc68bbee2e460a55042fcd5d3f6b9946c017d4b6846  libmicrohttpd_0.9.75-6.dsc
566c247bfbf67e20858705ae695f58db747d50ed8512f2bc46a28bef9086e5af  libmicrohttpd_0.9.75-6.debian.tar.xz
796e7e217a4802679fcac667a4e98501c53185dcf50ca0583870e84192620131  libmicrohttpd_0.9.75.orig.tar.xz"

readonly FLAGS="-O2 -g -fPIE -fstack-protector-strong -fstack-clash-protection -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 \
-Wformat -Werror=format-security -ffunction-sections -fdata-sections"
readonly CONFIGURE=(--disable-shared --enable-static --disable-https --disable-bauth --disable-dauth
    --disable-postprocessor --disable-doc --disable-examples --disable-curl --disable-nls --enable-epoll=yes
    --enable-poll=yes --enable-httpupgrade --enable-messages --disable-dependency-tracking)

say() { echo "libmicrohttpd: $*" >&2; }

# ---- source

# apt with lists, cache and sources of its own below DIR: apt_private DIR ARGUMENT...
apt_private() {
    local dir=$1
    shift
    apt-get -qq -o Dir::State="$dir/state" -o Dir::State::status=/var/lib/dpkg/status -o Dir::Cache="$dir/cache" \
        -o Dir::Etc::sourcelist="$dir/sources.list" -o Dir::Etc::sourceparts=- -o APT::Sandbox::User=root "$@"
}

# download DIR: the source package's files into DIR/files, verified by apt against the signed index.
download() {
    local dir=$1
    mkdir -p "$dir/state/lists/partial" "$dir/cache/archives/partial" "$dir/files"
    "$here/../setup/apt-sources.sh" deb-src >"$dir/sources.list"
    apt_private "$dir" update
    (cd "$dir/files" && apt_private "$dir" source --download-only libmicrohttpd)
    (cd "$dir/files" && sha256sum -- *.dsc *.tar.* >SHA256SUMS)
}

# The cached source package is used only when it is what it was when it was downloaded.
have_source() {
    [ -f "$SOURCE/SHA256SUMS" ] && (cd "$SOURCE" && sha256sum --quiet --check SHA256SUMS >/dev/null 2>&1)
}

check_pin() {
    if [ -f "$SOURCE/$PINNED_DSC" ]; then
        (cd "$SOURCE" && sha256sum --quiet --check - <<<"$PINNED_SUMS" >&2) && return 0
        say "the source package is not the one whose checksums are pinned in $0; remove $SOURCE to fetch it again"
        return 1
    fi
    say "not the pinned version: using $(basename "$SOURCE"/*.dsc), verified by apt"
}

# fetch_source DIR: fills SOURCE when it is not there; DIR is scratch.
fetch_source() {
    if ! have_source; then
        say "downloading the source package"
        download "$1"
        rm -rf "$SOURCE"
        mkdir -p "$(dirname "$SOURCE")"
        mv "$1/files" "$SOURCE"
    fi
    check_pin
}

# ---- build

# build DIR PREFIX: unpacks below DIR and installs into PREFIX.
build() {
    local dir=$1 prefix=$2
    dpkg-source --no-check -x "$SOURCE"/*.dsc "$dir/source"
    cd "$dir/source"
    ./configure --quiet --prefix="$prefix" "${CONFIGURE[@]}" CC="$CC" \
        CFLAGS="$FLAGS -ffile-prefix-map=$dir/source=libmicrohttpd"
    make -s -C src/microhttpd -j"$(nproc)" libmicrohttpd.la
    mkdir -p "$prefix/lib" "$prefix/include"
    cp src/microhttpd/.libs/libmicrohttpd.a "$prefix/lib/"
    cp src/include/microhttpd.h "$prefix/include/"
}

# try_link DIR PREFIX: a static-pie program with the result links without a warning and runs.
try_link() {
    local dir=$1 prefix=$2 warnings
    cat >"$dir/try.c" <<'END'
#include <jansson.h>
#include <microhttpd.h>
#include <stdio.h>

static enum MHD_Result answer(void *cls, struct MHD_Connection *c, const char *url, const char *method,
                              const char *version, const char *data, size_t *size, void **state)
{
    (void)cls, (void)c, (void)url, (void)method, (void)version, (void)data, (void)size, (void)state;
    return MHD_NO;
}

int main(void)
{
    struct MHD_Daemon *d =
        MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_UPGRADE, 0, NULL, NULL, answer,
                         NULL, MHD_OPTION_END);
    json_t *version = json_string(MHD_get_version());

    if (!d || !version || MHD_is_feature_supported(MHD_FEATURE_TLS) == MHD_YES)
        return 1;
    json_decref(version);
    MHD_stop_daemon(d);
    return 0;
}
END
    if ! warnings=$("$CC" -static-pie -fPIE -O2 -Wall -I"$prefix/include" -o "$dir/try" "$dir/try.c" \
        "$prefix/lib/libmicrohttpd.a" -l:libjansson.a -lpthread 2>&1) || [ -n "$warnings" ]; then
        echo "trial program:" "$warnings"
        return 1
    fi
    "$dir/try"
}

build_and_try() {
    build "$1" "$2"
    try_link "$1" "$2"
}

# make_result RESULT: source, build and trial in a scratch directory; RESULT appears only as a whole.
make_result() {
    local result=$1 dir
    dir=$(mktemp -d)
    # shellcheck disable=SC2064 # the value of now
    trap "rm -rf '$dir'" EXIT
    fetch_source "$dir"
    say "building (about 10 seconds)"
    # In the background, because "set -e" does not work in a condition.
    build_and_try "$dir" "$dir/out" >"$dir/log" 2>&1 </dev/null &
    if ! wait $!; then
        tail -n 30 "$dir/log" >&2
        say "build failed"
        return 1
    fi
    rm -rf "$result"
    mkdir -p "$(dirname "$result")"
    mv "$dir/out" "$result"
}

# What the result depends on: this script, the compiler, the machine's kind.
version() {
    { cat "$here/libmicrohttpd.sh"; "$CC" --version; "$CC" -dumpmachine; } | sha256sum | cut -c1-16
}

main() {
    local out version result
    [ $# = 1 ] || { echo "usage: libmicrohttpd.sh OUTDIR" >&2; return 1; }
    out=$1
    version=$(version)
    if [ "$(cat "$out/libmicrohttpd.stamp" 2>/dev/null)" = "$version" ] && [ -f "$out/lib/libmicrohttpd.a" ]; then
        return 0
    fi
    mkdir -p "$CACHE" "$out/lib" "$out/include"
    exec 9>"$CACHE/libmicrohttpd.lock"
    flock 9
    result=$CACHE/built/libmicrohttpd-$version
    [ -f "$result/lib/libmicrohttpd.a" ] || make_result "$result"
    cp "$result/lib/libmicrohttpd.a" "$out/lib/"
    cp "$result/include/microhttpd.h" "$out/include/"
    echo "$version" >"$out/libmicrohttpd.stamp"
}

main "$@"
