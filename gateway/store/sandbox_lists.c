#include "common/base/err.h"
#include "gateway/store/db.h"
#include "gateway/store/row.h"
#include "gateway/store/sandbox_store.h"

#include <stdio.h>
#include <stdlib.h>

/* What a call hands to its db_fn. */
struct call {
    const struct sandbox_query *query;
    struct sandbox_page *page;
    int state;
    int64_t num;
    int64_t num2;
    struct sandbox_ids *ids;
};

/* ---- pages ---- */

/* ?1: JSON array of states or null; ?2: JSON object of metadata that must match, or null. Two texts,
 * because the index over those that exist needs its condition as it is. */
#define FILTERS                                                                                    \
    " (?1 IS NULL OR EXISTS (SELECT 1 FROM json_each(?1) s WHERE sandboxes.state = s.value))"      \
    " AND (?2 IS NULL OR NOT EXISTS (SELECT 1 FROM json_each(?2) f WHERE NOT EXISTS"               \
    " (SELECT 1 FROM json_each(sandboxes.metadata) m"                                              \
    "  WHERE m.key = f.key AND m.value = f.value)))"
#define FROM_LIVE " FROM sandboxes WHERE ended_ms = 0 AND" FILTERS
#define FROM_ALL " FROM sandboxes WHERE" FILTERS
#define NEWEST_FIRST " ORDER BY created_ms DESC, seq DESC LIMIT ?3 OFFSET ?4"

static int bind_filters(struct db_conn *c, sqlite3_stmt *st, const struct sandbox_query *q,
                        struct err *e)
{
    if (q->states && row_bind_text(c, st, 1, q->states, e) < 0)
        return -1;
    return q->metadata ? row_bind_text(c, st, 2, q->metadata, e) : 0;
}

static int count_matches(struct db_conn *c, const struct sandbox_query *q, int64_t *total,
                         struct err *e)
{
    static const char live[] = "SELECT count(*)" FROM_LIVE;
    static const char all[] = "SELECT count(*)" FROM_ALL;
    static const char plain[] = "SELECT count(*) FROM sandboxes WHERE ended_ms = 0";
    bool any = !q->states && !q->metadata && !q->with_ended;
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, any ? plain : q->with_ended ? all : live, e);

    if (!st || (!any && bind_filters(c, st, q, e) < 0))
        return -1;
    if (sqlite3_step(st) != SQLITE_ROW)
        return db_fail(c, e, "count sandboxes");
    *total = sqlite3_column_int64(st, 0);
    return 0;
}

static int list_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char live[] = "SELECT " SANDBOX_COLUMNS FROM_LIVE NEWEST_FIRST;
    static const char all[] = "SELECT " SANDBOX_COLUMNS FROM_ALL NEWEST_FIRST;
    struct call *call = arg;
    const struct sandbox_query *q = call->query;
    struct sandbox_page *p = call->page;
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, q->with_ended ? all : live, e);
    int rc;

    if (!st || count_matches(c, q, &p->total, e) < 0 || bind_filters(c, st, q, e) < 0 ||
        row_bind_num(c, st, 3, q->limit, e) < 0 || row_bind_num(c, st, 4, q->offset, e) < 0)
        return -1;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW && p->len < (size_t)q->limit) {
        if (row_read_sandbox(st, &p->items[p->len], e) < 0)
            return -1;
        p->len++;
    }
    return rc == SQLITE_DONE ? 0 : db_fail(c, e, "list sandboxes");
}

int sandbox_store_list(struct db *db, const struct sandbox_query *q, struct sandbox_page *out,
                       struct err *e)
{
    struct sandbox_page page = { .items = calloc((size_t)q->limit, sizeof(struct sandbox)) };
    struct call call = { .query = q, .page = &page };

    if (!page.items)
        return err_nomem(e);
    if (db_read(db, list_fn, &call, e) < 0) {
        sandbox_page_done(&page);
        return -1;
    }
    *out = page;
    return 0;
}

/* ---- ids ---- */

static int add_id(struct sandbox_ids *ids, const char *id)
{
    char(*grown)[RUNTIME_ID];

    if ((ids->len & (ids->len - 1)) == 0) { /* full at each power of two */
        grown = realloc(ids->ids, (ids->len ? ids->len * 2 : 1) * sizeof(*grown));
        if (!grown)
            return -1;
        ids->ids = grown;
    }
    (void)snprintf(ids->ids[ids->len++], RUNTIME_ID, "%s", id);
    return 0;
}

static int collect_ids(struct db_conn *c, sqlite3_stmt *st, struct sandbox_ids *ids, struct err *e)
{
    int rc;

    while ((rc = sqlite3_step(st)) == SQLITE_ROW)
        if (add_id(ids, row_text(st, 0)) < 0)
            return err_nomem(e);
    return rc == SQLITE_DONE ? 0 : db_fail(c, e, "list sandbox ids");
}

static int ids_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char sql[] = "SELECT id FROM sandboxes WHERE ended_ms = 0 AND"
                              " (?1 = '' OR state = ?1)";
    struct call *call = arg;
    const char *state =
        call->state < 0 ? "" : sandbox_state_to_string((enum sandbox_state)call->state);
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    if (!st || row_bind_text(c, st, 1, state, e) < 0)
        return -1;
    return collect_ids(c, st, call->ids, e);
}

/* Runs fn, which fills call->ids; hands them over or frees them. */
static int read_ids(struct db *db, db_fn fn, struct call *call, struct sandbox_ids *out,
                    struct err *e)
{
    struct sandbox_ids ids = { 0 };

    call->ids = &ids;
    if (db_read(db, fn, call, e) < 0) {
        free(ids.ids);
        return -1;
    }
    *out = ids;
    return 0;
}

int sandbox_store_ids(struct db *db, int state, struct sandbox_ids *out, struct err *e)
{
    struct call call = { .state = state };

    return read_ids(db, ids_fn, &call, out, e);
}

static int next_expiry(struct db_conn *c, int64_t after_ms, int64_t *out, struct err *e)
{
    static const char sql[] = "SELECT ifnull(min(expires_ms), 0) FROM sandboxes"
                              " WHERE ended_ms = 0 AND expires_ms > 0 AND expires_ms > ?1";
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    if (!st || row_bind_num(c, st, 1, after_ms, e) < 0)
        return -1;
    if (sqlite3_step(st) != SQLITE_ROW)
        return db_fail(c, e, "read next expiry");
    *out = sqlite3_column_int64(st, 0);
    return 0;
}

static int due_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char sql[] = "SELECT id FROM sandboxes WHERE ended_ms = 0"
                              " AND expires_ms > 0 AND expires_ms <= ?1"
                              " AND state <> 'Pending' ORDER BY expires_ms LIMIT ?2";
    struct call *call = arg;
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    if (!st || row_bind_num(c, st, 1, call->num, e) < 0 ||
        row_bind_num(c, st, 2, call->num2, e) < 0 || collect_ids(c, st, call->ids, e) < 0)
        return -1;
    return next_expiry(c, call->num, &call->num, e);
}

int sandbox_store_due(struct db *db, int64_t now_ms, size_t max, struct sandbox_ids *out,
                      int64_t *next_ms, struct err *e)
{
    struct call call = { .num = now_ms, .num2 = (int64_t)max };

    if (read_ids(db, due_fn, &call, out, e) < 0)
        return -1;
    *next_ms = call.num;
    return 0;
}
