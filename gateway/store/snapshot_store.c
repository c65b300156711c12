#include "gateway/store/snapshot_store.h"

#include "common/base/err.h"
#include "gateway/store/db.h"
#include "gateway/store/row.h"

#include <stdio.h>
#include <stdlib.h>

#define COLUMNS                                                                                    \
    "id, sandbox_id, name, state, reason, message, transition_ms, created_ms, size_bytes,"         \
    " platform_os, platform_arch"

/* What a call hands to its db_fn. */
struct call {
    const struct snapshot *s;
    struct snapshot *out;
    const char *id;
    enum snapshot_state from;
    int64_t max;
    int64_t users;
    int written;
    const struct snapshot_query *query;
    struct snapshot_page *page;
    struct snapshot_refs *refs;
};

static int no_row(const char *id, struct err *e)
{
    return err_set(e, ERRC_NOT_FOUND, "Snapshot %s not found.", id);
}

static void copy(sqlite3_stmt *st, int col, char *out, size_t size)
{
    (void)snprintf(out, size, "%s", row_text(st, col));
}

static enum snapshot_state state_at(sqlite3_stmt *st, int col)
{
    int state = snapshot_state_parse(row_text(st, col));

    return state < 0 ? SNAPSHOT_FAILED : (enum snapshot_state)state;
}

static void read_row(sqlite3_stmt *st, struct snapshot *s)
{
    *s = (struct snapshot){ .state = state_at(st, 3) };
    copy(st, 0, s->id, sizeof(s->id));
    copy(st, 1, s->sandbox_id, sizeof(s->sandbox_id));
    copy(st, 2, s->name, sizeof(s->name));
    copy(st, 4, s->reason, sizeof(s->reason));
    copy(st, 5, s->message, sizeof(s->message));
    s->transition_ms = sqlite3_column_int64(st, 6);
    s->created_ms = sqlite3_column_int64(st, 7);
    s->size_bytes = sqlite3_column_int64(st, 8);
    copy(st, 9, s->platform_os, sizeof(s->platform_os));
    copy(st, 10, s->platform_arch, sizeof(s->platform_arch));
}

/* The one number that st gives. */
static int read_count(struct db_conn *c, sqlite3_stmt *st, int64_t *out, struct err *e)
{
    if (sqlite3_step(st) != SQLITE_ROW)
        return db_fail(c, e, "count snapshots");
    *out = sqlite3_column_int64(st, 0);
    return 0;
}

/* ---- one record ---- */

static int check_room(struct db_conn *c, int64_t max, struct err *e)
{
    static const char sql[] = "SELECT count(*) FROM snapshots";
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);
    int64_t n = 0;

    if (!st || read_count(c, st, &n, e) < 0)
        return -1;
    if (n < max)
        return 0;
    return err_set(e, ERRC_LIMIT,
                   "this server keeps at most %lld snapshots; delete some (snapshots.max)",
                   (long long)max);
}

static int insert_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char sql[] = "INSERT INTO snapshots (" COLUMNS ") VALUES (?,?,?,?,?,?,?,?,?,?,?)";
    const struct call *call = arg;
    const struct snapshot *s = call->s;
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    if (!st || check_room(c, call->max, e) < 0 || row_bind_text(c, st, 1, s->id, e) < 0 ||
        row_bind_text(c, st, 2, s->sandbox_id, e) < 0 || row_bind_text(c, st, 3, s->name, e) < 0 ||
        row_bind_text(c, st, 4, snapshot_state_to_string(s->state), e) < 0 ||
        row_bind_text(c, st, 5, s->reason, e) < 0 || row_bind_text(c, st, 6, s->message, e) < 0 ||
        row_bind_num(c, st, 7, s->transition_ms, e) < 0 ||
        row_bind_num(c, st, 8, s->created_ms, e) < 0 ||
        row_bind_num(c, st, 9, s->size_bytes, e) < 0 ||
        row_bind_text(c, st, 10, s->platform_os, e) < 0 ||
        row_bind_text(c, st, 11, s->platform_arch, e) < 0)
        return -1;
    return db_exec(c, st, e);
}

int snapshot_store_insert(struct db *db, const struct snapshot *s, int64_t max, struct err *e)
{
    struct call call = { .s = s, .max = max };

    return db_write(db, insert_fn, &call, e);
}

static int get_row(struct db_conn *c, const char *id, struct snapshot *out, struct err *e)
{
    static const char sql[] = "SELECT " COLUMNS " FROM snapshots WHERE id = ?";
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    if (!st || row_bind_text(c, st, 1, id, e) < 0)
        return -1;
    switch (sqlite3_step(st)) {
    case SQLITE_ROW:
        read_row(st, out);
        return 0;
    case SQLITE_DONE:
        return no_row(id, e);
    default:
        return db_fail(c, e, "read snapshot");
    }
}

static int get_fn(struct db_conn *c, void *arg, struct err *e)
{
    struct call *call = arg;

    return get_row(c, call->id, call->out, e);
}

int snapshot_store_get(struct db *db, const char *id, struct snapshot *out, struct err *e)
{
    struct call call = { .id = id, .out = out };

    return db_read(db, get_fn, &call, e);
}

static int transition_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char sql[] = "UPDATE snapshots SET state = ?, reason = ?, message = ?,"
                              " transition_ms = ?, size_bytes = ? WHERE id = ? AND state = ?";
    const struct call *call = arg;
    const struct snapshot *s = call->s;
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);
    struct snapshot now;

    if (!st || row_bind_text(c, st, 1, snapshot_state_to_string(s->state), e) < 0 ||
        row_bind_text(c, st, 2, s->reason, e) < 0 || row_bind_text(c, st, 3, s->message, e) < 0 ||
        row_bind_num(c, st, 4, s->transition_ms, e) < 0 ||
        row_bind_num(c, st, 5, s->size_bytes, e) < 0 || row_bind_text(c, st, 6, s->id, e) < 0 ||
        row_bind_text(c, st, 7, snapshot_state_to_string(call->from), e) < 0 ||
        db_exec(c, st, e) < 0)
        return -1;
    if (db_changes(c))
        return 0;
    if (get_row(c, s->id, &now, e) < 0)
        return -1;
    return err_set(e, ERRC_CONFLICT, "Snapshot %s is %s.", s->id,
                   snapshot_state_to_string(now.state));
}

int snapshot_store_transition(struct db *db, const struct snapshot *s, enum snapshot_state from,
                              struct err *e)
{
    struct call call = { .s = s, .from = from };

    return db_write(db, transition_fn, &call, e);
}

/* ---- the end ---- */

static int count_users(struct db_conn *c, const char *id, int64_t *out, struct err *e)
{
    static const char sql[] = "SELECT count(*) FROM sandboxes"
                              " WHERE snapshot_id = ? AND snapshot_id <> '' AND ended_ms = 0";
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    return !st || row_bind_text(c, st, 1, id, e) < 0 ? -1 : read_count(c, st, out, e);
}

static int begin_delete_fn(struct db_conn *c, void *arg, struct err *e)
{
    struct call *call = arg;
    struct snapshot after = *call->s;

    if (get_row(c, call->s->id, call->out, e) < 0 ||
        count_users(c, call->s->id, &call->users, e) < 0)
        return -1;
    if (call->out->state == SNAPSHOT_CREATING || call->users)
        return 0;
    after.size_bytes = call->out->size_bytes;
    call->s = &after;
    call->from = call->out->state;
    if (transition_fn(c, call, e) < 0)
        return -1;
    call->written = 1;
    return 0;
}

int snapshot_store_begin_delete(struct db *db, const struct snapshot *s, struct snapshot *before,
                                int64_t *users, struct err *e)
{
    struct call call = { .s = s, .out = before };

    if (db_write(db, begin_delete_fn, &call, e) < 0)
        return -1;
    *users = call.users;
    return call.written;
}

static int remove_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char sql[] = "DELETE FROM snapshots WHERE id = ? AND state = 'Deleting'";
    const struct call *call = arg;
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    return !st || row_bind_text(c, st, 1, call->id, e) < 0 ? -1 : db_exec(c, st, e);
}

int snapshot_store_remove(struct db *db, const char *id, struct err *e)
{
    struct call call = { .id = id };

    return db_write(db, remove_fn, &call, e);
}

int snapshot_store_usable(struct db_conn *c, const char *id, struct err *e)
{
    struct snapshot s;
    struct err why = { 0 };

    if (get_row(c, id, &s, &why) < 0) {
        if (why.code == ERRC_NOT_FOUND)
            why.api_code = "SNAPSHOT::NOT_FOUND";
        if (e)
            *e = why;
        return -1;
    }
    if (s.state == SNAPSHOT_READY)
        return 0;
    return err_api(e, ERRC_CONFLICT, "SNAPSHOT::NOT_READY",
                   "Snapshot %s is %s (%s); sandboxes are made from Ready ones.", id,
                   snapshot_state_to_string(s.state), s.reason);
}

/* ---- lists ---- */

/* ?1: sandbox id, ?2: name, ?3: JSON array of states; each may be null. */
#define FILTERED                                                                                   \
    " FROM snapshots WHERE (?1 IS NULL OR sandbox_id = ?1)"                                        \
    " AND (?2 IS NULL OR (name = ?2 AND name <> ''))"                                              \
    " AND (?3 IS NULL OR EXISTS (SELECT 1 FROM json_each(?3) s WHERE snapshots.state = s.value))"

static int bind_filters(struct db_conn *c, sqlite3_stmt *st, const struct snapshot_query *q,
                        struct err *e)
{
    if ((q->sandbox_id && row_bind_text(c, st, 1, q->sandbox_id, e) < 0) ||
        (q->name && row_bind_text(c, st, 2, q->name, e) < 0))
        return -1;
    return q->states ? row_bind_text(c, st, 3, q->states, e) : 0;
}

static int count_matches(struct db_conn *c, const struct snapshot_query *q, int64_t *total,
                         struct err *e)
{
    static const char sql[] = "SELECT count(*)" FILTERED;
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    return !st || bind_filters(c, st, q, e) < 0 ? -1 : read_count(c, st, total, e);
}

static int list_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char sql[] =
        "SELECT " COLUMNS FILTERED " ORDER BY created_ms DESC, seq DESC LIMIT ?4 OFFSET ?5";
    struct call *call = arg;
    const struct snapshot_query *q = call->query;
    struct snapshot_page *p = call->page;
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);
    int rc;

    if (!st || count_matches(c, q, &p->total, e) < 0 || bind_filters(c, st, q, e) < 0 ||
        row_bind_num(c, st, 4, q->limit, e) < 0 || row_bind_num(c, st, 5, q->offset, e) < 0)
        return -1;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW && p->len < (size_t)q->limit)
        read_row(st, &p->items[p->len++]);
    return rc == SQLITE_DONE ? 0 : db_fail(c, e, "list snapshots");
}

int snapshot_store_list(struct db *db, const struct snapshot_query *q, struct snapshot_page *out,
                        struct err *e)
{
    struct snapshot_page page = { .items = calloc((size_t)q->limit, sizeof(struct snapshot)) };
    struct call call = { .query = q, .page = &page };

    if (!page.items)
        return err_nomem(e);
    if (db_read(db, list_fn, &call, e) < 0) {
        snapshot_page_done(&page);
        return -1;
    }
    *out = page;
    return 0;
}

static int add_ref(struct snapshot_refs *refs, sqlite3_stmt *st)
{
    struct snapshot_ref *grown;

    if ((refs->len & (refs->len - 1)) == 0) { /* full at each power of two */
        grown = realloc(refs->items, (refs->len ? refs->len * 2 : 1) * sizeof(*grown));
        if (!grown)
            return -1;
        refs->items = grown;
    }
    copy(st, 0, refs->items[refs->len].id, RUNTIME_ID);
    refs->items[refs->len++].state = state_at(st, 1);
    return 0;
}

static int unfinished_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char sql[] = "SELECT id, state FROM snapshots"
                              " WHERE state IN ('Creating', 'Deleting') ORDER BY seq";
    struct call *call = arg;
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);
    int rc;

    if (!st)
        return -1;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW)
        if (add_ref(call->refs, st) < 0)
            return err_nomem(e);
    return rc == SQLITE_DONE ? 0 : db_fail(c, e, "list unfinished snapshots");
}

int snapshot_store_unfinished(struct db *db, struct snapshot_refs *out, struct err *e)
{
    struct snapshot_refs refs = { 0 };
    struct call call = { .refs = &refs };

    if (db_read(db, unfinished_fn, &call, e) < 0) {
        free(refs.items);
        return -1;
    }
    *out = refs;
    return 0;
}
