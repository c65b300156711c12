#include "tests/unit/test.h"

#include "common/base/buf.h"
#include "common/json/utf8.h"

#include <stdbool.h>
#include <string.h>

/* A second opinion, written from RFC 3629's table: bytes of the code point, 0 when it has none. */
static size_t encode(uint32_t cp, char *out)
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xc0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (cp >= 0xd800 && cp <= 0xdfff)
        return 0;
    if (cp < 0x10000) {
        out[0] = (char)(0xe0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
        out[2] = (char)(0x80 | (cp & 0x3f));
        return 3;
    }
    if (cp > 0x10ffff)
        return 0;
    out[0] = (char)(0xf0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3f));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3f));
    out[3] = (char)(0x80 | (cp & 0x3f));
    return 4;
}

static void every_code_point_is_valid(void **state)
{
    uint32_t cp;

    (void)state;
    for (cp = 0; cp <= 0x110000; cp++) {
        char s[4];
        size_t n = encode(cp, s);
        size_t cut;

        if (!n)
            continue;
        assert_int_equal(utf8_valid_len(s, n), n);
        assert_int_equal(utf8_incomplete_tail(s, n), 0);
        for (cut = 1; cut < n; cut++) {
            assert_int_equal(utf8_valid_len(s, cut), 0);
            assert_int_equal(utf8_incomplete_tail(s, cut), cut);
        }
    }
}

/* All strings of two bytes and all three-byte ones around the borders: exactly those are valid that an
 * encoder can make. */
static bool made_of_code_points(const unsigned char *s, size_t len)
{
    size_t i = 0;

    while (i < len) {
        uint32_t cp;
        size_t n;
        char again[4];

        for (n = 1; n <= 4 && i + n <= len; n++) {
            static const unsigned char mask[] = { 0, 0x7f, 0x1f, 0x0f, 0x07 };
            size_t k;

            cp = s[i] & mask[n];
            for (k = 1; k < n; k++)
                cp = cp << 6 | (s[i + k] & 0x3f);
            if (encode(cp, again) == n && memcmp(again, s + i, n) == 0)
                break;
        }
        if (n > 4 || i + n > len)
            return false;
        i += n;
    }
    return true;
}

static void all_pairs_of_bytes(void **state)
{
    unsigned a;
    unsigned b;

    (void)state;
    for (a = 0; a < 256; a++)
        for (b = 0; b < 256; b++) {
            unsigned char s[2] = { (unsigned char)a, (unsigned char)b };

            assert_int_equal(utf8_valid_len((char *)s, 2) == 2, made_of_code_points(s, 2));
        }
}

static void borders_of_three_and_four_bytes(void **state)
{
    static const unsigned char first[] = { 0x7f, 0x80, 0xbf, 0xc0, 0xc1, 0xc2, 0xdf, 0xe0,
                                           0xe1, 0xec, 0xed, 0xee, 0xef, 0xf0, 0xf1, 0xf3,
                                           0xf4, 0xf5, 0xf8, 0xfc, 0xfe, 0xff };
    static const unsigned char cont[] = {
        0x00, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xff
    };
    size_t i[4];

    (void)state;
    for (i[0] = 0; i[0] < sizeof(first); i[0]++)
        for (i[1] = 0; i[1] < sizeof(cont); i[1]++)
            for (i[2] = 0; i[2] < sizeof(cont); i[2]++)
                for (i[3] = 0; i[3] < sizeof(cont); i[3]++) {
                    unsigned char s[4] = { first[i[0]], cont[i[1]], cont[i[2]], cont[i[3]] };

                    assert_int_equal(utf8_valid_len((char *)s, 3) == 3, made_of_code_points(s, 3));
                    assert_int_equal(utf8_valid_len((char *)s, 4) == 4, made_of_code_points(s, 4));
                    assert_true(utf8_incomplete_tail((char *)s, 4) <= 3);
                }
}

static void repaired(const char *in, size_t len, const char *want)
{
    AUTO_BUF struct buf b = BUF_INIT(1000);

    assert_int_equal(utf8_repair(in, len, &b), 0);
    assert_int_equal(b.len, strlen(want));
    assert_string_equal(b.data, want);
    assert_int_equal(utf8_valid_len(b.data, b.len), b.len);
}

static void repair_replaces_each_bad_byte(void **state)
{
    (void)state;
    repaired("", 0, "");
    repaired("abc", 3, "abc");
    repaired("\xff", 1, "\xef\xbf\xbd");
    repaired("a\xff"
             "b",
             3,
             "a\xef\xbf\xbd"
             "b");
    repaired("\xe2\x82", 2, "\xef\xbf\xbd\xef\xbf\xbd");
    repaired("\xe2\x82\xac\xe2", 4, "\xe2\x82\xac\xef\xbf\xbd");
    repaired("\xed\xa0\x80", 3, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
    repaired("\xc0\xaf", 2, "\xef\xbf\xbd\xef\xbf\xbd");
}

static void repair_keeps_nul_bytes(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(10);

    (void)state;
    assert_int_equal(utf8_repair("a\0b", 3, &b), 0);
    assert_int_equal(b.len, 3);
    assert_memory_equal(b.data, "a\0b", 3);
}

static void repair_stops_when_full(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(5);

    (void)state;
    assert_int_equal(utf8_repair("\xff\xff", 2, &b), -1);
    assert_true(b.len <= 5);
}

static void tail_of_text(void **state)
{
    (void)state;
    assert_int_equal(utf8_incomplete_tail("", 0), 0);
    assert_int_equal(utf8_incomplete_tail("abc", 3), 0);
    assert_int_equal(utf8_incomplete_tail("abc\xc3", 4), 1);
    assert_int_equal(utf8_incomplete_tail("abc\xe2\x82", 5), 2);
    assert_int_equal(utf8_incomplete_tail("abc\xf0\x9f\x98", 6), 3);
    assert_int_equal(utf8_incomplete_tail("\xf0\x9f\x98\x80", 4), 0);
    assert_int_equal(utf8_incomplete_tail("\x80\x80\x80\x80", 4), 0);
    assert_int_equal(utf8_incomplete_tail("\xed\xa0", 2), 0); /* half a surrogate never completes */
    assert_int_equal(utf8_incomplete_tail("\xe2\xff", 2), 0);
    assert_int_equal(utf8_incomplete_tail("\xc0", 1), 0);
    assert_int_equal(utf8_incomplete_tail("\xf4\x90", 2), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_point_is_valid),
        cmocka_unit_test(all_pairs_of_bytes),
        cmocka_unit_test(borders_of_three_and_four_bytes),
        cmocka_unit_test(repair_replaces_each_bad_byte),
        cmocka_unit_test(repair_keeps_nul_bytes),
        cmocka_unit_test(repair_stops_when_full),
        cmocka_unit_test(tail_of_text),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
