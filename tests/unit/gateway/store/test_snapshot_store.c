/* Snapshot records: compare-and-set, the guard between restore and delete, lists, the limit. */
#include "tests/unit/test.h"

#include "common/base/err.h"
#include "gateway/store/db.h"
#include "gateway/store/sandbox_store.h"
#include "gateway/store/snapshot_store.h"

#include <stdlib.h>
#include <string.h>

enum { MANY = 1000 };

struct world {
    struct db *db;
    struct err e;
};

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));

    assert_int_equal(db_open(":memory:", &w->db, &w->e), 0);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;

    db_close(w->db);
    free(w);
    return 0;
}

static struct snapshot snapshot(const char *id, enum snapshot_state to, int64_t created_ms)
{
    struct snapshot s = { .created_ms = created_ms, .size_bytes = 7 };

    (void)snprintf(s.id, sizeof(s.id), "%s", id);
    (void)snprintf(s.sandbox_id, sizeof(s.sandbox_id), "box");
    (void)snprintf(s.platform_os, sizeof(s.platform_os), "linux");
    (void)snprintf(s.platform_arch, sizeof(s.platform_arch), "arm64");
    snapshot_set_state(&s, to, "why", "because", created_ms);
    return s;
}

static void put(struct world *w, const char *id, enum snapshot_state to, int64_t created_ms)
{
    struct snapshot s = snapshot(id, to, created_ms);

    assert_int_equal(snapshot_store_insert(w->db, &s, MANY, &w->e), 0);
}

static int put_sandbox(struct world *w, const char *id, const char *snapshot_id)
{
    struct sandbox sb = { .state = SANDBOX_PENDING,
                          .image = (char[]){ "" },
                          .entrypoint = (char[]){ "[]" },
                          .metadata = (char[]){ "{}" },
                          .extensions = (char[]){ "{}" } };

    (void)snprintf(sb.id, sizeof(sb.id), "%s", id);
    (void)snprintf(sb.snapshot_id, sizeof(sb.snapshot_id), "%s", snapshot_id);
    w->e = (struct err){ 0 };
    return sandbox_store_insert(w->db, &sb, &w->e);
}

static void states_have_the_names_of_the_wire(void **state)
{
    static const char *const names[] = { "Creating", "Ready", "Failed", "Deleting" };
    int i;

    (void)state;
    for (i = 0; i < SNAPSHOT_STATE_MAX_; i++) {
        assert_string_equal(snapshot_state_to_string((enum snapshot_state)i), names[i]);
        assert_int_equal(snapshot_state_parse(names[i]), i);
    }
    assert_int_equal(snapshot_state_parse("ready"), -1);
    assert_int_equal(snapshot_state_parse(""), -1);
    assert_string_equal(snapshot_state_to_string(SNAPSHOT_STATE_MAX_), "Unknown");
}

static void a_record_comes_back_as_it_was(void **state)
{
    struct world *w = *state;
    struct snapshot s = snapshot("s1", SNAPSHOT_CREATING, 5);
    struct snapshot got;

    memset(s.name, 'n', SNAPSHOT_NAME_MAX);
    assert_int_equal(snapshot_store_insert(w->db, &s, MANY, &w->e), 0);
    assert_int_equal(snapshot_store_get(w->db, "s1", &got, &w->e), 0);
    assert_string_equal(got.sandbox_id, "box");
    assert_string_equal(got.name, s.name);
    assert_int_equal(got.state, SNAPSHOT_CREATING);
    assert_string_equal(got.reason, "why");
    assert_string_equal(got.message, "because");
    assert_int_equal(got.transition_ms, 5);
    assert_int_equal(got.created_ms, 5);
    assert_int_equal(got.size_bytes, 7);
    assert_string_equal(got.platform_arch, "arm64");
    assert_int_equal(snapshot_store_get(w->db, "s2", &got, &w->e), -1);
    assert_int_equal(w->e.code, ERRC_NOT_FOUND);
}

static void the_time_of_a_transition_never_goes_back(void **state)
{
    struct snapshot s = snapshot("s1", SNAPSHOT_CREATING, 50);

    (void)state;
    snapshot_set_state(&s, SNAPSHOT_READY, "r", "m", 40);
    assert_int_equal(s.transition_ms, 50);
    snapshot_set_state(&s, SNAPSHOT_READY, "r", "m", 60);
    assert_int_equal(s.transition_ms, 60);
}

static void only_the_expected_state_is_left(void **state)
{
    struct world *w = *state;
    struct snapshot s = snapshot("s1", SNAPSHOT_READY, 5);

    put(w, "s1", SNAPSHOT_CREATING, 5);
    assert_int_equal(snapshot_store_transition(w->db, &s, SNAPSHOT_DELETING, &w->e), -1);
    assert_int_equal(w->e.code, ERRC_CONFLICT);
    assert_contains(w->e.msg, "is Creating");
    assert_int_equal(snapshot_store_transition(w->db, &s, SNAPSHOT_CREATING, &w->e), 0);
    assert_int_equal(snapshot_store_transition(w->db, &s, SNAPSHOT_CREATING, &w->e), -1);
    assert_int_equal(w->e.code, ERRC_CONFLICT);
    (void)snprintf(s.id, sizeof(s.id), "s2");
    assert_int_equal(snapshot_store_transition(w->db, &s, SNAPSHOT_CREATING, &w->e), -1);
    assert_int_equal(w->e.code, ERRC_NOT_FOUND);
}

static void there_are_at_most_so_many(void **state)
{
    struct world *w = *state;
    struct snapshot s = snapshot("s3", SNAPSHOT_CREATING, 1);

    put(w, "s1", SNAPSHOT_CREATING, 1);
    put(w, "s2", SNAPSHOT_FAILED, 1);
    assert_int_equal(snapshot_store_insert(w->db, &s, 2, &w->e), -1);
    assert_int_equal(w->e.code, ERRC_LIMIT);
    assert_contains(w->e.msg, "at most 2 snapshots");
    assert_int_equal(snapshot_store_insert(w->db, &s, 3, &w->e), 0);
}

static void only_a_ready_one_is_restored(void **state)
{
    struct world *w = *state;

    put(w, "s1", SNAPSHOT_CREATING, 1);
    put(w, "s2", SNAPSHOT_READY, 1);
    assert_int_equal(put_sandbox(w, "a", "s1"), -1);
    assert_string_equal(w->e.api_code, "SNAPSHOT::NOT_READY");
    assert_int_equal(w->e.code, ERRC_CONFLICT);
    assert_int_equal(put_sandbox(w, "a", "s9"), -1);
    assert_string_equal(w->e.api_code, "SNAPSHOT::NOT_FOUND");
    assert_int_equal(w->e.code, ERRC_NOT_FOUND);
    assert_int_equal(put_sandbox(w, "a", "s2"), 0);
    assert_int_equal(put_sandbox(w, "b", ""), 0);
}

static void a_delete_and_its_users_exclude_each_other(void **state)
{
    struct world *w = *state;
    struct sandbox_end end = { .state = SANDBOX_TERMINATED, .ended_ms = 9 };
    struct snapshot s = snapshot("s1", SNAPSHOT_DELETING, 5);
    struct snapshot before;
    int64_t users;

    put(w, "s1", SNAPSHOT_READY, 5);
    put(w, "s2", SNAPSHOT_CREATING, 5);
    assert_int_equal(put_sandbox(w, "a", "s1"), 0);
    assert_int_equal(put_sandbox(w, "b", "s1"), 0);
    assert_int_equal(snapshot_store_begin_delete(w->db, &s, &before, &users, &w->e), 0);
    assert_int_equal(users, 2);
    assert_int_equal(sandbox_store_end(w->db, "a", &end, &w->e), 0);
    assert_int_equal(sandbox_store_remove(w->db, "b", &w->e), 0);
    assert_int_equal(snapshot_store_begin_delete(w->db, &s, &before, &users, &w->e), 1);
    assert_int_equal(users, 0);
    assert_int_equal(before.state, SNAPSHOT_READY);
    assert_int_equal(put_sandbox(w, "c", "s1"), -1);
    assert_string_equal(w->e.api_code, "SNAPSHOT::NOT_READY");
    /* again: it is Deleting now, and may be asked for once more */
    assert_int_equal(snapshot_store_begin_delete(w->db, &s, &before, &users, &w->e), 1);
    assert_int_equal(before.state, SNAPSHOT_DELETING);
    assert_int_equal(before.size_bytes, 7);
    assert_int_equal(snapshot_store_remove(w->db, "s2", &w->e), 0); /* not Deleting: stays */
    assert_int_equal(snapshot_store_get(w->db, "s2", &before, &w->e), 0);
    assert_int_equal(snapshot_store_remove(w->db, "s1", &w->e), 0);
    assert_int_equal(snapshot_store_begin_delete(w->db, &s, &before, &users, &w->e), -1);
    assert_int_equal(w->e.code, ERRC_NOT_FOUND);
}

/* The ids that a query finds, joined. */
static void found(struct world *w, const struct snapshot_query *q, char out[256], int64_t *total)
{
    struct snapshot_page p;
    size_t len = 0;
    size_t i;

    assert_int_equal(snapshot_store_list(w->db, q, &p, &w->e), 0);
    out[0] = '\0';
    for (i = 0; i < p.len && len < 200; i++)
        len += (size_t)snprintf(out + len, 256 - len, "%s ", p.items[i].id);
    *total = p.total;
    snapshot_page_done(&p);
}

#define assert_found(w, text, n, ...)                                                              \
    do {                                                                                           \
        char ids_[256];                                                                            \
        int64_t total_;                                                                            \
        found((w), &(struct snapshot_query){ __VA_ARGS__ }, ids_, &total_);                        \
        assert_string_equal(ids_, text);                                                           \
        assert_int_equal(total_, n);                                                               \
    } while (0)

static void lists_are_filtered_and_paged_newest_first(void **state)
{
    struct world *w = *state;
    struct snapshot named = snapshot("s4", SNAPSHOT_READY, 30);

    put(w, "s1", SNAPSHOT_READY, 10);
    put(w, "s2", SNAPSHOT_FAILED, 20);
    put(w, "s3", SNAPSHOT_READY, 20); /* of the same millisecond: the later one first */
    (void)snprintf(named.name, sizeof(named.name), "Nightly");
    (void)snprintf(named.sandbox_id, sizeof(named.sandbox_id), "other");
    assert_int_equal(snapshot_store_insert(w->db, &named, MANY, &w->e), 0);

    assert_found(w, "s4 s3 s2 s1 ", 4, .limit = 20);
    assert_found(w, "s2 s1 ", 4, .limit = 2, .offset = 2);
    assert_found(w, "", 4, .limit = 2, .offset = 4);
    assert_found(w, "s4 ", 1, .limit = 20, .name = "Nightly");
    assert_found(w, "", 0, .limit = 20, .name = "nightly");
    assert_found(w, "", 0, .limit = 20, .name = ""); /* no snapshot has an empty name */
    assert_found(w, "s3 s2 s1 ", 3, .limit = 20, .sandbox_id = "box");
    assert_found(w, "s2 ", 1, .limit = 20, .states = "[\"Failed\"]");
    assert_found(w, "", 0, .limit = 20, .states = "[\"failed\",\"Nonsense\"]");
    assert_found(w, "s3 s2 s1 ", 3, .limit = 20, .states = "[\"Failed\",\"Ready\"]",
                 .sandbox_id = "box");
}

static void the_unfinished_are_found_oldest_first(void **state)
{
    struct world *w = *state;
    struct snapshot_refs refs;

    put(w, "s1", SNAPSHOT_DELETING, 10);
    put(w, "s2", SNAPSHOT_READY, 10);
    put(w, "s3", SNAPSHOT_CREATING, 10);
    put(w, "s4", SNAPSHOT_FAILED, 10);
    assert_int_equal(snapshot_store_unfinished(w->db, &refs, &w->e), 0);
    assert_int_equal(refs.len, 2);
    assert_string_equal(refs.items[0].id, "s1");
    assert_int_equal(refs.items[0].state, SNAPSHOT_DELETING);
    assert_string_equal(refs.items[1].id, "s3");
    assert_int_equal(refs.items[1].state, SNAPSHOT_CREATING);
    free(refs.items);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(states_have_the_names_of_the_wire),
        T(a_record_comes_back_as_it_was),
        T(the_time_of_a_transition_never_goes_back),
        T(only_the_expected_state_is_left),
        T(there_are_at_most_so_many),
        T(only_a_ready_one_is_restored),
        T(a_delete_and_its_users_exclude_each_other),
        T(lists_are_filtered_and_paged_newest_first),
        T(the_unfinished_are_found_oldest_first),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
