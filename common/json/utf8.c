#include "common/json/utf8.h"

#include "common/base/buf.h"

/* Bytes of the sequence that c begins, 0 when c cannot begin one. */
static size_t seq_len(unsigned char c)
{
    if (c < 0x80)
        return 1;
    if (c >= 0xc2 && c <= 0xdf)
        return 2;
    if (c >= 0xe0 && c <= 0xef)
        return 3;
    if (c >= 0xf0 && c <= 0xf4)
        return 4;
    return 0;
}

/* The second byte is restricted after E0, ED, F0 and F4 (RFC 3629 section 4). */
static int second_ok(unsigned char first, unsigned char c)
{
    switch (first) {
    case 0xe0:
        return c >= 0xa0 && c <= 0xbf;
    case 0xed:
        return c >= 0x80 && c <= 0x9f;
    case 0xf0:
        return c >= 0x90 && c <= 0xbf;
    case 0xf4:
        return c >= 0x80 && c <= 0x8f;
    default:
        return c >= 0x80 && c <= 0xbf;
    }
}

/* How many of the have bytes at p agree with the sequence that p[0] begins. */
static size_t matching(const unsigned char *p, size_t have, size_t want)
{
    size_t i;

    for (i = 1; i < want && i < have; i++) {
        if (i == 1 ? !second_ok(p[0], p[1]) : (p[i] & 0xc0) != 0x80)
            break;
    }
    return i;
}

size_t utf8_valid_len(const char *s, size_t len)
{
    const unsigned char *p = (const unsigned char *)s;
    size_t i = 0;
    size_t n;

    while (i < len) {
        if (p[i] < 0x80) {
            i++;
            continue;
        }
        n = seq_len(p[i]);
        if (!n || len - i < n || matching(p + i, len - i, n) < n)
            break;
        i += n;
    }
    return i;
}

int utf8_repair(const char *s, size_t len, struct buf *out)
{
    size_t ok;

    for (;;) {
        ok = utf8_valid_len(s, len);
        if (buf_append(out, s, ok) < 0)
            return -1;
        if (ok == len)
            return 0;
        if (buf_puts(out, "\xef\xbf\xbd") < 0)
            return -1;
        s += ok + 1;
        len -= ok + 1;
    }
}

size_t utf8_incomplete_tail(const char *s, size_t len)
{
    const unsigned char *p = (const unsigned char *)s;
    size_t back;
    size_t n;

    for (back = 1; back <= 3 && back <= len; back++) {
        n = seq_len(p[len - back]);
        if (n == 0)
            continue; /* a continuation byte: its first byte is further back */
        return n > back && matching(p + len - back, back, n) == back ? back : 0;
    }
    return 0;
}
