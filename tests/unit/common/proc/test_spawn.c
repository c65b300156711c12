#include "tests/unit/test.h"

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/proc/spawn.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char *const no_env[] = { NULL };

struct run {
    char out[8192]; /* what the child wrote to 1 and 2 */
    int status;     /* wait(2) status */
    pid_t pid;
};

/* Reads fd to its end: the child is the only other holder of the pipe. */
static void drain(int fd, struct run *r)
{
    size_t len = 0;
    ssize_t n;

    while (len < sizeof(r->out) - 1 && (n = read(fd, r->out + len, sizeof(r->out) - 1 - len)) > 0)
        len += (size_t)n;
    r->out[len] = '\0';
}

/* Fills in the output pipe, starts, waits. */
static int run(struct spawn_req *rq, struct run *r, struct err *e)
{
    int fds[2];
    int rc;

    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    rq->in = -1;
    rq->out = rq->err = fds[1];
    rc = spawn(rq, &r->pid, e);
    close(fds[1]);
    if (rc == 0) {
        drain(fds[0], r);
        assert_int_equal(waitpid(r->pid, &r->status, 0), r->pid);
    }
    close(fds[0]);
    return rc;
}

static void shell(const char *script, struct spawn_req *rq, struct run *r)
{
    char *const argv[] = { (char *)"sh",   (char *)"-c",  (char *)script,
                           (char *)"name", (char *)"a b", NULL };
    struct err e = { 0 };

    rq->path = "/bin/sh";
    rq->argv = argv;
    if (!rq->envp)
        rq->envp = no_env;
    if (run(rq, r, &e) < 0)
        fail_msg("%s", e.msg);
    rq->argv = NULL;
}

static void passes_arguments_as_they_are(void **state)
{
    struct spawn_req rq = { 0 };
    struct run r;

    (void)state;
    shell("printf '<%s>' \"$@\" '*' '$x'", &rq, &r);
    assert_string_equal(r.out, "<a b><*><$x>");
    assert_true(WIFEXITED(r.status) && WEXITSTATUS(r.status) == 0);
}

static void passes_exactly_the_environment(void **state)
{
    static char *const env[] = { (char *)"A=1", (char *)"B=two words", NULL };
    struct spawn_req rq = { .envp = env };
    struct run r;

    (void)state;
    shell("tr '\\0' '\\n' < /proc/$$/environ", &rq, &r);
    assert_string_equal(r.out, "A=1\nB=two words\n");
}

static void changes_directory(void **state)
{
    struct spawn_req rq = { .cwd = "/proc" };
    struct run r;

    (void)state;
    shell("pwd -P", &rq, &r);
    assert_string_equal(r.out, "/proc\n");
}

static void exit_status_is_the_childs(void **state)
{
    struct spawn_req rq = { 0 };
    struct run r;

    (void)state;
    shell("exit 7", &rq, &r);
    assert_int_equal(WEXITSTATUS(r.status), 7);
    shell("kill -9 $$", &rq, &r);
    assert_true(WIFSIGNALED(r.status) && WTERMSIG(r.status) == SIGKILL);
}

/* The parent holds many descriptors, some without close-on-exec: the child has three, and the one
 * that ls opens. */
static void child_has_three_descriptors(void **state)
{
    struct spawn_req rq = { 0 };
    struct run r;
    int fds[20];
    int i;

    (void)state;
    for (i = 0; i < 20; i++)
        fds[i] = open("/dev/null", O_RDONLY | (i % 2 ? O_CLOEXEC : 0));
    shell("exec /bin/ls /proc/self/fd", &rq, &r);
    assert_string_equal(r.out, "0\n1\n2\n3\n");
    for (i = 0; i < 20; i++)
        close(fds[i]);
}

static void parent_keeps_no_descriptor(void **state)
{
    struct spawn_req rq = { 0 };
    struct run r;
    int before = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int after;

    (void)state;
    close(before);
    shell(":", &rq, &r);
    after = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(before, after);
    close(after);
}

static void missing_descriptors_are_the_null_device(void **state)
{
    static char *const argv[] = { (char *)"sh", (char *)"-c", (char *)"read x || exit 3; exit 4",
                                  NULL };
    struct spawn_req rq = {
        .path = "/bin/sh", .argv = argv, .envp = no_env, .in = -1, .out = -1, .err = -1
    };
    struct err e = { 0 };
    int status;
    pid_t pid;

    (void)state;
    assert_int_equal(spawn(&rq, &pid, &e), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(WEXITSTATUS(status), 3);
}

/* The caller's own 0, 1 and 2, in any order: none may overwrite another before it is placed. */
static void standard_descriptors_can_be_swapped(void **state)
{
    static char *const argv[] = { (char *)"sh", (char *)"-c", (char *)"cat; echo to-err >&2",
                                  NULL };
    struct spawn_req rq = {
        .path = "/bin/sh", .argv = argv, .envp = no_env, .in = 1, .out = 2, .err = 0
    };
    struct err e = { 0 };
    struct run out;
    struct run err;
    int saved[3];
    int src[2];
    int dst[2];
    int ers[2];
    int rc;
    int i;

    (void)state;
    assert_int_equal(pipe2(src, O_CLOEXEC), 0);
    assert_int_equal(pipe2(dst, O_CLOEXEC), 0);
    assert_int_equal(pipe2(ers, O_CLOEXEC), 0);
    assert_int_equal(write(src[1], "text", 4), 4);
    close(src[1]);
    for (i = 0; i < 3; i++)
        saved[i] = fcntl(i, F_DUPFD_CLOEXEC, 10);
    (void)fflush(NULL);
    (void)dup2(src[0], 1);
    (void)dup2(dst[1], 2);
    (void)dup2(ers[1], 0);
    rc = spawn(&rq, &out.pid, &e);
    for (i = 0; i < 3; i++) {
        (void)dup2(saved[i], i);
        close(saved[i]);
    }
    close(dst[1]);
    close(ers[1]);
    assert_int_equal(rc, 0);
    drain(dst[0], &out);
    drain(ers[0], &err);
    assert_string_equal(out.out, "text");
    assert_string_equal(err.out, "to-err\n");
    assert_int_equal(waitpid(out.pid, &out.status, 0), out.pid);
    close(src[0]);
    close(dst[0]);
    close(ers[0]);
}

/* A server started without 0, 1, 2 (a supervisor may do that): the report pipe must not end up there. */
static void works_with_closed_standard_descriptors(void **state)
{
    struct spawn_req rq = { 0 };
    char *const argv[] = { (char *)"/bin/echo", (char *)"ok", NULL };
    struct err e = { 0 };
    struct run r;
    int saved[3];
    int fds[2];
    int rc;
    int i;

    (void)state;
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    for (i = 0; i < 3; i++)
        saved[i] = fcntl(i, F_DUPFD_CLOEXEC, 10);
    (void)fflush(NULL);
    for (i = 0; i < 3; i++)
        close(i);
    rq = (struct spawn_req){
        .path = "/bin/echo", .argv = argv, .envp = no_env, .in = -1, .out = fds[1], .err = -1
    };
    rc = spawn(&rq, &r.pid, &e);
    for (i = 0; i < 3; i++) {
        (void)dup2(saved[i], i);
        close(saved[i]);
    }
    close(fds[1]);
    if (rc < 0)
        fail_msg("%s", e.msg);
    drain(fds[0], &r);
    close(fds[0]);
    assert_int_equal(waitpid(r.pid, &r.status, 0), r.pid);
    assert_string_equal(r.out, "ok\n");
}

static void fails(const struct spawn_req *rq, int sys, const char *text)
{
    struct err e = { 0 };
    pid_t pid = 42;

    assert_int_equal(spawn(rq, &pid, &e), -1);
    assert_int_equal(e.sys, sys);
    assert_contains(e.msg, text);
    assert_int_equal(pid, 42);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* nothing is left behind */
    assert_int_equal(errno, ECHILD);
}

static void failures_name_step_and_reason(void **state)
{
    static char *const argv[] = { (char *)"x", NULL };
    struct spawn_req rq = { .argv = argv, .envp = no_env, .in = -1, .out = -1, .err = -1 };

    (void)state;
    rq.path = "/no/such/program";
    fails(&rq, ENOENT, "cannot execute /no/such/program: No such file");
    rq.path = "/etc/passwd";
    fails(&rq, EACCES, "cannot execute /etc/passwd: Permission denied");
    rq.path = "/bin/sh";
    rq.cwd = "/no/such/directory";
    fails(&rq, ENOENT, "cannot change directory for /bin/sh");
    rq.cwd = NULL;
    rq.out = 9999;
    fails(&rq, EBADF, "cannot set up descriptors of /bin/sh");
}

/* Without room for a copy of a low descriptor the child must not silently get the null device. */
static void lack_of_descriptors_is_an_error(void **state)
{
    static char *const argv[] = { (char *)"sh", (char *)"-c", (char *)":", NULL };
    struct spawn_req rq = {
        .path = "/bin/sh", .argv = argv, .envp = no_env, .in = 0, .out = 1, .err = 2
    };
    struct rlimit old;
    struct rlimit low;
    struct err e = { 0 };
    pid_t pid;
    int top = fcntl(0, F_DUPFD_CLOEXEC, 3);
    int second;
    int rc;

    (void)state;
    second = fcntl(0, F_DUPFD_CLOEXEC, 3);
    close(top);
    close(second);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    low = old;
    low.rlim_cur = (rlim_t)second + 1; /* room for the report pipe only */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    rc = spawn(&rq, &pid, &e);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_int_equal(rc, -1);
    assert_int_equal(e.sys, EMFILE);
}

static void leads_a_group_or_a_session(void **state)
{
    struct spawn_req rq = { 0 };
    struct run r;
    char want[64];

    (void)state;
    shell("read -r line < /proc/$$/stat; set -- $line; echo $5 $6", &rq, &r);
    (void)snprintf(want, sizeof(want), "%d %d\n", r.pid, getsid(0));
    assert_string_equal(r.out, want);
    rq.new_session = true;
    shell("read -r line < /proc/$$/stat; set -- $line; echo $5 $6", &rq, &r);
    (void)snprintf(want, sizeof(want), "%d %d\n", r.pid, r.pid);
    assert_string_equal(r.out, want);
}

static void gets_a_terminal_of_its_own(void **state)
{
    char *const argv[] = { (char *)"sh", (char *)"-c", (char *)"echo x >/dev/tty; exit 3", NULL };
    struct spawn_req rq = {
        .path = "/bin/sh", .argv = argv, .envp = no_env, .new_session = true, .tty = true
    };
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    struct err e = { 0 };
    char name[64];
    char got[16] = "";
    int status;
    pid_t pid;

    (void)state;
    if (master < 0)
        skip(); /* no devpts here */
    assert_int_equal(unlockpt(master), 0);
    assert_int_equal(ptsname_r(master, name, sizeof(name)), 0);
    rq.in = rq.out = rq.err = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_int_equal(spawn(&rq, &pid, &e), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(WEXITSTATUS(status), 3);
    assert_true(read(master, got, sizeof(got) - 1) > 0);
    assert_string_equal(got, "x\r\n");
    close(rq.in);
    close(master);
    /* what is no terminal cannot become one */
    rq.in = rq.out = rq.err = -1;
    assert_int_equal(spawn(&rq, &pid, &e), -1);
    assert_contains(e.msg, "terminal");
}

static void signal_state_is_clean(void **state)
{
    struct spawn_req rq = { 0 };
    struct run r;
    struct sigaction old;
    struct sigaction ign = { .sa_handler = SIG_IGN };
    sigset_t set;
    sigset_t saved;

    (void)state;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGUSR1);
    (void)pthread_sigmask(SIG_BLOCK, &set, &saved);
    (void)sigaction(SIGPIPE, &ign, &old);
    shell("grep -E '^Sig(Blk|Ign)' /proc/self/status", &rq, &r);
    (void)sigaction(SIGPIPE, &old, NULL);
    assert_contains(r.out, "SigBlk:\t0000000000000000\n");
    assert_contains(r.out, "SigIgn:\t");
    /* 32 and 33 belong to the C library, which lets nobody change them */
    assert_int_equal(strtoull(strstr(r.out, "SigIgn:\t") + 8, NULL, 16) & ~0x180000000ULL, 0);
    (void)pthread_sigmask(SIG_BLOCK, NULL, &set);
    assert_int_equal(sigismember(&set, SIGTERM), 1); /* the parent's own mask is back */
    assert_int_equal(sigismember(&set, SIGUSR2), 0);
    (void)pthread_sigmask(SIG_SETMASK, &saved, NULL);
}

static void switches_identity(void **state)
{
    static const gid_t groups[] = { 4321, 5432 };
    struct spawn_req rq = {
        .set_ids = true, .uid = 1234, .gid = 2345, .groups = groups, .n_groups = 2
    };
    struct run r;

    (void)state;
    if (geteuid() != 0)
        skip();
    shell("grep -E '^(Uid|Gid|Groups|CapEff)' /proc/self/status", &rq, &r);
    assert_contains(r.out, "Uid:\t1234\t1234\t1234\t1234\n");
    assert_contains(r.out, "Gid:\t2345\t2345\t2345\t2345\n");
    assert_contains(r.out, "Groups:\t4321 5432");
    assert_contains(r.out, "CapEff:\t0000000000000000\n");
}

/* ---- which ---- */

struct tree {
    char dir[64];
    char path[PATH_MAX];
};

static void make(struct tree *t, const char *name, mode_t mode)
{
    char path[128];
    int fd;

    (void)snprintf(path, sizeof(path), "%s/%s", t->dir, name);
    fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static int tree_up(void **state)
{
    static struct tree t;
    char sub[128];

    (void)snprintf(t.dir, sizeof(t.dir), "%s", "/tmp/sandgate-test-XXXXXX");
    if (!mkdtemp(t.dir))
        return -1;
    (void)snprintf(sub, sizeof(sub), "%s/prog-dir", t.dir);
    if (mkdir(sub, 0755) < 0)
        return -1;
    make(&t, "prog", 0755);
    make(&t, "plain", 0644);
    *state = &t;
    return 0;
}

static int tree_down(void **state)
{
    static const char *const names[] = { "prog", "plain" };
    struct tree *t = *state;
    char path[128];
    size_t i;

    for (i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", t->dir, names[i]);
        (void)unlink(path);
    }
    (void)snprintf(path, sizeof(path), "%s/prog-dir", t->dir);
    (void)rmdir(path);
    return rmdir(t->dir);
}

static void finds(struct tree *t, const char *before, const char *after)
{
    struct err e = { 0 };
    char want[128];
    char *out = NULL;

    (void)snprintf(t->path, sizeof(t->path), "%s%s%s", before, t->dir, after);
    (void)snprintf(want, sizeof(want), "%s/prog", t->dir);
    assert_int_equal(spawn_which("prog", t->path, &out, &e), 0);
    assert_string_equal(out, want);
    free(out);
}

static void finds_not(const char *prog, const char *path)
{
    struct err e = { 0 };
    char *out = NULL;

    assert_int_equal(spawn_which(prog, path, &out, &e), -1);
    assert_int_equal(e.code, ERRC_NOT_FOUND);
    assert_null(out);
}

static void which_looks_through_the_path(void **state)
{
    struct tree *t = *state;
    char longest[2 * PATH_MAX];

    finds(t, "", "");
    finds(t, "/nowhere:", ":/bin");
    finds(t, "::relative:.:", ":");
    finds_not("prog", "");
    finds_not("prog", NULL);
    finds_not("prog", ":");
    finds_not("prog-dir", t->dir);
    finds_not("plain", t->dir);
    finds_not("", t->dir);
    finds_not("none", t->dir);
    memset(longest, 'x', sizeof(longest));
    longest[0] = '/';
    longest[sizeof(longest) - 1] = '\0';
    finds_not("prog", longest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_arguments_as_they_are),
        cmocka_unit_test(passes_exactly_the_environment),
        cmocka_unit_test(changes_directory),
        cmocka_unit_test(exit_status_is_the_childs),
        cmocka_unit_test(child_has_three_descriptors),
        cmocka_unit_test(parent_keeps_no_descriptor),
        cmocka_unit_test(missing_descriptors_are_the_null_device),
        cmocka_unit_test(standard_descriptors_can_be_swapped),
        cmocka_unit_test(works_with_closed_standard_descriptors),
        cmocka_unit_test(failures_name_step_and_reason),
        cmocka_unit_test(lack_of_descriptors_is_an_error),
        cmocka_unit_test(leads_a_group_or_a_session),
        cmocka_unit_test(gets_a_terminal_of_its_own),
        cmocka_unit_test(signal_state_is_clean),
        cmocka_unit_test(switches_identity),
        cmocka_unit_test_setup_teardown(which_looks_through_the_path, tree_up, tree_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
