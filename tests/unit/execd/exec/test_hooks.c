/* Hooks with real programs and a real loop: outcome, output, groups, schedules. */
#include "tests/unit/test.h"

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "common/base/loop.h"
#include "common/json/jx.h"
#include "common/proc/signals.h"
#include "execd/exec/hookrun.h"
#include "execd/exec/hooks.h"
#include "execd/exec/logpipe.h"
#include "execd/fs/env.h"

#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>

struct env_of_test {
    struct loop *loop;
    struct signals *signals;
    struct env base;
    struct hooks *hooks;
    sigset_t saved;
    struct hookrun run;
    struct hookrun_end end;
    struct hooks_result result;
    unsigned ended;
};

static void on_signal(void *arg, int sig)
{
    (void)arg, (void)sig;
}

static void on_end(struct hookrun *r, const struct hookrun_end *end)
{
    struct env_of_test *t = CONTAINER_OF(r, struct env_of_test, run);

    t->end = *end;
    t->ended++;
}

static void on_done(void *arg, const struct hooks_result *result)
{
    struct env_of_test *t = arg;

    t->result = *result;
    t->ended++;
}

static int set_up(void **state)
{
    struct env_of_test *t = calloc(1, sizeof(*t));
    struct err e;
    sigset_t none;

    if (!t)
        return -1;
    log_set_level(LOG_OFF);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    (void)sigemptyset(&none);
    (void)pthread_sigmask(SIG_BLOCK, NULL, &t->saved);
    t->loop = loop_new(&e);
    t->signals = t->loop ? signals_new(t->loop, &none, on_signal, t, &e) : NULL;
    t->hooks = t->signals ? hooks_new(t->loop, t->signals, &t->base, &e) : NULL;
    t->run = (struct hookrun){ .loop = t->loop, .signals = t->signals, .on_end = on_end };
    *state = t;
    return t->hooks && env_set(&t->base, "PATH", "/usr/bin:/bin") == 0 &&
                   env_set(&t->base, "MINE", "m") == 0
               ? 0
               : -1;
}

static int tear_down(void **state)
{
    struct env_of_test *t = *state;

    hooks_free(t->hooks);
    hookrun_forget(&t->run);
    signals_free(t->signals);
    loop_free(t->loop);
    env_free(&t->base);
    (void)pthread_sigmask(SIG_SETMASK, &t->saved, NULL);
    free(t);
    return 0;
}

static void step(struct env_of_test *t)
{
    assert_int_equal(loop_step(t->loop, 1000, NULL), 0);
}

static int run(struct env_of_test *t, const char *script, int64_t timeout_ms, int64_t grace_ms,
               int out, struct err *e)
{
    char *argv[] = { (char *)"sh", (char *)"-c", (char *)script, NULL };
    struct hookrun_req rq = { .argv = argv,
                              .n_argv = 3,
                              .base = &t->base,
                              .timeout_ms = timeout_ms,
                              .grace_ms = grace_ms,
                              .out = out,
                              .err = -1 };

    return hookrun_start(&t->run, &rq, e);
}

static void run_to_end(struct env_of_test *t, const char *script, int64_t timeout_ms,
                       int64_t grace_ms)
{
    struct err e = { 0 };
    unsigned before = t->ended;

    if (run(t, script, timeout_ms, grace_ms, -1, &e) < 0)
        fail_msg("%s", e.msg);
    assert_true(hookrun_active(&t->run));
    TEST_UNTIL(t->ended > before, {
        step(t);
        (void)hookrun_check(&t->run);
    });
    assert_int_equal(t->ended, before + 1);
    assert_false(hookrun_active(&t->run));
}

static void outcomes(void **state)
{
    struct env_of_test *t = *state;

    run_to_end(t, "exit 0", TEST_DEADLINE_MS, 0);
    assert_int_equal(t->end.status, 0);
    run_to_end(t, "exit 3", TEST_DEADLINE_MS, 0);
    assert_int_equal(t->end.status, 3);
    assert_string_equal(t->end.text, "exit status 3");
    run_to_end(t, "kill -9 $$", TEST_DEADLINE_MS, 0);
    assert_int_equal(t->end.status, 137);
    assert_string_equal(t->end.text, "killed by signal KILL");
    /* what it leaves behind is not waited for */
    run_to_end(t, "sleep 1 & exit 0", TEST_DEADLINE_MS, 0);
    assert_int_equal(t->end.status, 0);
    assert_false(t->end.stuck);
}

static void too_long(void **state)
{
    struct env_of_test *t = *state;

    run_to_end(t, "trap 'exit 0' TERM; while :; do sleep 0.01; done", 20, 0);
    assert_int_equal(t->end.status, HOOKRUN_STATUS_TIMEOUT);
    assert_contains(t->end.text, "timed out");
    assert_false(t->end.stuck);
    /* deaf to TERM, and stopped */
    run_to_end(t, "trap '' TERM; kill -STOP $$; while :; do sleep 1; done", 20, 20);
    assert_int_equal(t->end.status, HOOKRUN_STATUS_TIMEOUT);
    assert_false(t->end.stuck);
}

/* The pipe's end is the proof: every process of the group had it open. */
static void the_whole_group_goes(void **state)
{
    struct env_of_test *t = *state;
    struct err e = { 0 };
    int fds[2];
    char byte;

    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    assert_int_equal(
        run(t, "(trap '' TERM; echo x; while :; do sleep 1; done) & wait", 500, 20, fds[1], &e), 0);
    (void)close(fds[1]);
    TEST_UNTIL(t->ended, {
        step(t);
        (void)hookrun_check(&t->run);
    });
    assert_int_equal(t->end.status, HOOKRUN_STATUS_TIMEOUT);
    while (read(fds[0], &byte, 1) == 1)
        ;
    (void)close(fds[0]);
}

static void not_started(void **state)
{
    struct env_of_test *t = *state;
    char *argv[] = { (char *)"no-such-program", NULL };
    struct hookrun_req rq = {
        .argv = argv, .n_argv = 1, .base = &t->base, .timeout_ms = 1000, .out = -1, .err = -1
    };
    struct err e = { 0 };

    assert_int_equal(hookrun_start(&t->run, &rq, &e), -1);
    assert_contains(e.msg, "no-such-program");
    argv[0] = (char *)"/etc/passwd";
    assert_int_equal(hookrun_start(&t->run, &rq, &e), -1);
    assert_false(hookrun_active(&t->run));
    assert_int_equal(t->ended, 0);
}

/* ---- preStart and schedules ---- */

static void set_hooks(struct env_of_test *t, const char *json)
{
    struct lifecycle lc;
    struct err e = { 0 };
    json_t *v = jx_parse(json, strlen(json), true, &e);

    assert_non_null(v);
    if (lifecycle_decode(v, "lifecycle", NULL, &lc, &e) < 0)
        fail_msg("%s", e.msg);
    json_decref(v);
    hooks_set(t->hooks, &lc);
}

static void pre_start_fails(void **state)
{
    struct env_of_test *t = *state;
    struct err e = { 0 };

    set_hooks(t, "{\"preStart\":{\"command\":[\"sh\",\"-c\","
                 "\"echo first >&2; printf 'last %s \\\\377\\\\n' \\\"$MINE\\\"; exit 4\"]}}");
    assert_int_equal(hooks_pre_start(t->hooks, on_done, t, &e), 1);
    TEST_UNTIL(t->ended, step(t));
    assert_int_equal(t->result.status, 4);
    assert_contains(t->result.text, "exit status 4; its last output: ");
    assert_contains(t->result.text, "first");
    assert_contains(t->result.text, "last m \xef\xbf\xbd");
}

static void pre_start_is_given_up(void **state)
{
    struct env_of_test *t = *state;
    struct err e = { 0 };

    set_hooks(t, "{\"preStart\":{\"command\":[\"sleep\",\"1\"]}}");
    assert_int_equal(hooks_pre_start(t->hooks, on_done, t, &e), 1);
    hooks_stop(t->hooks);
    hooks_free(TAKE_PTR(t->hooks));
    assert_int_equal(t->ended, 1);
    assert_int_not_equal(t->result.status, 0);
}

static void no_hooks(void **state)
{
    struct env_of_test *t = *state;
    struct err e = { 0 };

    set_hooks(t, "{}");
    assert_int_equal(hooks_pre_start(t->hooks, on_done, t, &e), 0);
    assert_int_equal(hooks_schedule(t->hooks, &e), 0);
}

/* Runs until three lines came through the FIFO; cron hooks of the same set are armed, too. */
static void every_second(void **state)
{
    struct env_of_test *t = *state;
    char dir[] = "/tmp/test_hooks.XXXXXX";
    char path[64];
    char json[400];
    struct err e = { 0 };
    char lines[16];
    ssize_t n = 0;

    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof(path), "%s/ran", dir);
    (void)snprintf(json, sizeof(json),
                   "{\"periodic\":[{\"name\":\"e\",\"schedule\":\"@every 1s\",\"command\":[\"sh\","
                   "\"-c\",\"echo >> %s\"]},{\"name\":\"c\",\"schedule\":\"0 0 1 1 *\","
                   "\"command\":[\"true\"]},{\"name\":\"f\",\"schedule\":\"@every 1s\","
                   "\"command\":[\"no-such-program\"]}]}",
                   path);
    set_hooks(t, json);
    assert_int_equal(hooks_schedule(t->hooks, &e), 0);
    TEST_UNTIL(n >= 2, {
        AUTO_FD int fd = -1;

        step(t);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        n = fd < 0 ? 0 : read(fd, lines, sizeof(lines));
    });
    hooks_stop(t->hooks);
    (void)unlink(path);
    (void)rmdir(dir);
}

/* ---- the tail ---- */

static void check_tail(const char *add, size_t len, const char *want)
{
    struct logtail tail = { .len = 0 };
    char text[LOGTAIL_MAX + 1];
    size_t i;

    logtail_add(&tail, add, len);
    logtail_text(&tail, text);
    assert_string_equal(text, want);
    tail.len = 0;
    for (i = 0; i < len; i++)
        logtail_add(&tail, add + i, 1);
    logtail_text(&tail, text);
    assert_string_equal(text, want);
}

static void tails(void **state)
{
    char big[1000];
    char want[LOGTAIL_MAX + 1] = { 0 };
    size_t i;

    (void)state;
    check_tail("", 0, "");
    check_tail(" \n\n", 3, "");
    check_tail("a\nb\n\n", 5, "a\nb");
    check_tail("a\0\x1b[1mb", 7, "a  [1mb");
    check_tail("\xff", 1, "\xef\xbf\xbd");
    memset(big, 'x', sizeof(big));
    memset(want, 'x', LOGTAIL_MAX);
    check_tail(big, sizeof(big), want);
    /* two-byte characters, cut in the middle of one */
    for (i = 0; i < sizeof(big); i += 2)
        memcpy(big + i, "\xc3\xa4", 2);
    for (i = 0; i < LOGTAIL_MAX - 2; i += 2)
        memcpy(want + i, "\xc3\xa4", 2);
    want[LOGTAIL_MAX - 2] = 'z';
    want[LOGTAIL_MAX - 1] = '\0';
    big[sizeof(big) - 2] = 'z';
    check_tail(big, sizeof(big) - 1, want);
    /* repaired bytes grow: still within the bound, and whole characters */
    memset(big, 0xff, sizeof(big));
    for (i = 0; i < LOGTAIL_MAX; i += 3)
        memcpy(want + i, "\xef\xbf\xbd", 3);
    check_tail(big, sizeof(big), want);
}

/* A log nobody reads stops the pipe, not the loop; once it is read everything is there. */
static void a_log_that_is_not_read(void **state)
{
    struct env_of_test *t = *state;
    struct logpipe p = { 0 };
    struct logtail tail = { .len = 0 };
    struct err e = { 0 };
    static char data[70000];
    size_t sent = 0;
    size_t got = 0;
    ssize_t n;
    int log[2];
    int in;
    int i;

    memset(data, 'd', sizeof(data));
    assert_int_equal(pipe2(log, O_CLOEXEC), 0);
    assert_int_equal(fcntl(log[0], F_SETFL, O_NONBLOCK), 0);
    in = logpipe_open(&p, t->loop, log[1], &tail, &e);
    assert_true(in >= 0);
    assert_int_equal(fcntl(in, F_SETFL, O_NONBLOCK), 0);
    for (i = 0; i < 100; i++) { /* far more than two pipes hold */
        n = write(in, data, sizeof(data));
        sent += n > 0 ? (size_t)n : 0;
        assert_int_equal(loop_step(t->loop, 0, NULL), 0);
    }
    assert_true(sent < 50 * sizeof(data));
    (void)close(in);
    TEST_UNTIL(got == sent, {
        n = read(log[0], data, sizeof(data));
        got += n > 0 ? (size_t)n : 0;
        if (n < 0)
            step(t);
    });
    assert_int_equal(tail.len, LOGTAIL_MAX);
    assert_int_equal(fcntl(log[1], F_GETFL) & O_NONBLOCK, 0); /* it is shared with others */
    logpipe_close(&p);
    (void)close(log[0]);
    (void)close(log[1]);
}

/* Sends text through a logpipe to log, until it is all taken; the tail is text's. */
static void send_through(struct env_of_test *t, int log, const char *text)
{
    struct logpipe p = { 0 };
    struct logtail tail = { .len = 0 };
    char got[LOGTAIL_MAX + 1];
    struct err e = { 0 };
    int in = logpipe_open(&p, t->loop, log, &tail, &e);

    assert_true(in >= 0);
    assert_int_equal(write(in, text, strlen(text)), strlen(text));
    (void)close(in);
    TEST_UNTIL(p.from.fd < 0, step(t));
    logtail_text(&tail, got);
    assert_string_equal(got, text);
    logpipe_close(&p);
}

static void a_log_that_is_gone(void **state)
{
    struct sigaction ignore = { .sa_handler = SIG_IGN };
    struct sigaction saved;
    int log[2];

    (void)sigaction(SIGPIPE, &ignore, &saved);
    assert_int_equal(pipe2(log, O_CLOEXEC), 0);
    (void)close(log[0]);
    send_through(*state, log[1], "kept");
    (void)close(log[1]);
    (void)sigaction(SIGPIPE, &saved, NULL);
}

static void a_log_that_is_a_file(void **state)
{
    char path[] = "/tmp/test_hooks.XXXXXX";
    int log = mkostemp(path, O_CLOEXEC);
    char got[16] = "";

    assert_true(log >= 0);
    (void)unlink(path);
    send_through(*state, log, "first");
    send_through(*state, log, "second");
    assert_int_equal(pread(log, got, sizeof(got) - 1, 0), 11);
    assert_string_equal(got, "firstsecond");
    (void)close(log);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(outcomes),
        TEST(too_long),
        TEST(the_whole_group_goes),
        TEST(not_started),
        TEST(pre_start_fails),
        TEST(pre_start_is_given_up),
        TEST(no_hooks),
        TEST(every_second),
        cmocka_unit_test(tails),
        TEST(a_log_that_is_not_read),
        TEST(a_log_that_is_gone),
        TEST(a_log_that_is_a_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
