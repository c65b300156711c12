#include "common/http/internal.h"

#include <string.h>

/* Blanks around a value are no part of it (RFC 9110 5.5); libmicrohttpd drops those in front. The
 * value is in its own, writable buffer of this request. */
const char *http_req_header(const struct http_req *rq, const char *name)
{
    const char *v = MHD_lookup_connection_value(rq->conn, MHD_HEADER_KIND, name);
    size_t len = v ? strlen(v) : 0;

    while (len && (v[len - 1] == ' ' || v[len - 1] == '\t'))
        ((char *)v)[--len] = '\0';
    return v;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes the character at s[*i] and moves on; -1 when it is broken or NUL. */
static int next_char(const char *s, size_t len, size_t *i, bool plus)
{
    char c = s[(*i)++];
    int hi;
    int lo;

    if (c == '+' && plus)
        return ' ';
    if (c != '%')
        return (unsigned char)c;
    if (len - *i < 2)
        return -1;
    hi = hex_digit(s[*i]);
    lo = hex_digit(s[*i + 1]);
    *i += 2;
    return hi < 0 || lo < 0 || (hi | lo) == 0 ? -1 : hi << 4 | lo;
}

int http_percent_decode(struct arena *a, const char *s, size_t len, bool plus, const char **out)
{
    char *p = arena_alloc(a, len + 1);
    char *w = p;
    size_t i = 0;
    int c;

    if (!p)
        return -1;
    while (i < len) {
        c = next_char(s, len, &i, plus);
        if (c < 0)
            return -1;
        *w++ = (char)c;
    }
    *w = '\0';
    *out = p;
    return 0;
}

/* Whether the encoded key is name; -1 when its encoding is broken. Without a copy: a request may
 * look at thousands of parameters again and again. */
static int key_is(const char *key, size_t len, const char *name)
{
    size_t i = 0;
    int same = 1;
    int c;

    while (i < len) {
        c = next_char(key, len, &i, true);
        if (c < 0)
            return -1;
        same = same && *name && (unsigned char)*name++ == c;
    }
    return same && !*name;
}

int http_req_query(struct http_req *rq, const char *name, unsigned nth, const char **out,
                   struct err *e)
{
    const char *p = rq->query;
    const char *val;
    size_t len;
    size_t key_len;
    int same;

    for (; *p; p += len + (p[len] == '&')) {
        len = strcspn(p, "&");
        key_len = strcspn(p, "=&");
        same = key_is(p, key_len, name);
        if (same < 0)
            return err_set(e, ERRC_INVALID, "query parameter name is not valid percent-encoding");
        if (!same || nth-- > 0)
            continue;
        val = p + key_len + (key_len < len);
        if (http_percent_decode(&rq->arena, val, (size_t)(p + len - val), true, out) < 0)
            return err_set(e, ERRC_INVALID, "query parameter %s is not valid percent-encoding",
                           name);
        return 1;
    }
    return 0;
}
