/* The runtime's news and what they do to the records. */
#include "tests/unit/test.h"

#include "common/base/err.h"
#include "common/base/keyed_lock.h"
#include "gateway/domain/reconcile.h"
#include "gateway/domain/watch.h"
#include "gateway/store/sandbox_store.h"
#include "tests/fakes/fake_runtime.h"
#include "tests/fakes/world.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

struct seen {
    struct world w;
    struct reconcile *r;
    struct watch *watch;
};

static int setup(void **state)
{
    static const struct reconcile_config cfg = { 3600000, 3600000, 3600000 };
    struct seen *t = calloc(1, sizeof(*t));
    struct err e;

    world_open(&t->w, &clock_system);
    t->r = reconcile_new(&t->w.lc, &cfg, &e);
    assert_non_null(t->r);
    t->watch = watch_new(&t->w.lc, t->r, &e);
    assert_non_null(t->watch);
    world_add(&t->w, "a", SANDBOX_RUNNING, 0);
    *state = t;
    return 0;
}

static int teardown(void **state)
{
    struct seen *t = *state;

    fake_runtime_release(t->w.rt);
    watch_free(t->watch);
    reconcile_free(t->r);
    world_close(&t->w);
    free(t);
    return 0;
}

static void start(struct seen *t)
{
    struct err e = { 0 };

    assert_int_equal(watch_start(t->watch, &e), 0);
}

static void tell(struct seen *t, enum runtime_event_kind kind, const char *id, int exit_code)
{
    assert_true(fake_runtime_tell(t->w.rt, kind, id, exit_code));
}

static void wait_event(struct seen *t, const char *id, const char *type, int n)
{
    TEST_UNTIL(world_events(&t->w, id, type) == n, poll(NULL, 0, 1));
}

static void a_death_is_recorded_and_settled(void **state)
{
    struct seen *t = *state;
    AUTO_SANDBOX struct sandbox sb = { 0 };

    start(t);
    fake_runtime_end(t->w.rt, "a", 7, false, 12345);
    tell(t, RUNTIME_EVENT_ENDED, "a", 7);
    assert_true(world_wait_state(&t->w, "a", SANDBOX_FAILED));
    sb = world_find(&t->w, "a");
    assert_int_equal(sb.exit_code, 7);
    assert_int_equal(sb.transition_ms, 12345);
    assert_int_equal(world_events(&t->w, "a", "die"), 1);
}

static void a_loss_is_recorded_and_settled(void **state)
{
    struct seen *t = *state;

    start(t);
    fake_runtime_drop(t->w.rt, "a");
    tell(t, RUNTIME_EVENT_REMOVED, "a", 0);
    assert_true(world_wait_ended(&t->w, "a"));
    assert_int_equal(world_events(&t->w, "a", "destroy"), 1);
}

static void pauses_from_outside_are_followed(void **state)
{
    struct seen *t = *state;

    start(t);
    fake_runtime_put(t->w.rt, "a", RUNTIME_PAUSED, 0);
    tell(t, RUNTIME_EVENT_PAUSED, "a", 0);
    assert_true(world_wait_state(&t->w, "a", SANDBOX_PAUSED));
    fake_runtime_put(t->w.rt, "a", RUNTIME_RUNNING, 0);
    tell(t, RUNTIME_EVENT_RESUMED, "a", 0);
    assert_true(world_wait_state(&t->w, "a", SANDBOX_RUNNING));
}

/* OOM of a process that is not the sandbox: an event, and the reason of an end by KILL later. */
static void out_of_memory_is_an_event_first(void **state)
{
    struct seen *t = *state;
    AUTO_SANDBOX struct sandbox sb = { 0 };

    start(t);
    tell(t, RUNTIME_EVENT_OOM, "a", 0);
    wait_event(t, "a", "oom", 1);
    assert_int_equal(world_state(&t->w, "a"), SANDBOX_RUNNING);
    assert_int_equal(fake_runtime_calls(t->w.rt, "status"), 1); /* world_add's */
    fake_runtime_end(t->w.rt, "a", 137, false, 12345);
    tell(t, RUNTIME_EVENT_ENDED, "a", 137);
    assert_true(world_wait_state(&t->w, "a", SANDBOX_FAILED));
    sb = world_find(&t->w, "a");
    assert_string_equal(sb.reason, "OOMKilled");
}

static void out_of_memory_may_be_told_after_the_end(void **state)
{
    struct seen *t = *state;
    AUTO_SANDBOX struct sandbox sb = { 0 };

    start(t);
    fake_runtime_end(t->w.rt, "a", 137, false, 12345);
    tell(t, RUNTIME_EVENT_ENDED, "a", 137);
    assert_true(world_wait_state(&t->w, "a", SANDBOX_FAILED));
    tell(t, RUNTIME_EVENT_OOM, "a", 0);
    wait_event(t, "a", "oom", 1);
    watch_free(t->watch); /* everything was looked at */
    t->watch = NULL;
    sb = world_find(&t->w, "a");
    assert_string_equal(sb.reason, "OOMKilled");
}

/* What we do ourselves comes back as news: the engine is not asked about it. */
static void our_own_doing_asks_nothing(void **state)
{
    struct seen *t = *state;
    struct err e = { 0 };
    int before;

    start(t);
    world_add(&t->w, "b", SANDBOX_RUNNING, 0);
    assert_int_equal(lifecycle_pause(&t->w.lc, "a", &e), 0);
    assert_int_equal(lifecycle_delete(&t->w.lc, "b", NULL, &e), 0);
    before = fake_runtime_calls(t->w.rt, "status");
    tell(t, RUNTIME_EVENT_STARTED, "a", 0);
    tell(t, RUNTIME_EVENT_PAUSED, "a", 0);
    tell(t, RUNTIME_EVENT_ENDED, "b", 137);
    tell(t, RUNTIME_EVENT_REMOVED, "b", 0);
    tell(t, RUNTIME_EVENT_ENDED, "nobody", 1);
    wait_event(t, "a", "pause", 1);
    wait_event(t, "b", "destroy", 1);
    watch_free(t->watch); /* everything was looked at */
    t->watch = NULL;
    assert_int_equal(fake_runtime_calls(t->w.rt, "status"), before);
    assert_int_equal(world_state(&t->w, "a"), SANDBOX_PAUSED);
}

static void a_busy_sandbox_is_settled_afterwards(void **state)
{
    struct seen *t = *state;
    struct keyed_lock *held = keyed_lock_take(t->w.locks, "a");

    start(t);
    fake_runtime_end(t->w.rt, "a", 1, false, 12345);
    tell(t, RUNTIME_EVENT_ENDED, "a", 1);
    wait_event(t, "a", "die", 1);
    assert_int_equal(world_state(&t->w, "a"), SANDBOX_RUNNING);
    keyed_lock_release(held);
    assert_true(world_wait_state(&t->w, "a", SANDBOX_FAILED));
}

/* It died before its create could confirm it. */
static void a_death_while_pending_waits_for_the_create(void **state)
{
    struct seen *t = *state;
    AUTO_SANDBOX struct sandbox sb = { 0 };
    struct err e = { 0 };

    start(t);
    world_add(&t->w, "new", SANDBOX_PENDING, 0);
    fake_runtime_end(t->w.rt, "new", 3, false, 12345);
    tell(t, RUNTIME_EVENT_ENDED, "new", 3);
    wait_event(t, "new", "die", 1);
    assert_int_equal(world_state(&t->w, "new"), SANDBOX_PENDING);
    sb = world_find(&t->w, "new");
    sandbox_set_state(&sb, SANDBOX_RUNNING, "CONTAINER_RUNNING", "up", 1);
    assert_int_equal(sandbox_store_started(t->w.db, &sb, &e), 0);
    assert_true(world_wait_state(&t->w, "new", SANDBOX_FAILED));
}

static void one_that_hangs_does_not_make_deaf(void **state)
{
    struct seen *t = *state;

    start(t);
    world_add(&t->w, "b", SANDBOX_RUNNING, 0);
    fake_runtime_hold(t->w.rt, "status", "a");
    tell(t, RUNTIME_EVENT_ENDED, "a", 1);
    assert_true(fake_runtime_wait_calls(t->w.rt, "status", 3));
    fake_runtime_end(t->w.rt, "b", 1, false, 12345);
    tell(t, RUNTIME_EVENT_ENDED, "b", 1);
    assert_true(world_wait_state(&t->w, "b", SANDBOX_FAILED));
}

/* More than the queue holds, while the one that they are about hangs: a sweep, and no loss. */
static void too_much_news_is_a_sweep(void **state)
{
    struct seen *t = *state;
    struct err e = { 0 };
    int lists;
    int i;

    start(t);
    assert_int_equal(reconcile_start(t->r, &e), 0);
    assert_true(fake_runtime_wait_calls(t->w.rt, "list", 1));
    lists = fake_runtime_calls(t->w.rt, "list");
    fake_runtime_hold(t->w.rt, "status", "a");
    tell(t, RUNTIME_EVENT_ENDED, "a", 1);
    assert_true(fake_runtime_wait_calls(t->w.rt, "status", 2));
    for (i = 0; i < 9000; i++)
        tell(t, RUNTIME_EVENT_PAUSED, "a", 0);
    assert_true(fake_runtime_wait_calls(t->w.rt, "list", lists + 1));
    fake_runtime_end(t->w.rt, "a", 1, false, 12345);
    fake_runtime_release(t->w.rt);
    assert_true(world_wait_state(&t->w, "a", SANDBOX_FAILED));
}

static void a_new_stream_is_a_sweep(void **state)
{
    struct seen *t = *state;
    struct err e = { 0 };

    start(t);
    assert_int_equal(reconcile_start(t->r, &e), 0);
    assert_true(fake_runtime_wait_calls(t->w.rt, "list", 1));
    fake_runtime_end(t->w.rt, "a", 0, false, 12345); /* missed */
    tell(t, RUNTIME_EVENT_LOST, "", 0);
    tell(t, RUNTIME_EVENT_SYNC, "", 0);
    assert_true(world_wait_state(&t->w, "a", SANDBOX_TERMINATED));
}

static void a_runtime_without_news_is_fine(void **state)
{
    struct seen *t = *state;
    struct err e = { 0 };

    fake_runtime_cannot(t->w.rt, "watch");
    start(t);
    fake_runtime_end(t->w.rt, "a", 0, false, 12345);
    assert_int_equal(reconcile_once(t->r, &e), 0);
    assert_int_equal(world_state(&t->w, "a"), SANDBOX_TERMINATED);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_death_is_recorded_and_settled),
        T(a_loss_is_recorded_and_settled),
        T(pauses_from_outside_are_followed),
        T(out_of_memory_is_an_event_first),
        T(out_of_memory_may_be_told_after_the_end),
        T(our_own_doing_asks_nothing),
        T(a_busy_sandbox_is_settled_afterwards),
        T(a_death_while_pending_waits_for_the_create),
        T(one_that_hangs_does_not_make_deaf),
        T(too_much_news_is_a_sweep),
        T(a_new_stream_is_a_sweep),
        T(a_runtime_without_news_is_fine),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
