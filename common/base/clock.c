#include "common/base/clock.h"

#include <ctype.h>
#include <string.h>
#include <time.h>

const struct clock clock_system = { clock_wall_ms, clock_mono_ms };

static int64_t read_ms(clockid_t id)
{
    struct timespec ts;

    (void)clock_gettime(id, &ts); /* cannot fail for these clocks */
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

int64_t clock_wall_ms(void)
{
    return read_ms(CLOCK_REALTIME);
}

int64_t clock_mono_ms(void)
{
    return read_ms(CLOCK_MONOTONIC);
}

/* Days since 1970-01-01 of a proleptic Gregorian date (Howard Hinnant's civil algorithm). */
static int64_t days_from_civil(int64_t y, int m, int d)
{
    int64_t era;
    int64_t yoe;
    int64_t doy;

    y -= m <= 2;
    era = (y >= 0 ? y : y - 399) / 400;
    yoe = y - era * 400;
    doy = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
    return era * 146097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719468;
}

/* n decimal digits of v; where they end. A list formats three dates for each of its items. */
static char *put_digits(char *at, long v, int n)
{
    int i;

    for (i = n - 1; i >= 0; i--) {
        at[i] = (char)('0' + v % 10);
        v /= 10;
    }
    return at + n;
}

void clock_format_ts(int64_t sec, long nsec, char out[CLOCK_TEXT])
{
    struct tm tm;
    time_t t = (time_t)sec;
    long usec = nsec / 1000;
    char *p = out;

    out[0] = '\0';
    if (!gmtime_r(&t, &tm) || tm.tm_year < 1 - 1900 || tm.tm_year > 9999 - 1900)
        return;
    p = put_digits(p, tm.tm_year + 1900, 4);
    *p++ = '-';
    p = put_digits(p, tm.tm_mon + 1, 2);
    *p++ = '-';
    p = put_digits(p, tm.tm_mday, 2);
    *p++ = 'T';
    p = put_digits(p, tm.tm_hour, 2);
    *p++ = ':';
    p = put_digits(p, tm.tm_min, 2);
    *p++ = ':';
    p = put_digits(p, tm.tm_sec, 2);
    if (usec) {
        *p++ = '.';
        p = put_digits(p, usec, 6);
    }
    *p++ = 'Z';
    *p = '\0';
}

void clock_format_ms(int64_t wall_ms, char out[CLOCK_TEXT])
{
    int64_t sec = wall_ms / 1000;
    int64_t ms = wall_ms % 1000;

    if (ms < 0) {
        ms += 1000;
        sec--;
    }
    clock_format_ts(sec, (long)ms * 1000000, out);
}

/* Reads exactly n digits; -1 when there are fewer. */
static int digits(const char **s, int n)
{
    int v = 0;

    for (; n > 0; n--, (*s)++) {
        if (!isdigit((unsigned char)**s))
            return -1;
        v = v * 10 + (**s - '0');
    }
    return v;
}

static int literal(const char **s, const char *any)
{
    if (!**s || !strchr(any, **s))
        return -1;
    (*s)++;
    return 0;
}

/* Fraction digits after the dot, as milliseconds. */
static int fraction(const char **s)
{
    int ms = 0;
    int scale = 100;

    if (**s != '.')
        return 0;
    (*s)++;
    if (!isdigit((unsigned char)**s))
        return -1;
    for (; isdigit((unsigned char)**s); (*s)++) {
        ms += (**s - '0') * scale;
        scale /= 10;
    }
    return ms;
}

/* `Z`, `+hh:mm`, `+hhmm` or nothing (UTC). Minutes east of UTC, or INT32_MIN. */
static int offset_minutes(const char **s)
{
    int sign;
    int h;
    int m;

    if (!**s)
        return 0;
    if (**s == 'Z' || **s == 'z') {
        (*s)++;
        return 0;
    }
    sign = **s == '-' ? -1 : 1;
    if (literal(s, "+-") < 0 || (h = digits(s, 2)) < 0)
        return INT32_MIN;
    if (**s == ':')
        (*s)++;
    m = digits(s, 2);
    if (m < 0 || h > 23 || m > 59)
        return INT32_MIN;
    return sign * (h * 60 + m);
}

static int days_in_month(int y, int m)
{
    static const int days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
    int leap = (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;

    return days[m - 1] + (m == 2 && leap);
}

static int parse_date(const char **s, int64_t *days)
{
    int y = digits(s, 4);
    int m = y < 0 || literal(s, "-") < 0 ? -1 : digits(s, 2);
    int d = m < 0 || literal(s, "-") < 0 ? -1 : digits(s, 2);

    if (y < 1 || m < 1 || m > 12 || d < 1 || d > days_in_month(y, m))
        return -1;
    *days = days_from_civil(y, m, d);
    return 0;
}

/* hh:mm:ss with an optional fraction, as milliseconds of the day; -1 when it is none. A leap second
 * (60) is the next minute's start. */
static int parse_time(const char **s)
{
    int hh = digits(s, 2);
    int mm = hh < 0 || literal(s, ":") < 0 ? -1 : digits(s, 2);
    int ss = mm < 0 || literal(s, ":") < 0 ? -1 : digits(s, 2);
    int ms;

    if (hh < 0 || hh > 23 || mm < 0 || mm > 59 || ss < 0 || ss > 60)
        return -1;
    ms = fraction(s);
    return ms < 0 ? -1 : ((hh * 60 + mm) * 60 + ss) * 1000 + ms;
}

int clock_parse_ms(const char *s, int64_t *out_ms)
{
    int64_t days;
    int ms;
    int off;

    if (parse_date(&s, &days) < 0 || literal(&s, "Tt ") < 0)
        return -1;
    ms = parse_time(&s);
    off = ms < 0 ? INT32_MIN : offset_minutes(&s);
    if (off == INT32_MIN || *s)
        return -1;
    *out_ms = days * 86400000 + ms - (int64_t)off * 60000;
    return 0;
}
