#include "gateway/proxy/target.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

enum { PORT_DIGITS = 5 };

/* What is left to read. */
struct cursor {
    const char *at;
    const char *end;
};

static bool take(struct cursor *c, const char *text)
{
    size_t len = strlen(text);

    if ((size_t)(c->end - c->at) < len || memcmp(c->at, text, len) != 0)
        return false;
    c->at += len;
    return true;
}

static bool take_id(struct cursor *c, char out[RUNTIME_ID])
{
    size_t n = 0;

    while (c->at < c->end && n < RUNTIME_ID - 1 &&
           (isalnum((unsigned char)*c->at) || *c->at == '-'))
        out[n++] = *c->at++;
    out[n] = '\0';
    return n > 0 && c->at < c->end && *c->at == '/';
}

static bool take_port(struct cursor *c, uint16_t *out)
{
    unsigned value = 0;
    int digits = 0;

    while (c->at < c->end && isdigit((unsigned char)*c->at) && digits++ < PORT_DIGITS)
        value = value * 10 + (unsigned)(*c->at++ - '0');
    if (!digits || value < 1 || value > UINT16_MAX)
        return false;
    *out = (uint16_t)value;
    return c->at == c->end || *c->at == '/' || *c->at == '?';
}

/* One dot at p, plain or as %2e; its length, 0: none. */
static size_t dot_len(const char *p, const char *end)
{
    if (p < end && *p == '.')
        return 1;
    return end - p >= 3 && strncasecmp(p, "%2e", 3) == 0 ? 3 : 0;
}

/* Is there a segment of one or two dots before the query? Two readers could resolve it
 * differently, and with it reach something that was not checked. */
static bool has_dot_segment(const char *p, const char *end)
{
    size_t n;
    int dots;

    for (; p < end && *p != '?'; p++) {
        if (*p != '/')
            continue;
        for (dots = 0, p++; dots < 2 && (n = dot_len(p, end)); dots++)
            p += n;
        if (dots && (p == end || *p == '/' || *p == '?'))
            return true;
        p--;
    }
    return false;
}

/* One whole segment of at most size - 1 characters. */
static bool take_segment(struct cursor *c, char *out, size_t size)
{
    size_t n = 0;

    while (c->at < c->end && n < size - 1 && isalnum((unsigned char)*c->at))
        out[n++] = *c->at++;
    out[n] = '\0';
    return n > 0 && (c->at == c->end || *c->at == '/' || *c->at == '?');
}

static bool take_plain(struct cursor c, struct cursor *end, struct target *t)
{
    if (!take(&c, "/sandboxes/") || !take_id(&c, t->id) || !take(&c, "/proxy/") ||
        !take_port(&c, &t->port))
        return false;
    *end = c;
    return true;
}

static bool take_signed(struct cursor c, struct cursor *end, struct target *t)
{
    if (!take(&c, "/signed/") || !take_id(&c, t->id) || !take(&c, "/") ||
        !take_port(&c, &t->port) || !take(&c, "/") ||
        !take_segment(&c, t->expires, sizeof(t->expires)) || !take(&c, "/") ||
        !take_segment(&c, t->signature, sizeof(t->signature)))
        return false;
    *end = c;
    return true;
}

enum target_kind target_parse(const char *path, size_t len, struct target *out)
{
    struct cursor c = { path, path + len };
    struct target t = { 0 };

    if (len > 4 && memcmp(path, "/v1/", 4) == 0)
        c.at += 3;
    if (!take_plain(c, &c, &t) && !take_signed(c, &c, &t))
        return TARGET_OTHER;
    t.prefix_len = (size_t)(c.at - path);
    t.rest = c.at;
    t.rest_len = (size_t)(c.end - c.at);
    if (has_dot_segment(c.at, c.end))
        return TARGET_TRAVERSAL;
    *out = t;
    return TARGET_PROXY;
}
