#include "tests/unit/test.h"

#include "common/base/buf.h"

#include <stdlib.h>
#include <string.h>

static void empty_is_valid(void **state)
{
    struct buf b = BUF_INIT(8);
    char *text;

    (void)state;
    buf_clear(&b);
    buf_consume(&b, 0);
    assert_int_equal(buf_append(&b, NULL, 0), 0);
    assert_int_equal(b.len, 0);
    text = buf_take(&b);
    assert_string_equal(text, "");
    free(text);
    buf_free(&b);
}

static void takes_exactly_max(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(5);

    (void)state;
    assert_int_equal(buf_append(&b, "12345", 5), 0);
    assert_string_equal(b.data, "12345");
    assert_int_equal(buf_append(&b, "6", 1), -1);
    assert_int_equal(buf_append(&b, "", 0), 0);
    assert_string_equal(b.data, "12345");
    assert_int_equal(b.len, 5);
}

static void one_past_max_changes_nothing(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(5);

    (void)state;
    assert_int_equal(buf_append(&b, "123456", 6), -1);
    assert_int_equal(b.len, 0);
    assert_int_equal(buf_puts(&b, "abc"), 0);
    assert_int_equal(buf_puts(&b, "def"), -1);
    assert_string_equal(b.data, "abc");
    assert_int_equal(buf_printf(&b, "%d", 123), -1);
    assert_string_equal(b.data, "abc");
    assert_int_equal(buf_printf(&b, "%d", 12), 0);
    assert_string_equal(b.data, "abc12");
}

static void max_zero_takes_nothing(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(0);

    (void)state;
    assert_int_equal(buf_append(&b, "x", 1), -1);
    assert_int_equal(buf_append(&b, "", 0), 0);
}

static void length_overflow_is_refused(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(100);

    (void)state;
    assert_int_equal(buf_puts(&b, "abc"), 0);
    assert_null(buf_reserve(&b, SIZE_MAX));
    assert_null(buf_reserve(&b, SIZE_MAX - 3));
    assert_string_equal(b.data, "abc");
}

static void grows_across_blocks(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(100000);
    int i;

    (void)state;
    for (i = 0; i < 10000; i++)
        assert_int_equal(buf_printf(&b, "%04d,", i), 0);
    assert_int_equal(b.len, 50000);
    assert_memory_equal(b.data, "0000,0001,", 10);
    assert_string_equal(b.data + 49995, "9999,");
}

static void holds_nul_bytes(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(16);

    (void)state;
    assert_int_equal(buf_append(&b, "a\0b", 3), 0);
    assert_int_equal(b.len, 3);
    assert_memory_equal(b.data, "a\0b", 4);
}

static void consume_moves_the_rest(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(16);

    (void)state;
    assert_int_equal(buf_puts(&b, "abcdef"), 0);
    buf_consume(&b, 2);
    assert_string_equal(b.data, "cdef");
    assert_int_equal(b.len, 4);
    buf_consume(&b, 99);
    assert_string_equal(b.data, "");
    assert_int_equal(b.len, 0);
}

static void reserve_leaves_room_for_the_terminator(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(512);
    char *at = buf_reserve(&b, 512);

    (void)state;
    assert_non_null(at);
    memset(at, 'x', 512);
    b.len += 512;
    b.data[b.len] = '\0'; /* within the allocation: ASan would tell */
    assert_null(buf_reserve(&b, 1));
    assert_non_null(buf_reserve(&b, 0));
}

static void take_hands_over_and_empties(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(16);
    char *text;

    (void)state;
    assert_int_equal(buf_puts(&b, "abc"), 0);
    text = buf_take(&b);
    assert_string_equal(text, "abc");
    free(text);
    assert_int_equal(b.len, 0);
    assert_int_equal(b.max, 16);
    assert_int_equal(buf_puts(&b, "again"), 0);
    assert_string_equal(b.data, "again");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_is_valid),
        cmocka_unit_test(takes_exactly_max),
        cmocka_unit_test(one_past_max_changes_nothing),
        cmocka_unit_test(max_zero_takes_nothing),
        cmocka_unit_test(length_overflow_is_refused),
        cmocka_unit_test(grows_across_blocks),
        cmocka_unit_test(holds_nul_bytes),
        cmocka_unit_test(consume_moves_the_rest),
        cmocka_unit_test(reserve_leaves_room_for_the_terminator),
        cmocka_unit_test(take_hands_over_and_empties),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
