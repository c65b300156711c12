/* What the program of a cage may still do. A root of the container stays root for its files, not for the
 * kernel: no mounts, no namespaces, no devices, no look at other processes. */
#include "common/base/err.h"
#include "common/base/macros.h"
#include "execd/isolated/cage.h"
#include "execd/isolated/internal.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#else
#error "the architecture of the system call filter"
#endif
#define X32_BIT 0x40000000U

/* Kept of those that the agent has: what programs of root need for files, accounts, signals, ports. */
static const int kept_caps[] = {
    CAP_CHOWN,  CAP_DAC_OVERRIDE, CAP_FOWNER,           CAP_FSETID,  CAP_KILL,
    CAP_SETGID, CAP_SETUID,       CAP_NET_BIND_SERVICE, CAP_SETFCAP,
};

/* Answered with EPERM. */
static const unsigned denied[] = {
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_unshare,
    SYS_setns,
    SYS_open_tree,
    SYS_move_mount,
    SYS_fsopen,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fspick,
    SYS_mount_setattr,
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_kcmp,
    SYS_pidfd_getfd,
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_open_by_handle_at,
    SYS_name_to_handle_at,
    SYS_keyctl,
    SYS_add_key,
    SYS_request_key,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_kexec_load,
    SYS_kexec_file_load,
    SYS_reboot,
    SYS_swapon,
    SYS_swapoff,
    SYS_syslog,
    SYS_acct,
    SYS_quotactl,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_adjtimex,
    SYS_clock_adjtime,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_vhangup,
    SYS_lookup_dcookie,
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_fanotify_init,
};

enum {
    NAMESPACES = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID |
                 CLONE_NEWNET | CLONE_NEWCGROUP
};

struct program {
    struct sock_filter code[2 * ARRAY_LEN(denied) + 24];
    unsigned short n;
};

static void add(struct program *p, struct sock_filter f)
{
    p->code[p->n++] = f;
}

static void load(struct program *p, size_t offset)
{
    add(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offset));
}

static void answer(struct program *p, unsigned what)
{
    add(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, what));
}

/* When the accumulator is (op) k, the answer is what. */
static void when(struct program *p, unsigned short op, unsigned k, unsigned what)
{
    add(p, (struct sock_filter)BPF_JUMP((unsigned short)(BPF_JMP | BPF_K | op), k, 0, 1));
    answer(p, what);
}

static void assemble(struct program *p)
{
    const unsigned refuse = SECCOMP_RET_ERRNO | EPERM;
    size_t i;

    load(p, offsetof(struct seccomp_data, arch));
    add(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0));
    answer(p, refuse); /* another ABI, whose numbers mean other calls */
    load(p, offsetof(struct seccomp_data, nr));
#if defined(__x86_64__)
    when(p, BPF_JGE, X32_BIT, refuse);
#endif
    for (i = 0; i < ARRAY_LEN(denied); i++)
        when(p, BPF_JEQ, denied[i], refuse);
    when(p, BPF_JEQ, SYS_clone3, SECCOMP_RET_ERRNO | ENOSYS); /* its flags cannot be seen */
    add(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 3));
    load(p, offsetof(struct seccomp_data, args[0]));
    when(p, BPF_JSET, NAMESPACES, refuse);
    answer(p, SECCOMP_RET_ALLOW);
}

static int filter_calls(struct err *e)
{
    struct program p = { .n = 0 };
    struct sock_fprog prog;

    assemble(&p);
    prog = (struct sock_fprog){ p.n, p.code };
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) < 0)
        return err_sys(e, errno, "filter system calls");
    return 0;
}

/* ---- identity ---- */

static int write_map(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : write(fd, text, strlen(text));

    if (fd >= 0)
        (void)close(fd);
    return n < 0 ? -1 : 0;
}

/* uid and gid become names for those that the agent has; there are no others inside. */
static int enter_userns(const struct cage *c, struct err *e)
{
    uid_t uid = geteuid();
    gid_t gid = getegid();
    char text[64];

    if (syscall(SYS_unshare, CLONE_NEWUSER) < 0)
        return err_sys(e, errno, "cannot make namespaces (user)");
    (void)snprintf(text, sizeof(text), "%u %u 1\n", c->uid, uid);
    if (write_map("/proc/self/setgroups", "deny") < 0 || write_map("/proc/self/uid_map", text) < 0)
        return err_sys(e, errno, "map the user of the cage");
    (void)snprintf(text, sizeof(text), "%u %u 1\n", c->gid, gid);
    return write_map("/proc/self/gid_map", text) < 0
               ? err_sys(e, errno, "map the group of the cage")
               : 0;
}

static int become(const struct cage *c, struct err *e)
{
    if (c->userns)
        return enter_userns(c, e);
    if (geteuid() != 0 && geteuid() == c->uid && getegid() == c->gid)
        return 0;
    if (syscall(SYS_setgroups, c->n_groups, c->groups) < 0 ||
        syscall(SYS_setresgid, c->gid, c->gid, c->gid) < 0 ||
        syscall(SYS_setresuid, c->uid, c->uid, c->uid) < 0)
        return err_sys(e, errno, "become uid %u, gid %u", c->uid, c->gid);
    return 0;
}

/* ---- capabilities ---- */

static bool kept(int cap)
{
    size_t i;

    for (i = 0; i < ARRAY_LEN(kept_caps); i++)
        if (kept_caps[i] == cap)
            return true;
    return false;
}

static int drop_caps(struct err *e)
{
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct data[2];
    unsigned mask[2] = { 0, 0 };
    int cap;

    for (cap = 0; prctl(PR_CAPBSET_READ, cap) >= 0; cap++) {
        if (kept(cap))
            mask[cap / 32] |= 1U << (cap % 32);
        else if (prctl(PR_CAPBSET_DROP, cap) < 0 && prctl(PR_CAPBSET_READ, cap) > 0)
            return err_sys(e, errno, "drop capability %d (needs CAP_SETPCAP)", cap);
    }
    (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    if (syscall(SYS_capget, &head, data) < 0)
        return err_sys(e, errno, "look at capabilities");
    for (cap = 0; cap < 2; cap++) {
        data[cap].permitted &= mask[cap];
        data[cap].effective &= mask[cap];
        data[cap].inheritable = 0;
    }
    return syscall(SYS_capset, &head, data) < 0 ? err_sys(e, errno, "drop capabilities") : 0;
}

/* Capabilities last but for the filter: a change of user needs them, and would take them as well. The
 * bounding set goes first where the change would take away the right to trim it. */
int cage_floor(const struct cage *c, struct err *e)
{
    int cap;

    if (!c->userns && c->uid != 0)
        for (cap = 0; prctl(PR_CAPBSET_READ, cap) >= 0; cap++)
            if (!kept(cap))
                (void)prctl(PR_CAPBSET_DROP, cap);
    if (become(c, e) < 0 || drop_caps(e) < 0)
        return -1;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return err_sys(e, errno, "set no_new_privs");
    return filter_calls(e);
}
