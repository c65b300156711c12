#!/usr/bin/env bash
# Finds a container engine, or starts one of our own, and prints its address on stdout (messages go to stderr).
#
# Usage:
#   engine.sh                 the engine at $DOCKER_HOST, at /var/run/docker.sock or of an earlier call; if none
#                             answers, start one with all its files under STATE/engine
#   engine.sh --stop-own      stop the engine that the call above started; the data stay
#   engine.sh --private DIR   start (or find) a second engine for destructive tests, with a socket, data, runtime
#                             files, pid file and log of its own under DIR, and a bridge of its own
#   engine.sh --stop DIR      stop that engine, also after a crash, and remove its bridges; the data stay, so that
#                             --private DIR starts it again with its containers
#   engine.sh --remove DIR    the same, then remove DIR
# Inputs:  SANDGATE_STATE (STATE; ~/.cache/sandgate), DOCKER_HOST. Starting an engine needs root.
# Output:  one line such as unix:///var/run/docker.sock
# Files:   DIR/docker.sock, pid, log, data/, exec/, daemon.json, bridge, subnet, namespace
# Exit:    0 it answers (or is stopped); 1 it does not, with the end of its log
#
# A private engine runs with --iptables=false: two engines share the names of their chains, and the second would empty
# those of the first when it starts. Published ports still work (userland proxy), outbound NAT does not. Two options
# that look right would make it delete the first engine's docker0: --bridge=none (at once) and --default-address-pool
# (at every restart). Without a pool an engine takes a subnet that no route of the machine touches: no clash.
set -eu
shopt -s inherit_errexit

readonly STATE=${SANDGATE_STATE:-$HOME/.cache/sandgate}
readonly DEFAULT_SOCKET=/var/run/docker.sock
readonly START_SECONDS=60 # a start takes about one second; a crashed engine with many containers takes longer
readonly STOP_SECONDS=40  # dockerd gives its containers 15 s
readonly DIR_LENGTH_MAX=60 # the longest socket path below DIR has 45 bytes, and the kernel's limit is 107

say() { echo "engine: $*" >&2; }

die() {
    say "$*"
    exit 1
}

# answers ADDRESS
answers() {
    case $1 in
        unix://*)
            [ -S "${1#unix://}" ] || return 1
            curl -fsS --max-time 10 --unix-socket "${1#unix://}" http://localhost/_ping >/dev/null 2>&1
            ;;
        *) timeout 10 docker -H "$1" version >/dev/null 2>&1 ;;
    esac
}

# wait_until SECONDS COMMAND...: polls; fails at the deadline.
wait_until() {
    local deadline=$((SECONDS + $1))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$deadline" ] || return 1
        sleep 0.05
    done
}

# pid_of DIR: the pid of DIR's engine if it runs. A pid file can outlive its process, so the command line must match.
pid_of() {
    local pid
    pid=$(cat "$1/pid" 2>/dev/null) || return 1
    [ -n "$pid" ] && is_process_of "$pid" "--pidfile $1/pid" && echo "$pid"
}

# is_process_of PID TEXT: PID runs and has TEXT on its command line.
is_process_of() {
    { tr '\0' ' ' <"/proc/$1/cmdline"; } 2>/dev/null | grep -qF -- "$2"
}

# ---- start

# At the standard address when nobody else can claim it: that is where clients look first.
own_socket() {
    if [ ! -d /run/systemd/system ] && [ -w "$(dirname "$DEFAULT_SOCKET")" ]; then
        echo "$DEFAULT_SOCKET"
    else
        echo "$STATE/engine/docker.sock"
    fi
}

# A private namespace in containerd, which can be the machine's own one: its shims can be told apart by it.
namespace_of() {
    [ -s "$1/namespace" ] || echo "sandgate-$(echo "$1" | sha256sum | cut -c1-8)" >"$1/namespace"
    cat "$1/namespace"
}

# variant NAME DIR: extra options of one way to start. Each way is for a kind of machine where the one before fails.
variant() {
    case $1 in
        plain) ;;
        legacy) # the kernel lacks nf_tables: dockerd finds iptables-legacy under the plain names first in its PATH
            mkdir -p "$2/bin"
            ln -sf "$(command -v iptables-legacy)" "$2/bin/iptables"
            ln -sf "$(command -v ip6tables-legacy)" "$2/bin/ip6tables"
            ;;
        vfs) echo --storage-driver=vfs ;;
    esac
}

# next_variant LOG: which way to try after the failure in LOG; fails when no other way can help.
next_variant() {
    if grep -q 'graphdriver' "$1" && ! grep -q 'prior storage driver' "$1"; then
        echo vfs
    elif grep -qi 'iptables' "$1" && command -v iptables-legacy >/dev/null; then
        echo legacy
    else
        return 1
    fi
}

# containerd dies with a dockerd that is killed. As long as nobody has reaped it, the next dockerd takes the zombie
# for a running containerd and waits for it in vain.
forget_containerd() {
    local file=$1/exec/containerd/containerd.pid pid
    pid=$(cat "$file" 2>/dev/null) || return 0
    is_process_of "$pid" "$1/exec/containerd" || rm -f "$file"
}

# spawn DIR SOCKET OPTION...: starts dockerd with its files under DIR and waits until it answers or dies.
spawn() {
    local dir=$1 socket=$2
    shift 2
    rm -f "$dir/pid"
    forget_containerd "$dir"
    echo '{}' >"$dir/daemon.json" # the machine's own file could contradict the options
    (
        ulimit -n "$(ulimit -Hn)"
        PATH=$dir/bin:$PATH:/usr/sbin:/sbin exec setsid dockerd --log-level=warn \
            --config-file "$dir/daemon.json" --host "unix://$socket" \
            --data-root "$dir/data" --exec-root "$dir/exec" --pidfile "$dir/pid" \
            --containerd-namespace "$(namespace_of "$dir")" \
            --containerd-plugins-namespace "$(namespace_of "$dir")-plugins" "$@" \
            </dev/null >"$dir/log" 2>&1 9>&-
    ) &
    spawned=$!
    wait_until "$START_SECONDS" is_up_or_dead "$spawned" "unix://$socket" && answers "unix://$socket"
}

is_up_or_dead() {
    ! kill -0 "$1" 2>/dev/null || answers "$2"
}

# start DIR SOCKET OPTION...
start() {
    local dir=$1 socket=$2 way=plain tried="" spawned extra
    shift 2
    command -v dockerd >/dev/null || PATH=$PATH:/usr/sbin command -v dockerd >/dev/null ||
        die "no engine answers and dockerd is not installed; run deploy/setup/packages.sh demo"
    [ "$(id -u)" = 0 ] || die "no engine answers and only root can start one (or: user not in group docker?)"
    while :; do
        extra=$(variant "$way" "$dir")
        # shellcheck disable=SC2086 # no option or one
        if spawn "$dir" "$socket" "$@" $extra; then return 0; fi
        if kill -0 "$spawned" 2>/dev/null; then kill "$spawned"; break; fi
        tried="$tried $way"
        way=$(next_variant "$dir/log") || break
        case " $tried " in *" $way "*) break ;; esac
        say "start failed, trying again: $way"
    done
    tail -n 20 "$dir/log" >&2
    die "dockerd did not start; its log is $dir/log"
}

# Two calls at once must not start two engines, and private engines must not choose the same subnet.
lock() {
    mkdir -p "$STATE"
    exec 9>"$STATE/engine.lock"
    flock 9
}

check_dir() {
    [ "${#1}" -le "$DIR_LENGTH_MAX" ] ||
        die "path too long for sockets (${#1} > $DIR_LENGTH_MAX bytes): $1; choose another SANDGATE_STATE or DIR"
}

# ---- our own engine

find_any() {
    local address
    for address in "${DOCKER_HOST:-}" "unix://$DEFAULT_SOCKET" "unix://$STATE/engine/docker.sock"; do
        [ -n "$address" ] || continue
        if answers "$address"; then
            echo "$address"
            return 0
        fi
    done
    return 1
}

own() {
    local dir=$STATE/engine socket
    find_any && return 0
    [ -z "${DOCKER_HOST:-}" ] || say "nothing answers at DOCKER_HOST=$DOCKER_HOST; looking for another engine"
    check_dir "$dir"
    lock
    find_any && return 0 # another call was faster
    socket=$(own_socket)
    mkdir -p "$dir"
    start "$dir" "$socket"
    echo "unix://$socket"
}

# ---- private engines

# The first three bytes of a subnet that no interface and no route of this machine touches.
free_subnet() {
    local n
    for n in $(seq 213 250); do
        if ! { ip -4 -o addr show; ip -4 route show; } | grep -F " 10.$n." >/dev/null; then
            echo "10.$n.0"
            return 0
        fi
    done
    die "no free subnet for a private engine"
}

# The bridge of the engine's default network.
make_bridge() {
    local dir=$1 bridge
    [ -s "$dir/subnet" ] || free_subnet >"$dir/subnet"
    [ -s "$dir/bridge" ] || echo "sg-$(echo "$dir" | sha256sum | cut -c1-8)" >"$dir/bridge"
    bridge=$(cat "$dir/bridge")
    ip link show "$bridge" >/dev/null 2>&1 || ip link add "$bridge" type bridge
    ip addr replace "$(cat "$dir/subnet").1/24" dev "$bridge"
    ip link set "$bridge" up
}

private() {
    local dir
    mkdir -p "$1"
    dir=$(cd "$1" && pwd -P)
    check_dir "$dir"
    lock
    if ! answers "unix://$dir/docker.sock"; then
        [ "$(id -u)" = 0 ] || die "only root can start a private engine"
        make_bridge "$dir"
        start "$dir" "$dir/docker.sock" --iptables=false --ip6tables=false --bridge "$(cat "$dir/bridge")"
    fi
    echo "unix://$dir/docker.sock"
}

# ---- stop

is_gone() { ! is_process_of "$1" "$2"; }

# end PID TEXT: ends the process PID if it is the one with TEXT on its command line.
end() {
    is_process_of "$1" "$2" || return 0
    kill "$1" 2>/dev/null || return 0
    wait_until "$STOP_SECONDS" is_gone "$1" "$2" || kill -KILL "$1" 2>/dev/null || :
}

# What a crashed engine leaves: containerd, then the shims of its namespace with the containers below them.
end_leftovers() {
    local dir=$1 namespace pid cmdline
    namespace=$(cat "$dir/namespace" 2>/dev/null) || return 0
    if pid=$(cat "$dir/exec/containerd/containerd.pid" 2>/dev/null); then end "$pid" "$dir/exec/containerd"; fi
    forget_containerd "$dir"
    for cmdline in /proc/[0-9]*/cmdline; do
        pid=${cmdline#/proc/}
        pid=${pid%/cmdline}
        if is_process_of "$pid" "-namespace $namespace "; then end_shim "$pid"; fi
    done
}

# The shim is the subreaper of its containers: they go first, so that they do not outlive it.
end_shim() {
    local child
    # shellcheck disable=SC2013 # pids are words
    for child in $(cat "/proc/$1/task/$1/children" 2>/dev/null); do
        kill -KILL "$child" 2>/dev/null || :
    done
    kill -KILL "$1" 2>/dev/null || :
}

# Of a container that was killed with its shim; the name of the group is the container's id.
remove_cgroups() {
    local container
    for container in "$1"/data/containers/*/; do
        [ -d "$container" ] || continue
        find /sys/fs/cgroup -mindepth 2 -maxdepth 3 -type d -name "$(basename "$container")" \
            -exec rmdir {} + 2>/dev/null || :
    done
}

unmount_below() {
    local path
    awk -v dir="$1/" 'index($5, dir) == 1 { print $5 }' /proc/self/mountinfo | sort -r | while read -r path; do
        umount -l "$path" || :
    done
}

# An engine leaves the bridges of its networks when it stops, and makes them again when it starts. Their names are in
# its network database, also after a crash. Only for a private engine: our own one shares docker0 with the machine's.
remove_bridges() {
    local bridge
    [ -s "$1/bridge" ] || return 0
    {
        cat "$1/bridge"
        grep -aoE '"BridgeName":"br-[0-9a-f]{12}"' "$1/data/network/files/local-kv.db" 2>/dev/null | cut -d'"' -f4
    } | sort -u | while read -r bridge; do
        ip link del "$bridge" 2>/dev/null || :
    done
}

# stop DIR: does nothing where no engine of ours ran.
stop() {
    local pid
    [ -s "$1/namespace" ] || return 0
    if pid=$(pid_of "$1"); then end "$pid" "--pidfile $1/pid"; fi
    end_leftovers "$1"
    remove_cgroups "$1"
    unmount_below "$1"
    remove_bridges "$1"
    rm -f "$1/pid" "$1/docker.sock"
}

main() {
    case "${1:-}:$#" in
        :0) own ;;
        --private:2) private "$2" ;;
        --stop-own:1) stop "$STATE/engine" ;;
        --stop:2) stop "$(realpath -m "$2")" ;;
        --remove:2)
            stop "$(realpath -m "$2")"
            if [ -e "$2/namespace" ]; then rm -rf "$2"; fi
            ;;
        *) die "usage: engine.sh [--stop-own | --private DIR | --stop DIR | --remove DIR]" ;;
    esac
}

main "$@"
