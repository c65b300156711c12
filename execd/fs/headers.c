#include "execd/fs/headers.h"

#include "common/base/buf.h"
#include "common/json/utf8.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static bool printable(char c)
{
    return (unsigned char)c >= 0x20 && (unsigned char)c < 0x7f;
}

static bool attr_char(char c)
{
    return isalnum((unsigned char)c) || (c && strchr("!#$&+-.^_`|~", c));
}

/* Bytes that are not UTF-8 must not claim to be. */
static int put_extended(const char *name, struct buf *out)
{
    AUTO_BUF struct buf fixed = BUF_INIT(out->max);
    size_t i;

    if (utf8_repair(name, strlen(name), &fixed) < 0 || buf_puts(out, "; filename*=UTF-8''") < 0)
        return -1;
    for (i = 0; i < fixed.len; i++) {
        char c = fixed.data[i];
        int rc = attr_char(c) ? buf_append(out, &c, 1)
                              : buf_printf(out, "%%%02X", (unsigned)(unsigned char)c);

        if (rc < 0)
            return -1;
    }
    return 0;
}

int disposition_format(const char *name, struct buf *out)
{
    bool plain = true;
    size_t i;

    if (buf_puts(out, "attachment; filename=\"") < 0)
        return -1;
    for (i = 0; name[i]; i++) {
        if ((name[i] == '"' || name[i] == '\\') && buf_puts(out, "\\") < 0)
            return -1;
        plain = plain && printable(name[i]);
        if (buf_append(out, printable(name[i]) ? &name[i] : "_", 1) < 0)
            return -1;
    }
    if (buf_puts(out, "\"") < 0)
        return -1;
    return plain ? 0 : put_extended(name, out);
}

static const char format[] = "%a, %d %b %Y %H:%M:%S GMT";

void http_date_format(int64_t sec, char out[HTTP_DATE_TEXT])
{
    time_t t = (time_t)sec;
    struct tm tm;

    out[0] = '\0';
    if (gmtime_r(&t, &tm) && tm.tm_year + 1900 >= 1 && tm.tm_year + 1900 <= 9999 &&
        !strftime(out, HTTP_DATE_TEXT, format, &tm))
        out[0] = '\0';
}

int http_date_parse(const char *s, int64_t *sec)
{
    struct tm tm = { 0 };
    const char *end = strptime(s, format, &tm);

    if (!end || *end)
        return -1;
    *sec = (int64_t)timegm(&tm);
    return 0;
}
