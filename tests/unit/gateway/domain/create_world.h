/* What the tests of creates share: a lifecycle over a fake runtime with real threads, a clock of the
 * test's own, and words for what they expect. */
#pragma once
#include "tests/unit/test.h"

#include "common/base/err.h"
#include "common/base/keyed_lock.h"
#include "common/base/log.h"
#include "gateway/domain/creates.h"
#include "gateway/domain/lifecycle.h"
#include "gateway/domain/reconcile.h"
#include "gateway/store/db.h"
#include "tests/fakes/fake_runtime.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static _Atomic int64_t now_ms;

static inline int64_t fake_now(void)
{
    return now_ms;
}

static const struct clock test_clock = { fake_now, fake_now };

struct world {
    struct db *db;
    struct runtime *rt;
    struct keyed_locks *locks;
    struct creates *creates;
    struct lifecycle lc;
    struct reconcile *reconcile;
    struct create_req rq;
    json_t *entrypoint;
    json_t *hooks;
    char path[64]; /* of a database in a file, "" for one in memory */
};

static inline void open_world(struct world *w, const char *path)
{
    static const struct reconcile_config cfg = { 1000, 5000, 100000000 };
    struct err e;

    assert_int_equal(db_open(path, &w->db, &e), 0);
    w->rt = fake_runtime_new();
    w->locks = keyed_locks_new();
    w->creates = creates_new(64);
    w->lc = (struct lifecycle){ .db = w->db,
                                .rt = w->rt,
                                .locks = w->locks,
                                .clock = &test_clock,
                                .started_ms = now_ms,
                                .ready_timeout_ms = 1000,
                                .line_endings = "auto",
                                .creates = w->creates,
                                .create_wait_ms = TEST_DEADLINE_MS };
    w->reconcile = reconcile_new(&w->lc, &cfg, &e);
    assert_non_null(w->reconcile);
}

static inline void close_world(struct world *w)
{
    lifecycle_stop(&w->lc);
    reconcile_free(w->reconcile);
    creates_free(w->creates);
    keyed_locks_free(w->locks);
    runtime_close(w->rt);
    db_close(w->db);
}

static inline struct world *new_world(void)
{
    struct world *w = calloc(1, sizeof(*w));

    now_ms = 1700000000000;
    log_set_level(LOG_OFF);
    w->entrypoint = json_pack("[s]", "true");
    w->hooks = json_pack("{s:{s:[s],s:i}}", "preStart", "command", "true", "timeoutSeconds", 30);
    w->rq = (struct create_req){ .image = "img:1", .timeout_s = 600, .entrypoint = w->entrypoint };
    return w;
}

static inline int setup(void **state)
{
    struct world *w = new_world();

    open_world(w, ":memory:");
    *state = w;
    return 0;
}

static inline void free_world(struct world *w)
{
    json_decref(w->entrypoint);
    json_decref(w->hooks);
    free(w);
}

static inline int teardown(void **state)
{
    close_world(*state);
    free_world(*state);
    return 0;
}

static inline int create(struct world *w, struct sandbox *out, struct err *e)
{
    memset(e, 0, sizeof(*e));
    return lifecycle_create(&w->lc, &w->rq, out, e);
}

/* A create that goes on without its request; its id. */
static inline void create_apart(struct world *w, char id[RUNTIME_ID])
{
    struct sandbox sb;
    struct err e;

    w->lc.create_wait_ms = 0;
    if (create(w, &sb, &e) < 0)
        fail_msg("create: %s", e.msg);
    assert_int_equal(sb.state, SANDBOX_PENDING);
    memcpy(id, sb.id, RUNTIME_ID);
    sandbox_done(&sb);
    w->lc.create_wait_ms = TEST_DEADLINE_MS;
}

/* Waits for the create of id, if it is still under way. */
static inline void finish(struct world *w, const char *id)
{
    struct creation *c = creates_find(w->creates, id);

    if (!c)
        return;
    if (creates_wait(w->creates, c, TEST_DEADLINE_MS, NULL) == 0)
        fail_msg("the create did not end");
    creates_unref(w->creates, c);
}

static inline void expect_state(struct world *w, const char *id, enum sandbox_state state)
{
    struct sandbox sb;
    struct err e;

    if (lifecycle_get(&w->lc, id, &sb, &e) < 0)
        fail_msg("get: %s", e.msg);
    assert_int_equal(sb.state, state);
    sandbox_done(&sb);
}

/* The record of an end says why, get answers 404 saying it, too. */
static inline void expect_end(struct world *w, const char *id, enum sandbox_state state,
                              const char *reason)
{
    struct sandbox sb;
    struct err e = { 0 };

    assert_int_equal(lifecycle_get(&w->lc, id, &sb, &e), -1);
    assert_int_equal(e.code, ERRC_NOT_FOUND);
    assert_string_equal(e.api_code, "DOCKER::SANDBOX_NOT_FOUND");
    assert_contains(e.msg, reason);
    assert_int_equal(lifecycle_find(&w->lc, id, &sb, &e), 0);
    assert_int_equal(sb.state, state);
    assert_true(sb.ended_ms > 0);
    assert_string_equal(sb.reason, reason);
    sandbox_done(&sb);
    assert_int_equal(fake_runtime_state(w->rt, id), RUNTIME_UNKNOWN);
}

static inline int64_t records(struct world *w, bool with_ended)
{
    struct sandbox_query q = { .limit = 100, .with_ended = with_ended };
    struct sandbox_page p;
    int64_t total;

    assert_int_equal(lifecycle_list(&w->lc, &q, &p, NULL), 0);
    total = p.total;
    sandbox_page_done(&p);
    return total;
}

/* The id of the only record, ended or not. */
static inline void only_id(struct world *w, char id[RUNTIME_ID])
{
    struct sandbox_query q = { .limit = 100, .with_ended = true };
    struct sandbox_page p;

    assert_int_equal(lifecycle_list(&w->lc, &q, &p, NULL), 0);
    assert_int_equal(p.total, 1);
    memcpy(id, p.items[0].id, RUNTIME_ID);
    sandbox_page_done(&p);
}

struct request {
    struct world *w;
    struct create_req rq;
    pthread_t thread;
    struct sandbox sb;
    struct err e;
    int rc;
};

static inline void *request_main(void *arg)
{
    struct request *r = arg;

    r->rc = lifecycle_create(&r->w->lc, &r->rq, &r->sb, &r->e);
    return NULL;
}

static inline void send_request(struct world *w, struct request *r)
{
    *r = (struct request){ .w = w, .rq = w->rq };
    assert_int_equal(pthread_create(&r->thread, NULL, request_main, r), 0);
}
