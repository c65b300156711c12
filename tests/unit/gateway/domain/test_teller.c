/* Agents hear of every deadline that moves, of failures in between as well, and of nothing else. */
#include "tests/unit/test.h"

#include "common/base/err.h"
#include "gateway/domain/teller.h"
#include "gateway/store/sandbox_store.h"
#include "tests/fakes/fake_runtime.h"
#include "tests/fakes/world.h"

#include <poll.h>
#include <stdlib.h>

struct told {
    struct world w;
    struct teller *t;
    int64_t later; /* an expiry */
};

static int setup(void **state)
{
    struct told *t = calloc(1, sizeof(*t));
    struct err e = { 0 };

    world_open(&t->w, &clock_system);
    t->t = teller_new(&t->w.lc, &e);
    assert_non_null(t->t);
    t->w.lc.teller = t->t;
    t->later = clock_wall_ms() + 600000;
    *state = t;
    return 0;
}

static int teardown(void **state)
{
    struct told *t = *state;

    teller_free(t->t);
    world_close(&t->w);
    free(t);
    return 0;
}

static void until_told(struct told *t, int64_t deadline_ms)
{
    TEST_UNTIL(fake_runtime_last_deadline(t->w.rt) == deadline_ms, (void)poll(NULL, 0, 2));
}

static void renewals(void **state)
{
    struct told *t = *state;
    struct err e = { 0 };

    world_add(&t->w, "s1", SANDBOX_RUNNING, t->later - 1);
    assert_int_equal(lifecycle_renew(&t->w.lc, "s1", t->later, &e), 0);
    until_told(t, t->later);
    assert_int_equal(lifecycle_renew(&t->w.lc, "s1", t->later - 5000, &e), 0);
    until_told(t, t->later - 5000);
}

static void an_agent_that_does_not_answer_is_told_again(void **state)
{
    struct told *t = *state;
    struct err e = { 0 };

    world_add(&t->w, "s1", SANDBOX_RUNNING, t->later - 1);
    fake_runtime_fail(t->w.rt, "tell_deadline", 2, ERRC_BUSY, NULL);
    assert_int_equal(lifecycle_renew(&t->w.lc, "s1", t->later, &e), 0);
    until_told(t, t->later);
    assert_int_equal(fake_runtime_calls(t->w.rt, "tell_deadline"), 3);
}

/* A paused one cannot hear; what it missed is told when it goes on. */
static void paused_ones_hear_when_they_are_resumed(void **state)
{
    struct told *t = *state;
    struct err e = { 0 };

    world_add(&t->w, "s1", SANDBOX_RUNNING, t->later - 1);
    assert_int_equal(lifecycle_pause(&t->w.lc, "s1", &e), 0);
    assert_int_equal(lifecycle_renew(&t->w.lc, "s1", t->later, &e), 0);
    assert_int_equal(lifecycle_resume(&t->w.lc, "s1", &e), 0);
    until_told(t, t->later);
}

static void all_hear_at_the_start_of_the_server(void **state)
{
    struct told *t = *state;
    struct err e = { 0 };

    world_add(&t->w, "s1", SANDBOX_RUNNING, t->later);
    assert_int_equal(lifecycle_load_places(&t->w.lc, &e), 0);
    until_told(t, t->later);
}

/* Without an end, ended, or with an agent of an earlier version: nothing is tried for ever. */
static void those_that_need_not_hear(void **state)
{
    struct told *t = *state;

    world_add(&t->w, "never", SANDBOX_RUNNING, 0);
    teller_want(t->t, "never");
    teller_want(t->t, "unknown");
    fake_runtime_fail(t->w.rt, "tell_deadline", 1, ERRC_UNSUPPORTED, NULL);
    world_add(&t->w, "old", SANDBOX_RUNNING, t->later);
    teller_want(t->t, "old");
    TEST_UNTIL(fake_runtime_calls(t->w.rt, "tell_deadline") == 1, (void)poll(NULL, 0, 2));
    world_add(&t->w, "last", SANDBOX_RUNNING, t->later + 1);
    teller_want(t->t, "last");
    until_told(t, t->later + 1);
    assert_int_equal(fake_runtime_calls(t->w.rt, "tell_deadline"), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(renewals, setup, teardown),
        cmocka_unit_test_setup_teardown(an_agent_that_does_not_answer_is_told_again, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(paused_ones_hear_when_they_are_resumed, setup, teardown),
        cmocka_unit_test_setup_teardown(all_hear_at_the_start_of_the_server, setup, teardown),
        cmocka_unit_test_setup_teardown(those_that_need_not_hear, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
