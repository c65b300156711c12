/* Counters and histograms from many threads, and their text. */
#include "tests/unit/test.h"

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/keyed_lock.h"
#include "common/base/log.h"
#include "gateway/domain/lifecycle.h"
#include "gateway/domain/metrics.h"
#include "gateway/store/db.h"
#include "tests/fakes/fake_runtime.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 8, ROUNDS = 1000, NOW_S = 1700000000 };

static char *text_of(const struct metrics *m)
{
    struct buf out = BUF_INIT(1 << 20);

    metrics_write(m, &out);
    return buf_take(&out);
}

static void *count(void *arg)
{
    struct metrics *m = arg;
    int i;

    for (i = 0; i < ROUNDS; i++) {
        metrics_count(m, METRICS_CREATE, METRICS_OK);
        metrics_client_create(m, METRICS_SDK_GO, true, 30);
        metrics_expired(m, i);
        metrics_stream(m, i % 2);
    }
    return NULL;
}

static void counts_from_many_threads(void **state)
{
    struct metrics m = { 0 };
    pthread_t threads[THREADS];
    char *text;
    int i;

    (void)state;
    for (i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, count, &m), 0);
    free(text_of(&m)); /* while they count */
    for (i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    text = text_of(&m);
    assert_contains(text,
                    "sandgate_sandbox_operations_total{operation=\"create\",result=\"ok\"} 8000\n");
    assert_contains(
        text,
        "client_create_duration_seconds_bucket{language=\"go\",success=\"true\",le=\"0.025\"} 0\n");
    assert_contains(
        text,
        "client_create_duration_seconds_bucket{language=\"go\",success=\"true\",le=\"0.05\"} 8000\n");
    assert_contains(
        text, "client_create_duration_seconds_sum{language=\"go\",success=\"true\"} 240.000000\n");
    assert_contains(text, "expiry_removal_lag_seconds_count 8000\n");
    assert_null(strstr(text, "language=\"python\""));
    free(text);
}

static void limits_of_the_buckets(void **state)
{
    static const struct {
        int64_t ms;
        const char *line;
    } cases[] = {
        { -5, "expiry_removal_lag_seconds_bucket{le=\"0.001\"} 1\n" },
        { 1, "expiry_removal_lag_seconds_bucket{le=\"0.001\"} 2\n" },
        { 2, "expiry_removal_lag_seconds_bucket{le=\"0.001\"} 2\n" },
        { 300000, "expiry_removal_lag_seconds_bucket{le=\"300\"} 4\n" },
        { 300001, "expiry_removal_lag_seconds_bucket{le=\"300\"} 4\n" },
        { 300001, "expiry_removal_lag_seconds_bucket{le=\"+Inf\"} 6\n" },
    };
    struct metrics m = { 0 };
    char *text;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        metrics_expired(&m, cases[i].ms);
        text = text_of(&m);
        assert_contains(text, cases[i].line);
        free(text);
    }
}

static void reconnects_are_told_from_the_first_connection(void **state)
{
    struct metrics m = { 0 };
    char *text;

    (void)state;
    metrics_stream(&m, true);
    metrics_stream(&m, true);
    metrics_stream(&m, false);
    metrics_stream(&m, true);
    text = text_of(&m);
    assert_contains(text, "sandgate_engine_events_connected 1\n");
    assert_contains(text, "sandgate_engine_events_reconnects_total 1\n");
    free(text);
    metrics_stream(NULL, true);
    metrics_expired(NULL, 1);
    assert_int_equal(metrics_done(NULL, METRICS_PAUSE, -1, NULL), -1);
}

static int64_t fixed_now(void)
{
    return NOW_S * 1000LL;
}

static const struct clock test_clock = { fixed_now, fixed_now };

/* What the state machine does is counted by its outcome, and the store's numbers are there. */
static void the_domain_counts(void **state)
{
    struct metrics m = { 0 };
    struct lifecycle lc = { .clock = &test_clock,
                            .metrics = &m,
                            .line_endings = "auto",
                            .ready_timeout_ms = 1000,
                            .started_ms = NOW_S * 1000LL };
    json_t *entrypoint = json_pack("[s]", "tail");
    struct create_req rq = { .image = "img", .entrypoint = entrypoint, .timeout_s = 60 };
    struct buf out = BUF_INIT(1 << 20);
    struct sandbox sb;
    struct err e = { 0 };
    char *text;

    (void)state;
    log_set_level(LOG_OFF);
    assert_int_equal(db_open(":memory:", &lc.db, &e), 0);
    lc.rt = fake_runtime_new();
    lc.locks = keyed_locks_new();
    assert_int_equal(lifecycle_create(&lc, &rq, &sb, &e), 0);
    assert_int_equal(lifecycle_pause(&lc, sb.id, &e), 0);
    assert_int_equal(lifecycle_pause(&lc, sb.id, &e), -1);
    assert_int_equal(metrics_write_state(&lc, &out, &e), 0);
    assert_contains(out.data, "sandgate_sandboxes{state=\"Paused\"} 1\n");
    assert_contains(out.data, "sandgate_expiry_lag_seconds 0.000\n");
    assert_contains(out.data, "sandgate_build_info{version=\"" SANDGATE_VERSION "\"} 1\n");
    assert_contains(out.data, "process_open_fds ");
    assert_int_equal(lifecycle_delete(&lc, sb.id, NULL, &e), 0);
    fake_runtime_fail(lc.rt, "start_held", 1, ERRC_TIMEOUT, NULL);
    sandbox_done(&sb);
    assert_int_equal(lifecycle_create(&lc, &rq, &sb, &e), -1);
    text = text_of(&m);
    assert_contains(text, "{operation=\"create\",result=\"ok\"} 1\n");
    assert_contains(text, "{operation=\"create\",result=\"failed\"} 1\n");
    assert_contains(text, "{operation=\"pause\",result=\"ok\"} 1\n");
    assert_contains(text, "{operation=\"pause\",result=\"refused\"} 1\n");
    assert_contains(text, "{operation=\"delete\",result=\"ok\"} 1\n");
    assert_contains(text, "create_duration_seconds_count{phase=\"claim\"} 1\n");
    assert_contains(text, "create_duration_seconds_count{phase=\"total\"} 1\n");
    free(text);
    buf_free(&out);
    json_decref(entrypoint);
    keyed_locks_free(lc.locks);
    runtime_close(lc.rt);
    db_close(lc.db);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_from_many_threads),
        cmocka_unit_test(limits_of_the_buckets),
        cmocka_unit_test(reconnects_are_told_from_the_first_connection),
        cmocka_unit_test(the_domain_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
