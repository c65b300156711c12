#include "tests/unit/test.h"

#include "common/base/macros.h"

#include <string.h>

struct sample {
    const char *text;
    int64_t ms;
};

static void parses(void **state)
{
    static const struct sample samples[] = {
        { "1970-01-01T00:00:00Z", 0 },
        { "1970-01-01T00:00:00z", 0 },
        { "1970-01-01t00:00:00Z", 0 },
        { "1970-01-01 00:00:00Z", 0 },
        { "1970-01-01T00:00:00", 0 },
        { "1970-01-01T00:00:00.5Z", 500 },
        { "1970-01-01T00:00:00.05Z", 50 },
        { "1970-01-01T00:00:00.123456789Z", 123 },
        { "1970-01-01T00:00:00.9999999999999999999999999999Z", 999 },
        { "1970-01-01T00:00:00.123", 123 },
        { "2000-02-29T00:00:00Z", 951782400000 },
        { "2024-02-29T23:59:59Z", 1709251199000 },
        { "2400-02-29T00:00:00Z", 13574563200000 },
        { "2026-12-31T23:59:60Z", 1798761600000 }, /* a leap second is the next minute's start */
        { "1969-12-31T23:59:59.999Z", -1 },
        { "0001-01-01T00:00:00Z", -62135596800000 },
        { "9999-12-31T23:59:59.999Z", 253402300799999 },
        { "2025-01-01T00:00:00+00:00", 1735689600000 },
        { "2025-01-01T00:00:00-00:00", 1735689600000 },
        { "2025-01-01T02:00:00+02:00", 1735689600000 },
        { "2024-12-31T18:30:00-0530", 1735689600000 },
        { "2025-01-01T05:45:00.250+05:45", 1735689600250 },
        { "2025-01-01T23:59:00+23:59", 1735689600000 },
    };
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(samples); i++) {
        int64_t ms = 42;

        if (clock_parse_ms(samples[i].text, &ms) < 0)
            fail_msg("%s was refused", samples[i].text);
        assert_int_equal(ms, samples[i].ms);
    }
}

static void refuses(void **state)
{
    static const char *const samples[] = {
        "",
        "Z",
        "T",
        "2025",
        "2025-01-01",
        "2025-01-01T",
        "2025-01-01T00:00Z",
        "2025-01-01T00:00:00.Z",
        "2025-01-01T00:00:00,5Z",
        "2025-01-01T00:00:00ZZ",
        "2025-01-01T00:00:00Z ",
        " 2025-01-01T00:00:00Z",
        "2025-01-01T00:00:00 Z",
        "2025-13-01T00:00:00Z",
        "2025-00-01T00:00:00Z",
        "2025-01-00T00:00:00Z",
        "2025-01-32T00:00:00Z",
        "2025-04-31T00:00:00Z",
        "2025-02-29T00:00:00Z",
        "1900-02-29T00:00:00Z",
        "2100-02-29T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "10000-01-01T00:00:00Z",
        "-001-01-01T00:00:00Z",
        "2025-1-01T00:00:00Z",
        "2025-01-01T24:00:00Z",
        "2025-01-01T00:60:00Z",
        "2025-01-01T00:00:61Z",
        "2025-01-01T0:00:00Z",
        "2025-01-01T00:00:00+",
        "2025-01-01T00:00:00+1",
        "2025-01-01T00:00:00+01",
        "2025-01-01T00:00:00+01:",
        "2025-01-01T00:00:00+01:6",
        "2025-01-01T00:00:00+01:60",
        "2025-01-01T00:00:00+24:00",
        "2025-01-01T00:00:00+01:00Z",
        "2025/01/01T00:00:00Z",
        "2025-01-01X00:00:00Z",
        "2025-01-01T00.00.00Z",
        "2025-01-01T00:00:00.-1Z",
        "2025-01-01T00:00:00 +01:00",
        "20250101T000000Z",
        "1735689600",
        "\xd9\xa2"
        "025-01-01T00:00:00Z",
    };
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(samples); i++) {
        int64_t ms = 42;

        if (clock_parse_ms(samples[i], &ms) == 0)
            fail_msg("%s was accepted", samples[i]);
        assert_int_equal(ms, 42);
    }
}

static void formats(void **state)
{
    static const struct sample samples[] = {
        { "1970-01-01T00:00:00Z", 0 },
        { "1970-01-01T00:00:00.001000Z", 1 },
        { "1969-12-31T23:59:59.999000Z", -1 },
        { "1969-12-31T23:59:59Z", -1000 },
        { "2024-02-29T12:00:00Z", 1709208000000 },
        { "2025-01-01T00:00:00.123000Z", 1735689600123 },
        { "0001-01-01T00:00:00Z", -62135596800000 },
        { "9999-12-31T23:59:59.999000Z", 253402300799999 },
        { "", -62135596800001 },
        { "", 253402300800000 },
        { "", INT64_MAX },
        { "", INT64_MIN },
    };
    char text[CLOCK_TEXT];
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(samples); i++) {
        clock_format_ms(samples[i].ms, text);
        assert_string_equal(text, samples[i].text);
    }
}

static void formats_seconds_and_nanoseconds(void **state)
{
    char text[CLOCK_TEXT];

    (void)state;
    clock_format_ts(0, 999, text); /* less than a microsecond is nothing */
    assert_string_equal(text, "1970-01-01T00:00:00Z");
    clock_format_ts(0, 1000, text);
    assert_string_equal(text, "1970-01-01T00:00:00.000001Z");
    clock_format_ts(1735689600, 999999999, text);
    assert_string_equal(text, "2025-01-01T00:00:00.999999Z");
    clock_format_ts(INT64_MAX, 0, text);
    assert_string_equal(text, "");
    clock_format_ts(INT64_MIN, 0, text);
    assert_string_equal(text, "");
    clock_format_ts(67768036191676799, 0, text); /* the last second whose tm_year fits */
    assert_string_equal(text, "");
    clock_format_ts(-67768040609740800, 0, text);
    assert_string_equal(text, "");
}

static void every_day_goes_there_and_back(void **state)
{
    int64_t day;

    (void)state;
    for (day = -719162; day <= 2932896; day += 13) { /* 0001-01-01 to 9999-12-31 */
        int64_t ms = day * 86400000 + 45296789;
        int64_t back = 0;
        char text[CLOCK_TEXT];

        clock_format_ms(ms, text);
        assert_int_equal(clock_parse_ms(text, &back), 0);
        assert_int_equal(back, ms);
    }
}

static void system_clock_runs(void **state)
{
    int64_t a = clock_system.mono_ms();
    int64_t b = clock_system.mono_ms();

    (void)state;
    assert_true(a > 0 && b >= a);
    assert_true(clock_system.wall_ms() > 1735689600000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parses),
        cmocka_unit_test(refuses),
        cmocka_unit_test(formats),
        cmocka_unit_test(formats_seconds_and_nanoseconds),
        cmocka_unit_test(every_day_goes_there_and_back),
        cmocka_unit_test(system_clock_runs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
