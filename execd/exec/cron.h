/* When a periodic hook is due (contract/newest.md 3.5): the grammar of a schedule and the next time
 * after a given one. Pure: it knows no clock, no files and no zones but through `cron_offset`.
 *
 *   [TZ=<zone> | CRON_TZ=<zone>] minute hour day-of-month month day-of-week
 *   [TZ=...] @hourly @daily @midnight @weekly @monthly @yearly @annually
 *   @every 90s | 5m | 1h30m                          whole seconds, at least one
 *
 * A field is a list of items a, a-b, *, each with an optional step /n; ? is *, a/n is a to the
 * largest value. Months and days have their English names (three letters, any case). Sunday is 0 or
 * 7, a range may end with it (fri-sun). When both days are restricted, either one will do; `*` and
 * a step of 1 restrict nothing. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct err;

enum {
    CRON_TEXT_MAX = 512, /* bytes of a schedule */
    CRON_ZONE_MAX = 64,
    CRON_EVERY_MAX_S = 366 * 24 * 3600,
};

struct cron {
    uint64_t minutes; /* a bit per value that is meant */
    uint64_t hours;
    uint64_t days;
    uint64_t months;
    uint64_t weekdays; /* 0 Sunday to 6 */
    bool any_hour;
    bool any_day;
    bool any_weekday;
    int64_t every_s;              /* > 0: @every, and nothing of the above */
    char zone[CRON_ZONE_MAX + 1]; /* "": none was named */
};

/* Seconds east of UTC at the time at_s (Unix seconds). */
typedef int (*cron_offset)(void *zone, int64_t at_s);

/* -1: err says which part is wrong; what can never be due (30 February) is wrong, too. */
int cron_parse(const char *text, struct cron *out, struct err *e);

/* The first time after after_s, in Unix seconds; for @every so many seconds after it. offset NULL:
 * UTC. A local time that a change of the clocks skips is run as much later as was skipped; one that
 * comes twice is run the first time, or both times when the hour is `*`. -1: none within 30 years. */
int64_t cron_next(const struct cron *c, int64_t after_s, cron_offset offset, void *zone);

/* Whether what is due at *due_s (-1: never) is to be run at now_s. *due_s becomes the time after
 * that; what was missed in between is not made up for. set_back: the clock was, so that *due_s may
 * be far away: it is reckoned anew. */
bool cron_is_due(const struct cron *c, int64_t *due_s, int64_t now_s, bool set_back,
                 cron_offset offset, void *zone);
