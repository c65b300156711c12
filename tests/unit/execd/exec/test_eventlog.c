/* What is kept of a stream of events: in memory, in the file, and when there is none. */
#include "tests/unit/test.h"

#include "common/base/buf.h"
#include "common/base/err.h"
#include "execd/exec/eventlog.h"
#include "execd/exec/events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put(struct eventlog *g, uint64_t eid, size_t len)
{
    char *text = calloc(1, len + 1);

    memset(text, 'x', len);
    (void)snprintf(text, len + 1, "%08u", (unsigned)eid);
    text[8] = 'x';
    assert_int_equal(
        event_text(eventlog_begin(g), "stdout", text, len, (struct event_stamp){ 1, eid }), 0);
    eventlog_commit(g, eid);
    free(text);
}

/* All events after number eid, read in pieces of at most max bytes, have the right numbers and texts. */
static void check_at(struct eventlog *g, uint64_t pos, uint64_t eid, uint64_t last, size_t max)
{
    struct buf all = BUF_INIT(64 << 20);
    const char *data;
    const char *at;
    ssize_t n;

    while (pos < eventlog_size(g)) {
        n = eventlog_read(g, pos, max, &data);
        assert_true(n > 0 && (size_t)n <= max);
        assert_int_equal(buf_append(&all, data, (size_t)n), 0);
        pos += (uint64_t)n;
    }
    for (at = all.data; eid < last; eid++) {
        char want[64];

        (void)snprintf(want, sizeof(want), "{\"type\":\"stdout\",\"text\":\"%08ux",
                       (unsigned)eid + 1);
        assert_memory_equal(at, want, strlen(want));
        at = strstr(at, "\n\n");
        assert_non_null(at);
        (void)snprintf(want, sizeof(want), "\"eid\":%u}", (unsigned)eid + 1);
        assert_memory_equal(at - strlen(want), want, strlen(want));
        at += 2;
    }
    assert_true(all.len == 0 || *at == '\0');
    buf_free(&all);
}

static void check_from(struct eventlog *g, uint64_t eid, uint64_t last, size_t max)
{
    struct err e;
    uint64_t pos;

    assert_int_equal(eventlog_find(g, eid, &pos, &e), 0);
    check_at(g, pos, eid, last, max);
}

static void short_ones_stay_in_memory(void **state)
{
    struct eventlogs set = { .files = 0 };
    struct eventlog *g = eventlog_new(&set);
    struct err e;
    uint64_t pos;
    unsigned i;

    (void)state;
    for (i = 1; i <= 100; i++) {
        put(g, i, 20);
        eventlog_spill(g);
    }
    assert_int_equal(set.files, 0);
    for (i = 0; i <= 100; i += 7)
        check_from(g, i, 100, 1000);
    check_from(g, 100, 100, 1000);
    assert_int_equal(eventlog_find(g, 101, &pos, &e), -1);
    assert_int_equal(e.code, ERRC_INVALID);
    eventlog_end(g);
    check_from(g, 3, 100, 10);
    assert_true(set.memory > 0);
    eventlog_free(g);
    assert_int_equal(set.memory, 0);
    assert_null(set.oldest);
}

static void the_ring_keeps_the_last_megabytes(void **state)
{
    struct eventlogs set = { .files = 0 };
    struct eventlog *g = eventlog_new(&set);
    const uint64_t n = 12000;
    struct err e;
    uint64_t pos;
    uint64_t i;

    (void)state;
    for (i = 1; i <= n; i++) {
        put(g, i, 900);
        eventlog_spill(g);
    }
    assert_int_equal(set.files, 1);
    assert_true(set.disk <= EVENTLOG_FILE_MAX + (1 << 20));
    assert_int_equal(eventlog_find(g, 0, &pos, &e), -1);
    assert_int_equal(e.code, ERRC_GONE);
    assert_string_equal(e.api_code, "EVENTS_GONE");
    assert_int_equal(eventlog_find(g, n - 5000, &pos, &e), 0); /* 5 MB: must be there */
    for (i = n - 5000; i <= n; i += 2499)
        check_from(g, i, n, 64 * 1024);
    eventlog_free(g);
    assert_int_equal(set.files + set.disk, 0);
}

static void large_events(void **state)
{
    struct eventlogs set = { .files = 0 };
    struct eventlog *g = eventlog_new(&set);
    uint64_t i;

    (void)state;
    for (i = 1; i <= 20; i++) {
        put(g, i, 1 << 20);
        eventlog_spill(g);
        if (i % 10 == 0)
            check_from(g, i - 6, i, 50 * 1024);
    }
    eventlog_free(g);
}

static void without_a_file_less_is_kept(void **state)
{
    struct eventlogs set = { .files = EVENTLOGS_FILES_MAX };
    struct eventlog *g = eventlog_new(&set);
    const uint64_t n = 5000;
    struct err e;
    uint64_t pos;
    uint64_t i;

    (void)state;
    for (i = 1; i <= n; i++) {
        put(g, i, 400);
        eventlog_spill(g);
        assert_true(eventlog_begin(g)->len <= EVENTLOG_MEMORY_MAX + (64 << 10));
    }
    assert_int_equal(eventlog_find(g, 0, &pos, &e), -1);
    assert_int_equal(e.code, ERRC_GONE);
    check_from(g, n - 400, n, 4096);
    /* a reader that is behind keeps its bytes, and there is no room */
    assert_int_equal(eventlog_find(g, n - 10, &pos, &e), 0);
    eventlog_pin(g, pos);
    for (i = n + 1; eventlog_room(g, pos) > 6 * 400 + EVENT_FRAME; i++) {
        put(g, i, 400);
        eventlog_spill(g);
    }
    assert_true(i < n + 1000);
    check_at(g, pos, n - 10, i - 1, 4096);
    assert_int_equal(eventlog_room(g, eventlog_size(g)), SIZE_MAX);
    eventlog_free(g);
}

static void unnumbered_ones_need_no_file(void **state)
{
    struct eventlogs set = { .files = 0 };
    struct eventlog *g = eventlog_new(&set);
    unsigned i;

    (void)state;
    for (i = 0; i < 10000; i++) {
        assert_int_equal(
            event_text(eventlog_begin(g), "stdout", "hello", 5, (struct event_stamp){ 1, 0 }), 0);
        eventlog_commit(g, 0);
        eventlog_pin(g, eventlog_size(g));
        eventlog_spill(g);
    }
    assert_int_equal(set.files, 0);
    assert_true(eventlog_begin(g)->len <= 64 << 10);
    eventlog_free(g);
}

static void ended_ones_make_room(void **state)
{
    struct eventlogs set = { .files = 0 };
    struct eventlog *logs[EVENTLOGS_MEMORY_MAX / (30 << 10) + 20];
    const size_t n = sizeof(logs) / sizeof(*logs);
    size_t kept = 0;
    size_t i;

    (void)state;
    for (i = 0; i < n; i++) {
        logs[i] = eventlog_new(&set);
        put(logs[i], 1, 30 << 10);
        if (i == 0)
            eventlog_pin(logs[i], 0); /* somebody reads it */
        eventlog_end(logs[i]);
    }
    assert_true(set.memory <= EVENTLOGS_MEMORY_MAX);
    assert_false(eventlog_dropped(logs[0]));
    assert_true(eventlog_dropped(logs[1]));
    assert_false(eventlog_dropped(logs[n - 1]));
    for (i = 0; i < n; i++) {
        kept += !eventlog_dropped(logs[i]);
        eventlog_free(logs[i]);
    }
    assert_true(kept > 30);
    assert_int_equal(set.memory, 0);
    assert_null(set.oldest);
    assert_null(set.newest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_ones_stay_in_memory),
        cmocka_unit_test(the_ring_keeps_the_last_megabytes),
        cmocka_unit_test(large_events),
        cmocka_unit_test(without_a_file_less_is_kept),
        cmocka_unit_test(unnumbered_ones_need_no_file),
        cmocka_unit_test(ended_ones_make_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
