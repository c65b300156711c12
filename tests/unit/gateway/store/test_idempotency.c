/* Keys in the store: one transaction with the sandbox, and when they become free. */
#include "tests/unit/test.h"

#include "common/base/err.h"
#include "gateway/store/db.h"
#include "gateway/store/idempotency_store.h"
#include "gateway/store/sandbox_store.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int setup(void **state)
{
    struct db *db;

    assert_int_equal(db_open(":memory:", &db, NULL), 0);
    *state = db;
    return 0;
}

static int teardown(void **state)
{
    db_close(*state);
    return 0;
}

static int insert(struct db *db, const char *key, const char *sha, const char *id,
                  int64_t created_ms, struct idempotency *out)
{
    struct sandbox sb = { .state = SANDBOX_PENDING,
                          .created_ms = created_ms,
                          .image = (char *)"i",
                          .entrypoint = (char *)"[]",
                          .metadata = (char *)"{}",
                          .extensions = (char *)"{}" };

    (void)snprintf(sb.id, sizeof(sb.id), "%s", id);
    return idempotency_store_insert(db, key, sha, &sb, out, NULL);
}

static void expect_key(struct db *db, const char *key, const char *id)
{
    struct idempotency got;

    assert_int_equal(idempotency_store_get(db, key, &got, NULL), id ? 1 : 0);
    if (id)
        assert_string_equal(got.sandbox_id, id);
}

static void a_taken_key_writes_nothing(void **state)
{
    struct db *db = *state;
    struct idempotency got;
    struct sandbox sb;

    assert_int_equal(insert(db, "k", "aa", "one", 1, &got), 0);
    assert_int_equal(insert(db, "k", "bb", "two", 2, &got), 1);
    assert_string_equal(got.sandbox_id, "one");
    assert_string_equal(got.body_sha256, "aa");
    assert_int_equal(sandbox_store_find(db, "two", &sb, NULL), -1);
    assert_int_equal(insert(db, "other", "aa", "two", 2, &got), 0);
    expect_key(db, "k", "one");
    expect_key(db, "K", NULL); /* case counts */
}

/* A sandbox that cannot be inserted leaves its key free. */
static void both_or_neither(void **state)
{
    struct db *db = *state;
    struct idempotency got;

    assert_int_equal(insert(db, "k", "aa", "one", 1, &got), 0);
    assert_int_equal(insert(db, "again", "aa", "one", 1, &got), -1);
    expect_key(db, "again", NULL);
}

static void only_a_create_that_failed_frees_its_key(void **state)
{
    static const struct {
        enum sandbox_state from;
        enum sandbox_state to;
        bool freed;
    } rows[] = {
        { SANDBOX_PENDING, SANDBOX_FAILED, true },
        { SANDBOX_PENDING, SANDBOX_TERMINATED, false }, /* deleted on purpose */
        { SANDBOX_RUNNING, SANDBOX_FAILED, false },
        { SANDBOX_RUNNING, SANDBOX_TERMINATED, false },
    };
    struct db *db = *state;
    struct idempotency got;
    size_t i;

    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct sandbox_end end = { .state = rows[i].to, .ended_ms = 9 };
        struct sandbox sb = { .state = SANDBOX_RUNNING };
        char id[8];

        (void)snprintf(id, sizeof(id), "%zu", i);
        memcpy(sb.id, id, sizeof(id));
        assert_int_equal(insert(db, id, "aa", id, 1, &got), 0);
        if (rows[i].from == SANDBOX_RUNNING)
            assert_int_equal(sandbox_store_started(db, &sb, NULL), 0);
        assert_int_equal(sandbox_store_end(db, id, &end, NULL), 0);
        expect_key(db, id, rows[i].freed ? NULL : id);
    }
}

static void keys_go_by_age_or_by_sandbox(void **state)
{
    struct db *db = *state;
    struct idempotency got;

    assert_int_equal(insert(db, "old", "aa", "one", 99, &got), 0);
    assert_int_equal(insert(db, "edge", "aa", "two", 100, &got), 0);
    assert_int_equal(insert(db, "new", "aa", "three", 101, &got), 0);
    assert_int_equal(idempotency_store_forget(db, 100, NULL), 0);
    expect_key(db, "old", NULL);
    expect_key(db, "edge", "two");
    assert_int_equal(idempotency_store_release(db, "three", NULL), 0);
    assert_int_equal(idempotency_store_release(db, "three", NULL), 0);
    expect_key(db, "new", NULL);
    expect_key(db, "edge", "two");
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_taken_key_writes_nothing),
        T(both_or_neither),
        T(only_a_create_that_failed_frees_its_key),
        T(keys_go_by_age_or_by_sandbox),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
