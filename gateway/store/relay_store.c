#include "gateway/store/relay_store.h"

#include "common/base/err.h"
#include "gateway/store/db.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

struct call {
    const struct relay_row *row;
    uint16_t *out;
    struct relay_rows *rows;
};

static int bind_row(struct db_conn *c, sqlite3_stmt *st, const struct relay_row *row, struct err *e)
{
    if (sqlite3_bind_text(st, 1, row->id, -1, SQLITE_STATIC) != SQLITE_OK ||
        sqlite3_bind_int(st, 2, row->port) != SQLITE_OK)
        return db_fail(c, e, "bind relay");
    return 0;
}

static int get_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char sql[] = "SELECT listen_port FROM relays WHERE sandbox_id = ? AND port = ?";
    struct call *call = arg;
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    if (!st || bind_row(c, st, call->row, e) < 0)
        return -1;
    switch (sqlite3_step(st)) {
    case SQLITE_ROW:
        *call->out = (uint16_t)sqlite3_column_int(st, 0);
        return 0;
    case SQLITE_DONE:
        return err_set(e, ERRC_NOT_FOUND, "no relay to port %u of sandbox %s", call->row->port,
                       call->row->id);
    default:
        return db_fail(c, e, "read relay");
    }
}

/* -1 with ERRC_LIMIT when the sandbox has as many as it may. */
static int check_count(struct db_conn *c, const struct relay_row *row, struct err *e)
{
    static const char sql[] = "SELECT count(*) FROM relays WHERE sandbox_id = ?1 AND port <> ?2";
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    if (!st || bind_row(c, st, row, e) < 0)
        return -1;
    if (sqlite3_step(st) != SQLITE_ROW)
        return db_fail(c, e, "count relays");
    if (sqlite3_column_int(st, 0) < RELAYS_PER_SANDBOX)
        return 0;
    return err_set(e, ERRC_LIMIT,
                   "sandbox %s has addresses for %d ports already; use use_server_proxy=true",
                   row->id, RELAYS_PER_SANDBOX);
}

static int claim_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char sql[] = "INSERT OR IGNORE INTO relays (sandbox_id, port, listen_port)"
                              " SELECT id, ?2, ?3 FROM sandboxes WHERE id = ?1 AND ended_ms = 0";
    struct call *call = arg;
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    if (!st || check_count(c, call->row, e) < 0 || bind_row(c, st, call->row, e) < 0)
        return -1;
    if (sqlite3_bind_int(st, 3, call->row->listen_port) != SQLITE_OK)
        return db_fail(c, e, "bind relay");
    return db_exec(c, st, e) < 0 ? -1 : get_fn(c, arg, e);
}

static int forget_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char sql[] = "DELETE FROM relays WHERE sandbox_id = ? AND port = ?";
    struct call *call = arg;
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    return !st || bind_row(c, st, call->row, e) < 0 ? -1 : db_exec(c, st, e);
}

static int count_rows(struct db_conn *c, size_t *out, struct err *e)
{
    static const char sql[] = "SELECT count(*) FROM relays";
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    if (!st)
        return -1;
    if (sqlite3_step(st) != SQLITE_ROW)
        return db_fail(c, e, "count relays");
    *out = (size_t)sqlite3_column_int64(st, 0);
    return 0;
}

static int all_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char sql[] = "SELECT sandbox_id, port, listen_port FROM relays LIMIT ?";
    struct relay_rows *rows = ((struct call *)arg)->rows;
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);
    size_t n = 0;
    int rc;

    if (!st || count_rows(c, &n, e) < 0)
        return -1;
    rows->items = calloc(n + 1, sizeof(*rows->items));
    if (!rows->items)
        return err_nomem(e);
    if (sqlite3_bind_int64(st, 1, (sqlite3_int64)n) != SQLITE_OK)
        return db_fail(c, e, "bind limit");
    while ((rc = sqlite3_step(st)) == SQLITE_ROW && rows->len < n) {
        struct relay_row *row = &rows->items[rows->len++];
        const char *id = (const char *)sqlite3_column_text(st, 0);

        (void)snprintf(row->id, sizeof(row->id), "%s", id ? id : "");
        row->port = (uint16_t)sqlite3_column_int(st, 1);
        row->listen_port = (uint16_t)sqlite3_column_int(st, 2);
    }
    return rc == SQLITE_DONE ? 0 : db_fail(c, e, "list relays");
}

int relay_store_claim(struct db *db, const struct relay_row *row, uint16_t *listen_port,
                      struct err *e)
{
    struct call call = { .row = row, .out = listen_port };

    return db_write(db, claim_fn, &call, e);
}

int relay_store_get(struct db *db, const char *id, uint16_t port, uint16_t *listen_port,
                    struct err *e)
{
    struct relay_row row = { .port = port };
    struct call call = { .row = &row, .out = listen_port };

    (void)snprintf(row.id, sizeof(row.id), "%s", id);
    return db_read(db, get_fn, &call, e);
}

int relay_store_forget(struct db *db, const struct relay_row *row, struct err *e)
{
    struct call call = { .row = row };

    return db_write(db, forget_fn, &call, e);
}

int relay_store_all(struct db *db, struct relay_rows *out, struct err *e)
{
    struct relay_rows rows = { 0 };
    struct call call = { .rows = &rows };

    if (db_read(db, all_fn, &call, e) < 0) {
        free(rows.items);
        return -1;
    }
    *out = rows;
    return 0;
}
