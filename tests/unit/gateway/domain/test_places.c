/* The table of live sandboxes: what is put is found, what ends is dropped and told, from any thread. */
#include "tests/unit/test.h"

#include "gateway/domain/places.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4, ROUNDS = 500 };

static struct sandbox record(const char *id, enum sandbox_state state)
{
    struct sandbox sb = { .state = state };

    (void)snprintf(sb.id, sizeof(sb.id), "%s", id);
    (void)snprintf(sb.token, sizeof(sb.token), "token-%s", id);
    (void)snprintf(sb.place.address, sizeof(sb.place.address), "10.0.0.9");
    return sb;
}

struct told {
    int times;
    char id[64];
    char address[64];
};

static void on_drop(void *arg, const char *id, const struct place *was)
{
    struct told *t = arg;

    t->times++;
    (void)snprintf(t->id, sizeof(t->id), "%s", id);
    (void)snprintf(t->address, sizeof(t->address), "%s", was->at.address);
}

static void finds_what_lives_and_tells_what_went(void **state)
{
    struct places *p = places_new();
    struct sandbox sb = record("a", SANDBOX_PENDING);
    struct told told = { 0 };
    struct place got;

    (void)state;
    places_on_drop(p, on_drop, &told);
    assert_false(places_get(p, "a", &got));
    assert_int_equal(places_put(p, &sb, NULL), 0);
    assert_true(places_get(p, "a", &got));
    assert_int_equal(got.state, SANDBOX_PENDING);
    sb.state = SANDBOX_PAUSED;
    assert_int_equal(places_put(p, &sb, NULL), 0);
    assert_true(places_get(p, "a", &got));
    assert_int_equal(got.state, SANDBOX_PAUSED);
    assert_string_equal(got.token, "token-a");
    assert_int_equal(told.times, 0);
    sb.state = SANDBOX_STOPPING;
    assert_int_equal(places_put(p, &sb, NULL), 0);
    assert_false(places_get(p, "a", &got));
    assert_int_equal(told.times, 1);
    assert_string_equal(told.id, "a");
    assert_string_equal(told.address, "10.0.0.9");
    places_drop(p, "a"); /* gone already: nothing to tell */
    assert_int_equal(told.times, 1);
    places_free(p);
}

static void *put_and_drop(void *arg)
{
    struct places *p = arg;
    struct place got;
    char id[32];
    int i;

    for (i = 0; i < ROUNDS; i++) {
        struct sandbox sb;

        (void)snprintf(id, sizeof(id), "%d", i % 7);
        sb = record(id, SANDBOX_RUNNING);
        (void)places_put(p, &sb, NULL);
        (void)places_get(p, id, &got);
        places_drop(p, id);
    }
    return NULL;
}

static void threads_share_it(void **state)
{
    struct places *p = places_new();
    pthread_t th[THREADS];
    struct place got;
    int i;

    (void)state;
    for (i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&th[i], NULL, put_and_drop, p), 0);
    for (i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(th[i], NULL), 0);
    assert_false(places_get(p, "0", &got));
    places_free(p);
}

static void on_drop_count(void *arg, const char *id, const struct place *was)
{
    (void)id, (void)was;
    atomic_fetch_add((atomic_int *)arg, 1); /* whoever is told is told with what he gave */
}

static void a_listener_may_come_and_go(void **state)
{
    struct places *p = places_new();
    atomic_int told = 0;
    pthread_t th;
    int i;

    (void)state;
    assert_int_equal(pthread_create(&th, NULL, put_and_drop, p), 0);
    for (i = 0; i < ROUNDS; i++) {
        places_on_drop(p, on_drop_count, &told);
        places_on_drop(p, NULL, NULL);
    }
    assert_int_equal(pthread_join(th, NULL), 0);
    assert_in_range(told, 0, ROUNDS);
    places_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_what_lives_and_tells_what_went),
        cmocka_unit_test(threads_share_it),
        cmocka_unit_test(a_listener_may_come_and_go),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
