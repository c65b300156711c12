/* What stays known of commands, and for how long. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/base/err.h"
#include "execd/exec/records.h"
#include "execd/exec/spool.h"

#include <stdlib.h>
#include <string.h>

static void found_until_a_day_has_passed(void **state)
{
    struct records rs = { .bytes = 0 };
    struct record *r = records_add(&rs, "true", 1000);
    char id[RECORD_ID_TEXT];

    (void)state;
    assert_int_equal(strlen(r->id), 32);
    memcpy(id, r->id, sizeof(id));
    assert_ptr_equal(records_find(&rs, id), r);
    assert_null(records_find(&rs, "nope"));
    records_end(&rs, r, 3, "exit status 3", 2000);
    assert_non_null(records_add(&rs, "x", 2000 + RECORD_KEEP_MS));
    assert_non_null(records_find(&rs, id));
    assert_non_null(records_add(&rs, "x", 2001 + RECORD_KEEP_MS));
    assert_null(records_find(&rs, id));
    records_free(&rs);
}

static void the_oldest_ended_ones_make_room(void **state)
{
    struct records rs = { .bytes = 0 };
    char *big = calloc(1, 100001);
    struct record *running;
    char id[RECORD_ID_TEXT];
    unsigned i;

    (void)state;
    memset(big, 'x', 100000);
    running = records_add(&rs, big, 1);
    memcpy(id, running->id, sizeof(id));
    for (i = 0; i < 100; i++)
        records_end(&rs, records_add(&rs, big, 2), 0, "", 2);
    assert_true(rs.bytes <= RECORDS_BYTES_MAX + 200000);
    assert_ptr_equal(records_find(&rs, id), running);
    records_free(&rs);
    assert_int_equal(rs.bytes, 0);
    free(big);
}

static void spool_by_offset(void **state)
{
    struct spools set = { 0 };
    struct err e = { 0 };
    struct spool *s = spool_new(&set, NULL, &e);
    uint64_t next;
    size_t len;
    char *out;

    (void)state;
    assert_non_null(s);
    spool_append(s, "hello ", 6);
    spool_append(s, "world", 5);
    out = spool_read(s, 6, &len, &next, &e);
    assert_int_equal(len, 5);
    assert_int_equal(next, 11);
    assert_string_equal(out, "world");
    free(out);
    out = spool_read(s, 99, &len, &next, &e);
    assert_int_equal(len, 0);
    assert_int_equal(next, 11);
    free(out);
    spool_unref(s);
    assert_int_equal(set.n, 0);
    assert_int_equal(set.bytes, 0);
}

static void spool_keeps_the_newest(void **state)
{
    enum { BLOCK = 1 << 20 };
    struct spools set = { 0 };
    struct err e = { 0 };
    struct spool *s = spool_new(&set, NULL, &e);
    char *block = malloc(BLOCK);
    uint64_t total = 0;
    uint64_t next;
    size_t len;
    char *out;

    (void)state;
    memset(block, 'x', BLOCK);
    while (total < SPOOL_DISK_MAX + 3 * (uint64_t)BLOCK) {
        spool_append(s, block, BLOCK);
        total += BLOCK;
    }
    assert_int_equal(spool_size(s), total);
    out = spool_read(s, 0, &len, &next, &e);
    assert_non_null(strstr(out, "[output truncated: "));
    assert_true(next > 2 * (uint64_t)BLOCK && next < total);
    free(out);
    free(block);
    spool_unref(s);
    assert_int_equal(set.n, 0);
    assert_int_equal(set.bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(found_until_a_day_has_passed),
        cmocka_unit_test(the_oldest_ended_ones_make_room),
        cmocka_unit_test(spool_by_offset),
        cmocka_unit_test(spool_keeps_the_newest),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
