# shellcheck shell=bash disable=SC2317
# Runs shell code for the agent (execd/code/embedded.h), all of it in this one shell. Code comes on
# descriptor 0 as a count of lines and the lines; what happened goes back there as one JSON object a line
# (execd/code/frames.h). For bash; what another sh cannot do is said where it matters.
exec 9<&0 </dev/null
__kernel_busy=
__kernel_eval() { eval "$1"; }
__kernel_run() {
    printf '{"type":"busy"}\n' >&9
    __kernel_eval "$1" 9<&-
}
# SIGINT ends the child that the shell waits for. What follows in the code is skipped by a DEBUG trap that
# makes each function return, down to the loop below. Another sh returns from one function only, and busybox's own
# sleep runs to its end.
__kernel_skip() {
    if [ "${#FUNCNAME[@]}" -gt 1 ]; then return 2; fi
    trap - DEBUG
    shopt -u extdebug
    set +T
}
__kernel_int() {
    [ -n "$__kernel_busy" ] || return 0
    __kernel_cut=1
    shopt -s extdebug
    set -T
    trap __kernel_skip DEBUG
}
# Line after line takes long for long code: bash has a way to take many at once.
__kernel_read() {
    if [ -n "${BASH_VERSION:-}" ]; then
        local IFS=
        mapfile -n "$1" -u 9 __kernel_lines
        __kernel_code="${__kernel_lines[*]}"
        [ "${#__kernel_lines[@]}" = "$1" ]
        return
    fi
    __kernel_code=
    while [ "$__kernel_n" -gt 0 ]; do
        IFS= read -r __kernel_line <&9 || return 1
        __kernel_code="$__kernel_code$__kernel_line
"
        __kernel_n=$((__kernel_n - 1))
    done
}
# An error of syntax ends a sh that is not bash: it is looked for in a child first.
__kernel_ok() {
    [ -z "${BASH_VERSION:-}" ] || return 0
    (eval "__kernel_try() {
$1
}")
}
__kernel_trap() {
    if [ -n "${BASH_VERSION:-}" ]; then
        trap __kernel_int INT
    else
        trap '[ -z "$__kernel_busy" ] || return 130' INT
    fi
}
__kernel_trap
__kernel_count=0
printf '{"type":"ready"}\n' >&9
while IFS= read -r __kernel_n <&9; do
    __kernel_read "$__kernel_n" || exit 0
    __kernel_count=$((__kernel_count + 1))
    __kernel_cut=
    __kernel_trap
    if __kernel_ok "$__kernel_code"; then
        __kernel_busy=1
        __kernel_run "$__kernel_code"
        __kernel_status=$?
        __kernel_busy=
    else
        __kernel_status=2
    fi
    if [ -n "$__kernel_cut" ]; then
        trap - DEBUG
        shopt -u extdebug
        set +T
        __kernel_status=130
    fi
    if [ "$__kernel_status" != 0 ]; then
        printf '{"type":"error","ename":"CommandExecError","evalue":"%d","traceback":["exit status %d"]}\n' \
            "$__kernel_status" "$__kernel_status" >&9
    fi
    printf '{"type":"idle","count":%d}\n' "$__kernel_count" >&9
done
exit 0
