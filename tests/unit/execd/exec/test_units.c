/* Where the units of command output end, however the bytes arrive. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/base/buf.h"
#include "common/json/utf8.h"
#include "execd/exec/units.h"

#include <stdlib.h>
#include <string.h>

/* The units as one text, each followed by '|'. */
static void collect(struct units *u, struct buf *out)
{
    struct unit unit;

    while (units_next(u, &unit)) {
        assert_int_equal(buf_append(out, unit.text, unit.len), 0);
        assert_int_equal(buf_puts(out, "|"), 0);
    }
}

static void feed(struct units *u, const char *data, size_t len, struct buf *out)
{
    char *at = units_reserve(u, len);

    assert_non_null(at);
    memcpy(at, data, len);
    units_commit(u, len);
    collect(u, out);
    units_compact(u);
}

/* Splits s, given in pieces of `step` bytes. */
static void check(const char *s, bool strip, const char *want)
{
    size_t len = strlen(s);
    size_t step;

    for (step = 1; step <= len; step++) {
        struct buf out = BUF_INIT(1 << 16);
        struct units u;
        size_t i;

        units_init(&u, strip);
        for (i = 0; i < len; i += step)
            feed(&u, s + i, len - i < step ? len - i : step, &out);
        units_end(&u);
        collect(&u, &out);
        assert_string_equal(out.data ? out.data : "", want);
        buf_free(&out);
        units_free(&u);
    }
}

static void kept(void **state)
{
    (void)state;
    check("a\nb", false, "a\n|b|");
    check("a\n\nb\n", false, "a\n|\n|b\n|");
    check("a\r\nb\n", false, "a\r\n|b\n|");
    check("1%\r2%\n", false, "1%\r|2%\n|");
    check("\r\r\n\n", false, "\r|\r\n|\n|");
    check("a\r", false, "a\r|");
    check("tail", false, "tail|");
}

static void stripped(void **state)
{
    (void)state;
    check("a\n\nb\n\n\nc\n", true, "a|\n|b|\n|\n|c|"); /* upstream's smoke script */
    check("a\r\nb\n", true, "a|b|");
    check("1%\r2%\n", true, "1%|2%|");
    check("\r\n\r\n", true, "\n|\n|");
    check("a\rb", true, "a|b|");
    check("tail", true, "tail|");
    check("\n", true, "\n|");
}

static void a_held_cr_is_released_or_becomes_crlf(void **state)
{
    struct buf out = BUF_INIT(100);
    struct units u;

    (void)state;
    units_init(&u, false);
    feed(&u, "1%\r", 3, &out);
    assert_null(out.data);
    assert_true(units_holds_cr(&u));
    units_release_cr(&u);
    collect(&u, &out);
    assert_string_equal(out.data, "1%\r|");
    feed(&u, "x\r", 2, &out);
    feed(&u, "\n", 1, &out);
    assert_string_equal(out.data, "1%\r|x\r\n|");
    buf_free(&out);
    units_free(&u);
}

static void a_release_does_not_outlive_the_next_byte(void **state)
{
    struct buf out = BUF_INIT(100);
    struct units u;

    (void)state;
    units_init(&u, false);
    feed(&u, "a\r", 2, &out);
    units_release_cr(&u);
    feed(&u, "\n", 1, &out); /* came in between: one unit */
    feed(&u, "b\r", 2, &out);
    assert_string_equal(out.data, "a\r\n|");
    buf_free(&out);
    units_free(&u);
}

/* n bytes of two-byte characters in pieces, then a line break. */
static void long_line(bool strip, size_t n, size_t step, size_t *units, size_t *bytes)
{
    static const char two[] = "\xc3\xa9";
    struct units u;
    struct unit unit;
    size_t sent = 0;
    size_t i;
    bool more = true;

    *units = *bytes = 0;
    units_init(&u, strip);
    while (more) {
        char *at = units_reserve(&u, step);

        for (i = 0; i < step && sent < n; i++)
            at[i] = two[sent++ % 2];
        more = sent < n;
        if (!more && i < step)
            at[i++] = '\n';
        units_commit(&u, i);
        while (units_next(&u, &unit)) {
            assert_in_range(unit.len, 1, UNITS_MAX);
            assert_int_equal(utf8_valid_len(unit.text, unit.len), unit.len);
            *bytes += unit.len;
            (*units)++;
        }
    }
    units_free(&u);
}

static void long_lines_are_cut_between_characters(void **state)
{
    size_t units;
    size_t bytes;

    (void)state;
    long_line(false, 5 * UNITS_MAX, 65521, &units, &bytes);
    assert_int_equal(bytes, 5 * UNITS_MAX + 1);
    assert_in_range(units, 6, 6);
    /* exactly at the limit, the line break belongs to what was cut: no empty line in strip mode */
    long_line(true, UNITS_MAX, 65521, &units, &bytes);
    assert_int_equal(units, 1);
    assert_int_equal(bytes, UNITS_MAX);
    long_line(true, UNITS_MAX - 2, 65521, &units, &bytes);
    assert_int_equal(units, 1);
}

static void a_copy_puts_units_back(void **state)
{
    struct units u;
    struct units before;
    struct unit unit;

    (void)state;
    units_init(&u, true);
    memcpy(units_reserve(&u, 6), "a\r\nb\nc", 6);
    units_commit(&u, 6);
    before = u;
    assert_int_equal(units_next(&u, &unit), 1);
    assert_int_equal(units_next(&u, &unit), 1);
    u = before;
    assert_int_equal(units_next(&u, &unit), 1);
    assert_int_equal(unit.len, 1);
    assert_int_equal(unit.text[0], 'a');
    units_free(&u);
}

/* 64 KiB of "\r" must not be searched for a far "\n" at each of them: this takes no time. */
static void many_short_units_are_cheap(void **state)
{
    struct buf out = BUF_INIT(1 << 20);
    char *cr = malloc(65536);
    struct units u;
    unsigned i;

    (void)state;
    memset(cr, '\r', 65536);
    units_init(&u, false);
    for (i = 0; i < 4; i++) {
        buf_clear(&out);
        feed(&u, cr, 65536, &out);
    }
    assert_in_range(out.len, 2 * 65535, 2 * 65536);
    buf_free(&out);
    units_free(&u);
    free(cr);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kept),
        cmocka_unit_test(stripped),
        cmocka_unit_test(a_held_cr_is_released_or_becomes_crlf),
        cmocka_unit_test(a_release_does_not_outlive_the_next_byte),
        cmocka_unit_test(long_lines_are_cut_between_characters),
        cmocka_unit_test(a_copy_puts_units_back),
        cmocka_unit_test(many_short_units_are_cheap),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
