#include "tests/unit/test.h"

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/loop.h"
#include "common/proc/signals.h"
#include "common/proc/spawn.h"

#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>

struct env {
    struct loop *loop;
    struct signals *signals;
    struct err e;
    sigset_t saved;
    int got[NSIG];
};

static void note_signal(void *arg, int sig)
{
    ((struct env *)arg)->got[sig]++;
}

static int set_up(void **state)
{
    struct env *env = calloc(1, sizeof(*env));
    sigset_t set;

    if (!env)
        return -1;
    (void)pthread_sigmask(SIG_BLOCK, NULL, &env->saved);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGUSR1);
    env->loop = loop_new(&env->e);
    env->signals = env->loop ? signals_new(env->loop, &set, note_signal, env, &env->e) : NULL;
    *state = env;
    return env->signals ? 0 : -1;
}

static int tear_down(void **state)
{
    struct env *env = *state;

    signals_free(env->signals);
    loop_free(env->loop);
    (void)pthread_sigmask(SIG_SETMASK, &env->saved, NULL);
    free(env);
    return 0;
}

static pid_t start(const char *script)
{
    char *const argv[] = { (char *)"sh", (char *)"-c", (char *)script, NULL };
    char *const envp[] = { NULL };
    struct spawn_req rq = {
        .path = "/bin/sh", .argv = argv, .envp = envp, .in = -1, .out = -1, .err = -1
    };
    struct err e = { 0 };
    pid_t pid;

    if (spawn(&rq, &pid, &e) < 0)
        fail_msg("%s", e.msg);
    return pid;
}

struct kid {
    struct child c;
    int status;
    int exits;
};

static void note_exit(struct child *c, int status)
{
    struct kid *k = CONTAINER_OF(c, struct kid, c);

    k->status = status;
    k->exits++;
}

static bool has_children(void)
{
    siginfo_t si;

    return waitid(P_ALL, 0, &si, WEXITED | WNOHANG | WNOWAIT) == 0;
}

static void signals_arrive(void **state)
{
    struct env *env = *state;

    assert_int_equal(kill(getpid(), SIGTERM), 0);
    assert_int_equal(kill(getpid(), SIGUSR1), 0);
    TEST_UNTIL(env->got[SIGTERM] && env->got[SIGUSR1], loop_step(env->loop, 1000, &env->e));
    assert_int_equal(env->got[SIGTERM], 1);
    assert_int_equal(env->got[SIGCHLD], 0);
}

static void watched_child_is_reported_once(void **state)
{
    struct env *env = *state;
    struct kid k = { .c = { .on_exit = note_exit } };

    k.c.pid = start("exit 5");
    signals_watch_child(env->signals, &k.c);
    TEST_UNTIL(k.exits, loop_step(env->loop, 1000, &env->e));
    assert_true(WIFEXITED(k.status) && WEXITSTATUS(k.status) == 5);
    assert_int_equal(loop_step(env->loop, 0, &env->e), 0);
    assert_int_equal(k.exits, 1);
    assert_int_equal(env->got[SIGCHLD], 0);
}

static void end_by_signal_is_reported(void **state)
{
    struct env *env = *state;
    struct kid k = { .c = { .on_exit = note_exit } };

    k.c.pid = start("kill -TERM $$; exit 1");
    signals_watch_child(env->signals, &k.c);
    TEST_UNTIL(k.exits, loop_step(env->loop, 1000, &env->e));
    assert_true(WIFSIGNALED(k.status) && WTERMSIG(k.status) == SIGTERM);
}

/* Ended before it was watched, but after the last round of the loop. */
static void child_that_was_faster_is_not_lost(void **state)
{
    struct env *env = *state;
    struct kid k = { .c = { .on_exit = note_exit } };
    siginfo_t si;

    k.c.pid = start("exit 3");
    assert_int_equal(waitid(P_PID, (id_t)k.c.pid, &si, WEXITED | WNOWAIT), 0);
    signals_watch_child(env->signals, &k.c);
    TEST_UNTIL(k.exits, loop_step(env->loop, 1000, &env->e));
    assert_int_equal(WEXITSTATUS(k.status), 3);
}

static void unwatched_children_are_collected(void **state)
{
    struct env *env = *state;
    struct kid k = { .c = { .on_exit = note_exit } };

    (void)start("exit 1");
    k.c.pid = start("exit 2");
    signals_watch_child(env->signals, &k.c);
    signals_unwatch_child(env->signals, &k.c);
    signals_unwatch_child(env->signals, &k.c);
    TEST_UNTIL(!has_children(), loop_step(env->loop, 1000, &env->e));
    assert_int_equal(k.exits, 0);
}

static void many_at_once(void **state)
{
    enum { KIDS = 60 };
    struct env *env = *state;
    struct kid k[KIDS] = { 0 };
    siginfo_t si;
    int i;
    int done = 0;

    for (i = 0; i < KIDS; i++) {
        char script[32];

        (void)snprintf(script, sizeof(script), "exit %d", i);
        k[i].c = (struct child){ .pid = start(script), .on_exit = note_exit };
        if (i % 3)
            signals_watch_child(env->signals, &k[i].c);
    }
    for (i = 0; i < KIDS; i++) /* all ended: one SIGCHLD stands for them */
        assert_int_equal(waitid(P_PID, (id_t)k[i].c.pid, &si, WEXITED | WNOWAIT), 0);
    TEST_UNTIL(!has_children(), loop_step(env->loop, 1000, &env->e));
    for (i = 0; i < KIDS; i++) {
        assert_int_equal(k[i].exits, i % 3 != 0);
        if (k[i].exits)
            assert_int_equal(WEXITSTATUS(k[i].status), i);
        done += k[i].exits;
    }
    assert_int_equal(done, 40);
}

/* The owner of an ended child unwatches it again when it is destroyed. By then the kernel may have
 * given the number to another child: that one must stay watched. */
static void unwatch_is_about_the_object(void **state)
{
    struct env *env = *state;
    struct kid old = { .c = { .on_exit = note_exit } };
    struct kid k = { .c = { .on_exit = note_exit } };

    k.c.pid = start("exit 0");
    old.c.pid = k.c.pid;
    signals_watch_child(env->signals, &k.c);
    signals_unwatch_child(env->signals, &old.c);
    TEST_UNTIL(!has_children(), loop_step(env->loop, 1000, &env->e));
    assert_int_equal(k.exits, 1);
}

struct chain {
    struct kid k;
    struct env *env;
    int left;
};

static void start_next(struct child *c, int status)
{
    struct chain *ch = CONTAINER_OF(c, struct chain, k.c);

    (void)status;
    ch->k.exits++;
    if (ch->left-- > 0) {
        ch->k.c.pid = start("exit 0");
        signals_watch_child(ch->env->signals, &ch->k.c);
    }
}

static void on_exit_may_watch_again(void **state)
{
    struct env *env = *state;
    struct chain ch = { .k.c.on_exit = start_next, .env = env, .left = 4 };

    ch.k.c.pid = start("exit 0");
    signals_watch_child(env->signals, &ch.k.c);
    TEST_UNTIL(ch.k.exits == 5, loop_step(env->loop, 1000, &env->e));
}

/* A parent may have left SIGCHLD ignored: the kernel would then drop exit statuses. */
static void inherited_ignore_is_undone(void **state)
{
    struct sigaction ign = { .sa_handler = SIG_IGN };
    struct sigaction old;

    (void)state;
    assert_int_equal(sigaction(SIGCHLD, &ign, &old), 0);
    assert_int_equal(set_up(state), 0);
    watched_child_is_reported_once(state);
    assert_int_equal(tear_down(state), 0);
    assert_int_equal(sigaction(SIGCHLD, &old, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(signals_arrive, set_up, tear_down),
        cmocka_unit_test_setup_teardown(watched_child_is_reported_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(end_by_signal_is_reported, set_up, tear_down),
        cmocka_unit_test_setup_teardown(child_that_was_faster_is_not_lost, set_up, tear_down),
        cmocka_unit_test_setup_teardown(unwatched_children_are_collected, set_up, tear_down),
        cmocka_unit_test_setup_teardown(many_at_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(unwatch_is_about_the_object, set_up, tear_down),
        cmocka_unit_test_setup_teardown(on_exit_may_watch_again, set_up, tear_down),
        cmocka_unit_test(inherited_ignore_is_undone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
