#include "common/http/internal.h"

#include <string.h>

const char *http_req_header(const struct http_req *rq, const char *name)
{
    return MHD_lookup_connection_value(rq->conn, MHD_HEADER_KIND, name);
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int http_percent_decode(struct arena *a, const char *s, size_t len, bool plus, const char **out)
{
    char *p = arena_alloc(a, len + 1);
    char *w = p;
    int hi;
    int lo;
    size_t i;

    if (!p)
        return -1;
    for (i = 0; i < len; i++) {
        if (s[i] == '%') {
            hi = len - i > 2 ? hex_digit(s[i + 1]) : -1;
            lo = hi >= 0 ? hex_digit(s[i + 2]) : -1;
            if (lo < 0 || (hi | lo) == 0)
                return -1;
            *w++ = (char)(hi << 4 | lo);
            i += 2;
        } else if (s[i] == '+' && plus) {
            *w++ = ' ';
        } else {
            *w++ = s[i];
        }
    }
    *w = '\0';
    *out = p;
    return 0;
}

int http_req_query(struct http_req *rq, const char *name, unsigned nth, const char **out,
                   struct err *e)
{
    const char *p = rq->query;
    const char *key;
    const char *val;
    size_t len;
    size_t key_len;

    for (; *p; p += len + (p[len] == '&')) {
        len = strcspn(p, "&");
        key_len = strcspn(p, "=&");
        if (http_percent_decode(&rq->arena, p, key_len, true, &key) < 0)
            return err_set(e, ERRC_INVALID, "query parameter name is not valid percent-encoding");
        if (strcmp(key, name) != 0 || nth-- > 0)
            continue;
        val = p + key_len + (key_len < len);
        if (http_percent_decode(&rq->arena, val, (size_t)(p + len - val), true, out) < 0)
            return err_set(e, ERRC_INVALID, "query parameter %s is not valid percent-encoding",
                           name);
        return 1;
    }
    return 0;
}
