#include "common/proc/spawn.h"

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* What the child reports when it cannot get to the program. */
enum step { STEP_FDS, STEP_GROUP, STEP_TTY, STEP_CAPS, STEP_IDS, STEP_CWD, STEP_EXEC };

static const char *const step_names[] = {
    "set up descriptors of",
    "make the process group of",
    "give a terminal to",
    "drop capabilities of",
    "switch identity for",
    "change directory for",
    "execute",
};

struct report {
    enum step step;
    int errnum;
};

/* ---- child side: async-signal-safe only, and nothing that writes to the parent's memory, which
 * a vfork child shares ---- */

_Noreturn static void give_up(int fd, enum step step)
{
    struct report r = { step, errno };

    (void)!write(fd, &r, sizeof(r));
    _exit(127);
}

/* Puts fd at slot, above the slots themselves so that no source is overwritten. */
static int place(int fd, int slot)
{
    int flags = slot == STDIN_FILENO ? O_RDONLY : O_WRONLY;

    if (fd < 0) {
        fd = open("/dev/null", flags | O_CLOEXEC);
        if (fd < 0)
            return -1;
    }
    if (fd == slot) /* dup2 onto itself keeps close-on-exec */
        return fcntl(fd, F_SETFD, 0);
    return dup2(fd, slot) < 0 ? -1 : 0;
}

static int place_all(const struct spawn_req *rq)
{
    int in = rq->in >= 0 && rq->in < 3 ? fcntl(rq->in, F_DUPFD_CLOEXEC, 3) : rq->in;
    int out = rq->out >= 0 && rq->out < 3 ? fcntl(rq->out, F_DUPFD_CLOEXEC, 3) : rq->out;
    int err = rq->err >= 0 && rq->err < 3 ? fcntl(rq->err, F_DUPFD_CLOEXEC, 3) : rq->err;

    if (place(in, 0) < 0 || place(out, 1) < 0 || place(err, 2) < 0)
        return -1;
    /* whatever else was inherited without close-on-exec; older kernels lack the call */
    (void)syscall(SYS_close_range, 3U, ~0U, 4U /* CLOSE_RANGE_CLOEXEC */);
    return rq->keep ? fcntl(rq->keep, F_SETFD, 0) : 0;
}

/* Raw calls: glibc's wrappers would switch every thread of the process whose memory a vfork child
 * shares. */
static int switch_ids(const struct spawn_req *rq)
{
    if (!rq->set_ids || (geteuid() == rq->uid && getegid() == rq->gid && geteuid() != 0))
        return 0;
    if (syscall(SYS_setgroups, rq->n_groups, rq->groups) < 0)
        return -1;
    if (syscall(SYS_setresgid, rq->gid, rq->gid, rq->gid) < 0)
        return -1;
    return (int)syscall(SYS_setresuid, rq->uid, rq->uid, rq->uid);
}

/* A program of root gets what is inheritable although the bounding set lacks it. */
static int drop_inheritable(void)
{
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct data[2];

    if (syscall(SYS_capget, &head, data) < 0)
        return -1;
    if (!data[0].inheritable && !data[1].inheritable)
        return 0;
    data[0].inheritable = data[1].inheritable = 0;
    return (int)syscall(SYS_capset, &head, data);
}

static void default_signals(void)
{
    struct sigaction dfl = { .sa_handler = SIG_DFL };
    sigset_t none;
    int sig;

    for (sig = 1; sig < NSIG; sig++)
        (void)sigaction(sig, &dfl, NULL); /* fails for KILL, STOP and reserved ones */
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

_Noreturn static void child(const struct spawn_req *rq, int report_fd)
{
    default_signals();
    if ((rq->new_session ? setsid() : setpgid(0, 0)) < 0)
        give_up(report_fd, STEP_GROUP);
    if (place_all(rq) < 0)
        give_up(report_fd, STEP_FDS);
    if (rq->tty && ioctl(STDIN_FILENO, TIOCSCTTY, 0) < 0)
        give_up(report_fd, STEP_TTY);
    if (!rq->inherit && drop_inheritable() < 0)
        give_up(report_fd, STEP_CAPS);
    if (switch_ids(rq) < 0)
        give_up(report_fd, STEP_IDS);
    if (rq->cwd && chdir(rq->cwd) < 0)
        give_up(report_fd, STEP_CWD);
    (void)execve(rq->path, rq->argv, rq->envp);
    give_up(report_fd, STEP_EXEC);
}

/* vfork: a copy of the page tables costs more than all the rest of a start. The parent stands
 * still until the child has left for exec or _exit; its frame below this one stays untouched. */
__attribute__((noinline)) static pid_t start(const struct spawn_req *rq, int report_fd)
{
    pid_t kid = vfork();

    if (kid == 0)
        child(rq, report_fd);
    return kid;
}

/* ---- parent side ---- */

/* Waits for exec (end of file) or for the child's report. */
static int read_report(int fd, struct report *r)
{
    ssize_t n;

    do
        n = read(fd, r, sizeof(*r));
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof(*r);
}

int spawn(const struct spawn_req *rq, pid_t *pid, struct err *e)
{
    int fds[2];
    struct report r;
    sigset_t all;
    sigset_t old;
    pid_t kid;
    int failed;

    if (pipe2(fds, O_CLOEXEC) < 0)
        return err_sys(e, errno, "make pipe");
    AUTO_FD int rd = fds[0];
    AUTO_FD int wr = fds[1];

    if (wr < 3) { /* keep it out of the way of the child's 0, 1, 2 */
        int high = fcntl(wr, F_DUPFD_CLOEXEC, 3);

        if (high < 0)
            return err_sys(e, errno, "make pipe");
        (void)close(wr);
        wr = high;
    }
    /* no handler of the parent may run in the child */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    kid = start(rq, wr);
    failed = errno;
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (kid < 0)
        return err_sys(e, failed, "start a process");
    (void)close(TAKE_FD(wr));
    if (read_report(rd, &r)) {
        (void)waitpid(kid, NULL, 0);
        return err_sys(e, r.errnum, "cannot %s %s",
                       r.step <= STEP_EXEC ? step_names[r.step] : "start", rq->path);
    }
    *pid = kid;
    return 0;
}

static int runnable(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

int spawn_which(const char *prog, const char *path_list, char **out, struct err *e)
{
    AUTO_BUF struct buf b = BUF_INIT(PATH_MAX);
    const char *dir = path_list ? path_list : "";
    size_t len;

    for (; *dir; dir += len + (dir[len] == ':')) {
        len = strcspn(dir, ":");
        if (dir[0] != '/')
            continue;
        buf_clear(&b);
        if (buf_append(&b, dir, len) < 0 || buf_printf(&b, "/%s", prog) < 0)
            continue;
        if (runnable(b.data)) {
            *out = buf_take(&b);
            return *out ? 0 : err_nomem(e);
        }
    }
    return err_set(e, ERRC_NOT_FOUND, "%s: not found in PATH", prog);
}
