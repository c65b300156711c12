/* Expiry with its thread and crew, over a fake runtime and the real clock. */
#include "tests/unit/test.h"

#include "common/base/err.h"
#include "common/base/keyed_lock.h"
#include "gateway/domain/expiry.h"
#include "gateway/domain/reconcile.h"
#include "gateway/store/sandbox_store.h"
#include "tests/fakes/fake_runtime.h"
#include "tests/fakes/world.h"

#include <stdlib.h>
#include <string.h>

struct ends {
    struct world w;
    struct expiry *x;
    struct reconcile *r;
};

static int setup(void **state)
{
    static const struct reconcile_config cfg = { 3600000, 3600000, 3600000 };
    struct ends *t = calloc(1, sizeof(*t));
    struct err e;

    world_open(&t->w, &clock_system);
    t->x = expiry_new(&t->w.lc, &e);
    assert_non_null(t->x);
    t->w.lc.expiry = t->x;
    t->r = reconcile_new(&t->w.lc, &cfg, &e);
    assert_non_null(t->r);
    *state = t;
    return 0;
}

static int teardown(void **state)
{
    struct ends *t = *state;

    fake_runtime_release(t->w.rt);
    reconcile_free(t->r);
    expiry_free(t->x);
    world_close(&t->w);
    free(t);
    return 0;
}

static int64_t in_ms(int64_t ms)
{
    return clock_wall_ms() + ms;
}

static void start(struct ends *t)
{
    struct err e = { 0 };

    assert_int_equal(expiry_start(t->x, &e), 0);
}

static void what_is_due_goes_and_the_rest_stays(void **state)
{
    struct ends *t = *state;
    AUTO_SANDBOX struct sandbox sb = { 0 };
    int64_t at = in_ms(50);

    start(t);
    world_add(&t->w, "due", SANDBOX_RUNNING, at);
    world_add(&t->w, "paused", SANDBOX_PAUSED, at);
    world_add(&t->w, "pending", SANDBOX_PENDING, at);
    world_add(&t->w, "failed", SANDBOX_FAILED, at);
    world_add(&t->w, "later", SANDBOX_RUNNING, in_ms(3600000));
    world_add(&t->w, "never", SANDBOX_RUNNING, 0);
    assert_true(world_wait_ended(&t->w, "due"));
    assert_true(world_wait_ended(&t->w, "paused"));
    assert_true(world_wait_ended(&t->w, "failed"));
    sb = world_find(&t->w, "due");
    assert_true(sb.ended_ms >= at);
    assert_string_equal(sb.reason, "EXPIRED");
    assert_int_equal(sb.state, SANDBOX_TERMINATED);
    assert_int_equal(world_state(&t->w, "failed"), SANDBOX_FAILED);
    assert_false(world_has_ended(&t->w, "pending")); /* its time begins when it is usable */
    assert_false(world_has_ended(&t->w, "later"));
    assert_false(world_has_ended(&t->w, "never"));
    assert_int_equal(fake_runtime_state(t->w.rt, "later"), RUNTIME_RUNNING);
}

static void a_removal_that_hangs_delays_its_own_sandbox_only(void **state)
{
    struct ends *t = *state;
    char id[RUNTIME_ID];
    int i;

    fake_runtime_hold(t->w.rt, "remove", "hangs");
    start(t);
    world_add(&t->w, "hangs", SANDBOX_RUNNING, in_ms(10));
    assert_true(fake_runtime_wait_calls(t->w.rt, "remove", 1));
    for (i = 0; i < 10; i++) {
        (void)snprintf(id, sizeof(id), "s%d", i);
        world_add(&t->w, id, SANDBOX_RUNNING, in_ms(10));
        expiry_remove(t->x, "hangs"); /* it is not handed out twice */
    }
    for (i = 0; i < 10; i++) {
        (void)snprintf(id, sizeof(id), "s%d", i);
        assert_true(world_wait_ended(&t->w, id));
    }
    assert_int_equal(fake_runtime_calls(t->w.rt, "remove"), 11);
    assert_int_equal(world_state(&t->w, "hangs"), SANDBOX_STOPPING);
    fake_runtime_release(t->w.rt);
    assert_true(world_wait_ended(&t->w, "hangs"));
}

static void what_fails_is_tried_again(void **state)
{
    struct ends *t = *state;

    fake_runtime_fail(t->w.rt, "remove", 2, ERRC_BUSY, NULL);
    start(t);
    world_add(&t->w, "a", SANDBOX_RUNNING, in_ms(0));
    assert_true(fake_runtime_wait_calls(t->w.rt, "remove", 1));
    TEST_UNTIL(fake_runtime_calls(t->w.rt, "remove") >= 2,
               expiry_hurry(t->x));            /* the engine is back */
    assert_true(world_wait_ended(&t->w, "a")); /* by its own retry */
}

static void a_busy_sandbox_is_waited_for(void **state)
{
    struct ends *t = *state;
    struct keyed_lock *held = keyed_lock_take(t->w.locks, "a");

    start(t);
    world_add(&t->w, "a", SANDBOX_RUNNING, in_ms(0));
    world_add(&t->w, "b", SANDBOX_RUNNING, in_ms(20));
    assert_true(world_wait_ended(&t->w, "b"));
    assert_false(world_has_ended(&t->w, "a"));
    keyed_lock_release(held);
    assert_true(world_wait_ended(&t->w, "a"));
}

static void renewals_move_the_end_both_ways(void **state)
{
    struct ends *t = *state;
    AUTO_SANDBOX struct sandbox sb = { 0 };
    int64_t at = in_ms(300);
    struct err e = { 0 };

    start(t);
    world_add(&t->w, "longer", SANDBOX_RUNNING, in_ms(100));
    world_add(&t->w, "shorter", SANDBOX_RUNNING, in_ms(3600000));
    assert_int_equal(lifecycle_renew(&t->w.lc, "longer", at, &e), 0);
    assert_int_equal(lifecycle_renew(&t->w.lc, "shorter", in_ms(50), &e), 0);
    assert_true(world_wait_ended(&t->w, "shorter"));
    assert_true(world_wait_ended(&t->w, "longer"));
    sb = world_find(&t->w, "longer");
    assert_true(sb.ended_ms >= at);
}

/* A hint that is too early costs a look; the time in the store counts. */
static void an_old_hint_does_no_harm(void **state)
{
    struct ends *t = *state;
    AUTO_SANDBOX struct sandbox sb = { 0 };
    int64_t at = in_ms(200);

    start(t);
    world_add(&t->w, "a", SANDBOX_RUNNING, at);
    expiry_hint(t->x, "a", 1);
    assert_true(world_wait_ended(&t->w, "a"));
    sb = world_find(&t->w, "a");
    assert_true(sb.ended_ms >= at);
}

static void what_the_store_knows_is_loaded_at_start(void **state)
{
    struct ends *t = *state;
    struct err e = { 0 };

    t->w.lc.expiry = NULL; /* as an earlier process left them */
    world_add(&t->w, "over", SANDBOX_RUNNING, in_ms(-5000));
    world_add(&t->w, "soon", SANDBOX_RUNNING, in_ms(50));
    t->w.lc.expiry = t->x;
    assert_int_equal(lifecycle_load_places(&t->w.lc, &e), 0);
    start(t);
    assert_true(world_wait_ended(&t->w, "over"));
    assert_true(world_wait_ended(&t->w, "soon"));
}

/* The thread does not run: the sweep removes what is overdue, and finishes what was begun. */
static void the_sweep_stands_in_for_the_thread(void **state)
{
    struct ends *t = *state;
    struct err e = { 0 };

    world_add(&t->w, "overdue", SANDBOX_RUNNING, in_ms(-5000));
    world_add(&t->w, "just-due", SANDBOX_RUNNING, in_ms(-1));
    world_add(&t->w, "begun", SANDBOX_STOPPING, 0);
    assert_int_equal(reconcile_once(t->r, &e), 0);
    assert_true(world_wait_ended(&t->w, "overdue"));
    assert_true(world_wait_ended(&t->w, "begun"));
    assert_false(world_has_ended(&t->w, "just-due"));
}

static void the_sweep_needs_no_engine_for_it(void **state)
{
    struct ends *t = *state;
    struct err e = { 0 };

    fake_runtime_fail(t->w.rt, "prepare", -1, ERRC_BUSY, NULL);
    world_add(&t->w, "overdue", SANDBOX_RUNNING, in_ms(-5000));
    assert_int_equal(reconcile_once(t->r, &e), -1);
    assert_true(world_wait_ended(&t->w, "overdue"));
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(what_is_due_goes_and_the_rest_stays),
        T(a_removal_that_hangs_delays_its_own_sandbox_only),
        T(what_fails_is_tried_again),
        T(a_busy_sandbox_is_waited_for),
        T(renewals_move_the_end_both_ways),
        T(an_old_hint_does_no_harm),
        T(what_the_store_knows_is_loaded_at_start),
        T(the_sweep_stands_in_for_the_thread),
        T(the_sweep_needs_no_engine_for_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
