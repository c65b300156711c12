#include "tests/unit/test.h"

#include "common/base/macros.h"
#include "common/base/num.h"

static void takes_integers(void **state)
{
    static const struct {
        const char *s;
        int64_t min, max, want;
    } rows[] = {
        { "0", 0, 10, 0 },
        { "10", 0, 10, 10 },
        { "007", 0, 10, 7 },
        { "-1", -1, 1, -1 },
        { "-0", -1, 1, 0 },
        { "9223372036854775807", 0, INT64_MAX, INT64_MAX },
        { "-9223372036854775808", INT64_MIN, INT64_MAX, INT64_MIN },
    };
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(rows); i++) {
        int64_t n = 42;

        assert_int_equal(num_parse_i64(rows[i].s, rows[i].min, rows[i].max, &n), 0);
        assert_int_equal(n, rows[i].want);
    }
}

static void refuses_integers(void **state)
{
    static const struct {
        const char *s;
        int64_t min, max;
    } rows[] = {
        { "", 0, 10 },
        { "-", -5, 5 },
        { "+1", 0, 10 },
        { " 1", 0, 10 },
        { "1 ", 0, 10 },
        { "1\n", 0, 10 },
        { "0x1", 0, 10 },
        { "1.0", 0, 10 },
        { "1e1", 0, 99 },
        { "--1", -5, 5 },
        { "-0", 0, 10 },
        { "-1", 0, 10 },
        { "11", 0, 10 },
        { "-2", -1, 10 },
        { "a", 0, 10 },
        { "9223372036854775808", 0, INT64_MAX },
        { "-9223372036854775809", INT64_MIN, INT64_MAX },
        { "99999999999999999999999999", INT64_MIN, INT64_MAX },
    };
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(rows); i++) {
        int64_t n = 42;

        if (num_parse_i64(rows[i].s, rows[i].min, rows[i].max, &n) == 0)
            fail_msg("\"%s\" was accepted", rows[i].s);
        assert_int_equal(n, 42);
    }
}

static void takes_doubles(void **state)
{
    static const struct {
        const char *s;
        double want;
    } rows[] = {
        { "0", 0 },        { "0.5", 0.5 },
        { "2", 2 },        { "1e1", 10 },
        { "1E1", 10 },     { "-2.5", -2.5 },
        { "1e-3", 0.001 }, { "1.7976931348623157e308", 1.7976931348623157e308 },
    };
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(rows); i++) {
        double d = 42;

        assert_int_equal(num_parse_double(rows[i].s, &d), 0);
        assert_true(d == rows[i].want);
    }
}

static void refuses_doubles(void **state)
{
    static const char *const rows[] = {
        "",    ".",   "e",        "1e",  "-",     "+",      "+1",    " 1",  "1 ",  "0x10",
        "inf", "nan", "infinity", "1,5", "1e309", "-1e309", "1.2.3", "1-2", "1e+", "--1",
    };
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(rows); i++) {
        double d = 42;

        if (num_parse_double(rows[i], &d) == 0)
            fail_msg("\"%s\" was accepted", rows[i]);
        assert_true(d == 42);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_integers),
        cmocka_unit_test(refuses_integers),
        cmocka_unit_test(takes_doubles),
        cmocka_unit_test(refuses_doubles),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
