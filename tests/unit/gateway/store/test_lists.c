/* Lists and counts: what they show against a naive look at every record, and that their cost does not grow with
 * the number of records: no statement of the read path scans or sorts. */
#include "tests/unit/test.h"

#include "common/base/err.h"
#include "common/base/log.h"
#include "gateway/store/count_store.h"
#include "gateway/store/db.h"
#include "gateway/store/event_store.h"
#include "gateway/store/sandbox_store.h"

#include <jansson.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

enum { RECORDS = 60, NOW = 1000000 };

static int setup(void **state)
{
    struct db *db;
    struct err e;

    log_set_level(LOG_OFF);
    assert_int_equal(db_open(":memory:", &db, &e), 0);
    *state = db;
    return 0;
}

static int teardown(void **state)
{
    db_close(*state);
    return 0;
}

static void add(struct db *db, int n, enum sandbox_state st, const char *metadata)
{
    struct sandbox sb = { .state = st,
                          .reason = "R",
                          .message = "M",
                          .created_ms = NOW + n / 2, /* pairs share a time: seq decides */
                          .expires_ms = n % 3 ? NOW + n : 0,
                          .exit_code = SANDBOX_NO_EXIT_CODE,
                          .image = (char *)"img",
                          .entrypoint = (char *)"[\"a\"]",
                          .metadata = (char *)metadata,
                          .extensions = (char *)"{}" };
    struct err e;

    (void)snprintf(sb.id, sizeof(sb.id), "id-%03d", n);
    if (sandbox_store_insert(db, &sb, &e) < 0)
        fail_msg("%s", e.msg);
}

static void end(struct db *db, int n)
{
    struct sandbox_end end = { .state = SANDBOX_TERMINATED, .ended_ms = NOW + n, .exit_code = 0 };
    char id[16];

    (void)snprintf(id, sizeof(id), "id-%03d", n);
    assert_int_equal(sandbox_store_end(db, id, &end, NULL), 0);
}

/* States and labels in all mixtures; every fifth ended. */
static void fill(struct db *db)
{
    static const enum sandbox_state states[] = { SANDBOX_RUNNING, SANDBOX_PAUSED, SANDBOX_PENDING };
    char metadata[80];
    int n;

    for (n = 0; n < RECORDS; n++) {
        (void)snprintf(metadata, sizeof(metadata), "{\"app\":\"a%d\",\"all\":\"1\",\"n\":\"%d\"}",
                       n % 4, n);
        add(db, n, states[n % 3], n % 7 ? metadata : "{}");
    }
    for (n = 0; n < RECORDS; n += 5)
        end(db, n);
}

static bool wanted(const struct sandbox *sb, const struct sandbox_query *q)
{
    json_t *states = q->states ? json_loads(q->states, 0, NULL) : NULL;
    json_t *filter = q->metadata ? json_loads(q->metadata, 0, NULL) : NULL;
    json_t *metadata = json_loads(sb->metadata, 0, NULL);
    bool ok = !states;
    const char *key;
    json_t *v;
    size_t i;

    json_array_foreach(states, i, v) {
        ok |= strcasecmp(json_string_value(v), sandbox_state_to_string(sb->state)) == 0;
    }
    json_object_foreach(filter, key, v) {
        ok &= json_equal(json_object_get(metadata, key), v);
    }
    json_decref(states);
    json_decref(filter);
    json_decref(metadata);
    return ok;
}

static void check(struct db *db, struct sandbox_query q)
{
    struct sandbox_query everything = { .with_ended = q.with_ended, .limit = 1000 };
    struct sandbox_page all;
    struct sandbox_page got;
    struct err e;
    int64_t total = 0;
    size_t at = 0;
    size_t i;

    assert_int_equal(sandbox_store_list(db, &everything, &all, &e), 0);
    if (sandbox_store_list(db, &q, &got, &e) < 0)
        fail_msg("%s", e.msg);
    for (i = 0; i < all.len; i++) {
        if (i)
            assert_true(strcmp(all.items[i - 1].id, all.items[i].id) > 0); /* newest first */
        if (!q.with_ended)
            assert_int_equal(all.items[i].ended_ms, 0);
        if (!wanted(&all.items[i], &q))
            continue;
        if (total >= q.offset && at < (size_t)q.limit) {
            assert_true(at < got.len);
            assert_string_equal(got.items[at++].id, all.items[i].id);
        }
        total++;
    }
    assert_int_equal(got.len, at);
    assert_int_equal(got.total, total);
    sandbox_page_done(&all);
    sandbox_page_done(&got);
}

static void lists_what_a_look_at_every_record_finds(void **state)
{
    static const char *const states[] = { NULL, "[\"running\"]",
                                          "[\"Paused\",\"PENDING\",\"nonsense\"]", "[\"\"]",
                                          "[\"Terminated\"]" };
    static const char *const metadata[] = { NULL,
                                            "{}",
                                            "{\"all\":\"1\"}",
                                            "{\"app\":\"a2\"}",
                                            "{\"app\":\"a2\",\"all\":\"1\"}",
                                            "{\"n\":\"17\",\"app\":\"a1\"}",
                                            "{\"no\":\"such\"}" };
    struct db *db = *state;
    size_t s;
    size_t m;

    fill(db);
    for (s = 0; s < sizeof(states) / sizeof(states[0]); s++)
        for (m = 0; m < sizeof(metadata) / sizeof(metadata[0]); m++) {
            check(db, (struct sandbox_query){ states[s], metadata[m], false, 0, 1000 });
            check(db, (struct sandbox_query){ states[s], metadata[m], false, 3, 4 });
            check(db, (struct sandbox_query){ states[s], metadata[m], false, 5000, 4 });
            check(db, (struct sandbox_query){ states[s], metadata[m], true, 0, 1000 });
            check(db, (struct sandbox_query){ states[s], metadata[m], true, 2, 5 });
        }
}

static struct sandbox_counts counts(struct db *db)
{
    struct sandbox_counts c;
    struct err e;

    if (count_store_sandboxes(db, &c, &e) < 0)
        fail_msg("%s", e.msg);
    return c;
}

static int64_t listed(struct db *db, const char *metadata)
{
    struct sandbox_query q = { .metadata = metadata, .limit = 1 };
    struct sandbox_page p;
    int64_t total;

    assert_int_equal(sandbox_store_list(db, &q, &p, NULL), 0);
    total = p.total;
    sandbox_page_done(&p);
    return total;
}

static void counts_follow_every_change(void **state)
{
    struct db *db = *state;
    struct sandbox sb;

    assert_int_equal(counts(db).earliest_expiry_ms, 0);
    add(db, 1, SANDBOX_PENDING, "{\"k\":\"v\"}");
    add(db, 2, SANDBOX_RUNNING, "{\"k\":\"v\"}");
    assert_int_equal(counts(db).by_state[SANDBOX_PENDING], 1);
    assert_int_equal(counts(db).earliest_expiry_ms,
                     NOW + 2); /* what is being made cannot be removed */
    assert_int_equal(listed(db, "{\"k\":\"v\"}"), 2);

    assert_int_equal(sandbox_store_find(db, "id-001", &sb, NULL), 0);
    sandbox_set_state(&sb, SANDBOX_RUNNING, "R", "", NOW);
    assert_int_equal(sandbox_store_transition(db, &sb, SANDBOX_PENDING, NULL), 0);
    assert_int_equal(counts(db).by_state[SANDBOX_PENDING], 0);
    assert_int_equal(counts(db).by_state[SANDBOX_RUNNING], 2);
    /* a change that fails changes no count */
    assert_int_equal(sandbox_store_transition(db, &sb, SANDBOX_PENDING, NULL), -1);
    assert_int_equal(sandbox_store_insert(db, &sb, NULL), -1);
    assert_int_equal(counts(db).by_state[SANDBOX_RUNNING], 2);
    sandbox_done(&sb);

    assert_int_equal(sandbox_store_patch_metadata(db, "id-001", "{\"k\":\"w\"}", 9, &sb, NULL), 0);
    assert_string_equal(sb.metadata, "{\"k\":\"w\"}");
    sandbox_done(&sb);
    assert_int_equal(listed(db, "{\"k\":\"v\"}"), 1);
    assert_int_equal(listed(db, "{\"k\":\"w\"}"), 1);

    end(db, 1);
    end(db, 1);
    assert_int_equal(counts(db).by_state[SANDBOX_RUNNING], 1);
    assert_int_equal(counts(db).by_state[SANDBOX_TERMINATED], 0);
    assert_int_equal(counts(db).ended, 1);
    assert_int_equal(listed(db, "{\"k\":\"w\"}"), 0);
    assert_int_equal(sandbox_store_remove(db, "id-001", NULL), 0);
    assert_int_equal(sandbox_store_remove(db, "id-002", NULL), 0);
    assert_int_equal(counts(db).by_state[SANDBOX_RUNNING], 0);
    assert_int_equal(listed(db, NULL), 0);
    assert_int_equal(listed(db, "{\"k\":\"v\"}"), 0);
}

static void a_patch_has_a_limit_and_leaves_ended_ones_alone(void **state)
{
    struct db *db = *state;
    struct sandbox sb;
    struct err e;

    add(db, 1, SANDBOX_RUNNING, "{\"a\":\"1\"}");
    assert_int_equal(sandbox_store_patch_metadata(db, "id-001", "{\"b\":\"2\"}", 2, &sb, &e), 0);
    sandbox_done(&sb);
    assert_int_equal(sandbox_store_patch_metadata(db, "id-001", "{\"c\":\"3\"}", 2, &sb, &e), -1);
    assert_int_equal(e.code, ERRC_INVALID);
    assert_int_equal(
        sandbox_store_patch_metadata(db, "id-001", "{\"c\":\"3\",\"a\":null}", 2, &sb, &e), 0);
    assert_string_equal(sb.metadata, "{\"b\":\"2\",\"c\":\"3\"}");
    sandbox_done(&sb);
    end(db, 1);
    assert_int_equal(sandbox_store_patch_metadata(db, "id-001", "{}", 2, &sb, &e), -1);
    assert_int_equal(e.code, ERRC_NOT_FOUND);
}

/* ---- plans ---- */

struct plans {
    unsigned statements;
    char bad[4096];
};

static bool costs_more_with_more_records(const char *step)
{
    /* a count of all rows walks an index without looking at them; json_each walks its argument */
    return strcmp(step, "SCAN s") == 0 ||
           (strncmp(step, "SCAN sandboxes", 14) == 0 && !strstr(step, "USING")) ||
           strncmp(step, "SCAN events", 11) == 0 || strncmp(step, "SCAN labels", 11) == 0 ||
           strstr(step, "TEMP B-TREE FOR ORDER BY") || strstr(step, "AUTOMATIC");
}

static void explain(sqlite3 *sq, const char *sql, struct plans *p)
{
    char *text = sqlite3_mprintf("EXPLAIN QUERY PLAN %s", sql);
    sqlite3_stmt *st = NULL;
    const char *step;

    assert_int_equal(sqlite3_prepare_v2(sq, text, -1, &st, NULL), SQLITE_OK);
    while (sqlite3_step(st) == SQLITE_ROW) {
        step = (const char *)sqlite3_column_text(st, 3);
        if (costs_more_with_more_records(step))
            (void)snprintf(p->bad + strlen(p->bad), sizeof(p->bad) - strlen(p->bad),
                           "%s\n  in %s\n", step, sql);
    }
    (void)sqlite3_finalize(st);
    sqlite3_free(text);
}

/* Every statement that the calls before have prepared. */
static int explain_all(struct db_conn *c, void *arg, struct err *e)
{
    struct plans *p = arg;
    sqlite3 *sq = sqlite3_db_handle(db_stmt(c, "SELECT 1", e));
    const char *texts[200];
    unsigned i;
    sqlite3_stmt *st;

    for (st = sqlite3_next_stmt(sq, NULL); st; st = sqlite3_next_stmt(sq, st))
        if (strncmp(sqlite3_sql(st), "SELECT", 6) == 0 && p->statements < 200)
            texts[p->statements++] = sqlite3_sql(st);
    for (i = 0; i < p->statements; i++)
        explain(sq, texts[i], p);
    return 0;
}

static void list(struct db *db, const char *states, const char *metadata, bool with_ended)
{
    struct sandbox_query q = { states, metadata, with_ended, 0, 20 };
    struct sandbox_page p;

    assert_int_equal(sandbox_store_list(db, &q, &p, NULL), 0);
    sandbox_page_done(&p);
}

static void no_read_scans_or_sorts(void **state)
{
    struct db *db = *state;
    struct sandbox_ids ids;
    struct event_list events;
    struct plans plans = { 0 };
    struct sandbox sb;
    int64_t next;
    char *logs;

    fill(db);
    assert_int_equal(sandbox_store_get(db, "id-001", &sb, NULL), 0);
    sandbox_done(&sb);
    list(db, NULL, NULL, false);
    list(db, "[\"Running\"]", NULL, false);
    list(db, "[\"Running\",\"Paused\"]", NULL, false);
    list(db, NULL, "{\"all\":\"1\"}", false);
    list(db, "[\"Running\"]", "{\"all\":\"1\",\"app\":\"a1\"}", false);
    list(db, NULL, NULL, true);
    (void)counts(db);
    assert_int_equal(sandbox_store_due(db, NOW + 30, 10, &ids, &next, NULL), 0);
    free(ids.ids);
    assert_int_equal(event_store_list(db, "id-001", -1, 10, &events, NULL), 0);
    event_list_done(&events);
    assert_int_equal(sandbox_store_logs(db, "id-000", &logs, NULL), 0);
    free(logs);
    assert_int_equal(db_read(db, explain_all, &plans, NULL), 0);
    assert_true(plans.statements >= 16);
    if (plans.bad[0])
        fail_msg("%s", plans.bad);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(lists_what_a_look_at_every_record_finds, setup, teardown),
        cmocka_unit_test_setup_teardown(counts_follow_every_change, setup, teardown),
        cmocka_unit_test_setup_teardown(a_patch_has_a_limit_and_leaves_ended_ones_alone, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(no_read_scans_or_sorts, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
