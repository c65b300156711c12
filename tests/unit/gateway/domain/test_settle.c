/* Records of ends and what happens behind our back, with a clock of the test's own. */
#include "tests/unit/test.h"

#include "common/base/err.h"
#include "common/base/keyed_lock.h"
#include "gateway/domain/places.h"
#include "gateway/store/event_store.h"
#include "gateway/store/sandbox_store.h"
#include "tests/fakes/fake_runtime.h"
#include "tests/fakes/world.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static int64_t now_ms;

static int64_t fake_now(void)
{
    return now_ms;
}

static const struct clock test_clock = { fake_now, fake_now };

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));

    now_ms = 1700000000000;
    world_open(w, &test_clock);
    world_add(w, "a", SANDBOX_RUNNING, 0);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;

    world_close(w);
    free(w);
    return 0;
}

static void expect(struct world *w, const char *id, enum sandbox_state s, const char *reason,
                   int exit_code)
{
    AUTO_SANDBOX struct sandbox sb = world_find(w, id);

    assert_int_equal(sb.state, s);
    assert_string_equal(sb.reason, reason);
    assert_int_equal(sb.exit_code, exit_code);
}

static void settle(struct world *w, const char *id)
{
    struct err e = { 0 };

    assert_int_equal(lifecycle_settle(&w->lc, id, &e), 0);
}

/* What a client reads after the end. */
static void expect_404(struct world *w, const char *id, const char *part)
{
    AUTO_SANDBOX struct sandbox sb = { 0 };
    struct err e = { 0 };

    assert_int_equal(lifecycle_get(&w->lc, id, &sb, &e), -1);
    assert_int_equal(e.code, ERRC_NOT_FOUND);
    assert_contains(e.msg, part);
}

/* ---- ends of their own ---- */

static void exits_are_told_by_their_code(void **state)
{
    struct world *w = *state;
    AUTO_SANDBOX struct sandbox sb = { 0 };

    world_add(w, "b", SANDBOX_RUNNING, 0);
    fake_runtime_end(w->rt, "a", 0, false, now_ms - 5);
    fake_runtime_end(w->rt, "b", 7, false, now_ms - 5);
    settle(w, "a");
    settle(w, "b");
    expect(w, "a", SANDBOX_TERMINATED, "CONTAINER_EXITED", 0);
    expect(w, "b", SANDBOX_FAILED, "CONTAINER_EXITED_ERROR", 7);
    sb = world_find(w, "b");
    assert_string_equal(sb.message, "Sandbox container exited with code 7.");
    assert_int_equal(sb.transition_ms, now_ms - 5); /* when it happened, not when it was seen */
    assert_int_equal(sb.ended_ms, 0);               /* it is listed until deleted or expired */
}

static void add_oom(struct world *w, const char *id)
{
    const struct event ev = { .at_ms = now_ms, .source = EVENT_RUNTIME, .type = "oom" };
    struct err e = { 0 };

    assert_int_equal(event_store_add(w->db, id, &ev, &e), 0);
}

static void out_of_memory_is_told_by_flag_or_event(void **state)
{
    struct world *w = *state;
    struct err e = { 0 };

    world_add(w, "b", SANDBOX_RUNNING, 0);
    world_add(w, "c", SANDBOX_RUNNING, 0);
    world_add(w, "d", SANDBOX_RUNNING, 0);
    add_oom(w, "b");
    add_oom(w, "c");
    fake_runtime_end(w->rt, "a", 137, true, now_ms);
    fake_runtime_end(w->rt, "b", 137, false, now_ms);
    fake_runtime_end(w->rt, "c", 3, true, now_ms); /* a process of it, at some time */
    fake_runtime_end(w->rt, "d", 137, false, now_ms);
    settle(w, "a");
    settle(w, "b");
    settle(w, "c");
    settle(w, "d");
    expect(w, "a", SANDBOX_FAILED, "OOMKilled", 137);
    expect(w, "b", SANDBOX_FAILED, "OOMKilled", 137);
    expect(w, "c", SANDBOX_FAILED, "CONTAINER_EXITED_ERROR", 3);
    expect(w, "d", SANDBOX_FAILED, "CONTAINER_EXITED_ERROR", 137);
    assert_int_equal(lifecycle_delete(&w->lc, "a", "request r1 from 192.0.2.9", &e), 0);
    expect_404(w, "a", "(DELETED: Deleted by request r1 from 192.0.2.9. It had ended at ");
    expect_404(w, "a",
               "(OOMKilled: Sandbox container exited with code 137. It ran out of memory.)");
    expect(w, "a", SANDBOX_FAILED, "DELETED", 137); /* a failed one stays failed */
}

static void an_end_that_nobody_saw_is_found_at_the_delete(void **state)
{
    struct world *w = *state;
    struct err e = { 0 };

    fake_runtime_end(w->rt, "a", 9, false, now_ms - 1);
    assert_int_equal(lifecycle_delete(&w->lc, "a", NULL, &e), 0);
    expect(w, "a", SANDBOX_FAILED, "DELETED", 9);
    expect_404(w, "a", "Deleted by request. It had ended at ");
    assert_int_equal(fake_runtime_calls(w->rt, "stop"), 0);
}

static void a_lost_container_ends_the_sandbox(void **state)
{
    struct world *w = *state;
    struct err e = { 0 };

    world_add(w, "b", SANDBOX_RUNNING, 0);
    fake_runtime_end(w->rt, "b", 7, false, now_ms);
    settle(w, "b");
    fake_runtime_drop(w->rt, "a");
    fake_runtime_drop(w->rt, "b");
    settle(w, "a");
    settle(w, "b");
    expect_404(w, "a", "CONTAINER_REMOVED");
    expect(w, "b", SANDBOX_FAILED, "CONTAINER_REMOVED", 7);
    expect_404(w, "b", "exited with code 7.");
    assert_int_equal(lifecycle_delete(&w->lc, "a", NULL, &e), -1);
    assert_int_equal(e.code, ERRC_NOT_FOUND);
}

static void deleting_what_is_gone_cleans_the_record(void **state)
{
    struct world *w = *state;
    struct err e = { 0 };

    fake_runtime_drop(w->rt, "a");
    assert_int_equal(lifecycle_delete(&w->lc, "a", NULL, &e), 0);
    expect_404(w, "a", "DELETED");
}

/* ---- removal ---- */

static void the_last_output_is_kept(void **state)
{
    struct world *w = *state;
    char *logs = NULL;
    struct err e = { 0 };

    fake_runtime_set_logs(w->rt, "one\ntwo\n");
    assert_int_equal(lifecycle_delete(&w->lc, "a", NULL, &e), 0);
    assert_int_equal(sandbox_store_logs(w->db, "a", &logs, &e), 0);
    assert_string_equal(logs, "one\ntwo\n");
    free(logs);
}

static void output_that_cannot_be_read_is_no_obstacle(void **state)
{
    struct world *w = *state;
    char *logs = NULL;
    struct err e = { 0 };

    fake_runtime_set_logs(w->rt, "one\n");
    w->lc.stop_grace_ms = 1000;
    fake_runtime_fail(w->rt, "logs", 1, ERRC_TIMEOUT, NULL);
    fake_runtime_fail(w->rt, "stop", 1, ERRC_TIMEOUT, NULL);
    assert_int_equal(lifecycle_delete(&w->lc, "a", NULL, &e), 0);
    assert_int_equal(fake_runtime_calls(w->rt, "logs"), 0); /* the stop failed: it is not asked */
    assert_int_equal(sandbox_store_logs(w->db, "a", &logs, &e), 0);
    assert_string_equal(logs, "");
    free(logs);
    world_add(w, "b", SANDBOX_RUNNING, 0);
    assert_int_equal(lifecycle_delete(&w->lc, "b", NULL, &e), 0);
    assert_int_equal(fake_runtime_calls(w->rt, "logs"), 1);
    expect_404(w, "b", "DELETED");
}

static void the_grace_is_for_deletes_and_expiries(void **state)
{
    struct world *w = *state;
    struct err e = { 0 };

    w->lc.stop_grace_ms = 2500;
    assert_int_equal(lifecycle_delete(&w->lc, "a", NULL, &e), 0);
    assert_int_equal(fake_runtime_last_grace(w->rt), 2500);
    expect(w, "a", SANDBOX_TERMINATED, "DELETED", SANDBOX_NO_EXIT_CODE); /* 143 is our own doing */
    w->lc.stop_grace_ms = 1000;
    world_add(w, "b", SANDBOX_PAUSED, now_ms - 1);
    assert_int_equal(lifecycle_expire(&w->lc, "b", &e), 0);
    assert_int_equal(fake_runtime_last_grace(w->rt), 1000);
    expect_404(w, "b", "EXPIRED");
    w->lc.stop_grace_ms = 0; /* no TERM at all */
    world_add(w, "c", SANDBOX_RUNNING, 0);
    assert_int_equal(lifecycle_delete(&w->lc, "c", NULL, &e), 0);
    assert_int_equal(fake_runtime_calls(w->rt, "stop"), 2);
}

/* The engine fails after the stop: the next try does not take our own stop for the sandbox's end. */
static void a_removal_that_is_finished_later_says_the_same(void **state)
{
    struct world *w = *state;
    struct err e = { 0 };

    w->lc.stop_grace_ms = 1000;
    fake_runtime_fail(w->rt, "remove", 1, ERRC_BUSY, "DOCKER::INITIALIZATION_ERROR");
    assert_int_equal(lifecycle_delete(&w->lc, "a", NULL, &e), -1);
    assert_int_equal(e.code, ERRC_INTERNAL);
    assert_string_equal(e.api_code, "DOCKER::SANDBOX_DELETE_FAILED");
    assert_int_equal(world_state(w, "a"), SANDBOX_STOPPING);
    settle(w, "a");
    expect(w, "a", SANDBOX_TERMINATED, "DELETED", SANDBOX_NO_EXIT_CODE);
    assert_int_equal(fake_runtime_calls(w->rt, "stop"), 1);
}

static void *delete_it(void *arg)
{
    struct world *w = arg;
    struct err e = { 0 };

    return (void *)(intptr_t)(lifecycle_delete(&w->lc, "a", NULL, &e) == 0 ? 204 : (int)e.code);
}

static void a_second_delete_does_not_wait_for_the_grace(void **state)
{
    struct world *w = *state;
    struct err e = { 0 };
    pthread_t t;
    void *rc;

    w->lc.stop_grace_ms = 1000;
    fake_runtime_hold(w->rt, "stop", "a");
    assert_int_equal(pthread_create(&t, NULL, delete_it, w), 0);
    assert_true(fake_runtime_wait_calls(w->rt, "stop", 1));
    assert_int_equal(lifecycle_delete(&w->lc, "a", NULL, &e), -1);
    assert_int_equal(e.code, ERRC_NOT_FOUND);
    assert_contains(e.msg, "is being removed");
    fake_runtime_release(w->rt);
    pthread_join(t, &rc);
    assert_int_equal((intptr_t)rc, 204);
}

/* ---- changes from outside ---- */

static void a_new_address_is_followed(void **state)
{
    struct world *w = *state;
    AUTO_SANDBOX struct sandbox sb = { 0 };
    struct place at;

    fake_runtime_move(w->rt, "a", "192.0.2.77", 40077);
    settle(w, "a");
    sb = world_find(w, "a");
    assert_string_equal(sb.place.address, "192.0.2.77");
    assert_int_equal(sb.place.host_port, 40077);
    assert_true(places_get(w->places, "a", &at));
    assert_string_equal(at.at.address, "192.0.2.77");
    fake_runtime_move(w->rt, "a", "", 0); /* off its network: it stays where it was */
    settle(w, "a");
    assert_true(places_get(w->places, "a", &at));
    assert_string_equal(at.at.address, "192.0.2.77");
}

static void a_restarted_container_does_not_come_to_life(void **state)
{
    struct world *w = *state;
    struct place at;

    fake_runtime_restart(w->rt, "a", now_ms - 3); /* its end was not seen */
    settle(w, "a");
    expect(w, "a", SANDBOX_FAILED, "CONTAINER_RESTARTED", 137);
    assert_int_equal(fake_runtime_state(w->rt, "a"), RUNTIME_ENDED);
    assert_false(places_get(w->places, "a", &at));

    world_add(w, "b", SANDBOX_RUNNING, 0);
    fake_runtime_end(w->rt, "b", 0, false, now_ms);
    settle(w, "b");
    fake_runtime_restart(w->rt, "b", now_ms);
    settle(w, "b");
    expect(w, "b", SANDBOX_TERMINATED, "CONTAINER_EXITED", 0);
    assert_int_equal(fake_runtime_state(w->rt, "b"), RUNTIME_ENDED);
}

static void a_busy_sandbox_is_left_alone(void **state)
{
    struct world *w = *state;
    struct keyed_lock *held = keyed_lock_take(w->locks, "a");
    struct err e = { 0 };

    fake_runtime_end(w->rt, "a", 1, false, now_ms);
    assert_int_equal(lifecycle_try_settle(&w->lc, "a", &e), 1);
    assert_int_equal(world_state(w, "a"), SANDBOX_RUNNING);
    keyed_lock_release(held);
    assert_int_equal(lifecycle_try_settle(&w->lc, "a", &e), 0);
    assert_int_equal(world_state(w, "a"), SANDBOX_FAILED);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(exits_are_told_by_their_code),
        T(out_of_memory_is_told_by_flag_or_event),
        T(an_end_that_nobody_saw_is_found_at_the_delete),
        T(a_lost_container_ends_the_sandbox),
        T(deleting_what_is_gone_cleans_the_record),
        T(the_last_output_is_kept),
        T(output_that_cannot_be_read_is_no_obstacle),
        T(the_grace_is_for_deletes_and_expiries),
        T(a_removal_that_is_finished_later_says_the_same),
        T(a_second_delete_does_not_wait_for_the_grace),
        T(a_new_address_is_followed),
        T(a_restarted_container_does_not_come_to_life),
        T(a_busy_sandbox_is_left_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
