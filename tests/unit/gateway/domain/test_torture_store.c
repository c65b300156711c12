/* Every write of the database made to fail, one after the other, under a whole life of a sandbox: the
 * caller gets an error, nothing crashes, and once the disk works again records and containers agree. */
#include "tests/unit/test.h"

#include "common/base/err.h"
#include "common/base/keyed_lock.h"
#include "common/base/log.h"
#include "gateway/domain/lifecycle.h"
#include "gateway/domain/reconcile.h"
#include "gateway/store/db.h"
#include "gateway/store/sandbox_store.h"
#include "tests/fakes/fail_vfs.h"
#include "tests/fakes/fake_runtime.h"

#include <sqlite3.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { QUARANTINE_MS = 1000, RUNS_MAX = 400 };

static _Atomic int64_t now_ms;

static int64_t fake_now(void)
{
    return now_ms;
}

static const struct clock test_clock = { fake_now, fake_now };

struct world {
    char dir[64];
    struct db *db;
    struct runtime *rt;
    struct keyed_locks *locks;
    struct lifecycle lc;
    struct reconcile *reconcile;
    json_t *entrypoint;
};

static int setup(void **state)
{
    static const struct reconcile_config cfg = { 1000, QUARANTINE_MS, 100000 };
    struct world *w = calloc(1, sizeof(*w));
    char path[128];
    struct err e;

    log_set_level(LOG_OFF);
    now_ms = 1700000000000;
    (void)snprintf(w->dir, sizeof(w->dir), "/tmp/sandgate-torture-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    (void)snprintf(path, sizeof(path), "%s/s.db", w->dir);
    if (db_open(path, &w->db, &e) < 0)
        fail_msg("%s", e.msg);
    w->rt = fake_runtime_new();
    w->locks = keyed_locks_new();
    w->lc = (struct lifecycle){ .db = w->db,
                                .rt = w->rt,
                                .locks = w->locks,
                                .clock = &test_clock,
                                .started_ms = now_ms,
                                .ready_timeout_ms = 1000,
                                .line_endings = "auto" };
    w->reconcile = reconcile_new(&w->lc, &cfg, &e);
    w->entrypoint = json_pack("[s]", "sh");
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    static const char *const names[] = { "s.db", "s.db-wal", "s.db-shm", "s.db.lock" };
    struct world *w = *state;
    char path[128];
    size_t i;

    reconcile_free(w->reconcile);
    keyed_locks_free(w->locks);
    runtime_close(w->rt);
    db_close(w->db);
    json_decref(w->entrypoint);
    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", w->dir, names[i]);
        (void)unlink(path);
    }
    (void)rmdir(w->dir);
    free(w);
    return 0;
}

/* What the callers were told. */
struct told {
    char id[RUNTIME_ID];
    bool created;
    bool deleted;
    int64_t expires_ms; /* of the last renewal that was granted */
    bool renew_failed;
    int errors;
};

static void note(struct told *t, int rc, const struct err *e)
{
    if (rc == 0)
        return;
    t->errors++;
    assert_true(e->msg[0] != '\0');
    assert_true(e->code != ERRC_INVALID); /* not the client's fault */
}

/* Create, renew, patch, pause, resume, delete; goes on after a failure as a client would. */
static void live(struct world *w, struct told *t, bool to_the_end)
{
    struct create_req rq = { .image = "img:1", .timeout_s = 60, .entrypoint = w->entrypoint };
    json_auto_t *patch = json_pack("{s:s}", "k", "v");
    struct sandbox sb = { 0 };
    struct sandbox patched = { 0 };
    struct err e = { 0 };
    int rc;

    rc = lifecycle_create(&w->lc, &rq, &sb, &e);
    note(t, rc, &e);
    if (rc < 0)
        return;
    t->created = true;
    (void)snprintf(t->id, sizeof(t->id), "%s", sb.id);
    t->expires_ms = sb.expires_ms;
    sandbox_done(&sb);
    rc = lifecycle_renew(&w->lc, t->id, now_ms + 500000, &e);
    note(t, rc, &e);
    t->renew_failed = rc < 0;
    if (rc == 0)
        t->expires_ms = now_ms + 500000;
    rc = lifecycle_patch_metadata(&w->lc, t->id, patch, &patched, &e);
    note(t, rc, &e);
    sandbox_done(&patched);
    note(t, lifecycle_pause(&w->lc, t->id, &e), &e);
    note(t, lifecycle_resume(&w->lc, t->id, &e), &e);
    if (!to_the_end)
        return;
    rc = lifecycle_delete(&w->lc, t->id, NULL, &e);
    note(t, rc, &e);
    t->deleted = rc == 0;
}

/* The disk works again: two sweeps later everything agrees. */
static void check(struct world *w, const struct told *t)
{
    struct sandbox_page p = { 0 };
    struct runtime_list list = { 0 };
    struct err e = { 0 };
    size_t i;

    w->lc.started_ms = ++now_ms; /* as after a restart: what is Pending is a leftover */
    if (reconcile_once(w->reconcile, &e) < 0)
        fail_msg("%s", e.msg);
    now_ms += QUARANTINE_MS + 1;
    if (reconcile_once(w->reconcile, &e) < 0)
        fail_msg("%s", e.msg);
    assert_int_equal(lifecycle_list(&w->lc, &(struct sandbox_query){ .limit = 10 }, &p, &e), 0);
    assert_int_equal(runtime_list(w->rt, &list, &e), 0);
    assert_int_equal(p.total, (int64_t)list.len);
    for (i = 0; i < p.len; i++) {
        assert_true(p.items[i].state == SANDBOX_RUNNING || p.items[i].state == SANDBOX_PAUSED);
        assert_true(fake_runtime_state(w->rt, p.items[i].id) != RUNTIME_UNKNOWN);
    }
    if (t->deleted)
        assert_int_equal(p.total, 0);
    else if (t->created && p.total == 1 && !t->renew_failed)
        assert_int_equal(p.items[0].expires_ms, t->expires_ms);
    runtime_list_free(&list);
    sandbox_page_done(&p);
}

/* Every n-th write fails in the given way; until a run meets no failure any more. */
static void torture(void **state, int times, int code)
{
    struct told t;
    int n;

    assert_int_equal(teardown(state), 0);
    for (n = 0; n < RUNS_MAX; n++) {
        struct world *w;

        assert_int_equal(setup(state), 0);
        w = *state;
        t = (struct told){ 0 };
        fail_vfs_break(n, times, code);
        live(w, &t, true);
        fail_vfs_heal();
        if (!fail_vfs_failures()) {
            assert_int_equal(t.errors, 0);
            assert_true(t.deleted);
            break;
        }
        check(w, &t);
        assert_int_equal(teardown(state), 0);
    }
    assert_in_range(n, 10, RUNS_MAX - 1); /* it was a torture, and it came to its end */
}

static void one_write_fails(void **state)
{
    torture(state, 1, SQLITE_IOERR_WRITE);
}

static void the_disk_is_full_from_some_write_on(void **state)
{
    torture(state, -1, SQLITE_FULL);
}

/* A full disk refuses changes, not reads, and what was there lives on. */
static void a_full_disk_is_survived(void **state)
{
    struct world *w = *state;
    struct told t = { 0 };
    struct told u = { 0 };
    struct sandbox sb = { 0 };
    struct err e = { 0 };

    live(w, &t, false);
    assert_int_equal(t.errors, 0);
    fail_vfs_break(0, -1, SQLITE_FULL);
    live(w, &u, true);
    assert_int_equal(u.errors, 1);
    assert_int_equal(lifecycle_get(&w->lc, t.id, &sb, &e), 0);
    sandbox_done(&sb);
    assert_int_equal(lifecycle_renew(&w->lc, t.id, now_ms + 900000, &e), -1);
    assert_int_equal(lifecycle_delete(&w->lc, t.id, NULL, &e), -1);
    fail_vfs_heal();
    assert_int_equal(lifecycle_renew(&w->lc, t.id, now_ms + 900000, &e), 0);
    t.expires_ms = now_ms + 900000;
    check(w, &t);
    assert_int_equal(lifecycle_delete(&w->lc, t.id, NULL, &e), 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(one_write_fails),
        T(the_disk_is_full_from_some_write_on),
        T(a_full_disk_is_survived),
    };

    if (fail_vfs_install() < 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
