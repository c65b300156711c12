/* Snapshots: the work in the background, and what happens to it meanwhile. */
#include "tests/unit/gateway/domain/snapshot_world.h"

#include "common/base/clock.h"

#include <poll.h>

static bool becomes_ready(struct world *w, const char *id)
{
    int64_t until = clock_mono_ms() + TEST_DEADLINE_MS / 2;

    while (get(w, id).state != SNAPSHOT_READY && clock_mono_ms() < until)
        (void)poll(NULL, 0, 1);
    return get(w, id).state == SNAPSHOT_READY;
}

/* A removal may take as long as its grace, the next capture as long as the engine likes. */
static void whoever_has_the_source_next_does_not_hold_it_up(void **state)
{
    struct world *w = *state;
    struct keyed_lock *held;
    char id[RUNTIME_ID];
    bool ready;

    hold_a_capture(w, id);
    held = keyed_lock_take(w->locks, w->source);
    fake_runtime_release(w->rt);
    ready = becomes_ready(w, id);
    keyed_lock_release(held);
    wait_idle(w);
    assert_true(ready);
}

static struct {
    const struct runtime_ops *ops;
    struct world *w;
} during;

/* While the pass looks at s1, the capture of s2 comes to its end; while it looks at s2, that is
 * deleted. */
static int get_and_change(struct runtime *rt, const char *snapshot_id, struct err *e)
{
    struct world *w = during.w;
    int rc = during.ops->snapshot_get(rt, snapshot_id, e);
    struct snapshot s = get(w, "s2");

    snapshot_set_state(&s, SNAPSHOT_READY, "r", "m", now_ms);
    if (strcmp(snapshot_id, "s1") == 0)
        assert_int_equal(snapshot_store_transition(w->db, &s, SNAPSHOT_CREATING, e), 0);
    else
        assert_int_equal(snapshots_delete(w->s, "s2", e), 0);
    return rc;
}

static void the_pass_leaves_alone_what_is_finished_meanwhile(void **state)
{
    struct world *w = *state;
    struct runtime_ops ops = *w->rt->ops;
    struct snapshot s;

    leave(w, "s1", SNAPSHOT_CREATING, w->source);
    leave(w, "s2", SNAPSHOT_CREATING, w->source);
    put_image(w, "s1");
    put_image(w, "s2");
    during.ops = w->rt->ops;
    during.w = w;
    ops.snapshot_get = get_and_change;
    w->rt->ops = &ops;
    assert_int_equal(snapshots_pass(w->s, &w->e), 0);
    w->rt->ops = during.ops;
    /* no image without a row */
    assert_int_equal(fake_runtime_has_snapshot(w->rt, "s2"),
                     snapshots_get(w->s, "s2", &s, &w->e) == 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(whoever_has_the_source_next_does_not_hold_it_up),
        T(the_pass_leaves_alone_what_is_finished_meanwhile),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
