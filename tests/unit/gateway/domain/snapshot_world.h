/* What the tests of snapshots share: their state machine over a fake runtime and an in-memory
 * database, with one running sandbox. */
#pragma once
#include "tests/unit/test.h"

#include "common/base/err.h"
#include "common/base/keyed_lock.h"
#include "common/base/log.h"
#include "gateway/domain/captures.h"
#include "gateway/domain/lifecycle.h"
#include "gateway/domain/snapshots_internal.h"
#include "gateway/store/db.h"
#include "gateway/store/sandbox_store.h"
#include "gateway/store/snapshot_store.h"
#include "tests/fakes/fake_runtime.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static int64_t now_ms;

static inline int64_t fake_now(void)
{
    return now_ms;
}

static const struct clock test_clock = { fake_now, fake_now };

struct world {
    struct db *db;
    struct runtime *rt;
    struct keyed_locks *locks;
    struct lifecycle lc;
    struct snapshots_config cfg;
    struct snapshots *s;
    json_t *entrypoint;
    struct err e;
    char source[RUNTIME_ID]; /* a running sandbox */
};

static inline void start(struct world *w)
{
    w->s = snapshots_new(&w->lc, &w->cfg, &w->e);
    assert_non_null(w->s);
}

/* As after a restart of the process: what is under way is forgotten. */
static inline void restart(struct world *w)
{
    snapshots_free(w->s);
    start(w);
}

static inline int create(struct world *w, const char *snapshot_id, int64_t timeout_s,
                         struct sandbox *out)
{
    struct create_req rq = { .image = snapshot_id ? NULL : "img:1",
                             .snapshot_id = snapshot_id,
                             .timeout_s = timeout_s,
                             .entrypoint = w->entrypoint };

    w->e = (struct err){ 0 };
    return lifecycle_create(&w->lc, &rq, out, &w->e);
}

static inline void run_sandbox(struct world *w, char id[RUNTIME_ID])
{
    struct sandbox sb;

    assert_int_equal(create(w, NULL, 60, &sb), 0);
    memcpy(id, sb.id, RUNTIME_ID);
    sandbox_done(&sb);
}

static inline int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));

    now_ms = 1700000000000;
    assert_int_equal(db_open(":memory:", &w->db, &w->e), 0);
    w->rt = fake_runtime_new();
    w->locks = keyed_locks_new();
    w->lc = (struct lifecycle){ .db = w->db,
                                .rt = w->rt,
                                .locks = w->locks,
                                .captures = captures_new(),
                                .capture_wait_ms = TEST_DEADLINE_MS,
                                .clock = &test_clock,
                                .started_ms = now_ms,
                                .ready_timeout_ms = 1000,
                                .line_endings = "auto" };
    w->cfg = (struct snapshots_config){ .workers = 2, .timeout_ms = TEST_DEADLINE_MS, .max = 1000 };
    w->entrypoint = json_pack("[s,s,s]", "tail", "-f", "/dev/null");
    log_set_level(LOG_OFF);
    start(w);
    run_sandbox(w, w->source);
    *state = w;
    return 0;
}

static inline int teardown(void **state)
{
    struct world *w = *state;

    fake_runtime_release(w->rt);
    snapshots_free(w->s);
    captures_free(w->lc.captures);
    keyed_locks_free(w->locks);
    runtime_close(w->rt);
    db_close(w->db);
    json_decref(w->entrypoint);
    free(w);
    return 0;
}

static inline struct snapshot get(struct world *w, const char *id)
{
    struct snapshot s = { 0 };

    assert_int_equal(snapshots_get(w->s, id, &s, &w->e), 0);
    return s;
}

static inline void assert_state(struct world *w, const char *id, enum snapshot_state state,
                                const char *reason)
{
    struct snapshot s = get(w, id);

    assert_string_equal(snapshot_state_to_string(s.state), snapshot_state_to_string(state));
    assert_string_equal(s.reason, reason);
    assert_true(s.message[0]);
}

#define assert_error(w, call, class, api)                                                          \
    do {                                                                                           \
        (w)->e = (struct err){ 0 };                                                                \
        assert_int_equal((call), -1);                                                              \
        assert_int_equal((w)->e.code, class);                                                      \
        assert_string_equal((w)->e.api_code ? (w)->e.api_code : "", api);                          \
    } while (0)

static inline void wait_idle(struct world *w)
{
    assert_true(snapshots_wait_idle(w->s, TEST_DEADLINE_MS));
}

/* A finished one of the source. */
static inline void take(struct world *w, char id[RUNTIME_ID])
{
    struct snapshot s;

    assert_int_equal(snapshots_create(w->s, w->source, NULL, &s, &w->e), 0);
    memcpy(id, s.id, RUNTIME_ID);
    wait_idle(w);
}

static inline void ready(struct world *w, char id[RUNTIME_ID])
{
    take(w, id);
    assert_state(w, id, SNAPSHOT_READY, "snapshot_runtime_ready");
}

/* A row as an earlier process left it. */
static inline void leave(struct world *w, const char *id, enum snapshot_state state,
                         const char *sandbox)
{
    struct snapshot s = { .created_ms = now_ms };

    (void)snprintf(s.id, sizeof(s.id), "%s", id);
    (void)snprintf(s.sandbox_id, sizeof(s.sandbox_id), "%s", sandbox);
    snapshot_set_state(&s, state, "left", "left", now_ms);
    assert_int_equal(snapshot_store_insert(w->db, &s, 1000, &w->e), 0);
}

static inline void put_image(struct world *w, const char *id)
{
    int64_t bytes;

    assert_int_equal(runtime_snapshot_make(w->rt, w->source, id, 1000, &bytes, &w->e), 0);
}

static inline void hold_a_capture(struct world *w, char id[RUNTIME_ID])
{
    struct snapshot s;

    fake_runtime_hold(w->rt, "snapshot_make", w->source);
    assert_int_equal(snapshots_create(w->s, w->source, NULL, &s, &w->e), 0);
    memcpy(id, s.id, RUNTIME_ID);
    assert_true(fake_runtime_wait_calls(w->rt, "snapshot_make", 1));
}
