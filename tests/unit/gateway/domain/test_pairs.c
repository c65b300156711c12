/* Everything that changes a sandbox against everything else, at the same moment: whoever wins, record,
 * runtime, places and snapshots agree afterwards, and nobody hears of an error that is none. */
#include "tests/unit/test.h"

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/macros.h"
#include "gateway/domain/captures.h"
#include "gateway/domain/expiry.h"
#include "gateway/domain/lifecycle.h"
#include "gateway/domain/places.h"
#include "gateway/domain/snapshots.h"
#include "gateway/snapshot.h"
#include "gateway/store/sandbox_store.h"
#include "tests/fakes/fake_runtime.h"
#include "tests/fakes/world.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 12, SNAPSHOTS_MAX = 100000 };

struct all {
    struct world w;
    struct snapshots *s;
    json_t *patch;
};

static int setup(void **state)
{
    static const struct snapshots_config cfg = {
        .workers = 2, .timeout_ms = TEST_DEADLINE_MS, .max = SNAPSHOTS_MAX, .allow_paused = true
    };
    struct all *t = calloc(1, sizeof(*t));
    struct err e;

    world_open(&t->w, &clock_system);
    t->w.lc.captures = captures_new();
    t->w.lc.capture_wait_ms = TEST_DEADLINE_MS;
    t->w.lc.expiry = expiry_new(&t->w.lc, &e);
    t->s = snapshots_new(&t->w.lc, &cfg, &e);
    t->patch = json_pack("{s:s}", "k", "v");
    assert_non_null(t->w.lc.captures);
    assert_non_null(t->w.lc.expiry);
    assert_non_null(t->s);
    assert_int_equal(expiry_start(t->w.lc.expiry, &e), 0);
    *state = t;
    return 0;
}

static int teardown(void **state)
{
    struct all *t = *state;

    snapshots_free(t->s);
    expiry_free(t->w.lc.expiry);
    captures_free(t->w.lc.captures);
    json_decref(t->patch);
    world_close(&t->w);
    free(t);
    return 0;
}

/* ---- what may happen ---- */

static int renew(struct all *t, const char *id, struct err *e)
{
    return lifecycle_renew(&t->w.lc, id, clock_wall_ms() + 600000, e);
}

/* Its time has come, and the thread that sees to it is told. */
static int expire(struct all *t, const char *id, struct err *e)
{
    int rc = sandbox_store_renew(t->w.db, id, clock_wall_ms(), e);

    expiry_remove(t->w.lc.expiry, id);
    return rc;
}

static int delete (struct all *t, const char *id, struct err *e)
{
    return lifecycle_delete(&t->w.lc, id, NULL, e);
}

static int pause_it(struct all *t, const char *id, struct err *e)
{
    return lifecycle_pause(&t->w.lc, id, e);
}

static int resume(struct all *t, const char *id, struct err *e)
{
    return lifecycle_resume(&t->w.lc, id, e);
}

static int capture(struct all *t, const char *id, struct err *e)
{
    struct snapshot s;

    return snapshots_create(t->s, id, NULL, &s, e);
}

static int patch(struct all *t, const char *id, struct err *e)
{
    struct sandbox sb = { 0 };
    int rc = lifecycle_patch_metadata(&t->w.lc, id, t->patch, &sb, e);

    sandbox_done(&sb);
    return rc;
}

static int die(struct all *t, const char *id, struct err *e)
{
    if (fake_runtime_state(t->w.rt, id) != RUNTIME_UNKNOWN)
        fake_runtime_end(t->w.rt, id, 3, false, clock_wall_ms());
    return lifecycle_settle(&t->w.lc, id, e);
}

static int vanish(struct all *t, const char *id, struct err *e)
{
    fake_runtime_drop(t->w.rt, id);
    return lifecycle_settle(&t->w.lc, id, e);
}

static const struct op {
    const char *name;
    int (*fn)(struct all *t, const char *id, struct err *e);
} ops[] = {
    { "renew", renew },    { "expire", expire }, { "delete", delete },
    { "pause", pause_it }, { "resume", resume }, { "snapshot", capture },
    { "patch", patch },    { "its end", die },   { "a removal from outside", vanish },
};

/* ---- two at once ---- */

struct actor {
    struct all *t;
    const struct op *op;
    const char *id;
    pthread_barrier_t *go;
    pthread_t thread;
    int rc;
    struct err e;
};

static void *act(void *arg)
{
    struct actor *a = arg;

    (void)pthread_barrier_wait(a->go);
    a->rc = a->op->fn(a->t, a->id, &a->e);
    return NULL;
}

static void expect_true_errors(const struct actor *a, const struct actor *other)
{
    if (a->rc < 0 && a->e.code != ERRC_CONFLICT && a->e.code != ERRC_NOT_FOUND)
        fail_msg("%s against %s: %s", a->op->name, other->op->name, a->e.msg);
}

static bool agree(enum sandbox_state record, enum runtime_state container)
{
    switch (record) {
    case SANDBOX_RUNNING:
        return container == RUNTIME_RUNNING;
    case SANDBOX_PAUSED:
        return container == RUNTIME_PAUSED;
    case SANDBOX_TERMINATED:
    case SANDBOX_FAILED:
        return container == RUNTIME_ENDED;
    default:
        return false;
    }
}

static void expect_agreement(struct all *t, const char *id, const char *what)
{
    AUTO_SANDBOX struct sandbox sb = world_find(&t->w, id);
    enum runtime_state container = fake_runtime_state(t->w.rt, id);
    bool lives = sb.state == SANDBOX_RUNNING || sb.state == SANDBOX_PAUSED;
    struct place place;

    if (sb.ended_ms ? container != RUNTIME_UNKNOWN : !agree(sb.state, container))
        fail_msg("%s: the record is %s%s, the container %d", what,
                 sandbox_state_to_string(sb.state), sb.ended_ms ? " and ended" : "", container);
    if (places_get(t->w.places, id, &place) != (lives && !sb.ended_ms))
        fail_msg("%s: the places differ from the record, %s", what,
                 sandbox_state_to_string(sb.state));
    assert_false(captures_has(t->w.lc.captures, id));
}

static void expect_whole_snapshots(struct all *t, const char *id, const char *what)
{
    struct snapshot_query q = { .sandbox_id = id, .limit = 10 };
    struct snapshot_page p;
    size_t i;

    assert_int_equal(snapshots_list(t->s, &q, &p, NULL), 0);
    for (i = 0; i < p.len; i++) {
        const struct snapshot *s = &p.items[i];

        if (fake_runtime_has_snapshot(t->w.rt, s->id) != (s->state == SNAPSHOT_READY) ||
            s->state == SNAPSHOT_CREATING)
            fail_msg("%s: snapshot is %s", what, snapshot_state_to_string(s->state));
    }
    snapshot_page_done(&p);
}

/* What expires does so in its own threads: then it is over when nothing is left to be done. */
static void quiesce(struct all *t, const char *id, bool due)
{
    struct err e = { 0 };

    assert_true(snapshots_wait_idle(t->s, TEST_DEADLINE_MS));
    if (due && lifecycle_expire(&t->w.lc, id, &e) < 0)
        fail_msg("expire: %s", e.msg);
    if (lifecycle_settle(&t->w.lc, id, &e) < 0)
        fail_msg("settle: %s", e.msg);
}

static void meet(struct all *t, const struct op *first, const struct op *second, const char *id)
{
    enum sandbox_state from = id[0] == 'p' ? SANDBOX_PAUSED : SANDBOX_RUNNING;
    pthread_barrier_t go;
    struct actor a[2] = { { .t = t, .op = first, .id = id, .go = &go },
                          { .t = t, .op = second, .id = id, .go = &go } };
    char what[128];
    int i;

    world_add(&t->w, id, from, clock_wall_ms() + 600000);
    assert_int_equal(pthread_barrier_init(&go, NULL, 2), 0);
    for (i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&a[i].thread, NULL, act, &a[i]), 0);
    for (i = 0; i < 2; i++)
        (void)pthread_join(a[i].thread, NULL);
    (void)pthread_barrier_destroy(&go);
    for (i = 0; i < 2; i++)
        expect_true_errors(&a[i], &a[1 - i]);
    quiesce(t, id, first->fn == expire || second->fn == expire);
    (void)snprintf(what, sizeof(what), "%s against %s", first->name, second->name);
    expect_agreement(t, id, what);
    expect_whole_snapshots(t, id, what);
    if ((first->fn == delete &&a[0].rc == 0) || (second->fn == delete &&a[1].rc == 0))
        assert_true(world_has_ended(&t->w, id));
}

static void every_pair_ends_well(void **state)
{
    char id[RUNTIME_ID];
    size_t i;
    size_t j;
    int k;

    for (i = 0; i < ARRAY_LEN(ops); i++)
        for (j = i; j < ARRAY_LEN(ops); j++)
            for (k = 0; k < ROUNDS; k++) {
                (void)snprintf(id, sizeof(id), "%c%zu-%zu-%d", k % 2 ? 'p' : 'r', i, j, k);
                meet(*state, &ops[i], &ops[j], id);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_pair_ends_well, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
