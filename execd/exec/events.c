#include "execd/exec/events.h"

#include "common/base/buf.h"
#include "common/json/utf8.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Can stand in a JSON string as it is (RFC 8259 section 7) and is ASCII. */
static bool plain(unsigned char c)
{
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

/* The character at s, which has len >= 1 bytes; an invalid byte is U+FFFD. */
static size_t decode(const char *s, size_t len, uint32_t *out)
{
    static const unsigned char first_mask[] = { 0, 0x7f, 0x1f, 0x0f, 0x07 };
    const unsigned char *p = (const unsigned char *)s;
    size_t n = p[0] < 0x80 ? 1 : p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    size_t i;

    if (n > len || utf8_valid_len(s, n) < n) {
        *out = 0xfffd;
        return 1;
    }
    *out = p[0] & first_mask[n];
    for (i = 1; i < n; i++)
        *out = *out << 6 | (p[i] & 0x3f);
    return n;
}

static int put_unit(struct buf *out, uint32_t u16)
{
    static const char digit[] = "0123456789abcdef";
    const char text[6] = {
        '\\',           'u', digit[u16 >> 12 & 15], digit[u16 >> 8 & 15], digit[u16 >> 4 & 15],
        digit[u16 & 15]
    };

    return buf_append(out, text, sizeof(text));
}

static int put_escaped(struct buf *out, uint32_t c)
{
    static const char shorts[] = "\b\t\n\f\r\"\\";
    static const char letters[] = "btnfr\"\\";
    const char *at = c && c < 0x80 ? strchr(shorts, (int)c) : NULL;

    if (at) {
        const char text[2] = { '\\', letters[at - shorts] };

        return buf_append(out, text, sizeof(text));
    }
    if (c < 0x10000)
        return put_unit(out, c);
    c -= 0x10000;
    return put_unit(out, 0xd800 | c >> 10) < 0 ? -1 : put_unit(out, 0xdc00 | (c & 0x3ff));
}

static int put_string(struct buf *out, const char *s, size_t len)
{
    uint32_t c;
    size_t n;

    while (len) {
        for (n = 0; n < len && plain((unsigned char)s[n]); n++)
            ;
        if (n && buf_append(out, s, n) < 0)
            return -1;
        s += n;
        len -= n;
        if (!len)
            break;
        n = decode(s, len, &c);
        if (put_escaped(out, c) < 0)
            return -1;
        s += n;
        len -= n;
    }
    return 0;
}

int event_text(struct buf *out, const char *type, const char *text, size_t len, int64_t now_ms)
{
    char tail[64];
    int n = snprintf(tail, sizeof(tail), "\",\"timestamp\":%" PRId64 "}\n\n", now_ms);

    if (buf_append(out, "{\"type\":\"", 9) < 0 || buf_puts(out, type) < 0 ||
        buf_append(out, "\",\"text\":\"", 10) < 0 || put_string(out, text, len) < 0)
        return -1;
    return buf_append(out, tail, (size_t)n);
}

int event_complete(struct buf *out, int64_t took_ms, int64_t now_ms)
{
    return buf_printf(out,
                      "{\"type\":\"execution_complete\",\"execution_time\":%" PRId64
                      ",\"timestamp\":%" PRId64 "}\n\n",
                      took_ms, now_ms);
}

static int put_member(struct buf *out, const char *before, const char *value)
{
    return buf_puts(out, before) < 0 ? -1 : put_string(out, value, strlen(value));
}

int event_error(struct buf *out, const char *ename, const char *evalue, const char *traceback,
                const char *detail, int64_t now_ms)
{
    if (put_member(out, "{\"type\":\"error\",\"error\":{\"ename\":\"", ename) < 0 ||
        put_member(out, "\",\"evalue\":\"", evalue) < 0 ||
        put_member(out, "\",\"traceback\":[\"", traceback) < 0)
        return -1;
    if (detail && put_member(out, "\",\"", detail) < 0)
        return -1;
    return buf_printf(out, "\"]},\"timestamp\":%" PRId64 "}\n\n", now_ms);
}
