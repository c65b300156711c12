#include "gateway/store/volume_store.h"

#include "common/base/err.h"
#include "gateway/store/db.h"
#include "gateway/store/row.h"

#include <stdio.h>
#include <stdlib.h>

struct call {
    const struct volume_row *row;
    const char *sandbox_id;
    struct volume_rows *rows;
};

static int put_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char sql[] = "INSERT INTO volumes (name, sandbox_id, keep) VALUES (?, ?, ?)"
                              " ON CONFLICT (name) DO UPDATE"
                              " SET sandbox_id = excluded.sandbox_id, keep = excluded.keep";
    const struct volume_row *row = ((struct call *)arg)->row;
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    if (!st || row_bind_text(c, st, 1, row->name, e) < 0 ||
        row_bind_text(c, st, 2, row->sandbox_id, e) < 0 || row_bind_num(c, st, 3, row->keep, e) < 0)
        return -1;
    return db_exec(c, st, e);
}

static int drop_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char sql[] = "DELETE FROM volumes WHERE name = ? AND sandbox_id = ?";
    const struct volume_row *row = ((struct call *)arg)->row;
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    if (!st || row_bind_text(c, st, 1, row->name, e) < 0 ||
        row_bind_text(c, st, 2, row->sandbox_id, e) < 0)
        return -1;
    return db_exec(c, st, e);
}

int volume_keep(struct db_conn *c, const char *sandbox_id, struct err *e)
{
    static const char sql[] = "DELETE FROM volumes WHERE sandbox_id = ? AND keep = 1";
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    if (!st || row_bind_text(c, st, 1, sandbox_id, e) < 0)
        return -1;
    return db_exec(c, st, e);
}

static int add_row(struct volume_rows *rows, sqlite3_stmt *st, struct err *e)
{
    struct volume_row *items = realloc(rows->items, (rows->len + 1) * sizeof(*items));
    struct volume_row *row;

    if (!items)
        return err_nomem(e);
    rows->items = items;
    row = &items[rows->len++];
    (void)snprintf(row->name, sizeof(row->name), "%s", row_text(st, 0));
    (void)snprintf(row->sandbox_id, sizeof(row->sandbox_id), "%s", row_text(st, 1));
    row->keep = sqlite3_column_int(st, 2) != 0;
    return 0;
}

static int take_rows(struct db_conn *c, sqlite3_stmt *st, struct volume_rows *rows, struct err *e)
{
    int rc;

    while ((rc = sqlite3_step(st)) == SQLITE_ROW)
        if (add_row(rows, st, e) < 0)
            return -1;
    return rc == SQLITE_DONE ? 0 : db_fail(c, e, "list volumes");
}

static int of_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char sql[] =
        "SELECT name, sandbox_id, keep FROM volumes WHERE sandbox_id = ? ORDER BY name";
    struct call *call = arg;
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    if (!st || row_bind_text(c, st, 1, call->sandbox_id, e) < 0)
        return -1;
    return take_rows(c, st, call->rows, e);
}

static int left_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char sql[] = "SELECT name, sandbox_id, keep FROM volumes v WHERE NOT EXISTS"
                              " (SELECT 1 FROM sandboxes s"
                              "  WHERE s.id = v.sandbox_id AND s.ended_ms = 0) ORDER BY name";
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    return st ? take_rows(c, st, ((struct call *)arg)->rows, e) : -1;
}

static int list(struct db *db, db_fn fn, const char *sandbox_id, struct volume_rows *out,
                struct err *e)
{
    struct volume_rows rows = { 0 };
    struct call call = { .sandbox_id = sandbox_id, .rows = &rows };

    if (db_read(db, fn, &call, e) < 0) {
        free(rows.items);
        return -1;
    }
    *out = rows;
    return 0;
}

int volume_store_put(struct db *db, const struct volume_row *row, struct err *e)
{
    struct call call = { .row = row };

    return db_write(db, put_fn, &call, e);
}

int volume_store_drop(struct db *db, const char *name, const char *sandbox_id, struct err *e)
{
    struct volume_row row = { 0 };
    struct call call = { .row = &row };

    (void)snprintf(row.name, sizeof(row.name), "%s", name);
    (void)snprintf(row.sandbox_id, sizeof(row.sandbox_id), "%s", sandbox_id);
    return db_write(db, drop_fn, &call, e);
}

int volume_store_of(struct db *db, const char *sandbox_id, struct volume_rows *out, struct err *e)
{
    return list(db, of_fn, sandbox_id, out, e);
}

int volume_store_left(struct db *db, struct volume_rows *out, struct err *e)
{
    return list(db, left_fn, NULL, out, e);
}
