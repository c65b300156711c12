#include "tests/unit/test.h"

#include "common/base/keyed_lock.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

enum { THREADS = 8, ROUNDS = 400, KEYS = 3 };

static struct {
    struct keyed_locks *ks;
    long plain[KEYS]; /* guarded by the key's lock only: TSan sees a broken lock */
    atomic_int inside[KEYS];
    atomic_bool overlapped;
} shared;

static void *hammer(void *arg)
{
    static const char *const names[KEYS] = { "a", "b", "sandbox-3" };
    unsigned seed = (unsigned)(uintptr_t)arg;
    int i;

    for (i = 0; i < ROUNDS; i++) {
        unsigned k = (seed + (unsigned)i) % KEYS;
        AUTO_KEYED struct keyed_lock *held = keyed_lock_take(shared.ks, names[k]);

        if (atomic_fetch_add(&shared.inside[k], 1) != 0)
            atomic_store(&shared.overlapped, true);
        shared.plain[k]++;
        atomic_fetch_sub(&shared.inside[k], 1);
        (void)held;
    }
    return NULL;
}

static void same_key_excludes(void **state)
{
    pthread_t t[THREADS];
    uintptr_t i;

    (void)state;
    shared.ks = keyed_locks_new();
    assert_non_null(shared.ks);
    for (i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&t[i], NULL, hammer, (void *)i), 0);
    for (i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    assert_false(atomic_load(&shared.overlapped));
    assert_int_equal(shared.plain[0] + shared.plain[1] + shared.plain[2], THREADS * ROUNDS);
    keyed_locks_free(shared.ks);
}

static void *take_other(void *arg)
{
    keyed_lock_release(keyed_lock_take(arg, "other"));
    return NULL;
}

/* Would hang (and hit the run's time limit) when one key waited for another. */
static void keys_are_independent(void **state)
{
    struct keyed_locks *ks = keyed_locks_new();
    struct keyed_lock *held = keyed_lock_take(ks, "mine");
    pthread_t t;

    (void)state;
    assert_non_null(held);
    assert_int_equal(pthread_create(&t, NULL, take_other, ks), 0);
    pthread_join(t, NULL);
    keyed_lock_release(held);
    keyed_locks_free(ks);
}

struct waiter {
    struct keyed_locks *ks;
    sem_t started;
    atomic_int got;
};

static void *wait_for_key(void *arg)
{
    struct waiter *w = arg;
    struct keyed_lock *l;

    sem_post(&w->started);
    l = keyed_lock_take(w->ks, "k");
    atomic_store(&w->got, 1);
    keyed_lock_release(l);
    return NULL;
}

static void release_lets_the_waiter_in(void **state)
{
    struct waiter w = { .ks = keyed_locks_new() };
    struct keyed_lock *held = keyed_lock_take(w.ks, "k");
    pthread_t t;

    (void)state;
    sem_init(&w.started, 0, 0);
    assert_int_equal(pthread_create(&t, NULL, wait_for_key, &w), 0);
    sem_wait(&w.started);
    assert_int_equal(atomic_load(&w.got), 0);
    keyed_lock_release(held);
    pthread_join(t, NULL);
    assert_int_equal(atomic_load(&w.got), 1);
    sem_destroy(&w.started);
    keyed_locks_free(w.ks);
}

static void *try_it(void *arg)
{
    return keyed_lock_try(arg, "k");
}

static void try_does_not_wait(void **state)
{
    struct keyed_locks *ks = keyed_locks_new();
    struct keyed_lock *held = keyed_lock_try(ks, "k");
    void *other = ks;
    pthread_t t;

    (void)state;
    assert_non_null(held);
    assert_int_equal(pthread_create(&t, NULL, try_it, ks), 0);
    pthread_join(t, &other);
    assert_null(other);
    keyed_lock_release(held);
    held = keyed_lock_try(ks, "k");
    assert_non_null(held);
    keyed_lock_release(held);
    keyed_locks_free(ks);
}

static void null_is_nothing(void **state)
{
    (void)state;
    keyed_lock_release(NULL);
    keyed_locks_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_key_excludes),
        cmocka_unit_test(keys_are_independent),
        cmocka_unit_test(release_lets_the_waiter_in),
        cmocka_unit_test(try_does_not_wait),
        cmocka_unit_test(null_is_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
