#include "common/http/internal.h"

#include <string.h>

/* Length of the segment at p, up to '/' or the end. */
static size_t seg_len(const char *p)
{
    return strcspn(p, "/");
}

static bool param_char(char c)
{
    return (unsigned char)c >= 0x20 && c != 0x7f && c != '/';
}

/* Decodes one {name} segment; false when it cannot be a parameter. */
static bool take_param(struct http_req *rq, const char *p, size_t len, unsigned slot)
{
    const char *v;
    size_t i;

    if (!len || len > 3 * HTTP_PARAM_LEN_MAX || slot >= HTTP_PARAMS_MAX)
        return false;
    if (http_percent_decode(&rq->arena, p, len, false, &v) < 0)
        return false;
    for (i = 0; v[i]; i++)
        if (!param_char(v[i]) || i >= HTTP_PARAM_LEN_MAX)
            return false;
    rq->params[slot] = v;
    return true;
}

/* Matches path against pattern, both beginning with '/'. One trailing slash is forgiven. */
static bool match(struct http_req *rq, const char *pattern, const char *path)
{
    unsigned slot = 0;
    size_t pl;
    size_t sl;

    while (*pattern == '/' && *path == '/') {
        pattern++;
        path++;
        if (strcmp(pattern, "{*}") == 0) {
            if (slot >= HTTP_PARAMS_MAX)
                return false;
            rq->params[slot] = path; /* the rest, raw */
            return true;
        }
        pl = seg_len(pattern);
        sl = seg_len(path);
        if (pattern[0] == '{') {
            if (!take_param(rq, path, sl, slot++))
                return false;
        } else if (pl != sl || memcmp(pattern, path, pl) != 0) {
            return false;
        }
        pattern += pl;
        path += sl;
    }
    return !*pattern && (!*path || (path[0] == '/' && !path[1]));
}

static bool mounted(const struct http_route *r, bool below_prefix)
{
    return !(r->flags & (below_prefix ? HTTP_BARE_ONLY : HTTP_PREFIX_ONLY));
}

static bool has_prefix(const char *path, const char *prefix)
{
    size_t len = prefix ? strlen(prefix) : 0;

    return len && strncmp(path, prefix, len) == 0 && path[len] == '/';
}

/* Adds a method to the comma-separated list for Allow. */
static const char *allow_add(struct http_req *rq, const char *list, const char *method)
{
    if (list && strstr(list, method))
        return list;
    return list ? arena_printf(&rq->arena, "%s, %s", list, method) : method;
}

int router_match(const struct http_service *svc, struct http_req *rq, const char **allow,
                 struct err *e)
{
    const char *path = rq->path;
    const char *methods = NULL;
    bool below;
    size_t i;

    if (has_prefix(path, svc->strip))
        path += strlen(svc->strip);
    below = has_prefix(path, svc->prefix);
    rq->mount = below ? svc->prefix : "";
    if (below)
        path += strlen(svc->prefix);
    rq->path = path;
    for (i = 0; i < svc->n_routes; i++) {
        const struct http_route *r = &svc->routes[i];

        if (!mounted(r, below) || !match(rq, r->pattern, path))
            continue;
        if (strcmp(r->method, rq->method) == 0) {
            rq->route = r;
            return 0;
        }
        methods = allow_add(rq, methods, r->method);
    }
    if (!methods)
        return err_set(e, ERRC_NOT_FOUND, "no such path");
    *allow = methods;
    return err_set(e, ERRC_METHOD, "method %s is not allowed here; use %s", rq->method, methods);
}
