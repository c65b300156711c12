/* Output of background commands: offsets, the marker of what was dropped, the bound on all together. */
#include "tests/unit/test.h"

#include "common/base/err.h"
#include "execd/exec/spool.h"

#include <stdlib.h>
#include <string.h>

static char block[1 << 20];

static void read_is(struct spool *s, uint64_t from, const char *want, uint64_t next)
{
    struct err e;
    uint64_t got;
    size_t len;
    char *text = spool_read(s, from, &len, &got, &e);

    assert_non_null(text);
    assert_string_equal(text, want);
    assert_int_equal(len, strlen(want));
    assert_int_equal(got, next);
    free(text);
}

static void offsets(void **state)
{
    struct spools set = { .n = 0 };
    struct err e;
    struct spool *s = spool_new(&set, NULL, &e);

    (void)state;
    assert_non_null(s);
    spool_append(s, "hello\n", 6);
    spool_append(s, "world\n", 6);
    read_is(s, 0, "hello\nworld\n", 12);
    read_is(s, 6, "world\n", 12);
    read_is(s, 12, "", 12);
    read_is(s, 999999, "", 12);
    assert_int_equal(set.bytes, 12);
    spool_unref(s);
    assert_int_equal(set.bytes + set.n, 0);
}

static void the_oldest_is_dropped_and_it_is_said(void **state)
{
    struct spools set = { .n = 0 };
    struct err e;
    struct spool *s = spool_new(&set, NULL, &e);
    uint64_t next;
    size_t len;
    char *text;
    int i;

    (void)state;
    for (i = 0; i < 80; i++)
        spool_append(s, block, sizeof(block));
    assert_int_equal(spool_size(s), 80 << 20);
    assert_true(set.bytes <= SPOOL_DISK_MAX);
    text = spool_read(s, 0, &len, &next, &e);
    assert_memory_equal(text, "[output truncated: ", 19);
    free(text);
    spool_unref(s);
    assert_int_equal(set.bytes, 0);
}

static void all_share_what_there_is(void **state)
{
    struct spools set = { .bytes = SPOOLS_MAX, .n = 1000 }; /* as if others had it all */
    struct err e;
    struct spool *s = spool_new(&set, NULL, &e);
    int i;

    (void)state;
    for (i = 0; i < 20; i++)
        spool_append(s, block, sizeof(block));
    assert_true(set.bytes - SPOOLS_MAX <= SPOOL_SHARE_MIN);
    spool_unref(s);
    assert_int_equal(set.bytes, SPOOLS_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(offsets),
        cmocka_unit_test(the_oldest_is_dropped_and_it_is_said),
        cmocka_unit_test(all_share_what_there_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
