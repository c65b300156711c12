/* Schedules: what is accepted is due, after the given time and as the fields say, and at no minute
 * before that. The first eight bytes are the time, the rest is the schedule. */
#include "tests/fuzz/fuzz.h"

#include "common/base/err.h"
#include "execd/exec/cron.h"
#include "execd/exec/zone.h"

#include <time.h>

enum { LOOK_BACK_MINUTES = 2000 };

#define TIME_MAX_S ((int64_t)250000000000) /* the year 9892 */

/* Changes back and forth by an hour, every 200 days. */
static int moving(void *zone, int64_t at_s)
{
    (void)zone;
    return (at_s / (200 * 86400)) % 2 ? 7200 : 3600;
}

static int meant(const struct cron *c, int64_t at_s)
{
    time_t t = (time_t)at_s;
    struct tm tm;
    int by_date;
    int by_weekday;

    MUST(gmtime_r(&t, &tm));
    by_date = c->days >> tm.tm_mday & 1;
    by_weekday = c->weekdays >> tm.tm_wday & 1;
    return (c->minutes >> tm.tm_min & 1) && (c->hours >> tm.tm_hour & 1) &&
           (c->months >> (tm.tm_mon + 1) & 1) &&
           (c->any_day || c->any_weekday ? by_date && by_weekday : by_date || by_weekday);
}

static void check_next(const struct cron *c, int64_t after)
{
    int64_t next = cron_next(c, after, NULL, NULL);
    int64_t local;
    int64_t m;
    int i;

    if (c->every_s) {
        MUST(next == after + c->every_s);
        return;
    }
    MUST(next < 0 || (next > after && next % 60 == 0 && meant(c, next)));
    m = after - after % 60;
    for (i = 0; i < LOOK_BACK_MINUTES; i++, m += 60)
        MUST(m <= after || !meant(c, m) || (next >= 0 && next <= m));
    local = cron_next(c, after, moving, NULL);
    MUST(local < 0 || local > after);
}

static void check_fields(const struct cron *c)
{
    MUST(c->every_s >= 0 && c->every_s <= CRON_EVERY_MAX_S);
    if (c->every_s)
        return;
    MUST(c->minutes && !(c->minutes >> 60));
    MUST(c->hours && !(c->hours >> 24));
    MUST(c->days && !(c->days >> 32) && !(c->days & 1));
    MUST(c->months && !(c->months >> 13) && !(c->months & 1));
    MUST(c->weekdays && !(c->weekdays >> 7));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cron c = { .every_s = 42 };
    struct err e = { 0 };
    int64_t after = 0;
    struct zone z;
    char *text;

    if (size < sizeof(after))
        return 0;
    memcpy(&after, data, sizeof(after));
    after = (int64_t)((uint64_t)after % (uint64_t)TIME_MAX_S);
    text = fuzz_text(data + sizeof(after), size - sizeof(after));
    if (cron_parse(text, &c, &e) < 0) {
        MUST(c.every_s == 42 && e.code == ERRC_INVALID && e.msg[0]);
    } else {
        check_fields(&c);
        check_next(&c, after);
        if (c.zone[0] && zone_open(&z, c.zone, &e) == 0)
            MUST(zone_offset(&z, after) >= -86400 && zone_offset(&z, after) <= 86400);
    }
    free(text);
    return 0;
}
