#include "tests/unit/test.h"

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/loop.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

struct env {
    struct loop *loop;
    struct err e;
};

static int set_up(void **state)
{
    static struct env env;

    env = (struct env){ 0 };
    env.loop = loop_new(&env.e);
    *state = &env;
    return env.loop ? 0 : -1;
}

static int tear_down(void **state)
{
    loop_free(((struct env *)*state)->loop);
    return 0;
}

/* ---- timers ---- */

enum { TIMERS = 200 };

struct timed {
    struct loop_timer t;
    int *order; /* where the next number goes */
    int *count;
    int number;
};

static void note_order(struct loop_timer *t)
{
    struct timed *x = CONTAINER_OF(t, struct timed, t);

    x->order[(*x->count)++] = x->number;
}

static void timers_fire_in_order_of_time(void **state)
{
    struct env *env = *state;
    struct timed x[TIMERS];
    int order[TIMERS];
    int count = 0;
    int64_t now = clock_mono_ms();
    int i;

    for (i = 0; i < TIMERS; i++) { /* 7 and 200 are coprime: every number comes once, shuffled */
        int n = i * 7 % TIMERS;

        x[n] = (struct timed){ { .on_fire = note_order }, order, &count, n };
        assert_int_equal(loop_timer_set(env->loop, &x[n].t, now - TIMERS + n), 0);
    }
    assert_int_equal(loop_step(env->loop, 0, &env->e), 0);
    assert_int_equal(count, TIMERS);
    for (i = 0; i < TIMERS; i++)
        assert_int_equal(order[i], i);
}

static void cleared_and_moved_timers(void **state)
{
    struct env *env = *state;
    struct timed x[TIMERS];
    int order[TIMERS];
    int count = 0;
    int64_t past = clock_mono_ms() - 10000;
    int i;

    for (i = 0; i < TIMERS; i++) {
        x[i] = (struct timed){ { .on_fire = note_order }, order, &count, i };
        assert_int_equal(loop_timer_set(env->loop, &x[i].t, past + i), 0);
    }
    for (i = 0; i < TIMERS; i += 3)
        loop_timer_clear(env->loop, &x[i].t);
    for (i = 1; i < TIMERS; i += 3) /* moved behind all others, backwards */
        assert_int_equal(loop_timer_set(env->loop, &x[i].t, past + 2 * TIMERS - i), 0);
    loop_timer_clear(env->loop, &x[0].t); /* twice is nothing */
    assert_int_equal(loop_step(env->loop, 0, &env->e), 0);
    assert_int_equal(count, 133);
    for (i = 0; i < 66; i++)
        assert_int_equal(order[i], 3 * i + 2);
    for (i = 66; i < 133; i++)
        assert_int_equal(order[i], 199 - 3 * (i - 66));
    for (i = 0; i < TIMERS; i++)
        assert_int_equal(x[i].t.at_mono_ms, 0);
}

static void timer_wakes_the_wait(void **state)
{
    struct env *env = *state;
    int order[1];
    int count = 0;
    struct timed x = { { .on_fire = note_order }, order, &count, 0 };
    int64_t at = clock_mono_ms() + 20;

    assert_int_equal(loop_timer_set(env->loop, &x.t, at), 0);
    TEST_UNTIL(count == 1, loop_step(env->loop, 5000, &env->e));
    assert_true(clock_mono_ms() >= at);
}

struct again {
    struct loop_timer t;
    struct loop *loop;
    int fired;
};

static void rearm(struct loop_timer *t)
{
    struct again *a = CONTAINER_OF(t, struct again, t);

    a->fired++;
    (void)loop_timer_set(a->loop, t, 1); /* in the past: due again at once */
}

/* A timer that re-arms itself without delay must not keep the loop from its descriptors. */
static void timer_that_rearms_leaves_room(void **state)
{
    struct env *env = *state;
    struct again a = { .t = { .on_fire = rearm }, .loop = env->loop };

    assert_int_equal(loop_timer_set(env->loop, &a.t, 1), 0);
    assert_int_equal(loop_step(env->loop, 0, &env->e), 0);
    assert_int_equal(loop_step(env->loop, 0, &env->e), 0);
    assert_int_equal(a.fired, 2);
    loop_timer_clear(env->loop, &a.t);
}

static void free_owner(struct loop_timer *t)
{
    free(CONTAINER_OF(t, struct again, t));
}

static void timer_may_free_its_owner(void **state)
{
    struct env *env = *state;
    struct again *a = calloc(1, sizeof(*a));

    assert_non_null(a);
    a->t.on_fire = free_owner;
    assert_int_equal(loop_timer_set(env->loop, &a->t, 1), 0);
    assert_int_equal(loop_step(env->loop, 0, &env->e), 0);
}

/* ---- descriptors ---- */

struct pipe_end {
    struct loop_fd w;
    struct loop *loop;
    struct pipe_end *victim; /* deleted when this one is called */
    int calls;
    uint32_t events;
};

static void on_pipe(struct loop_fd *w, uint32_t events)
{
    struct pipe_end *p = CONTAINER_OF(w, struct pipe_end, w);
    char c;

    p->calls++;
    p->events = events;
    (void)!read(w->fd, &c, 1);
    if (p->victim)
        loop_del(p->loop, &p->victim->w);
}

static void descriptor_is_reported(void **state)
{
    struct env *env = *state;
    struct pipe_end p = { .w.on_event = on_pipe };
    int fds[2];

    assert_int_equal(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
    p.w.fd = fds[0];
    assert_int_equal(loop_add(env->loop, &p.w, EPOLLIN, &env->e), 0);
    assert_int_equal(loop_step(env->loop, 0, &env->e), 0);
    assert_int_equal(p.calls, 0);
    assert_int_equal(write(fds[1], "ab", 2), 2);
    assert_int_equal(loop_step(env->loop, 0, &env->e), 0);
    assert_int_equal(loop_step(env->loop, 0, &env->e), 0);
    assert_int_equal(p.calls, 2); /* level-triggered */
    assert_int_equal(p.events, EPOLLIN);
    loop_del(env->loop, &p.w);
    loop_del(env->loop, &p.w);
    close(fds[0]);
    close(fds[1]);
}

static void adding_a_file_fails_with_text(void **state)
{
    struct env *env = *state;
    struct loop_fd w = { .fd = open("/dev/null", O_RDONLY | O_CLOEXEC) };

    assert_int_equal(loop_add(env->loop, &w, EPOLLIN, &env->e), -1);
    assert_contains(env->e.msg, "watch file descriptor");
    assert_int_equal(w.events, 0);
    loop_del(env->loop, &w);
    close(w.fd);
}

/* Both are ready in one batch; whichever is called first deletes the other. */
static void deleted_inside_dispatch_is_not_called(void **state)
{
    struct env *env = *state;
    struct pipe_end p[2] = { { .w.on_event = on_pipe }, { .w.on_event = on_pipe } };
    int fds[2][2];
    int i;

    for (i = 0; i < 2; i++) {
        assert_int_equal(pipe2(fds[i], O_CLOEXEC | O_NONBLOCK), 0);
        assert_int_equal(write(fds[i][1], "x", 1), 1);
        p[i].w.fd = fds[i][0];
        p[i].loop = env->loop;
        p[i].victim = &p[1 - i];
        assert_int_equal(loop_add(env->loop, &p[i].w, EPOLLIN, &env->e), 0);
    }
    assert_int_equal(loop_step(env->loop, 0, &env->e), 0);
    assert_int_equal(p[0].calls + p[1].calls, 1);
    for (i = 0; i < 2; i++) {
        loop_del(env->loop, &p[i].w);
        close(fds[i][0]);
        close(fds[i][1]);
    }
}

static void events_can_be_changed(void **state)
{
    struct env *env = *state;
    struct pipe_end p = { .w.on_event = on_pipe };
    int sv[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sv), 0);
    p.w.fd = sv[0];
    assert_int_equal(loop_add(env->loop, &p.w, EPOLLIN, &env->e), 0);
    assert_int_equal(loop_mod(env->loop, &p.w, EPOLLIN | EPOLLOUT), 0);
    assert_int_equal(loop_step(env->loop, 0, &env->e), 0);
    assert_int_equal(p.events, EPOLLOUT);
    assert_int_equal(loop_mod(env->loop, &p.w, EPOLLIN), 0);
    assert_int_equal(loop_step(env->loop, 0, &env->e), 0);
    assert_int_equal(p.calls, 1);
    loop_del(env->loop, &p.w);
    close(sv[0]);
    close(sv[1]);
}

/* events == 0 means "not watched": epoll would still report a hang-up, for ever, and to an owner
 * that may be gone because loop_del takes it for not watched. */
static void paused_descriptor_is_silent(void **state)
{
    struct env *env = *state;
    struct pipe_end p = { .w.on_event = on_pipe };
    int sv[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sv), 0);
    p.w.fd = sv[0];
    assert_int_equal(loop_add(env->loop, &p.w, EPOLLIN, &env->e), 0);
    assert_int_equal(loop_mod(env->loop, &p.w, 0), 0);
    close(sv[1]);
    assert_int_equal(loop_step(env->loop, 0, &env->e), 0);
    assert_int_equal(p.calls, 0);
    assert_int_equal(loop_mod(env->loop, &p.w, EPOLLIN), 0);
    assert_int_equal(loop_step(env->loop, 0, &env->e), 0);
    assert_int_equal(p.calls, 1);
    loop_del(env->loop, &p.w);
    close(sv[0]);
}

/* ---- posts ---- */

enum { POSTS = 500 };

struct note {
    struct loop_call call;
    struct noted *all;
    int number;
};

struct noted {
    struct loop *loop;
    struct note notes[POSTS];
    int seen;
    int broken;
};

static void take_note(void *arg)
{
    struct note *n = arg;

    if (n->number != n->all->seen++)
        n->all->broken = 1;
    if (n->all->seen == POSTS)
        loop_stop(n->all->loop);
}

static void *post_all(void *arg)
{
    struct noted *all = arg;
    int i;

    for (i = 0; i < POSTS; i++) {
        all->notes[i] = (struct note){ { .fn = take_note, .arg = &all->notes[i] }, all, i };
        loop_post(all->loop, &all->notes[i].call);
    }
    return NULL;
}

static void posts_of_a_thread_run_in_order(void **state)
{
    struct env *env = *state;
    struct noted *all = calloc(1, sizeof(*all));
    pthread_t t;

    assert_non_null(all);
    all->loop = env->loop;
    assert_int_equal(pthread_create(&t, NULL, post_all, all), 0);
    assert_int_equal(loop_run(env->loop, &env->e), 0);
    pthread_join(t, NULL);
    assert_int_equal(all->seen, POSTS);
    assert_int_equal(all->broken, 0);
    free(all);
}

static void free_arg(void *arg)
{
    free(arg);
}

static void post_may_free_its_node(void **state)
{
    struct env *env = *state;
    int i;

    for (i = 0; i < 3; i++) {
        struct loop_call *c = calloc(1, sizeof(*c));

        assert_non_null(c);
        *c = (struct loop_call){ .fn = free_arg, .arg = c };
        loop_post(env->loop, c);
    }
    assert_int_equal(loop_step(env->loop, 1000, &env->e), 0);
}

struct repost {
    struct loop_call call;
    struct loop *loop;
    int runs;
};

static void post_again(void *arg)
{
    struct repost *r = arg;

    if (++r->runs < 3)
        loop_post(r->loop, &r->call);
}

static void post_from_a_post_runs_in_the_next_round(void **state)
{
    struct env *env = *state;
    struct repost r = { .loop = env->loop };

    r.call = (struct loop_call){ .fn = post_again, .arg = &r };
    loop_post(env->loop, &r.call);
    assert_int_equal(loop_step(env->loop, 0, &env->e), 0);
    assert_int_equal(r.runs, 1);
    TEST_UNTIL(r.runs == 3, loop_step(env->loop, 1000, &env->e));
}

/* ---- hooks ---- */

static int count_hook(void *arg)
{
    ++*(int *)arg;
    return 0;
}

static void hook_runs_before_every_wait(void **state)
{
    struct env *env = *state;
    int a = 0;
    int b = 0;
    struct loop_hook ha = { .before_wait = count_hook, .arg = &a };
    struct loop_hook hb = { .before_wait = count_hook, .arg = &b };

    loop_hook_add(env->loop, &ha);
    loop_hook_add(env->loop, &hb);
    assert_int_equal(loop_step(env->loop, -1, &env->e), 0); /* 0 of the hook bounds the wait */
    loop_hook_del(env->loop, &ha);
    assert_int_equal(loop_step(env->loop, -1, &env->e), 0);
    loop_hook_del(env->loop, &hb);
    loop_hook_del(env->loop, &hb);
    assert_int_equal(a, 1);
    assert_int_equal(b, 2);
}

struct adder {
    struct loop *loop;
    struct loop_hook self;
    struct loop_hook late;
    int added;
    int late_runs;
};

static int late_hook(void *arg)
{
    ((struct adder *)arg)->late_runs++;
    return 0;
}

static int adding_hook(void *arg)
{
    struct adder *a = arg;

    if (!a->added++)
        loop_hook_add(a->loop, &a->late);
    return -1;
}

/* Otherwise the loop would sleep for good on what the new hook waits for. */
static void hook_added_by_a_hook_runs_before_the_wait(void **state)
{
    struct env *env = *state;
    struct adder a = { .loop = env->loop };

    a.self = (struct loop_hook){ .before_wait = adding_hook, .arg = &a };
    a.late = (struct loop_hook){ .before_wait = late_hook, .arg = &a };
    loop_hook_add(env->loop, &a.self);
    assert_int_equal(loop_step(env->loop, -1, &env->e), 0);
    assert_true(a.late_runs > 0);
    loop_hook_del(env->loop, &a.self);
    loop_hook_del(env->loop, &a.late);
}

static void *stop_it(void *arg)
{
    loop_stop(arg);
    return NULL;
}

static void stop_from_another_thread(void **state)
{
    struct env *env = *state;
    pthread_t t;

    assert_int_equal(pthread_create(&t, NULL, stop_it, env->loop), 0);
    assert_int_equal(loop_run(env->loop, &env->e), 0);
    pthread_join(t, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(timers_fire_in_order_of_time, set_up, tear_down),
        cmocka_unit_test_setup_teardown(cleared_and_moved_timers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(timer_wakes_the_wait, set_up, tear_down),
        cmocka_unit_test_setup_teardown(timer_that_rearms_leaves_room, set_up, tear_down),
        cmocka_unit_test_setup_teardown(timer_may_free_its_owner, set_up, tear_down),
        cmocka_unit_test_setup_teardown(descriptor_is_reported, set_up, tear_down),
        cmocka_unit_test_setup_teardown(adding_a_file_fails_with_text, set_up, tear_down),
        cmocka_unit_test_setup_teardown(deleted_inside_dispatch_is_not_called, set_up, tear_down),
        cmocka_unit_test_setup_teardown(events_can_be_changed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(paused_descriptor_is_silent, set_up, tear_down),
        cmocka_unit_test_setup_teardown(posts_of_a_thread_run_in_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(post_may_free_its_node, set_up, tear_down),
        cmocka_unit_test_setup_teardown(post_from_a_post_runs_in_the_next_round, set_up, tear_down),
        cmocka_unit_test_setup_teardown(hook_runs_before_every_wait, set_up, tear_down),
        cmocka_unit_test_setup_teardown(hook_added_by_a_hook_runs_before_the_wait, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(stop_from_another_thread, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
