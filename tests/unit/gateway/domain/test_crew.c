#include "tests/unit/test.h"

#include "common/base/err.h"
#include "gateway/domain/crew.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct {
    atomic_int inside[26]; /* by first letter of the id */
    atomic_int overlaps;
    atomic_int runs;
    atomic_int failures; /* still to come */
    sem_t done;          /* after each run */
    sem_t entered;       /* by "hang" */
    sem_t go;            /* lets "hang" go on */
} seen;

static int64_t work(void *arg, const char *id, unsigned tries)
{
    atomic_int *inside = &seen.inside[id[0] - 'a'];

    (void)arg, (void)tries;
    if (atomic_fetch_add(inside, 1) != 0)
        atomic_fetch_add(&seen.overlaps, 1);
    if (strcmp(id, "hang") == 0) {
        sem_post(&seen.entered);
        sem_wait(&seen.go);
    }
    atomic_fetch_add(&seen.runs, 1);
    atomic_fetch_sub(inside, 1);
    sem_post(&seen.done);
    if (atomic_load(&seen.failures) > 0 && atomic_fetch_sub(&seen.failures, 1) > 0)
        return 1;
    return CREW_DONE;
}

static void wait_runs(int n)
{
    struct timespec until;
    int i;

    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 10;
    for (i = 0; i < n; i++)
        assert_int_equal(sem_timedwait(&seen.done, &until), 0);
}

static int setup(void **state)
{
    (void)state;
    memset(&seen, 0, sizeof(seen));
    sem_init(&seen.done, 0, 0);
    sem_init(&seen.entered, 0, 0);
    sem_init(&seen.go, 0, 0);
    return 0;
}

static void one_that_hangs_holds_up_itself_only(void **state)
{
    struct crew *c = crew_new(4, 100, work, NULL, NULL);
    char id[16];
    int i;

    (void)state;
    assert_int_equal(crew_want(c, "hang", 0, NULL), 0);
    sem_wait(&seen.entered);
    for (i = 0; i < 20; i++) {
        (void)snprintf(id, sizeof(id), "%c%d", 'i' + i % 10, i);
        assert_int_equal(crew_want(c, id, 0, NULL), 0);
    }
    wait_runs(20);
    assert_int_equal(atomic_load(&seen.inside['h' - 'a']), 1);
    sem_post(&seen.go);
    wait_runs(1);
    crew_free(c);
}

/* Wanted ten times while it runs: once more, and never twice at once. */
static void wanted_while_it_runs_is_once_more(void **state)
{
    struct crew *c = crew_new(4, 100, work, NULL, NULL);
    int i;

    (void)state;
    assert_int_equal(crew_want(c, "hang", 0, NULL), 0);
    sem_wait(&seen.entered);
    for (i = 0; i < 10; i++)
        assert_int_equal(crew_want(c, "hang", 0, NULL), 0);
    sem_post(&seen.go);
    sem_wait(&seen.entered);
    sem_post(&seen.go);
    wait_runs(2);
    crew_free(c);
    assert_int_equal(atomic_load(&seen.runs), 2);
    assert_int_equal(atomic_load(&seen.overlaps), 0);
}

static void comes_again_as_often_as_it_asks(void **state)
{
    struct crew *c = crew_new(2, 100, work, NULL, NULL);

    (void)state;
    atomic_store(&seen.failures, 5);
    assert_int_equal(crew_want(c, "a", 0, NULL), 0);
    wait_runs(6);
    crew_free(c);
    assert_int_equal(atomic_load(&seen.runs), 6);
}

static void earlier_ones_do_not_wait_for_later_ones(void **state)
{
    struct crew *c = crew_new(2, 100, work, NULL, NULL);

    (void)state;
    assert_int_equal(crew_want(c, "a", 3600000, NULL), 0);
    assert_int_equal(crew_want(c, "b", 20, NULL), 0);
    assert_int_equal(crew_want(c, "c", 1, NULL), 0);
    wait_runs(2);
    crew_hurry(c);
    wait_runs(1);
    crew_free(c);
}

static void full_is_said(void **state)
{
    struct crew *c = crew_new(1, 2, work, NULL, NULL);
    struct err e = { 0 };

    (void)state;
    assert_int_equal(crew_want(c, "a", 3600000, NULL), 0);
    assert_int_equal(crew_want(c, "b", 3600000, NULL), 0);
    assert_int_equal(crew_want(c, "a", 3600000, NULL), 0); /* is there already */
    assert_int_equal(crew_want(c, "c", 0, &e), -1);
    assert_int_equal(e.code, ERRC_BUSY);
    crew_free(c); /* what waits is not begun */
    assert_int_equal(atomic_load(&seen.runs), 0);
    crew_free(NULL);
}

enum { WANTERS = 4, WANTS = 2000 };

static void *want_many(void *arg)
{
    char id[2] = "a";
    int i;

    for (i = 0; i < WANTS; i++) {
        id[0] = (char)('a' + i % 5);
        (void)crew_want(arg, id, i % 3, NULL);
    }
    return NULL;
}

static void never_two_on_one_id(void **state)
{
    struct crew *c = crew_new(8, 100, work, NULL, NULL);
    pthread_t t[WANTERS];
    int i;

    (void)state;
    for (i = 0; i < WANTERS; i++)
        assert_int_equal(pthread_create(&t[i], NULL, want_many, c), 0);
    for (i = 0; i < WANTERS; i++)
        pthread_join(t[i], NULL);
    wait_runs(5);
    crew_free(c);
    assert_int_equal(atomic_load(&seen.overlaps), 0);
}

#define T(f) cmocka_unit_test_setup(f, setup)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(one_that_hangs_holds_up_itself_only),
        T(wanted_while_it_runs_is_once_more),
        T(comes_again_as_often_as_it_asks),
        T(earlier_ones_do_not_wait_for_later_ones),
        T(full_is_said),
        T(never_two_on_one_id),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
