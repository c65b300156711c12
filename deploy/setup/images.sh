#!/usr/bin/env bash
# Makes the local test images that are asked for, without any registry. An image carries the hash of its recipe in the
# label sandgate.recipe and is made again only when the recipe has changed.
#
# Usage:   images.sh [NAME...]       base busybox static nonroot musl, with or without sandgate- and :local; default: all
#            sandgate-base:local     Debian or Ubuntu minbase with python3, bash, coreutils, grep, procps, curl; user
#                                    app (1000), user nobody, group nogroup; LANG not set
#            sandgate-nonroot:local  the same files, run as 1000 in /home/app
#            sandgate-busybox:local  only busybox with its applets, /tmp and /etc/passwd
#            sandgate-static:local   only the program /hello: no shell, no libc, no /tmp, no /etc/passwd
#            sandgate-musl:local     as busybox, with musl as the only libc and /bin/hello-musl, which is linked with it
# Inputs:  SANDGATE_STATE (~/.cache/sandgate), the engine that engine.sh finds or starts
# Output:  the images; STATE/images/base-HASH.tar, from which base and nonroot are made without the network
set -euo pipefail
shopt -s inherit_errexit

here=$(cd "$(dirname "$0")" && pwd)
readonly here
readonly STATE=${SANDGATE_STATE:-$HOME/.cache/sandgate}
readonly PATH_CHANGE="ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

say() { echo "images: $*" >&2; }

hash_of() { sha256sum | cut -c1-16; }

# ---- recipes: recipe_X DIR leaves the file system in DIR or, for base, its tar. A recipe's own text is its version.

# The machine's own network settings of apt; mmdebstrap reads no file of /etc/apt.
apt_settings() {
    apt-config dump | grep -E '^Acquire::(http|https|Check-[A-Za-z-]+|Retries)[: ].* "..*";$' || :
}

recipe_base() {
    local suite=$1 tar=$2 settings=$2.apt
    apt_settings >"$settings"
    # shellcheck disable=SC2016 # mmdebstrap's shell expands $1, the root of the new system
    "$here/apt-sources.sh" | mmdebstrap --quiet --format=tar --variant=minbase \
        --include=python3,bash,coreutils,grep,procps,curl \
        --aptopt="$settings" --aptopt='Acquire::Languages "none"' \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/info/*' \
        --customize-hook='chroot "$1" useradd --uid 1000 --create-home --shell /bin/bash app' \
        --customize-hook='rm -rf "$1"/var/log/* "$1"/var/cache/* "$1"/etc/hostname "$1"/etc/resolv.conf' \
        "$suite" "$tar" -
    rm -f "$settings"
}

recipe_busybox() {
    local dir=$1 applet
    mkdir -p "$dir/bin" "$dir/etc" "$dir/root" "$dir/tmp"
    chmod 1777 "$dir/tmp"
    cp "$(busybox_path)" "$dir/bin/busybox"
    for applet in $("$dir/bin/busybox" --list); do
        [ "$applet" = busybox ] || ln -s busybox "$dir/bin/$applet"
    done
    printf '%s\n' 'root:x:0:0:root:/root:/bin/sh' 'nobody:x:65534:65534:nobody:/:/bin/false' >"$dir/etc/passwd"
    printf '%s\n' 'root:x:0:' 'nogroup:x:65534:' >"$dir/etc/group"
}

recipe_static() {
    local dir=$1
    gcc -static -Os -s -o "$dir/hello" -x c - <<'END'
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Prints its arguments, then its environment, one per line; "wait" as the first argument: sleeps until a signal. */
int main(int argc, char **argv, char **envp)
{
    if (argc > 1 && !strcmp(argv[1], "wait"))
        pause();
    for (; *argv; argv++)
        puts(*argv);
    for (; *envp; envp++)
        puts(*envp);
    return 0;
}
END
}

recipe_musl() {
    local dir=$1 loader
    recipe_busybox "$dir"
    loader=$(echo /lib/ld-musl-*.so.1)
    mkdir -p "$dir/lib"
    cp -L "$loader" "$dir$loader"
    musl-gcc -Os -s -o "$dir/bin/hello-musl" -x c - <<'END'
#include <pwd.h>
#include <stdio.h>
#include <unistd.h>

/* Says who it runs as, by way of its libc. */
int main(void)
{
    struct passwd *p = getpwuid(getuid());

    return printf("hello from musl, %s\n", p ? p->pw_name : "nobody known") < 0;
}
END
}

# ---- making

busybox_path() { command -v busybox || echo /bin/busybox; }

suite() {
    # shellcheck disable=SC1091 # a file of the system
    (. /etc/os-release && echo "${VERSION_CODENAME:?no release code name in /etc/os-release}")
}

# version_of NAME: what the image depends on, as a hash.
version_of() {
    case $1 in
        base | nonroot) { declare -f recipe_base make_"$1"; suite; dpkg --print-architecture; } | hash_of ;;
        busybox) { declare -f recipe_busybox make_busybox; sha256sum <"$(busybox_path)"; } | hash_of ;;
        musl)
            { declare -f recipe_busybox recipe_musl make_musl; sha256sum <"$(busybox_path)"; cat /lib/ld-musl-*.so.1; } |
                hash_of
            ;;
        static) { declare -f recipe_static make_static; dpkg --print-architecture; } | hash_of ;;
    esac
}

# import NAME VERSION CHANGE...: the tar on stdin becomes sandgate-NAME:local.
import() {
    local name=$1 version=$2 change changes=() old
    shift 2
    old=$(docker image inspect -f '{{.Id}}' "sandgate-$name:local" 2>/dev/null || :)
    for change in "$PATH_CHANGE" "LABEL sandgate.recipe=$version" "$@"; do
        changes+=(--change "$change")
    done
    docker import "${changes[@]}" - "sandgate-$name:local" >/dev/null
    # The image of the old recipe goes, unless a container or another name uses it.
    [ -z "$old" ] || docker image rm "$old" >/dev/null 2>&1 || :
}

# The tar of the base image, made once and shared by all its images.
base_tar() {
    local tar
    tar=$STATE/images/base-$({ declare -f recipe_base; suite; dpkg --print-architecture; } | hash_of).tar
    if [ ! -s "$tar" ]; then
        say "bootstrapping a minimal $(suite) (about half a minute)"
        rm -f "$STATE/images"/base-*.tar*
        recipe_base "$(suite)" "$tar.part" >&2
        mv "$tar.part" "$tar"
    fi
    echo "$tar"
}

make_base() {
    local tar
    tar=$(base_tar)
    import base "$1" 'CMD ["bash"]' <"$tar"
}

make_nonroot() {
    local tar
    tar=$(base_tar)
    import nonroot "$1" 'CMD ["bash"]' 'USER 1000' 'WORKDIR /home/app' <"$tar"
}

make_busybox() { make_small busybox "$1" 'CMD ["sh"]'; }

make_musl() { make_small musl "$1" 'CMD ["sh"]'; }

make_static() { make_small static "$1" 'ENTRYPOINT ["/hello"]'; }

# make_small NAME VERSION CHANGE...
make_small() {
    local name=$1 version=$2 dir
    shift 2
    dir=$(mktemp -d)
    "recipe_$name" "$dir"
    tar -C "$dir" --owner=0 --group=0 --numeric-owner --sort=name --mtime=@0 -c . | import "$name" "$version" "$@"
    rm -rf "$dir"
}

# One call at a time: two would bootstrap into the same file.
lock() {
    mkdir -p "$STATE/images"
    exec 9>"$STATE/images/lock"
    flock 9
}

present() {
    [ "$(docker image inspect -f '{{index .Config.Labels "sandgate.recipe"}}' "sandgate-$1:local" 2>/dev/null)" = "$2" ]
}

main() {
    local name version
    [ $# -gt 0 ] || set -- base nonroot busybox static musl
    DOCKER_HOST=$("$here/engine.sh")
    export DOCKER_HOST
    lock
    for name in "$@"; do
        name=${name#sandgate-}
        name=${name%:local}
        case $name in
            base | nonroot | busybox | static | musl) ;;
            *) say "unknown image '$name' (base, nonroot, busybox, static, musl)"; return 1 ;;
        esac
        version=$(version_of "$name")
        if ! present "$name" "$version"; then
            "make_$name" "$version"
            say "made sandgate-$name:local"
        fi
    done
}

main "$@"
