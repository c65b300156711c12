#include "tests/unit/test.h"

#include "common/base/err.h"
#include "common/base/jobs.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>

struct gate {
    sem_t entered;
    sem_t open;
    atomic_int done;
};

static void gate_init(struct gate *g)
{
    sem_init(&g->entered, 0, 0);
    sem_init(&g->open, 0, 0);
    atomic_store(&g->done, 0);
}

static void gate_done(struct gate *g)
{
    sem_destroy(&g->entered);
    sem_destroy(&g->open);
}

static void wait_at_gate(void *arg)
{
    struct gate *g = arg;

    sem_post(&g->entered);
    sem_wait(&g->open);
    atomic_fetch_add(&g->done, 1);
}

static void full_queue_is_busy(void **state)
{
    struct err e = { 0 };
    struct jobs *j = jobs_new(1, 2, &e);
    struct gate g;
    int i;

    (void)state;
    gate_init(&g);
    assert_non_null(j);
    assert_int_equal(jobs_post(j, wait_at_gate, &g, &e), 0);
    sem_wait(&g.entered); /* the worker is taken, the queue empty */
    assert_int_equal(jobs_post(j, wait_at_gate, &g, &e), 0);
    assert_int_equal(jobs_post(j, wait_at_gate, &g, &e), 0);
    assert_int_equal(jobs_post(j, wait_at_gate, &g, &e), -1);
    assert_int_equal(e.code, ERRC_BUSY);
    assert_true(e.retry_after_s > 0);
    assert_int_equal(jobs_post(j, wait_at_gate, &g, NULL), -1);
    for (i = 0; i < 3; i++)
        sem_post(&g.open);
    jobs_free(j);
    assert_int_equal(atomic_load(&g.done), 3);
    gate_done(&g);
}

static void room_again_after_work(void **state)
{
    struct err e = { 0 };
    struct jobs *j = jobs_new(1, 1, &e);
    struct gate g;

    (void)state;
    gate_init(&g);
    assert_int_equal(jobs_post(j, wait_at_gate, &g, &e), 0);
    sem_wait(&g.entered);
    assert_int_equal(jobs_post(j, wait_at_gate, &g, &e), 0);
    assert_int_equal(jobs_post(j, wait_at_gate, &g, &e), -1);
    sem_post(&g.open);
    sem_wait(&g.entered); /* the second one runs: its place is free */
    assert_int_equal(jobs_post(j, wait_at_gate, &g, &e), 0);
    sem_post(&g.open);
    sem_post(&g.open);
    jobs_free(j);
    assert_int_equal(atomic_load(&g.done), 3);
    gate_done(&g);
}

static void a_stopped_pool_refuses(void **state)
{
    struct err e = { 0 };
    struct jobs *j = jobs_new(2, 2, &e);
    struct gate g;

    (void)state;
    gate_init(&g);
    assert_int_equal(jobs_post(j, wait_at_gate, &g, &e), 0);
    sem_post(&g.open);
    jobs_stop(j);
    assert_int_equal(atomic_load(&g.done), 1); /* what was accepted has run */
    assert_int_equal(jobs_post(j, wait_at_gate, &g, &e), -1);
    assert_int_equal(e.code, ERRC_BUSY);
    jobs_free(j);
    jobs_stop(NULL);
    jobs_free(NULL);
    gate_done(&g);
}

static void threads_work_side_by_side(void **state)
{
    struct err e = { 0 };
    struct jobs *j = jobs_new(4, 4, &e);
    struct gate g;
    int i;

    (void)state;
    gate_init(&g);
    for (i = 0; i < 4; i++)
        assert_int_equal(jobs_post(j, wait_at_gate, &g, &e), 0);
    for (i = 0; i < 4; i++)
        sem_wait(&g.entered); /* hangs when fewer than four run at once */
    for (i = 0; i < 4; i++)
        sem_post(&g.open);
    jobs_free(j);
    assert_int_equal(atomic_load(&g.done), 4);
    gate_done(&g);
}

static void count(void *arg)
{
    atomic_fetch_add((atomic_int *)arg, 1);
}

/* The ring wraps many times, the order of acceptance is kept by one worker. */
struct ordered {
    int next;
    int broken;
};

struct step {
    struct ordered *o;
    int n;
};

static void in_order(void *arg)
{
    struct step *s = arg;

    if (s->o->next++ != s->n)
        s->o->broken = 1;
}

static void free_runs_what_was_accepted_in_order(void **state)
{
    struct err e = { 0 };
    struct jobs *j = jobs_new(1, 64, &e);
    struct ordered o = { 0 };
    struct step steps[64];
    int i;

    (void)state;
    for (i = 0; i < 64; i++) {
        steps[i] = (struct step){ &o, i };
        assert_int_equal(jobs_post(j, in_order, &steps[i], &e), 0);
    }
    jobs_free(j);
    assert_int_equal(o.next, 64);
    assert_int_equal(o.broken, 0);
}

struct poster {
    struct jobs *jobs;
    atomic_int *ran;
    int accepted;
};

static void *post_many(void *arg)
{
    struct poster *p = arg;
    int i;

    for (i = 0; i < 2000; i++)
        if (jobs_post(p->jobs, count, p->ran, NULL) == 0)
            p->accepted++;
    return NULL;
}

static void accepted_equals_run(void **state)
{
    struct err e = { 0 };
    atomic_int ran = 0;
    struct poster p[3] = { 0 };
    pthread_t t[3];
    struct jobs *j = jobs_new(2, 7, &e);
    int i;

    (void)state;
    for (i = 0; i < 3; i++) {
        p[i] = (struct poster){ j, &ran, 0 };
        assert_int_equal(pthread_create(&t[i], NULL, post_many, &p[i]), 0);
    }
    for (i = 0; i < 3; i++)
        pthread_join(t[i], NULL);
    jobs_free(j);
    assert_int_equal(atomic_load(&ran), p[0].accepted + p[1].accepted + p[2].accepted);
    assert_true(atomic_load(&ran) > 0);
}

static void read_mask(void *arg)
{
    (void)pthread_sigmask(SIG_BLOCK, NULL, arg);
}

static void workers_block_signals(void **state)
{
    struct err e = { 0 };
    struct jobs *j = jobs_new(1, 1, &e);
    sigset_t mask;
    sigset_t ours;

    (void)state;
    sigemptyset(&mask);
    assert_int_equal(jobs_post(j, read_mask, &mask, &e), 0);
    jobs_free(j);
    assert_int_equal(sigismember(&mask, SIGTERM), 1);
    assert_int_equal(sigismember(&mask, SIGCHLD), 1);
    (void)pthread_sigmask(SIG_BLOCK, NULL, &ours);
    assert_int_equal(sigismember(&ours, SIGTERM), 0);
}

static void free_takes_null(void **state)
{
    (void)state;
    jobs_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_queue_is_busy),
        cmocka_unit_test(room_again_after_work),
        cmocka_unit_test(a_stopped_pool_refuses),
        cmocka_unit_test(threads_work_side_by_side),
        cmocka_unit_test(free_runs_what_was_accepted_in_order),
        cmocka_unit_test(accepted_equals_run),
        cmocka_unit_test(workers_block_signals),
        cmocka_unit_test(free_takes_null),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
