#include "execd/exec/cron.h"

#include "common/base/err.h"
#include "common/base/macros.h"
#include "common/base/num.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum {
    MINUTE_S = 60,
    DAY_S = 24 * 3600,
    DAY_MINUTES = 24 * 60,
    SEARCH_DAYS = 30 * 366, /* 29 February on a given weekday comes every 28 years, but for 2100 */
    FIELDS = 5,
    WEEKDAY = 4, /* index of its field */
};

struct field {
    const char *name;
    unsigned min;
    unsigned max;       /* of `*` and of an open end */
    unsigned named_max; /* of a number that is written */
    const char *const *names;
};

static const char *const months[] = { "jan", "feb", "mar", "apr", "may", "jun",
                                      "jul", "aug", "sep", "oct", "nov", "dec" };
static const char *const weekdays[] = { "sun", "mon", "tue", "wed", "thu", "fri", "sat" };

static const struct field fields[FIELDS] = {
    { "minute", 0, 59, 59, NULL },
    { "hour", 0, 23, 23, NULL },
    { "day of the month", 1, 31, 31, NULL },
    { "month", 1, 12, 12, months },
    { "day of the week", 0, 6, 7, weekdays },
};

/* ---- one field ---- */

struct item {
    unsigned from;
    unsigned to;
    unsigned step;
    bool star;
};

static int bad_field(const struct field *f, const char *text, size_t len, struct err *e)
{
    return err_set(e, ERRC_INVALID, "%s: \"%.*s\" is not *, a value or a range of %u to %u",
                   f->name, (int)(len < 40 ? len : 40), text, f->min, f->named_max);
}

/* A number or a name at *p, which moves behind it. */
static int read_value(const struct field *f, const char **p, unsigned *out)
{
    unsigned n = f->max - f->min + 1;
    unsigned digits = 0;
    unsigned i;

    *out = 0;
    while (isdigit((unsigned char)**p) && digits++ < 3)
        *out = *out * 10 + (unsigned)(*(*p)++ - '0');
    if (digits)
        return *out >= f->min && *out <= f->named_max ? 0 : -1;
    for (i = 0; f->names && i < n; i++)
        if (strncasecmp(*p, f->names[i], 3) == 0) {
            *p += 3;
            *out = f->min + i;
            return 0;
        }
    return -1;
}

static int read_item(const struct field *f, const char **p, struct item *it)
{
    *it = (struct item){ .from = f->min, .to = f->max, .step = 1 };
    if (**p == '*' || **p == '?') {
        it->star = true;
        (*p)++;
    } else {
        if (read_value(f, p, &it->from) < 0)
            return -1;
        it->to = it->from;
        if (**p == '-') {
            (*p)++;
            if (read_value(f, p, &it->to) < 0)
                return -1;
            if (f == &fields[WEEKDAY] && it->to == 0 && it->from > 0)
                it->to = 7; /* up to and with Sunday */
        } else if (**p == '/') {
            it->to = it->from > f->max ? it->from : f->max;
        }
    }
    if (**p == '/') {
        static const struct field steps = { "step", 1, 999, 999, NULL };

        (*p)++;
        if (read_value(&steps, p, &it->step) < 0)
            return -1;
    }
    return it->from <= it->to ? 0 : -1;
}

/* text is one field of len bytes. *any: it restricts nothing. */
static int read_field(const struct field *f, const char *text, size_t len, uint64_t *bits,
                      bool *any, struct err *e)
{
    const char *p = text;
    struct item it;
    unsigned v;

    *bits = 0;
    *any = false;
    for (;;) {
        if (read_item(f, &p, &it) < 0)
            return bad_field(f, text, len, e);
        for (v = it.from; v <= it.to; v += it.step)
            *bits |= (uint64_t)1 << v;
        if (it.star && it.step == 1)
            *any = true;
        if (p == text + len)
            return 0;
        if (*p++ != ',')
            return bad_field(f, text, len, e);
    }
}

/* ---- the whole ---- */

static const char *skip_blanks(const char *p)
{
    return p + strspn(p, " \t");
}

/* 31 April or 30 February alone are never; the weekday, when it is restricted, will do as well. */
static bool can_be_due(const struct cron *c)
{
    static const unsigned char lengths[] = { 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
    unsigned m;

    if (!c->any_weekday)
        return true;
    for (m = 1; m <= ARRAY_LEN(lengths); m++)
        if (c->months >> m & 1 && c->days & (((uint64_t)2 << lengths[m - 1]) - 2))
            return true;
    return false;
}

static int parse_fields(const char *p, struct cron *out, struct err *e)
{
    uint64_t *bits[FIELDS] = { &out->minutes, &out->hours, &out->days, &out->months,
                               &out->weekdays };
    bool any[FIELDS];
    size_t len;
    size_t i;

    for (i = 0; i < FIELDS; i++) {
        p = skip_blanks(p);
        len = strcspn(p, " \t");
        if (!len)
            return err_set(e, ERRC_INVALID,
                           "a schedule has five fields (minute hour day month weekday), "
                           "or is @hourly, @daily, @weekly, @monthly, @yearly or @every 90s");
        if (read_field(&fields[i], p, len, bits[i], &any[i], e) < 0)
            return -1;
        p += len;
    }
    if (*skip_blanks(p))
        return err_set(e, ERRC_INVALID, "a schedule has five fields, this one has more");
    out->weekdays = (out->weekdays | out->weekdays >> 7) & 0x7f;
    out->any_hour = any[1];
    out->any_day = any[2];
    out->any_weekday = any[WEEKDAY];
    if (!can_be_due(out))
        return err_set(e, ERRC_INVALID, "no month that it names has such a day");
    return 0;
}

/* 90s, 5m, 1h30m: numbers with units, summed up. */
static int parse_every(const char *p, struct cron *out, struct err *e)
{
    char digits[12];
    int64_t total = 0;
    int64_t n;
    size_t len;

    p = skip_blanks(p);
    do {
        len = strspn(p, "0123456789");
        if (!len || len >= sizeof(digits))
            break;
        memcpy(digits, p, len);
        digits[len] = '\0';
        p += len;
        if (num_parse_i64(digits, 0, CRON_EVERY_MAX_S, &n) < 0 || !*p || !strchr("hms", *p))
            break;
        total += n * (*p == 'h' ? 3600 : *p == 'm' ? 60 : 1);
        p++;
        if (!*skip_blanks(p) && total >= 1 && total <= CRON_EVERY_MAX_S) {
            out->every_s = total;
            return 0;
        }
    } while (total <= CRON_EVERY_MAX_S);
    return err_set(e, ERRC_INVALID,
                   "@every needs whole seconds, minutes or hours (90s, 5m, 1h30m), "
                   "at least 1s and at most 366 days");
}

static int parse_word(const char *p, struct cron *out, struct err *e)
{
    static const struct {
        const char *word;
        const char *means;
    } words[] = {
        { "@hourly", "0 * * * *" },   { "@daily", "0 0 * * *" },   { "@midnight", "0 0 * * *" },
        { "@weekly", "0 0 * * 0" },   { "@monthly", "0 0 1 * *" }, { "@yearly", "0 0 1 1 *" },
        { "@annually", "0 0 1 1 *" },
    };
    size_t len = strcspn(p, " \t");
    size_t i;

    if (len == 6 && strncmp(p, "@every", len) == 0)
        return parse_every(p + len, out, e);
    for (i = 0; i < ARRAY_LEN(words); i++)
        if (strlen(words[i].word) == len && strncmp(p, words[i].word, len) == 0 &&
            !*skip_blanks(p + len))
            return parse_fields(words[i].means, out, e);
    return err_set(e, ERRC_INVALID,
                   "%.40s is not @hourly, @daily, @midnight, @weekly, @monthly, @yearly, "
                   "@annually or @every",
                   p);
}

/* TZ=<zone> or CRON_TZ=<zone> in front. */
static int parse_zone(const char **p, struct cron *out, struct err *e)
{
    size_t skip = strncmp(*p, "CRON_TZ=", 8) == 0 ? 8 : strncmp(*p, "TZ=", 3) == 0 ? 3 : 0;
    size_t len = strcspn(*p + skip, " \t");

    if (!skip)
        return 0;
    if (!len || len > CRON_ZONE_MAX)
        return err_set(e, ERRC_INVALID, "TZ= needs the name of a time zone of at most %d bytes",
                       CRON_ZONE_MAX);
    memcpy(out->zone, *p + skip, len);
    out->zone[len] = '\0';
    *p = skip_blanks(*p + skip + len);
    return 0;
}

int cron_parse(const char *text, struct cron *out, struct err *e)
{
    struct cron c = { 0 };
    const char *p = skip_blanks(text);

    if (strlen(text) > CRON_TEXT_MAX)
        return err_set(e, ERRC_INVALID, "a schedule has at most %d bytes", CRON_TEXT_MAX);
    if (parse_zone(&p, &c, e) < 0)
        return -1;
    if ((*p == '@' ? parse_word(p, &c, e) : parse_fields(p, &c, e)) < 0)
        return -1;
    *out = c;
    return 0;
}

/* ---- the next time ---- */

static bool day_matches(const struct cron *c, int64_t day)
{
    time_t t = (time_t)(day * DAY_S);
    struct tm tm;
    bool by_date;
    bool by_weekday;

    if (!gmtime_r(&t, &tm) || !(c->months >> (tm.tm_mon + 1) & 1))
        return false;
    by_date = c->days >> tm.tm_mday & 1;
    by_weekday = c->weekdays >> tm.tm_wday & 1;
    return c->any_day || c->any_weekday ? by_date && by_weekday : by_date || by_weekday;
}

/* A local time as Unix seconds after after_s; -1 when it lies before that. The clocks do not change
 * twice within two days. */
static int64_t from_local(const struct cron *c, int64_t local, int64_t after_s, cron_offset offset,
                          void *zone)
{
    int64_t before = offset ? offset(zone, local - DAY_S) : 0;
    int64_t later = offset ? offset(zone, local + DAY_S) : 0;
    int64_t first = local - before;

    if (before == later)
        return first > after_s ? first : -1;
    if (offset(zone, first) == before) { /* before the change, or the first of two */
        if (first > after_s)
            return first;
        if (!c->any_hour || offset(zone, local - later) != later)
            return -1;
        first = local - later;
    } else if (offset(zone, local - later) == later) {
        first = local - later;
    } /* else the change skips it */
    return first > after_s ? first : -1;
}

int64_t cron_next(const struct cron *c, int64_t after_s, cron_offset offset, void *zone)
{
    int64_t local = after_s + (offset ? offset(zone, after_s) : 0);
    int64_t day = (local - (local % DAY_S + DAY_S) % DAY_S) / DAY_S;
    int64_t minute = (local - day * DAY_S) / MINUTE_S;
    int64_t last = day + SEARCH_DAYS;
    int64_t at;

    if (c->every_s)
        return after_s + c->every_s;
    /* near a change of the clocks an hour may come twice: look at all of it again */
    if (offset && offset(zone, after_s - DAY_S) != offset(zone, after_s + DAY_S))
        minute -= minute % 60;
    for (; day <= last; day++, minute = 0) {
        if (!day_matches(c, day))
            continue;
        for (; minute < DAY_MINUTES; minute++) {
            if (!(c->hours >> minute / 60 & 1) || !(c->minutes >> minute % 60 & 1))
                continue;
            at = from_local(c, day * DAY_S + minute * MINUTE_S, after_s, offset, zone);
            if (at >= 0)
                return at;
        }
    }
    return -1;
}

bool cron_is_due(const struct cron *c, int64_t *due_s, int64_t now_s, bool set_back,
                 cron_offset offset, void *zone)
{
    bool due = *due_s >= 0 && *due_s <= now_s;

    if (due || set_back)
        *due_s = cron_next(c, now_s, offset, zone);
    return due;
}
