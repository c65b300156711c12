#include "gateway/store/event_store.h"

#include "common/base/err.h"
#include "gateway/store/db.h"
#include "gateway/store/row.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct call {
    const char *id;
    const struct event *ev;
    int source;
    size_t max;
    struct event_list *list;
};

static const char *const source_names[EVENT_SOURCE_MAX_] = {
    [EVENT_LIFECYCLE] = "lifecycle",
    [EVENT_RUNTIME] = "runtime",
};

void event_list_done(struct event_list *l)
{
    free(l->items);
    *l = (struct event_list){ 0 };
}

/* ---- adding ---- */

static int trim(struct db_conn *c, const char *id, struct err *e)
{
    static const char sql[] = "DELETE FROM events WHERE sandbox_id = ?1 AND seq <="
                              " (SELECT seq FROM events WHERE sandbox_id = ?1"
                              "  ORDER BY seq DESC LIMIT 1 OFFSET ?2)";
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    if (!st || row_bind_text(c, st, 1, id, e) < 0 ||
        row_bind_num(c, st, 2, EVENTS_PER_SANDBOX, e) < 0)
        return -1;
    return db_exec(c, st, e);
}

int event_add(struct db_conn *c, const char *sandbox_id, const struct event *ev, struct err *e)
{
    static const char sql[] =
        "INSERT INTO events (sandbox_id, at_ms, source, type, reason, message)"
        " SELECT id, ?2, ?3, ?4, ?5, ?6 FROM sandboxes WHERE id = ?1";
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    if (!st || row_bind_text(c, st, 1, sandbox_id, e) < 0 ||
        row_bind_num(c, st, 2, ev->at_ms, e) < 0 ||
        row_bind_text(c, st, 3, source_names[ev->source], e) < 0 ||
        row_bind_text(c, st, 4, ev->type, e) < 0 || row_bind_text(c, st, 5, ev->reason, e) < 0 ||
        row_bind_text(c, st, 6, ev->message, e) < 0 || db_exec(c, st, e) < 0)
        return -1;
    return trim(c, sandbox_id, e);
}

static int add_fn(struct db_conn *c, void *arg, struct err *e)
{
    const struct call *call = arg;

    return event_add(c, call->id, call->ev, e);
}

int event_store_add(struct db *db, const char *sandbox_id, const struct event *ev, struct err *e)
{
    struct call call = { .id = sandbox_id, .ev = ev };

    return db_write(db, add_fn, &call, e);
}

/* ---- reading ---- */

static void copy(sqlite3_stmt *st, int col, char *out, size_t size)
{
    (void)snprintf(out, size, "%s", row_text(st, col));
}

static void take_row(sqlite3_stmt *st, struct event *ev)
{
    char source[EVENT_TYPE];

    ev->seq = sqlite3_column_int64(st, 0);
    ev->at_ms = sqlite3_column_int64(st, 1);
    copy(st, 2, source, sizeof(source));
    ev->source = strcmp(source, source_names[EVENT_RUNTIME]) == 0 ? EVENT_RUNTIME : EVENT_LIFECYCLE;
    copy(st, 3, ev->type, sizeof(ev->type));
    copy(st, 4, ev->reason, sizeof(ev->reason));
    copy(st, 5, ev->message, sizeof(ev->message));
}

static void reverse(struct event_list *l)
{
    struct event ev;
    size_t i;

    for (i = 0; i < l->len / 2; i++) {
        ev = l->items[i];
        l->items[i] = l->items[l->len - 1 - i];
        l->items[l->len - 1 - i] = ev;
    }
}

static int list_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char sql[] =
        "SELECT seq, at_ms, source, type, reason, message FROM events"
        " WHERE sandbox_id = ?1 AND (?2 = '' OR source = ?2) ORDER BY seq DESC LIMIT ?3";
    const struct call *call = arg;
    struct event_list *l = call->list;
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);
    int rc;

    if (!st || row_bind_text(c, st, 1, call->id, e) < 0 ||
        row_bind_text(c, st, 2, call->source < 0 ? "" : source_names[call->source], e) < 0 ||
        row_bind_num(c, st, 3, (int64_t)call->max, e) < 0)
        return -1;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW && l->len < call->max)
        take_row(st, &l->items[l->len++]);
    reverse(l);
    return rc == SQLITE_DONE ? 0 : db_fail(c, e, "list events");
}

int event_store_list(struct db *db, const char *sandbox_id, int source, size_t max,
                     struct event_list *out, struct err *e)
{
    struct event_list l = { .items = calloc(max + 1, sizeof(struct event)) };
    struct call call = { .id = sandbox_id, .source = source, .max = max, .list = &l };

    if (!l.items)
        return err_nomem(e);
    if (db_read(db, list_fn, &call, e) < 0) {
        event_list_done(&l);
        return -1;
    }
    *out = l;
    return 0;
}
