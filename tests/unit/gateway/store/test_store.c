/* The database on disk: durability of what is committed, one owner, migrations, group commit. */
#include "tests/unit/test.h"

#include "common/base/err.h"
#include "common/base/log.h"
#include "gateway/store/db.h"
#include "gateway/store/migrate.h"
#include "gateway/store/sandbox_store.h"

#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WRITERS = 8, WRITES = 50 };

struct world {
    char dir[64];
    char path[128];
    struct db *db;
};

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    struct err e = { 0 };

    log_set_level(LOG_OFF);
    (void)snprintf(w->dir, sizeof(w->dir), "/tmp/sandgate-store-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    (void)snprintf(w->path, sizeof(w->path), "%s/s.db", w->dir);
    if (db_open(w->path, &w->db, &e) < 0)
        fail_msg("%s", e.msg);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    static const char *const names[] = { "s.db",      "s.db-wal",         "s.db-shm",
                                         "s.db.lock", "s.db.before-0002", "s.db.before-0003" };
    struct world *w = *state;
    char path[200];
    size_t i;

    db_close(w->db);
    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", w->dir, names[i]);
        (void)unlink(path);
    }
    assert_int_equal(rmdir(w->dir), 0);
    free(w);
    return 0;
}

static struct sandbox record(const char *id)
{
    struct sandbox sb = { .state = SANDBOX_PENDING,
                          .created_ms = 5,
                          .expires_ms = 7,
                          .image = (char *)"img",
                          .entrypoint = (char *)"[\"a\"]",
                          .metadata = (char *)"{}",
                          .extensions = (char *)"{}" };

    (void)snprintf(sb.id, sizeof(sb.id), "%s", id);
    (void)snprintf(sb.token, sizeof(sb.token), "t-%s", id);
    return sb;
}

static void reopens_with_what_was_written(void **state)
{
    struct world *w = *state;
    struct sandbox sb = record("one");
    struct sandbox got;
    struct err e;

    assert_int_equal(sandbox_store_insert(w->db, &sb, &e), 0);
    sandbox_set_state(&sb, SANDBOX_RUNNING, "R", "m", 9);
    (void)snprintf(sb.place.address, sizeof(sb.place.address), "10.0.0.2");
    sb.place.agent_port = 44772;
    sb.place.host_port = 65535;
    assert_int_equal(sandbox_store_started(w->db, &sb, &e), 0);
    db_close(w->db);
    assert_int_equal(db_open(w->path, &w->db, &e), 0);
    assert_int_equal(sandbox_store_get(w->db, "one", &got, &e), 0);
    assert_int_equal(got.state, SANDBOX_RUNNING);
    assert_int_equal(got.place.host_port, 65535);
    assert_string_equal(got.place.address, "10.0.0.2");
    assert_string_equal(got.token, "t-one");
    sandbox_done(&got);
}

static void a_transition_is_compare_and_set(void **state)
{
    struct world *w = *state;
    struct sandbox sb = record("one");
    struct err e;

    assert_int_equal(sandbox_store_insert(w->db, &sb, &e), 0);
    assert_int_equal(sandbox_store_insert(w->db, &sb, &e), -1);
    assert_int_equal(e.code, ERRC_CONFLICT);
    sandbox_set_state(&sb, SANDBOX_PAUSED, "P", "m", 9);
    assert_int_equal(sandbox_store_transition(w->db, &sb, SANDBOX_RUNNING, &e), -1);
    assert_int_equal(e.code, ERRC_CONFLICT);
    (void)snprintf(sb.id, sizeof(sb.id), "two");
    assert_int_equal(sandbox_store_transition(w->db, &sb, SANDBOX_RUNNING, &e), -1);
    assert_int_equal(e.code, ERRC_NOT_FOUND);
}

static void due_is_at_or_before_now(void **state)
{
    struct world *w = *state;
    struct sandbox sb = record("a");
    struct sandbox_ids ids;
    struct err e;
    int64_t next;

    assert_int_equal(sandbox_store_insert(w->db, &sb, &e), 0);
    assert_int_equal(sandbox_store_due(w->db, 7, 10, &ids, &next, &e), 0);
    assert_int_equal(ids.len, 0); /* still being made */
    free(ids.ids);
    sandbox_set_state(&sb, SANDBOX_RUNNING, "R", "m", 9);
    assert_int_equal(sandbox_store_started(w->db, &sb, &e), 0);
    sb = record("never");
    sb.expires_ms = 0;
    assert_int_equal(sandbox_store_insert(w->db, &sb, &e), 0);
    assert_int_equal(sandbox_store_due(w->db, 6, 10, &ids, &next, &e), 0);
    assert_int_equal(ids.len, 0);
    assert_int_equal(next, 7);
    free(ids.ids);
    assert_int_equal(sandbox_store_due(w->db, 7, 10, &ids, &next, &e), 0);
    assert_int_equal(ids.len, 1);
    assert_string_equal(ids.ids[0], "a");
    assert_int_equal(next, 0);
    free(ids.ids);
}

static void the_instance_never_changes(void **state)
{
    struct world *w = *state;
    char a[RUNTIME_ID];
    char b[RUNTIME_ID];
    struct err e;

    assert_int_equal(sandbox_store_instance(w->db, a, &e), 0);
    assert_int_equal(strlen(a), 36);
    db_close(w->db);
    assert_int_equal(db_open(w->path, &w->db, &e), 0);
    assert_int_equal(sandbox_store_instance(w->db, b, &e), 0);
    assert_string_equal(a, b);
}

static void a_second_owner_is_refused(void **state)
{
    struct world *w = *state;
    struct db *other;
    struct err e;

    assert_int_equal(db_open(w->path, &other, &e), -1);
    assert_contains(e.msg, "in use by another gateway");
}

struct writer {
    struct db *db;
    int n;
    int failed;
};

static void *write_many(void *arg)
{
    struct writer *wr = arg;
    struct sandbox sb;
    char id[32];
    int i;

    for (i = 0; i < WRITES; i++) {
        (void)snprintf(id, sizeof(id), "w%d-%d", wr->n, i);
        sb = record(id);
        wr->failed += sandbox_store_insert(wr->db, &sb, NULL) < 0;
        wr->failed += sandbox_store_insert(wr->db, &sb, NULL) == 0; /* undone alone */
    }
    return NULL;
}

/* Failing changes share groups with good ones and take none of them down. */
static void concurrent_writers_lose_nothing(void **state)
{
    struct world *w = *state;
    struct writer wr[WRITERS];
    pthread_t th[WRITERS];
    struct sandbox_page p;
    int i;

    for (i = 0; i < WRITERS; i++) {
        wr[i] = (struct writer){ w->db, i, 0 };
        assert_int_equal(pthread_create(&th[i], NULL, write_many, &wr[i]), 0);
    }
    for (i = 0; i < WRITERS; i++) {
        assert_int_equal(pthread_join(th[i], NULL), 0);
        assert_int_equal(wr[i].failed, 0);
    }
    assert_int_equal(sandbox_store_list(w->db, &(struct sandbox_query){ .limit = 1 }, &p, NULL), 0);
    assert_int_equal(p.total, WRITERS * WRITES);
    sandbox_page_done(&p);
}

/* kill -9 right after a write was answered: it is there. */
static void survives_kill_9(void **state)
{
    struct world *w = *state;
    struct sandbox got;
    struct err e;
    pid_t kid;
    int status;

    db_close(w->db);
    w->db = NULL;
    kid = fork();
    if (kid == 0) {
        struct sandbox sb = record("kept");
        struct db *db;

        if (db_open(w->path, &db, NULL) == 0 && sandbox_store_insert(db, &sb, NULL) == 0)
            (void)kill(getpid(), SIGKILL);
        _exit(1);
    }
    assert_int_equal(waitpid(kid, &status, 0), kid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_int_equal(db_open(w->path, &w->db, &e), 0);
    assert_int_equal(sandbox_store_get(w->db, "kept", &got, &e), 0);
    sandbox_done(&got);
}

static void a_newer_database_is_refused(void **state)
{
    struct world *w = *state;
    struct err e;
    sqlite3 *sq;

    db_close(w->db);
    w->db = NULL;
    assert_int_equal(sqlite3_open(w->path, &sq), SQLITE_OK);
    assert_int_equal(sqlite3_exec(sq, "PRAGMA user_version = 9999", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(sq), SQLITE_OK);
    assert_int_equal(db_open(w->path, &w->db, &e), -1);
    w->db = NULL;
    assert_contains(e.msg, "newer than this program");
}

/* A database of the first version: migrated, its rows kept, a copy of it beside it. */
static void an_old_database_is_migrated_and_copied(void **state)
{
    struct world *w = *state;
    const struct sandbox_query q = { .metadata = "{\"a\":\"b\"}", .limit = 5 };
    struct sandbox_page page;
    char copy[200];
    struct sandbox got;
    struct err e = { 0 };
    sqlite3 *sq;

    db_close(w->db);
    w->db = NULL;
    (void)unlink(w->path);
    assert_int_equal(sqlite3_open(w->path, &sq), SQLITE_OK);
    assert_int_equal(sqlite3_exec(sq, migrations[0].sql, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_exec(sq,
                                  "INSERT INTO sandboxes VALUES (1,'old','Running','r','m',1,2,3,"
                                  "'i','[]','{\"a\":\"b\"}','{}','','','t','10.0.0.2',44772,'',0);"
                                  "PRAGMA user_version = 1",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    assert_int_equal(sqlite3_close(sq), SQLITE_OK);
    if (db_open(w->path, &w->db, &e) < 0)
        fail_msg("%s", e.msg);
    assert_int_equal(sandbox_store_get(w->db, "old", &got, &e), 0);
    assert_int_equal(got.renew_s, 0);
    assert_string_equal(got.place.address, "10.0.0.2");
    sandbox_done(&got);
    assert_int_equal(sandbox_store_list(w->db, &q, &page, &e), 0); /* what lists count is there */
    assert_int_equal(page.total, 1);
    sandbox_page_done(&page);
    (void)snprintf(copy, sizeof(copy), "%s.before-0002", w->path);
    assert_int_equal(access(copy, R_OK), 0);
}

static void an_end_is_remembered_and_forgotten(void **state)
{
    struct world *w = *state;
    struct sandbox sb = record("a");
    struct sandbox_end end = { .state = SANDBOX_TERMINATED,
                               .ended_ms = 50,
                               .exit_code = 3,
                               .logs = "last words",
                               .reason = "EXPIRED",
                               .message = "m" };
    struct sandbox got;
    char *logs = NULL;
    struct err e;

    assert_int_equal(sandbox_store_insert(w->db, &sb, &e), 0);
    assert_int_equal(sandbox_store_end(w->db, "a", &end, &e), 0);
    assert_int_equal(sandbox_store_end(w->db, "a", &end, &e), 0);
    assert_int_equal(sandbox_store_get(w->db, "a", &got, &e), -1);
    assert_int_equal(e.code, ERRC_NOT_FOUND);
    assert_int_equal(sandbox_store_find(w->db, "a", &got, &e), 0);
    assert_string_equal(got.reason, "EXPIRED");
    assert_int_equal(got.exit_code, 3);
    assert_string_equal(got.token, "");
    assert_string_equal(got.image, "img");
    sandbox_done(&got);
    assert_int_equal(sandbox_store_logs(w->db, "a", &logs, &e), 0);
    assert_string_equal(logs, "last words");
    free(logs);
    assert_int_equal(sandbox_store_forget_ended(w->db, 50, &e), 0);
    assert_int_equal(sandbox_store_find(w->db, "a", &got, &e), 0);
    sandbox_done(&got);
    assert_int_equal(sandbox_store_forget_ended(w->db, 51, &e), 0);
    assert_int_equal(sandbox_store_find(w->db, "a", &got, &e), -1);
}

static int add_ended(struct db_conn *c, void *arg, struct err *e)
{
    struct sandbox sb;
    char id[16];
    int i;

    for (i = 1; i <= *(int *)arg; i++) {
        (void)snprintf(id, sizeof(id), "n%d", i);
        sb = record(id);
        sb.ended_ms = i;
        if (sandbox_add(c, &sb, e) < 0)
            return -1;
    }
    return 0;
}

/* However many they are: in pieces, so that others get in between. */
static void ends_of_a_long_time_are_forgotten_at_once(void **state)
{
    struct world *w = *state;
    struct sandbox_query q = { .with_ended = true, .limit = 10 };
    struct sandbox_page page;
    struct err e;
    int n = 1203;

    assert_int_equal(db_write(w->db, add_ended, &n, &e), 0);
    assert_int_equal(sandbox_store_forget_ended(w->db, 1001, &e), 0); /* two whole pieces */
    assert_int_equal(sandbox_store_list(w->db, &q, &page, &e), 0);
    assert_int_equal(page.total, 203);
    sandbox_page_done(&page);
    assert_int_equal(sandbox_store_forget_ended(w->db, 1203, &e), 0);
    assert_int_equal(sandbox_store_list(w->db, &q, &page, &e), 0);
    assert_int_equal(page.total, 1);
    assert_string_equal(page.items[0].id, "n1203");
    sandbox_page_done(&page);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(reopens_with_what_was_written),
        T(a_transition_is_compare_and_set),
        T(due_is_at_or_before_now),
        T(the_instance_never_changes),
        T(a_second_owner_is_refused),
        T(concurrent_writers_lose_nothing),
        T(survives_kill_9),
        T(a_newer_database_is_refused),
        T(an_end_is_remembered_and_forgotten),
        T(ends_of_a_long_time_are_forgotten_at_once),
        T(an_old_database_is_migrated_and_copied),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
