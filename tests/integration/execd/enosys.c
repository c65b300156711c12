/* Executes its arguments on a kernel that lacks the newer system calls: they answer ENOSYS, as under an
 * old kernel, an old engine's filter or a user-space kernel. Static, without privileges. */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#else
#error "add this machine's AUDIT_ARCH"
#endif

#define REFUSE (SECCOMP_RET_ERRNO | ENOSYS)
#define LACKS(call)                                                                                \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (call), 0, 1), BPF_STMT(BPF_RET | BPF_K, REFUSE)

enum {
    NR_PIDFD_OPEN = 434, /* these are the same everywhere */
    NR_CLONE3 = 435,
    NR_CLOSE_RANGE = 436,
    NR_OPENAT2 = 437,
    NR_EPOLL_PWAIT2 = 441,
};

int main(int argc, char **argv)
{
    static struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        LACKS(SYS_statx),
        LACKS(NR_PIDFD_OPEN),
        LACKS(NR_CLONE3),
        LACKS(NR_CLOSE_RANGE),
        LACKS(NR_OPENAT2),
        LACKS(NR_EPOLL_PWAIT2),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = { sizeof(code) / sizeof(code[0]), code };

    if (argc < 2 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0) {
        perror("enosys");
        return 1;
    }
    (void)execv(argv[1], &argv[1]);
    perror(argv[1]);
    return 127;
}
