#include "gateway/store/idempotency_store.h"

#include "common/base/err.h"
#include "gateway/store/db.h"
#include "gateway/store/row.h"
#include "gateway/store/sandbox_store.h"

#include <stdio.h>

/* What a call hands to its db_fn. */
struct call {
    const char *key;
    const char *sha256;
    const struct sandbox *sb;
    const char *sandbox_id;
    int64_t before_ms;
    struct idempotency *out;
    int found;
};

static int get_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char sql[] = "SELECT sandbox_id, body_sha256 FROM idempotency WHERE key = ?";
    struct call *call = arg;
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    call->found = 0;
    if (!st || row_bind_text(c, st, 1, call->key, e) < 0)
        return -1;
    switch (sqlite3_step(st)) {
    case SQLITE_ROW:
        call->found = 1;
        (void)snprintf(call->out->sandbox_id, sizeof(call->out->sandbox_id), "%s", row_text(st, 0));
        (void)snprintf(call->out->body_sha256, sizeof(call->out->body_sha256), "%s",
                       row_text(st, 1));
        return 0;
    case SQLITE_DONE:
        return 0;
    default:
        return db_fail(c, e, "read an idempotency key");
    }
}

int idempotency_store_get(struct db *db, const char *key, struct idempotency *out, struct err *e)
{
    struct call call = { .key = key, .out = out };

    return db_read(db, get_fn, &call, e) < 0 ? -1 : call.found;
}

static int add_key(struct db_conn *c, const struct call *call, struct err *e)
{
    static const char sql[] = "INSERT INTO idempotency (key, body_sha256, sandbox_id, created_ms)"
                              " VALUES (?, ?, ?, ?)";
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    if (!st || row_bind_text(c, st, 1, call->key, e) < 0 ||
        row_bind_text(c, st, 2, call->sha256, e) < 0 ||
        row_bind_text(c, st, 3, call->sb->id, e) < 0 ||
        row_bind_num(c, st, 4, call->sb->created_ms, e) < 0)
        return -1;
    return db_exec(c, st, e);
}

static int insert_fn(struct db_conn *c, void *arg, struct err *e)
{
    struct call *call = arg;

    if (get_fn(c, arg, e) < 0)
        return -1;
    if (call->found)
        return 0;
    return sandbox_add(c, call->sb, e) < 0 ? -1 : add_key(c, call, e);
}

int idempotency_store_insert(struct db *db, const char *key, const char *body_sha256,
                             const struct sandbox *sb, struct idempotency *out, struct err *e)
{
    struct call call = { .key = key, .sha256 = body_sha256, .sb = sb, .out = out };

    return db_write(db, insert_fn, &call, e) < 0 ? -1 : call.found;
}

int idempotency_release(struct db_conn *c, const char *sandbox_id, struct err *e)
{
    static const char sql[] = "DELETE FROM idempotency WHERE sandbox_id = ?";
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    return !st || row_bind_text(c, st, 1, sandbox_id, e) < 0 ? -1 : db_exec(c, st, e);
}

static int release_fn(struct db_conn *c, void *arg, struct err *e)
{
    return idempotency_release(c, ((struct call *)arg)->sandbox_id, e);
}

int idempotency_store_release(struct db *db, const char *sandbox_id, struct err *e)
{
    struct call call = { .sandbox_id = sandbox_id };

    return db_write(db, release_fn, &call, e);
}

static int forget_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char sql[] = "DELETE FROM idempotency WHERE created_ms < ?";
    struct call *call = arg;
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    return !st || row_bind_num(c, st, 1, call->before_ms, e) < 0 ? -1 : db_exec(c, st, e);
}

int idempotency_store_forget(struct db *db, int64_t before_ms, struct err *e)
{
    struct call call = { .before_ms = before_ms };

    return db_write(db, forget_fn, &call, e);
}
