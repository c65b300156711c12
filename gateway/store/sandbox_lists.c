#include "common/base/err.h"
#include "gateway/store/db.h"
#include "gateway/store/row.h"
#include "gateway/store/sandbox_store.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

struct filter;

/* What a call hands to its db_fn. */
struct call {
    const struct sandbox_query *query;
    const struct filter *filter;
    struct sandbox_page *page;
    int state;
    int64_t num;
    int64_t num2;
    struct sandbox_ids *ids;
};

/* ---- pages ---- */

/* ?1: the state, or a JSON array of them; ?2: JSON object of metadata that must match; ?3 and ?4: one
 * pair of it; ?5 and ?6: how many rows after how many. */
#define IN_STATES " EXISTS (SELECT 1 FROM json_each(?1) w WHERE s.state = w.value)"
#define HAS_METADATA                                                                               \
    " NOT EXISTS (SELECT 1 FROM json_each(?2) f WHERE NOT EXISTS"                                  \
    " (SELECT 1 FROM json_each(s.metadata) m WHERE m.key = f.key AND m.value = f.value))"
#define ROWS "SELECT " SANDBOX_COLUMNS
#define LIVE " FROM sandboxes s WHERE s.ended_ms = 0"
#define LABELLED                                                                                   \
    " FROM labels l CROSS JOIN sandboxes s ON s.seq = l.sandbox_seq"                               \
    " WHERE l.key = ?3 AND l.value = ?4"
#define ANY_FILTER                                                                                 \
    " FROM sandboxes s WHERE (?1 IS NULL OR" IN_STATES ") AND (?2 IS NULL OR" HAS_METADATA ")"
#define NEWEST " ORDER BY s.created_ms DESC, s.seq DESC LIMIT ?5 OFFSET ?6"
#define NEWEST_LABELLED " ORDER BY l.made_ms DESC, l.sandbox_seq DESC LIMIT ?5 OFFSET ?6"

/* One pair of texts for each way to filter: each finds its rows newest first in an index and stops at
 * the end of the page, and counts without looking at them. */
static const struct texts {
    const char *count;
    const char *rows;
} of_all = { "SELECT ifnull(sum(n), 0) FROM sandbox_counts", ROWS LIVE NEWEST },
  of_state = { "SELECT ifnull(sum(n), 0) FROM sandbox_counts WHERE state = ?1",
               ROWS LIVE " AND s.state = ?1" NEWEST },
  of_states = { "SELECT ifnull(sum(n), 0) FROM sandbox_counts"
                " WHERE state IN (SELECT value FROM json_each(?1))",
                ROWS LIVE " AND" IN_STATES NEWEST },
  of_label = { "SELECT count(*) FROM labels l WHERE l.key = ?3 AND l.value = ?4",
               ROWS LABELLED NEWEST_LABELLED },
  of_labels = { "SELECT count(*)" LABELLED " AND" HAS_METADATA " AND (?1 IS NULL OR" IN_STATES ")",
                ROWS LABELLED " AND" HAS_METADATA " AND (?1 IS NULL OR" IN_STATES
                              ")" NEWEST_LABELLED },
  of_history = { "SELECT count(*) FROM sandboxes", ROWS " FROM sandboxes s" NEWEST },
  of_history_filtered = { "SELECT count(*)" ANY_FILTER, ROWS ANY_FILTER NEWEST };

/* A query taken apart; the strings live as long as the JSON values. */
struct filter {
    const struct texts *texts;
    json_t *states;
    json_t *metadata;
    const char *state; /* what ?1 is; NULL: null */
    const char *key;   /* ?3 and ?4 */
    const char *value;
};

static void filter_done(struct filter *f)
{
    json_decref(f->states);
    json_decref(f->metadata);
}

static void choose_texts(struct filter *f, const struct sandbox_query *q)
{
    size_t states = json_array_size(f->states);
    size_t pairs = json_object_size(f->metadata);
    void *first = json_object_iter(f->metadata);

    f->state = q->states;
    f->key = json_object_iter_key(first);
    f->value = json_string_value(json_object_iter_value(first));
    if (q->with_ended) {
        f->texts = states || pairs ? &of_history_filtered : &of_history;
    } else if (pairs) {
        f->texts = pairs == 1 && !states ? &of_label : &of_labels;
    } else if (states == 1) {
        f->texts = &of_state;
        f->state = json_string_value(json_array_get(f->states, 0));
    } else {
        f->texts = states ? &of_states : &of_all;
    }
}

static int take_apart(const struct sandbox_query *q, struct filter *f, struct err *e)
{
    *f = (struct filter){ 0 };
    f->states = q->states ? json_loads(q->states, 0, NULL) : NULL;
    f->metadata = q->metadata ? json_loads(q->metadata, 0, NULL) : NULL;
    if ((q->states && !f->states) || (q->metadata && !f->metadata))
        return err_nomem(e);
    choose_texts(f, q);
    return 0;
}

/* A text need not use all of the parameters. */
static int bind_filter(struct db_conn *c, sqlite3_stmt *st, const struct call *call, struct err *e)
{
    const struct filter *f = call->filter;
    const char *const texts[] = { f->state, call->query->metadata, f->key, f->value };
    const int64_t nums[] = { call->query->limit, call->query->offset };
    int n = sqlite3_bind_parameter_count(st);
    int i;

    for (i = 0; i < 4 && i < n; i++)
        if (texts[i] && row_bind_text(c, st, i + 1, texts[i], e) < 0)
            return -1;
    for (; i < n; i++)
        if (row_bind_num(c, st, i + 1, nums[i - 4], e) < 0)
            return -1;
    return 0;
}

static int count_matches(struct db_conn *c, const struct call *call, int64_t *total, struct err *e)
{
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, call->filter->texts->count, e);

    if (!st || bind_filter(c, st, call, e) < 0)
        return -1;
    if (sqlite3_step(st) != SQLITE_ROW)
        return db_fail(c, e, "count sandboxes");
    *total = sqlite3_column_int64(st, 0);
    return 0;
}

static int list_fn(struct db_conn *c, void *arg, struct err *e)
{
    struct call *call = arg;
    const struct sandbox_query *q = call->query;
    struct sandbox_page *p = call->page;
    int rc;

    if (count_matches(c, call, &p->total, e) < 0)
        return -1;
    if (q->offset >= p->total)
        return 0;

    AUTO_STMT sqlite3_stmt *st = db_stmt(c, call->filter->texts->rows, e);
    if (!st || bind_filter(c, st, call, e) < 0)
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
    struct filter filter = { 0 };
    struct call call = { .query = q, .page = &page, .filter = &filter };
    int rc = page.items ? take_apart(q, &filter, e) : err_nomem(e);

    if (rc == 0)
        rc = db_read(db, list_fn, &call, e);
    filter_done(&filter);
    if (rc < 0) {
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
