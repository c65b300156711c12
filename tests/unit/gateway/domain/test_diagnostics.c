/* Diagnostics, and the reads that never ask the runtime, over a fake runtime and an in-memory database. */
#include "tests/unit/test.h"

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/keyed_lock.h"
#include "common/base/log.h"
#include "gateway/domain/diagnostics.h"
#include "gateway/domain/lifecycle.h"
#include "gateway/store/db.h"
#include "gateway/store/event_store.h"
#include "gateway/store/sandbox_store.h"
#include "tests/fakes/fake_runtime.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { NOW = 1700000000, PATCHES = 50 };

static int64_t fake_now(void)
{
    return NOW * 1000LL;
}

static const struct clock test_clock = { fake_now, fake_now };

struct world {
    struct db *db;
    struct runtime *rt;
    struct keyed_locks *locks;
    struct lifecycle lc;
    struct buf out;
    struct err e;
    bool cut;
};

#define ID "00000000-0000-4000-8000-000000000001"

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    struct sandbox sb = { .id = ID,
                          .state = SANDBOX_RUNNING,
                          .reason = "CONTAINER_RUNNING",
                          .message = "It runs.",
                          .created_ms = NOW * 1000LL,
                          .token = "agent-token-0123",
                          .secure_token = "secure-token-0123",
                          .exit_code = SANDBOX_NO_EXIT_CODE,
                          .image = (char *)"img:1",
                          .entrypoint = (char *)"[\"tail\"]",
                          .metadata = (char *)"{\"app\":\"demo\",\"api-key\":\"hunter2\"}",
                          .extensions =
                              (char *)"{\"opensandbox.extensions.myToken\":\"hunter3\"}" };

    log_set_level(LOG_OFF);
    assert_int_equal(db_open(":memory:", &w->db, &w->e), 0);
    w->rt = fake_runtime_new();
    w->locks = keyed_locks_new();
    w->lc = (struct lifecycle){
        .db = w->db, .rt = w->rt, .locks = w->locks, .clock = &test_clock, .ready_timeout_ms = 1000
    };
    w->out = BUF_INIT(DIAGNOSTICS_MAX);
    assert_int_equal(sandbox_store_insert(w->db, &sb, &w->e), 0);
    fake_runtime_put(w->rt, ID, RUNTIME_RUNNING, 0);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;

    buf_free(&w->out);
    keyed_locks_free(w->locks);
    runtime_close(w->rt);
    db_close(w->db);
    free(w);
    return 0;
}

static void end(struct world *w, const char *logs)
{
    struct sandbox_end end = { .state = SANDBOX_FAILED,
                               .ended_ms = NOW * 1000LL + 5000,
                               .exit_code = 137,
                               .logs = logs,
                               .reason = "OOM_KILLED",
                               .message = "It ran out of memory." };

    assert_int_equal(sandbox_store_end(w->db, ID, &end, NULL), 0);
    fake_runtime_drop(w->rt, ID);
}

static const char *logs(struct world *w, int tail, int64_t since_ms)
{
    const struct diagnostics_logs q = { tail, since_ms };

    buf_clear(&w->out);
    w->e = (struct err){ 0 };
    if (diagnostics_logs(&w->lc, ID, &q, &w->out, &w->cut, &w->e) < 0)
        return NULL;
    return w->out.len ? w->out.data : "";
}

static void live_output_comes_from_the_runtime(void **state)
{
    struct world *w = *state;

    assert_string_equal(logs(w, 10, 0), "");
    assert_false(w->cut);
    fake_runtime_set_logs(w->rt, "one\ntwo\nthree");
    assert_string_equal(logs(w, 3, 0), "one\ntwo\nthree");
    assert_false(w->cut);
    assert_string_equal(logs(w, 2, 0), "two\nthree");
    assert_true(w->cut);
    fake_runtime_fail(w->rt, "logs", 1, ERRC_TIMEOUT, NULL);
    assert_null(logs(w, 2, 0));
    assert_string_equal(w->e.api_code, "DOCKER::SANDBOX_QUERY_FAILED");
    /* being made: there is no container yet */
    fake_runtime_drop(w->rt, ID);
    assert_string_equal(logs(w, 2, 0), "");
}

static void output_outlives_the_sandbox(void **state)
{
    struct world *w = *state;
    int calls;

    end(w,
        "2023-11-14T22:13:20Z one\n2023-11-14T22:13:21Z two\ncontinued\n2023-11-14T22:13:22Z x\n");
    calls = fake_runtime_calls(w->rt, "logs");
    assert_contains(logs(w, 4, 0), "Z one\n");
    assert_false(w->cut);
    assert_string_equal(logs(w, 2, 0), "continued\n2023-11-14T22:13:22Z x\n");
    assert_true(w->cut);
    assert_string_equal(logs(w, 100, NOW * 1000LL + 2000), "2023-11-14T22:13:22Z x\n");
    assert_string_equal(logs(w, 100, NOW * 1000LL + 3000), "");
    assert_int_equal(fake_runtime_calls(w->rt, "logs"), calls);
}

static void output_without_times_is_not_filtered(void **state)
{
    struct world *w = *state;

    end(w, "one\ntwo\n");
    assert_string_equal(logs(w, 5, NOW * 1000LL), "one\ntwo\n");
}

static void unknown_ones_are_not_found(void **state)
{
    struct world *w = *state;
    const struct diagnostics_logs q = { 1, 0 };

    assert_int_equal(diagnostics_logs(&w->lc, "nope", &q, &w->out, &w->cut, &w->e), -1);
    assert_string_equal(w->e.api_code, "DOCKER::SANDBOX_NOT_FOUND");
    assert_int_equal(
        diagnostics_events(&w->lc, "nope", DIAGNOSTICS_ALL, 1, &w->out, &w->cut, &w->e), -1);
    assert_int_equal(diagnostics_inspect(&w->lc, "nope", &w->out, &w->e), -1);
    assert_int_equal(diagnostics_summary(&w->lc, "nope", 1, 1, &w->out, &w->e), -1);
    assert_int_equal(w->out.len, 0);
}

static const char *events(struct world *w, enum diagnostics_events which, int max)
{
    buf_clear(&w->out);
    assert_int_equal(diagnostics_events(&w->lc, ID, which, max, &w->out, &w->cut, &w->e), 0);
    return w->out.len ? w->out.data : "";
}

static void events_by_source_newest_last(void **state)
{
    struct world *w = *state;
    const struct event oom = { .at_ms = NOW * 1000LL + 4000,
                               .source = EVENT_RUNTIME,
                               .type = "oom",
                               .message = "two\nlines" };
    const char *text;

    assert_int_equal(event_store_add(w->db, ID, &oom, NULL), 0);
    end(w, "");
    text = events(w, DIAGNOSTICS_RUNTIME, 50);
    assert_string_equal(text, "2023-11-14T22:13:24Z  runtime    oom         two lines\n");
    assert_false(w->cut);
    text = events(w, DIAGNOSTICS_LIFECYCLE, 50);
    assert_contains(text, "Running");
    assert_contains(text, "Failed      OOM_KILLED: It ran out of memory.\n");
    assert_null(strstr(text, "oom "));
    text = events(w, DIAGNOSTICS_ALL, 2);
    assert_true(w->cut);
    assert_null(strstr(text, "Running"));
    assert_true(strstr(text, "oom ") < strstr(text, "Failed"));
}

/* What a sandbox and its maker say stays on its line and moves no cursor. */
static void a_message_cannot_forge_lines(void **state)
{
    struct world *w = *state;
    struct sandbox_end end = { .state = SANDBOX_FAILED,
                               .ended_ms = NOW * 1000LL + 5000,
                               .exit_code = 5,
                               .reason = "PRE_START_FAILED",
                               .message = "its last output: \x1b[2J\nstate: Running\x7f" };

    assert_int_equal(sandbox_store_end(w->db, ID, &end, NULL), 0);
    buf_clear(&w->out);
    assert_int_equal(diagnostics_inspect(&w->lc, ID, &w->out, &w->e), 0);
    assert_contains(w->out.data, "\nmessage: its last output:  [2J state: Running \n");
    assert_contains(w->out.data, "\nstate: Failed\n");
}

static void nothing_secret_is_shown(void **state)
{
    static const char *const secrets[] = { "hunter2", "hunter3", "token-0123" };
    struct world *w = *state;
    int round;
    size_t i;

    for (round = 0; round < 2; round++) {
        buf_clear(&w->out);
        assert_int_equal(diagnostics_inspect(&w->lc, ID, &w->out, &w->e), 0);
        assert_int_equal(diagnostics_summary(&w->lc, ID, 9, 9, &w->out, &w->e), 0);
        for (i = 0; i < sizeof(secrets) / sizeof(secrets[0]); i++)
            assert_null(strstr(w->out.data, secrets[i]));
        assert_contains(w->out.data, "metadata api-key: ***");
        assert_contains(w->out.data, "metadata app: demo");
        end(w, "");
    }
    assert_contains(w->out.data, "exit code: 137");
}

/* A person asks when things are broken: the engine's failure is told in its place. */
static void a_summary_comes_without_the_engine(void **state)
{
    struct world *w = *state;

    fake_runtime_fail(w->rt, "describe", -1, ERRC_TIMEOUT, NULL);
    fake_runtime_fail(w->rt, "logs", -1, ERRC_TIMEOUT, NULL);
    assert_int_equal(diagnostics_summary(&w->lc, ID, 9, 9, &w->out, &w->e), 0);
    assert_contains(w->out.data, "container: describe fails on demand");
    assert_contains(w->out.data, "(not available: logs fails on demand)");
    assert_contains(w->out.data, "Running");
    end(w, "");
    buf_clear(&w->out);
    assert_int_equal(diagnostics_summary(&w->lc, ID, 9, 9, &w->out, &w->e), 0);
    assert_contains(w->out.data, "(no logs)");
}

static void reads_never_ask_the_runtime(void **state)
{
    static const char *const verbs[] = { "status", "list", "prepare", "logs", "describe" };
    const struct sandbox_query q = { .with_ended = true, .limit = 20 };
    struct world *w = *state;
    struct sandbox_page p;
    struct sandbox sb;
    size_t i;

    assert_int_equal(lifecycle_get(&w->lc, ID, &sb, NULL), 0);
    sandbox_done(&sb);
    assert_int_equal(lifecycle_find(&w->lc, ID, &sb, NULL), 0);
    sandbox_done(&sb);
    assert_int_equal(lifecycle_list(&w->lc, &q, &p, NULL), 0);
    sandbox_page_done(&p);
    for (i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
        assert_int_equal(fake_runtime_calls(w->rt, verbs[i]), 0);
}

/* ---- metadata ---- */

struct patcher {
    struct world *w;
    int n;
    pthread_t thread;
    int rc;
};

static void *patch_one(void *arg)
{
    struct patcher *p = arg;
    struct sandbox sb = { 0 };
    char key[16];
    json_t *patch;

    (void)snprintf(key, sizeof(key), "k%d", p->n);
    patch = json_pack("{s:s, s:n}", key, "v", "app");
    p->rc = lifecycle_patch_metadata(&p->w->lc, ID, patch, &sb, NULL);
    json_decref(patch);
    sandbox_done(&sb);
    return NULL;
}

static void parallel_patches_lose_nothing(void **state)
{
    struct world *w = *state;
    struct patcher ps[PATCHES];
    struct sandbox sb;
    json_t *got;
    int i;

    for (i = 0; i < PATCHES; i++) {
        ps[i] = (struct patcher){ .w = w, .n = i };
        assert_int_equal(pthread_create(&ps[i].thread, NULL, patch_one, &ps[i]), 0);
    }
    for (i = 0; i < PATCHES; i++) {
        assert_int_equal(pthread_join(ps[i].thread, NULL), 0);
        assert_int_equal(ps[i].rc, 0);
    }
    assert_int_equal(lifecycle_get(&w->lc, ID, &sb, NULL), 0);
    got = json_loads(sb.metadata, 0, NULL);
    assert_int_equal(json_object_size(got), PATCHES + 1); /* and "api-key"; "app" is deleted */
    json_decref(got);
    sandbox_done(&sb);
}

static int patch(struct world *w, const char *text)
{
    json_t *p = json_loads(text, 0, NULL);
    struct sandbox sb = { 0 };
    int rc;

    w->e = (struct err){ 0 };
    rc = lifecycle_patch_metadata(&w->lc, ID, p, &sb, &w->e);
    json_decref(p);
    sandbox_done(&sb);
    return rc;
}

/* contract 4.4: a reserved key has a bare code here, unlike in a create. */
static void patches_are_checked(void **state)
{
    struct world *w = *state;

    assert_int_equal(patch(w, "{\"opensandbox.io/x\":null}"), -1);
    assert_string_equal(w->e.api_code, "INVALID_METADATA_LABEL");
    assert_int_equal(patch(w, "{\"opensandbox.io/x\":\"1\"}"), -1);
    assert_string_equal(w->e.api_code, "INVALID_METADATA_LABEL");
    assert_int_equal(patch(w, "{\"a b\":\"1\"}"), -1);
    assert_string_equal(w->e.api_code, "SANDBOX::INVALID_METADATA_LABEL");
    assert_int_equal(patch(w, "{\"a b\":null}"), 0);
    assert_int_equal(patch(w, "{}"), 0);
    end(w, "");
    assert_int_equal(patch(w, "{}"), -1);
    assert_string_equal(w->e.api_code, "DOCKER::SANDBOX_NOT_FOUND");
    assert_contains(w->e.msg, "OOM_KILLED");
}

/* Nobody who changes a sandbox makes a patch wait: a create may hold its lock for as long as a pull. */
static void a_patch_waits_for_no_lock(void **state)
{
    struct world *w = *state;
    AUTO_KEYED struct keyed_lock *held = keyed_lock_take(w->locks, ID);

    assert_int_equal(patch(w, "{\"while\":\"held\"}"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(live_output_comes_from_the_runtime, setup, teardown),
        cmocka_unit_test_setup_teardown(output_outlives_the_sandbox, setup, teardown),
        cmocka_unit_test_setup_teardown(output_without_times_is_not_filtered, setup, teardown),
        cmocka_unit_test_setup_teardown(unknown_ones_are_not_found, setup, teardown),
        cmocka_unit_test_setup_teardown(events_by_source_newest_last, setup, teardown),
        cmocka_unit_test_setup_teardown(a_message_cannot_forge_lines, setup, teardown),
        cmocka_unit_test_setup_teardown(nothing_secret_is_shown, setup, teardown),
        cmocka_unit_test_setup_teardown(a_summary_comes_without_the_engine, setup, teardown),
        cmocka_unit_test_setup_teardown(reads_never_ask_the_runtime, setup, teardown),
        cmocka_unit_test_setup_teardown(parallel_patches_lose_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(patches_are_checked, setup, teardown),
        cmocka_unit_test_setup_teardown(a_patch_waits_for_no_lock, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
