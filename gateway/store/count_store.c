#include "gateway/store/count_store.h"

#include "common/base/err.h"
#include "gateway/store/db.h"
#include "gateway/store/row.h"

#include <stdio.h>

static int one_number(struct db_conn *c, const char *sql, int64_t *out, struct err *e)
{
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    if (!st)
        return -1;
    if (sqlite3_step(st) != SQLITE_ROW)
        return db_fail(c, e, "count records");
    *out = sqlite3_column_int64(st, 0);
    return 0;
}

static int states_of(struct db_conn *c, struct sandbox_counts *out, struct err *e)
{
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, "SELECT state, n FROM sandbox_counts", e);
    int state;
    int rc;

    if (!st)
        return -1;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        state = sandbox_state_parse(row_text(st, 0));
        if (state >= 0)
            out->by_state[state] = sqlite3_column_int64(st, 1);
    }
    return rc == SQLITE_DONE ? 0 : db_fail(c, e, "count sandboxes");
}

static int sandboxes_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char ended[] = "SELECT count(*) FROM sandboxes WHERE ended_ms > 0";
    static const char expiry[] = "SELECT ifnull((SELECT expires_ms FROM sandboxes"
                                 " WHERE ended_ms = 0 AND expires_ms > 0 AND state <> 'Pending'"
                                 " ORDER BY expires_ms LIMIT 1), 0)";
    struct sandbox_counts *out = arg;

    if (states_of(c, out, e) < 0 || one_number(c, ended, &out->ended, e) < 0)
        return -1;
    return one_number(c, expiry, &out->earliest_expiry_ms, e);
}

int count_store_sandboxes(struct db *db, struct sandbox_counts *out, struct err *e)
{
    struct sandbox_counts made = { 0 };

    if (db_read(db, sandboxes_fn, &made, e) < 0)
        return -1;
    *out = made;
    return 0;
}

static int snapshots_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char sql[] = "SELECT state, count(*) FROM snapshots GROUP BY state";
    struct snapshot_counts *out = arg;
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);
    int rc;

    if (!st)
        return -1;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW && out->len < COUNT_STATES) {
        (void)snprintf(out->items[out->len].state, COUNT_STATE, "%s", row_text(st, 0));
        out->items[out->len++].n = sqlite3_column_int64(st, 1);
    }
    return rc == SQLITE_DONE || rc == SQLITE_ROW ? 0 : db_fail(c, e, "count snapshots");
}

int count_store_snapshots(struct db *db, struct snapshot_counts *out, struct err *e)
{
    struct snapshot_counts made = { 0 };

    if (db_read(db, snapshots_fn, &made, e) < 0)
        return -1;
    *out = made;
    return 0;
}
