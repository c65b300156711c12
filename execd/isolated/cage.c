#include "execd/isolated/cage.h"

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/num.h"
#include "execd/fs/tree.h"
#include "execd/isolated/internal.h"

#include <fcntl.h>
#include <limits.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* ---- the argument list ---- */

static const char *const mode_words[] = { "rw", "ro", "overlay", "scratch" };
_Static_assert(ARRAY_LEN(mode_words) == CAGE_MODE_MAX_, "a word for every mode");

/* Words and their arguments, each with its terminator. */
static int put(struct buf *b, size_t *n, const char *word)
{
    (*n)++;
    return buf_append(b, word, strlen(word) + 1);
}

static int put_number(struct buf *b, size_t *n, const char *word, long long v)
{
    char text[24];

    (void)snprintf(text, sizeof(text), "%lld", v);
    return put(b, n, word) < 0 ? -1 : put(b, n, text);
}

static int put_two(struct buf *b, size_t *n, const char *word, const char *value)
{
    return put(b, n, word) < 0 ? -1 : put(b, n, value);
}

static int put_lists(struct buf *b, size_t *n, const struct cage *c)
{
    size_t i;

    for (i = 0; i < c->n_mounts; i++)
        if (put_two(b, n, mode_words[c->mounts[i].mode], c->mounts[i].source) < 0 ||
            put(b, n, c->mounts[i].dest) < 0)
            return -1;
    for (i = 0; i < c->n_groups; i++)
        if (put_number(b, n, "group", c->groups[i]) < 0)
            return -1;
    return 0;
}

static int put_flags(struct buf *b, size_t *n, const struct cage *c)
{
    if ((c->private_tmp && put(b, n, "tmp") < 0) || (c->own_net && put(b, n, "net") < 0) ||
        (c->userns && put(b, n, "userns") < 0))
        return -1;
    return c->report ? put_number(b, n, "report", c->report) : 0;
}

static int put_all(struct buf *b, size_t *n, const struct cage *c, const char *self)
{
    if (put_two(b, n, self, CAGE_VERB) < 0 || put_two(b, n, "dir", c->dir) < 0 ||
        put_two(b, n, "cwd", c->cwd) < 0 || put_number(b, n, "uid", c->uid) < 0 ||
        put_number(b, n, "gid", c->gid) < 0 || put_number(b, n, "parent", c->parent) < 0 ||
        put_lists(b, n, c) < 0 || put_flags(b, n, c) < 0)
        return -1;
    return put(b, n, "--");
}

char **cage_argv(const struct cage *c, const char *self, size_t *n)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    size_t count = 0;
    char **out;
    char *at;
    size_t i;

    if (put_all(&b, &count, c, self) < 0)
        return NULL;
    out = malloc((count + 1) * sizeof(*out) + b.len);
    if (!out)
        return NULL;
    at = (char *)(out + count + 1);
    memcpy(at, b.data, b.len);
    for (i = 0; i < count; i++, at += strlen(at) + 1)
        out[i] = at;
    out[count] = NULL;
    *n = count;
    return out;
}

/* One of the words that take a number. */
static int take_number(struct cage *c, const char *word, const char *value, struct err *e)
{
    int64_t v;

    if (num_parse_i64(value, 0, UINT32_MAX, &v) < 0)
        return err_set(e, ERRC_INVALID, "%s: not a number", word);
    if (strcmp(word, "uid") == 0)
        c->uid = (uid_t)v;
    else if (strcmp(word, "gid") == 0)
        c->gid = (gid_t)v;
    else if (strcmp(word, "report") == 0)
        c->report = (int)v;
    else if (strcmp(word, "parent") == 0)
        c->parent = (pid_t)v;
    else if (strcmp(word, "group") == 0 && c->n_groups < CAGE_GROUPS_MAX)
        c->groups[c->n_groups++] = (gid_t)v;
    else
        return err_set(e, ERRC_INVALID, "%.40s: unknown word, or too many of it", word);
    return 0;
}

/* A word without an argument. */
static bool take_flag(struct cage *c, const char *word)
{
    if (strcmp(word, "tmp") == 0)
        return c->private_tmp = true;
    if (strcmp(word, "net") == 0)
        return c->own_net = true;
    return strcmp(word, "userns") == 0 && (c->userns = true);
}

static int take_mount(struct cage *c, enum cage_mode mode, char *const *args, struct err *e)
{
    if (!args[0] || !args[1] || args[0][0] != '/' || args[1][0] != '/')
        return err_set(e, ERRC_INVALID, "%s: needs two absolute paths", mode_words[mode]);
    if (c->n_mounts == CAGE_MOUNTS_MAX)
        return err_set(e, ERRC_INVALID, "more than %d mounts", CAGE_MOUNTS_MAX);
    c->mounts[c->n_mounts++] = (struct cage_mount){ mode, args[0], args[1] };
    return 0;
}

/* One word with what belongs to it: the number of strings; -1: err set. */
static int take_word(struct cage *c, char *const *argv, struct err *e)
{
    size_t i;

    if (take_flag(c, argv[0]))
        return 1;
    for (i = 0; i < CAGE_MODE_MAX_; i++)
        if (strcmp(argv[0], mode_words[i]) == 0)
            return take_mount(c, (enum cage_mode)i, argv + 1, e) < 0 ? -1 : 3;
    if (!argv[1])
        return err_set(e, ERRC_INVALID, "%.40s: its argument is missing", argv[0]);
    if (strcmp(argv[0], "dir") == 0)
        c->dir = argv[1];
    else if (strcmp(argv[0], "cwd") == 0)
        c->cwd = argv[1];
    else if (take_number(c, argv[0], argv[1], e) < 0)
        return -1;
    return 2;
}

int cage_parse(char *const *argv, struct cage *out, struct err *e)
{
    struct cage c = { 0 };
    int n;

    for (argv += 2; *argv && strcmp(*argv, "--") != 0; argv += n) {
        n = take_word(&c, argv, e);
        if (n < 0)
            return -1;
    }
    if (!*argv || !argv[1])
        return err_set(e, ERRC_INVALID, "-- and a program are missing");
    if (!c.dir || c.dir[0] != '/' || !c.cwd || c.cwd[0] != '/')
        return err_set(e, ERRC_INVALID, "dir and cwd: need absolute paths");
    c.program = argv + 1;
    *out = c;
    return 0;
}

/* ---- common to the processes ---- */

/* Long enough for the agent to read: it shows the end of it. */
static int fail(const struct err *e)
{
    (void)dprintf(STDERR_FILENO, "%s\n", e->msg);
    return CAGE_FAILED;
}

static void block_signals(sigset_t *set)
{
    (void)sigemptyset(set);
    (void)sigaddset(set, SIGCHLD);
    (void)sigaddset(set, SIGINT);
    (void)sigaddset(set, SIGTERM);
    (void)sigaddset(set, SIGHUP);
    (void)sigaddset(set, SIGUSR1);
    (void)sigprocmask(SIG_SETMASK, set, NULL);
}

static int exit_status(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void close_output(void)
{
    (void)close(0);
    (void)close(1);
    (void)close(2);
}

/* ---- the program ---- */

_Noreturn static void run_program(const struct cage *c, char *const *env)
{
    struct err e = { 0 };
    sigset_t none;

    (void)setsid();
    if (cage_floor(c, &e) < 0)
        _exit(fail(&e));
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)execve(c->program[0], c->program, env);
    (void)err_sys(&e, errno, "cannot execute %s", c->program[0]);
    _exit(fail(&e));
}

/* ---- init ---- */

static pid_t clone_self(int flags)
{
    return (pid_t)syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
}

static int loopback_up(void)
{
    struct ifreq rq = { .ifr_name = "lo" };
    AUTO_FD int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || ioctl(fd, SIOCGIFFLAGS, &rq) < 0)
        return -1;
    rq.ifr_flags = (short)(rq.ifr_flags | IFF_UP);
    return ioctl(fd, SIOCSIFFLAGS, &rq);
}

/* A network namespace whose loopback interface is up, made by a child that is root of a user namespace of
 * its own: containers do not have CAP_NET_ADMIN. */
static int borrow_network(void)
{
    char path[48];
    char byte = 0;
    int fds[2];
    pid_t child;
    int rc = -1;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
        return -1;
    child = clone_self(CLONE_NEWUSER | CLONE_NEWNET);
    if (child == 0) {
        (void)close(fds[0]);
        if (loopback_up() == 0 && write(fds[1], "", 1) == 1)
            (void)!read(fds[1], &byte, 1); /* until the parent is done */
        _exit(0);
    }
    (void)close(fds[1]);
    if (child > 0 && read(fds[0], &byte, 1) == 1) {
        (void)snprintf(path, sizeof(path), "/proc/%d/ns/net", child);
        AUTO_FD int ns = open(path, O_RDONLY | O_CLOEXEC);

        rc = ns < 0 ? -1 : setns(ns, CLONE_NEWNET);
    }
    (void)close(fds[0]);
    if (child > 0)
        (void)waitpid(child, NULL, 0);
    return rc;
}

/* Of the keeper, which everything else comes from. Without its loopback interface a network of one's own is
 * one all the same. */
static int own_network(struct err *e)
{
    if (unshare(CLONE_NEWNET) < 0)
        return err_sys(e, errno, "cannot make namespaces (net)");
    if (loopback_up() < 0)
        (void)borrow_network();
    return 0;
}

/* Until the program ends: with init everything else in the cage ends. */
static int tend(pid_t program, const sigset_t *set)
{
    for (;;) {
        int sig = sigwaitinfo(set, NULL);
        int status;
        pid_t pid;

        if (sig == SIGINT)
            (void)kill(-program, SIGINT);
        if (sig != SIGCHLD)
            continue;
        while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
            if (pid == program)
                return exit_status(status);
    }
}

/* go: a byte comes when the keeper has told the agent who this is; the end, when it is gone. */
static int init_main(const struct cage *c, char *const *env, const sigset_t *set, int go)
{
    struct err e = { 0 };
    pid_t program;
    char byte;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)prctl(PR_SET_NAME, "isolated-init");
    if (read(go, &byte, 1) != 1)
        return CAGE_FAILED;
    if (cage_build(c, &e) < 0)
        return fail(&e);
    program = fork();
    if (program < 0) {
        (void)err_sys(&e, errno, "start a process");
        return fail(&e);
    }
    if (program == 0)
        run_program(c, env);
    close_output();
    (void)syscall(SYS_close_range, 3U, ~0U, 0U); /* the old root's among them */
    return tend(program, set);
}

/* ---- keeper ---- */

/* Which of the namespaces are refused, each asked for alone. */
static void name_refused(struct err *e)
{
    static const struct {
        int flag;
        const char *name;
    } all[] = { { CLONE_NEWNS, "mount" },
                { CLONE_NEWPID, "pid" },
                { CLONE_NEWIPC, "ipc" },
                { CLONE_NEWUTS, "uts" },
                { CLONE_NEWNET, "net" } };
    AUTO_BUF struct buf list = BUF_INIT(128);
    int first = errno;
    size_t i;

    for (i = 0; i < ARRAY_LEN(all); i++) {
        pid_t pid = clone_self(all[i].flag);

        if (pid == 0)
            _exit(0);
        if (pid > 0)
            (void)waitpid(pid, NULL, 0);
        else
            (void)buf_printf(&list, "%s%s", list.len ? ", " : "", all[i].name);
    }
    (void)err_sys(e, first, "cannot make namespaces (%s)", list.len ? list.data : "all together");
}

static int keep(const struct cage *c, pid_t init, const sigset_t *set)
{
    int status = 0;

    for (;;) {
        int sig = sigwaitinfo(set, NULL);
        struct err e = { 0 };

        if (sig == SIGTERM || sig == SIGHUP || sig == SIGUSR1)
            (void)kill(init, SIGKILL);
        if (sig == SIGUSR1) { /* the agent is gone: nobody else removes what is left */
            (void)waitpid(init, NULL, 0);
            (void)tree_remove(c->dir, &e);
            return CAGE_FAILED;
        }
        if (sig == SIGCHLD && waitpid(init, &status, WNOHANG) == init)
            return exit_status(status);
    }
}

/* Starts init and tells the agent about it, then init. */
static pid_t start_init(const struct cage *c, const sigset_t *set, struct err *e)
{
    struct cage_report report;
    int fds[2];
    pid_t init;

    if (pipe2(fds, O_CLOEXEC) < 0) {
        (void)err_sys(e, errno, "make a pipe");
        return -1;
    }
    AUTO_FD int rd = fds[0];
    AUTO_FD int wr = fds[1];

    init = clone_self(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS);
    if (init < 0) {
        name_refused(e);
        return -1;
    }
    if (init == 0) {
        (void)close(wr);
        if (c->report)
            (void)close(c->report);
        _exit(init_main(c, environ, set, rd));
    }
    report = (struct cage_report){ init };
    if (c->report)
        (void)!pwrite(c->report, &report, sizeof(report), 0);
    (void)!write(wr, "", 1);
    return init;
}

int cage_main(char *const *argv)
{
    struct cage c;
    struct err e = { 0 };
    sigset_t set;
    pid_t init;

    if (cage_parse(argv, &c, &e) < 0)
        return fail(&e);
    block_signals(&set);
    (void)prctl(PR_SET_PDEATHSIG, SIGUSR1);
    if (c.parent && getppid() != c.parent)
        return CAGE_FAILED;
    if (c.own_net && own_network(&e) < 0) {
        errno = e.sys;
        name_refused(&e);
        return fail(&e);
    }
    init = start_init(&c, &set, &e);
    if (init < 0)
        return fail(&e);
    close_output();
    return keep(&c, init, &set);
}
