/* Renewals against expiry, deletes against each other, over the real clock: 1,000 rounds. */
#include "tests/unit/test.h"

#include "common/base/err.h"
#include "gateway/domain/expiry.h"
#include "gateway/domain/lifecycle.h"
#include "gateway/domain/watch.h"
#include "gateway/store/event_store.h"
#include "tests/fakes/fake_runtime.h"
#include "tests/fakes/world.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    ROUNDS = 1000,
    THREADS = 20,
    RENEWALS = 12,  /* of one sandbox, each of them around the deadline of the one before */
    LATE_MS = 2000, /* gone at the latest so long after its last time */
    DELETERS = 20,
    DELETE_ROUNDS = 50,
};

struct ends {
    struct world w;
    struct expiry *x;
    struct watch *watch;
};

static struct {
    struct ends *t;
    atomic_int rounds;
    atomic_int lost; /* renewals that came too late */
    atomic_int won;
    atomic_int early;
    atomic_int late;
    atomic_int wrong;
    atomic_int deleted;
    char id[RUNTIME_ID];
    pthread_barrier_t barrier;
} race;

static int setup(void **state)
{
    struct ends *t = calloc(1, sizeof(*t));
    struct err e;

    memset(&race, 0, sizeof(race));
    world_open(&t->w, &clock_system);
    t->x = expiry_new(&t->w.lc, &e);
    assert_non_null(t->x);
    t->w.lc.expiry = t->x;
    t->watch = watch_new(&t->w.lc, NULL, &e);
    assert_non_null(t->watch);
    assert_int_equal(watch_start(t->watch, &e), 0);
    assert_int_equal(expiry_start(t->x, &e), 0);
    race.t = t;
    *state = t;
    return 0;
}

static int teardown(void **state)
{
    struct ends *t = *state;

    watch_free(t->watch);
    expiry_free(t->x);
    world_close(&t->w);
    free(t);
    return 0;
}

/* Spins, so that the next call comes within microseconds of it. */
static void until_about(int64_t wall_ms)
{
    while (clock_wall_ms() < wall_ms)
        (void)sched_yield();
}

/* The last time that was granted; a renewal that loses is not found. */
static int64_t renew_around_the_deadline(const char *id, int64_t at, unsigned *seed)
{
    struct err e;
    int64_t next;
    int i;

    for (i = 0; i < RENEWALS; i++) {
        until_about(at - rand_r(seed) % 2);
        next = clock_wall_ms() + 2 + rand_r(seed) % 8;
        e = (struct err){ 0 };
        if (lifecycle_renew(&race.t->w.lc, id, next, &e) == 0) {
            atomic_fetch_add(&race.won, 1);
            at = next;
            continue;
        }
        if (e.code == ERRC_INVALID)
            continue; /* we were away for so long that `next` is past */
        if (e.code != ERRC_NOT_FOUND)
            atomic_fetch_add(&race.wrong, 1);
        atomic_fetch_add(&race.lost, 1);
        break;
    }
    return at;
}

/* When the decision to end it fell; 0: not on record. */
static int64_t stopping_ms(const char *id)
{
    AUTO_EVENTS struct event_list steps = { 0 };
    struct err e;
    size_t i;

    if (event_store_list(race.t->w.db, id, EVENT_LIFECYCLE, 100, &steps, &e) < 0)
        return 0;
    for (i = 0; i < steps.len; i++)
        if (sandbox_state_parse(steps.items[i].type) == SANDBOX_STOPPING)
            return steps.items[i].at_ms;
    return 0;
}

static void one_round(int n, unsigned *seed)
{
    char id[RUNTIME_ID];
    struct sandbox sb;
    int64_t at = clock_wall_ms() + 3;

    (void)snprintf(id, sizeof(id), "race-%d", n);
    world_add(&race.t->w, id, SANDBOX_RUNNING, at);
    at = renew_around_the_deadline(id, at, seed);
    if (!world_wait_ended(&race.t->w, id)) {
        atomic_fetch_add(&race.late, 1); /* immortal */
        return;
    }
    sb = world_find(&race.t->w, id);
    if (stopping_ms(id) < at || strcmp(sb.reason, "EXPIRED") != 0)
        atomic_fetch_add(&race.early, 1);
    if (sb.ended_ms > at + LATE_MS)
        atomic_fetch_add(&race.late, 1);
    sandbox_done(&sb);
}

static void *run_rounds(void *arg)
{
    unsigned seed = (unsigned)(uintptr_t)arg;
    int n;

    while ((n = atomic_fetch_add(&race.rounds, 1)) < ROUNDS)
        one_round(n, &seed);
    return NULL;
}

static void renewals_at_the_deadline_neither_kill_nor_immortalise(void **state)
{
    pthread_t t[THREADS];
    uintptr_t i;

    (void)state;
    for (i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&t[i], NULL, run_rounds, (void *)(i + 1)), 0);
    for (i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    assert_int_equal(atomic_load(&race.early), 0);
    assert_int_equal(atomic_load(&race.late), 0);
    assert_int_equal(atomic_load(&race.wrong), 0);
    assert_true(atomic_load(&race.won) > 0);
    print_message("%d renewals granted, %d lost\n", atomic_load(&race.won),
                  atomic_load(&race.lost));
}

static void *delete_it(void *arg)
{
    struct err e = { 0 };

    (void)arg;
    (void)pthread_barrier_wait(&race.barrier);
    if (lifecycle_delete(&race.t->w.lc, race.id, NULL, &e) == 0)
        atomic_fetch_add(&race.deleted, 1);
    else if (e.code != ERRC_NOT_FOUND || strcmp(e.api_code, "DOCKER::SANDBOX_NOT_FOUND") != 0)
        atomic_fetch_add(&race.wrong, 1);
    return NULL;
}

/* At the very time of its expiry, with the news of its own end arriving. */
static void of_many_deletes_at_most_one_succeeds(void **state)
{
    struct ends *ends = *state;
    pthread_t t[DELETERS];
    int round;
    int i;

    (void)pthread_barrier_init(&race.barrier, NULL, DELETERS + 1);
    for (round = 0; round < DELETE_ROUNDS; round++) {
        bool expires = round % 2;

        atomic_store(&race.deleted, 0);
        (void)snprintf(race.id, sizeof(race.id), "delete-%d", round);
        world_add(&ends->w, race.id, SANDBOX_RUNNING, expires ? clock_wall_ms() + 1 : 0);
        for (i = 0; i < DELETERS; i++)
            assert_int_equal(pthread_create(&t[i], NULL, delete_it, NULL), 0);
        (void)pthread_barrier_wait(&race.barrier);
        (void)fake_runtime_tell(ends->w.rt, RUNTIME_EVENT_ENDED, race.id, 137);
        (void)fake_runtime_tell(ends->w.rt, RUNTIME_EVENT_REMOVED, race.id, 0);
        for (i = 0; i < DELETERS; i++)
            pthread_join(t[i], NULL);
        assert_true(world_wait_ended(&ends->w, race.id));
        if (expires)
            assert_in_range(atomic_load(&race.deleted), 0, 1);
        else
            assert_int_equal(atomic_load(&race.deleted), 1);
    }
    (void)pthread_barrier_destroy(&race.barrier);
    assert_int_equal(atomic_load(&race.wrong), 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(renewals_at_the_deadline_neither_kill_nor_immortalise),
        T(of_many_deletes_at_most_one_succeeds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
