#include "execd/exec/events.h"

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/json/jx.h"
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

/* The members that end every event. */
static int put_tail(struct buf *out, const char *before, struct event_stamp at)
{
    char text[96];
    int n =
        at.eid
            ? snprintf(text, sizeof(text), "%s,\"timestamp\":%" PRId64 ",\"eid\":%" PRIu64 "}\n\n",
                       before, at.wall_ms, at.eid)
            : snprintf(text, sizeof(text), "%s,\"timestamp\":%" PRId64 "}\n\n", before, at.wall_ms);

    return buf_append(out, text, (size_t)n);
}

int event_text(struct buf *out, const char *type, const char *text, size_t len,
               struct event_stamp at)
{
    if (buf_append(out, "{\"type\":\"", 9) < 0 || buf_puts(out, type) < 0 ||
        buf_append(out, "\",\"text\":\"", 10) < 0 || put_string(out, text, len) < 0)
        return -1;
    return put_tail(out, "\"", at);
}

int event_complete(struct buf *out, int64_t took_ms, struct event_stamp at)
{
    if (buf_printf(out, "{\"type\":\"execution_complete\",\"execution_time\":%" PRId64, took_ms) <
        0)
        return -1;
    return put_tail(out, "", at);
}

static int put_member(struct buf *out, const char *before, const char *value, size_t len)
{
    return buf_puts(out, before) < 0 ? -1 : put_string(out, value, len);
}

int event_error(struct buf *out, const char *ename, const char *evalue,
                const char *const *traceback, size_t n, struct event_stamp at)
{
    size_t i;

    if (put_member(out, "{\"type\":\"error\",\"error\":{\"ename\":\"", ename, strlen(ename)) < 0 ||
        put_member(out, "\",\"evalue\":\"", evalue, strlen(evalue)) < 0 ||
        buf_puts(out, "\",\"traceback\":[") < 0)
        return -1;
    for (i = 0; i < n; i++)
        if (put_member(out, i ? ",\"" : "\"", traceback[i], strlen(traceback[i])) < 0 ||
            buf_puts(out, "\"") < 0)
            return -1;
    return put_tail(out, "]}", at);
}

int event_count(struct buf *out, int64_t execution_count, struct event_stamp at)
{
    if (buf_printf(out, "{\"type\":\"execution_count\",\"execution_count\":%" PRId64,
                   execution_count) < 0)
        return -1;
    return put_tail(out, "", at);
}

/* What is no string goes out as its JSON text: clients want strings (contract/execd.md 5.3). */
static int put_value(struct buf *out, const json_t *v)
{
    AUTO_FREE char *text = json_is_string(v) ? NULL : jx_dump(v, false);

    if (json_is_string(v))
        return put_string(out, json_string_value(v), json_string_length(v));
    return text ? put_string(out, text, strlen(text)) : -1;
}

int event_result(struct buf *out, const json_t *mime, struct event_stamp at)
{
    const json_t *plain_text = json_object_get(mime, "text/plain");
    const char *before = "{\"type\":\"result\",\"results\":{\"";
    const char *key;
    json_t *value;

    if (plain_text && !json_object_get(mime, "text")) {
        if (buf_puts(out, before) < 0 || buf_puts(out, "text\":\"") < 0 ||
            put_value(out, plain_text) < 0)
            return -1;
        before = "\",\"";
    }
    json_object_foreach((json_t *)mime, key, value) {
        if (put_member(out, before, key, strlen(key)) < 0 || buf_puts(out, "\":\"") < 0 ||
            put_value(out, value) < 0)
            return -1;
        before = "\",\"";
    }
    if (before[0] == '{') /* an empty result */
        return buf_puts(out, "{\"type\":\"result\",\"results\":{") < 0 ? -1
                                                                       : put_tail(out, "}", at);
    return put_tail(out, "\"}", at);
}
