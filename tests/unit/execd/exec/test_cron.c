/* Schedules: what is accepted, and when they are due. */
#include "tests/unit/test.h"

#include "common/base/err.h"
#include "execd/exec/cron.h"
#include "execd/exec/zone.h"

#include <string.h>

static int64_t at(const char *text)
{
    int64_t ms = 0;

    if (clock_parse_ms(text, &ms) < 0)
        fail_msg("%s is no time", text);
    return ms / 1000;
}

static void due(const char *schedule, const char *after, const char *want, cron_offset offset)
{
    struct cron c;
    struct err e = { 0 };
    char got[CLOCK_TEXT] = "never";
    int64_t next;

    if (cron_parse(schedule, &c, &e) < 0)
        fail_msg("%s: %s", schedule, e.msg);
    next = cron_next(&c, at(after), offset, NULL);
    if (next >= 0)
        clock_format_ms(next * 1000, got);
    if (strcmp(got, want) != 0)
        fail_msg("%s after %s: %s, not %s", schedule, after, got, want);
}

static void next_times(void **state)
{
    static const struct {
        const char *schedule;
        const char *after;
        const char *want;
    } rows[] = {
        { "* * * * *", "2025-01-01T00:00:00Z", "2025-01-01T00:01:00Z" },
        { "* * * * *", "2025-01-01T00:00:59Z", "2025-01-01T00:01:00Z" },
        { "* * * * *", "2025-12-31T23:59:30Z", "2026-01-01T00:00:00Z" },
        { "  */15\t* * * *  ", "2025-01-01T00:45:00Z", "2025-01-01T01:00:00Z" },
        { "7/20 * * * *", "2025-01-01T00:07:00Z", "2025-01-01T00:27:00Z" },
        { "7/20 * * * *", "2025-01-01T00:47:00Z", "2025-01-01T01:07:00Z" },
        { "5,10-20/5,59 3 * * *", "2025-01-01T03:10:00Z", "2025-01-01T03:15:00Z" },
        { "5,10-20/5,59 3 * * *", "2025-01-01T03:20:00Z", "2025-01-01T03:59:00Z" },
        { "5,10-20/5,59 3 * * *", "2025-01-01T03:59:00Z", "2025-01-02T03:05:00Z" },
        { "30 4 * * *", "2025-06-01T04:30:00Z", "2025-06-02T04:30:00Z" },
        /* month ends, leap years */
        { "0 0 31 * *", "2025-01-31T00:00:00Z", "2025-03-31T00:00:00Z" },
        { "0 0 30 * *", "2025-01-30T00:00:00Z", "2025-03-30T00:00:00Z" },
        { "0 0 29 2 *", "2025-01-01T00:00:00Z", "2028-02-29T00:00:00Z" },
        { "0 0 29 2 *", "2096-03-01T00:00:00Z", "2104-02-29T00:00:00Z" },
        { "59 23 31 12 *", "2025-12-31T23:59:00Z", "2026-12-31T23:59:00Z" },
        { "0 0 1 JAN-mar/2 *", "2025-01-01T00:00:00Z", "2025-03-01T00:00:00Z" },
        /* weekdays: 2025-01-01 is a Wednesday */
        { "0 9 * * mon-fri", "2025-01-03T09:00:00Z", "2025-01-06T09:00:00Z" },
        { "0 9 * * 0", "2025-01-01T00:00:00Z", "2025-01-05T09:00:00Z" },
        { "0 9 * * 7", "2025-01-01T00:00:00Z", "2025-01-05T09:00:00Z" },
        { "0 9 * * SUN", "2025-01-01T00:00:00Z", "2025-01-05T09:00:00Z" },
        { "0 9 * * 5-7", "2025-01-04T10:00:00Z", "2025-01-05T09:00:00Z" },
        { "0 9 * * fri-sun", "2025-01-05T10:00:00Z", "2025-01-10T09:00:00Z" },
        { "0 0 ? * 2", "2025-01-01T00:00:00Z", "2025-01-07T00:00:00Z" },
        { "0 0 * * 1/2", "2025-01-03T00:00:00Z", "2025-01-06T00:00:00Z" }, /* not Sunday */
        /* either of the two days, when both are restricted */
        { "0 0 13 * fri", "2025-06-01T00:00:00Z", "2025-06-06T00:00:00Z" },
        { "0 0 13 * fri", "2025-01-10T00:00:00Z", "2025-01-13T00:00:00Z" },
        { "0 0 */1 * fri", "2025-01-01T00:00:00Z", "2025-01-03T00:00:00Z" },
        { "0 0 30 2 mon", "2025-02-01T00:00:00Z", "2025-02-03T00:00:00Z" },
        { "0 0 29 2 *", "2028-02-28T23:59:59Z", "2028-02-29T00:00:00Z" },
        /* words */
        { "@hourly", "2025-01-01T00:00:00Z", "2025-01-01T01:00:00Z" },
        { "@daily", "2025-01-01T00:00:00Z", "2025-01-02T00:00:00Z" },
        { "@midnight", "2025-02-28T12:00:00Z", "2025-03-01T00:00:00Z" },
        { "@weekly", "2025-01-01T00:00:00Z", "2025-01-05T00:00:00Z" },
        { "@monthly", "2025-01-31T12:00:00Z", "2025-02-01T00:00:00Z" },
        { "@yearly", "2025-01-01T00:00:00Z", "2026-01-01T00:00:00Z" },
        { " @annually ", "2025-01-01T00:00:01Z", "2026-01-01T00:00:00Z" },
        { "@every 1s", "2025-01-01T00:00:00Z", "2025-01-01T00:00:01Z" },
        { "@every  90m", "2025-01-01T00:00:00Z", "2025-01-01T01:30:00Z" },
        { "@every 1h30m5s", "2025-01-01T00:00:00Z", "2025-01-01T01:30:05Z" },
        { "TZ=UTC @every 2h", "2025-01-01T00:00:00Z", "2025-01-01T02:00:00Z" },
        /* before 1970 */
        { "30 * * * *", "1969-12-31T23:45:00Z", "1970-01-01T00:30:00Z" },
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        due(rows[i].schedule, rows[i].after, rows[i].want, NULL);
}

/* Central Europe in 2025. */
static int berlin(void *zone, int64_t at_s)
{
    (void)zone;
    return at_s >= at("2025-03-30T01:00:00Z") && at_s < at("2025-10-26T01:00:00Z") ? 7200 : 3600;
}

static int fixed(void *zone, int64_t at_s)
{
    (void)zone, (void)at_s;
    return -(3 * 3600 + 1800);
}

static void local_times(void **state)
{
    (void)state;
    due("0 0 * * *", "2025-01-01T00:00:00Z", "2025-01-01T03:30:00Z", fixed);
    due("0 0 1 1 *", "2025-01-01T03:30:00Z", "2026-01-01T03:30:00Z", fixed);
    due("0 12 * * *", "2025-07-01T00:00:00Z", "2025-07-01T10:00:00Z", berlin);
    due("0 12 * * *", "2025-12-01T00:00:00Z", "2025-12-01T11:00:00Z", berlin);
    /* 02:30 does not exist on 30 March: an hour later by the wall; the next day it does */
    due("30 2 * * *", "2025-03-30T00:00:00Z", "2025-03-30T01:30:00Z", berlin);
    due("30 2 * * *", "2025-03-30T01:30:00Z", "2025-03-31T00:30:00Z", berlin);
    /* 02:30 comes twice on 26 October: once, and every hour both times */
    due("30 2 * * *", "2025-10-26T00:00:00Z", "2025-10-26T00:30:00Z", berlin);
    due("30 2 * * *", "2025-10-26T00:30:00Z", "2025-10-27T01:30:00Z", berlin);
    due("30 * * * *", "2025-10-26T00:30:00Z", "2025-10-26T01:30:00Z", berlin);
    due("* * * * *", "2025-10-26T00:59:00Z", "2025-10-26T01:00:00Z", berlin);
    due("* * * * *", "2025-10-26T01:10:00Z", "2025-10-26T01:11:00Z", berlin);
    due("* * * * *", "2025-10-26T01:59:00Z", "2025-10-26T02:00:00Z", berlin);
    due("* * * * *", "2025-03-30T00:59:00Z", "2025-03-30T01:00:00Z", berlin);
}

/* Runs once, however much was missed; a clock that is set back does not stop it for long. */
static void clocks_that_jump(void **state)
{
    struct cron c;
    struct err e = { 0 };
    int64_t due_s;

    (void)state;
    assert_int_equal(cron_parse("*/10 * * * *", &c, &e), 0);
    due_s = at("2025-01-01T00:10:00Z");
    assert_false(cron_is_due(&c, &due_s, at("2025-01-01T00:09:59Z"), false, NULL, NULL));
    assert_int_equal(due_s, at("2025-01-01T00:10:00Z"));
    assert_true(cron_is_due(&c, &due_s, at("2025-01-01T00:10:00Z"), false, NULL, NULL));
    assert_int_equal(due_s, at("2025-01-01T00:20:00Z"));
    assert_true(cron_is_due(&c, &due_s, at("2025-01-03T07:12:13Z"), false, NULL, NULL));
    assert_int_equal(due_s, at("2025-01-03T07:20:00Z"));
    /* slightly back: the same minute does not come again */
    assert_false(cron_is_due(&c, &due_s, at("2025-01-03T07:09:59Z"), false, NULL, NULL));
    assert_int_equal(due_s, at("2025-01-03T07:20:00Z"));
    assert_false(cron_is_due(&c, &due_s, at("2025-01-01T00:01:00Z"), true, NULL, NULL));
    assert_int_equal(due_s, at("2025-01-01T00:10:00Z"));
    due_s = -1;
    assert_false(cron_is_due(&c, &due_s, at("2025-01-01T00:01:00Z"), false, NULL, NULL));
}

static void refused(void **state)
{
    static const struct {
        const char *schedule;
        const char *says;
    } rows[] = {
        { "", "five fields" },
        { "* * * *", "five fields" },
        { "* * * * * *", "has more" },
        { "60 * * * *", "minute" },
        { "* 24 * * *", "hour" },
        { "* * 0 * *", "day of the month" },
        { "* * 32 * *", "day of the month" },
        { "* * * 0 *", "month" },
        { "* * * 13 *", "month" },
        { "* * * janu *", "month" },
        { "* * * * 8", "day of the week" },
        { "* * * * mo", "day of the week" },
        { "*/0 * * * *", "minute" },
        { "*/1000 * * * *", "minute" },
        { "5-1 * * * *", "minute" },
        { "1- * * * *", "minute" },
        { "1,,2 * * * *", "minute" },
        { "1, * * * *", "minute" },
        { "-1 * * * *", "minute" },
        { "+1 * * * *", "minute" },
        { "1.5 * * * *", "minute" },
        { "99999999999999999999 * * * *", "minute" },
        { "mon * * * *", "minute" },
        { "0 0 30 2 *", "no month" },
        { "0 0 31 4,6,9,11 *", "no month" },
        { "@reboot", "@reboot" },
        { "@hourly x", "@hourly" },
        { "@every", "@every" },
        { "@every 0s", "@every" },
        { "@every 500ms", "@every" },
        { "@every 1.5h", "@every" },
        { "@every -1s", "@every" },
        { "@every 10", "@every" },
        { "@every 1d", "@every" },
        { "@every 367000h", "@every" },
        { "@every 99999999999999s", "@every" },
        { "@every 1h 30m", "@every" },
        { "TZ= * * * * *", "TZ=" },
        { "TZ=UTC", "five fields" },
    };
    char text[CRON_TEXT_MAX + 2];
    struct cron c;
    struct err e;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        e = (struct err){ 0 };
        if (cron_parse(rows[i].schedule, &c, &e) == 0)
            fail_msg("\"%s\" is accepted", rows[i].schedule);
        assert_int_equal(e.code, ERRC_INVALID);
        assert_contains(e.msg, rows[i].says);
    }
    memset(text, ' ', sizeof(text));
    memcpy(text, "* * * * *", 9);
    text[CRON_TEXT_MAX] = '\0';
    assert_int_equal(cron_parse(text, &c, &e), 0);
    text[CRON_TEXT_MAX] = ' ';
    text[CRON_TEXT_MAX + 1] = '\0';
    assert_int_equal(cron_parse(text, &c, &e), -1);
}

static void zones(void **state)
{
    struct cron c;
    struct zone z;
    struct err e = { 0 };

    (void)state;
    assert_int_equal(cron_parse("CRON_TZ=UTC+2  0 12 * * *", &c, &e), 0);
    assert_string_equal(c.zone, "UTC+2");
    assert_int_equal(zone_open(&z, c.zone, &e), 0);
    assert_int_equal(cron_next(&c, at("2025-01-01T00:00:00Z"), zone_offset, &z),
                     at("2025-01-01T10:00:00Z"));
    assert_int_equal(zone_open(&z, "UTC-03:30", &e), 0);
    assert_int_equal(zone_offset(&z, 0), -12600);
    assert_int_equal(zone_open(&z, "GMT", &e), 0);
    assert_int_equal(zone_offset(&z, 0), 0);
    assert_int_equal(zone_open(&z, "UTC+15", &e), -1);
    assert_int_equal(zone_open(&z, "UTC+1:60", &e), -1);
    assert_int_equal(zone_open(&z, "UTC+", &e), -1);
    assert_int_equal(zone_open(&z, "../../../etc/passwd", &e), -1);
    assert_int_equal(zone_open(&z, "/etc/localtime", &e), -1);
    assert_int_equal(zone_open(&z, "", &e), -1);
    assert_int_equal(zone_open(&z, "No/Such_Zone", &e), -1);
    assert_contains(e.msg, "No/Such_Zone");
    assert_int_equal(zone_open(&z, "tzdata.zi", &e), -1); /* there, and no zone */
    zone_open_local(&z, "UTC+1");
    assert_int_equal(zone_offset(&z, 0), 3600);
    zone_open_local(&z, "No/Such_Zone");
    assert_int_equal(zone_offset(&z, 0), 0);
}

/* The files of the machine, where it has them. */
static void zone_files(void **state)
{
    struct zone berlin_file;
    struct zone tokyo;
    struct err e = { 0 };

    (void)state;
    if (zone_open(&berlin_file, "Europe/Berlin", &e) < 0 || zone_open(&tokyo, "Asia/Tokyo", &e) < 0)
        skip();
    assert_int_equal(zone_offset(&berlin_file, at("2025-07-01T00:00:00Z")), 7200);
    assert_int_equal(zone_offset(&tokyo, at("2025-07-01T00:00:00Z")), 9 * 3600);
    assert_int_equal(zone_offset(&berlin_file, at("2025-12-01T00:00:00Z")), 3600);
    assert_int_equal(zone_offset(&berlin_file, at("2060-07-01T00:00:00Z")), 7200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(next_times), cmocka_unit_test(local_times),
        cmocka_unit_test(refused),    cmocka_unit_test(clocks_that_jump),
        cmocka_unit_test(zones),      cmocka_unit_test(zone_files),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
