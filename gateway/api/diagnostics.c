/* Diagnostics of a sandbox (contract 9): with a scope a JSON descriptor, without one the older plain
 * text. */
#include "gateway/domain/diagnostics.h"
#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/macros.h"
#include "common/base/num.h"
#include "common/json/jx.h"
#include "gateway/api/api.h"
#include "gateway/domain/lifecycle.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

/* contract 9 */
enum {
    LOGS_LINES = 100,
    EVENTS = 50,
    SUMMARY_LINES = 50,
    SUMMARY_EVENTS = 20,
    SINCE_DEFAULT_S = 600, /* of a since that cannot be read */
    TEXT_MAX = 3 * DIAGNOSTICS_MAX,
};

struct scope {
    const char *name;
    int value;
};

static const struct scope logs_scopes[] = { { "container", 0 }, { "all", 1 } };
static const struct scope events_scopes[] = { { "runtime", DIAGNOSTICS_RUNTIME },
                                              { "lifecycle", DIAGNOSTICS_LIFECYCLE },
                                              { "all", DIAGNOSTICS_ALL } };

struct kind {
    const char *name;
    const struct scope *scopes;
    size_t n_scopes;
    const char *supported; /* for people */
    const char *nothing;   /* content of an empty text */
    const char *all_means; /* the warning that goes with scope "all" */
};

static const struct kind logs_kind = {
    "logs",
    logs_scopes,
    ARRAY_LEN(logs_scopes),
    "container, all",
    "(no logs)",
    "Scope all holds the output of the container; this server keeps no other logs of a sandbox.",
};
static const struct kind events_kind = {
    "events",
    events_scopes,
    ARRAY_LEN(events_scopes),
    "runtime, lifecycle, all",
    "(no events)",
    "Scope all holds the events of the scopes runtime and lifecycle; older ones than the newest 500 "
    "of a sandbox are not kept.",
};

/* 1: *out is the scope asked for. 0: none was. */
static int take_scope(struct http_req *rq, const struct kind *k, const struct scope **out,
                      struct err *e)
{
    const char *text;
    size_t len;
    size_t i;
    int rc = http_req_query(rq, "scope", 0, &text, e);

    if (rc <= 0)
        return rc;
    text += strspn(text, " \t\r\n");
    len = strlen(text);
    while (len && isspace((unsigned char)text[len - 1]))
        len--;
    for (i = 0; i < k->n_scopes; i++)
        if (strlen(k->scopes[i].name) == len && strncasecmp(k->scopes[i].name, text, len) == 0) {
            *out = &k->scopes[i];
            return 1;
        }
    return err_api(e, ERRC_INVALID, "DIAGNOSTICS_SCOPE_UNSUPPORTED",
                   "scope: '%.*s' is not available for %s; use one of: %s",
                   (int)(len < 80 ? len : 80), text, k->name, k->supported);
}

static int take_number(struct http_req *rq, const char *name, int max, int *out, struct err *e)
{
    const char *text;
    int64_t n;
    int rc = http_req_query(rq, name, 0, &text, e);

    if (rc <= 0)
        return rc;
    if (num_parse_i64(text, 1, max, &n) < 0)
        return err_set(e, ERRC_INVALID, "%s: must be a number from 1 to %d", name, max);
    *out = (int)n;
    return 0;
}

/* "10m" ago; a value that cannot be read means ten minutes, as it always has (contract 9). */
static int take_since(struct http_req *rq, int64_t now_ms, int64_t *out, struct err *e)
{
    static const struct {
        char unit;
        int64_t seconds;
    } units[] = { { 's', 1 }, { 'm', 60 }, { 'h', 3600 }, { 'd', 86400 } };
    int64_t seconds = SINCE_DEFAULT_S;
    char digits[12];
    const char *text;
    int64_t n;
    size_t len;
    size_t i;
    int rc = http_req_query(rq, "since", 0, &text, e);

    if (rc <= 0)
        return rc;
    len = strspn(text, "0123456789");
    (void)snprintf(digits, sizeof(digits), "%.*s", (int)(len < 11 ? len : 11), text);
    for (i = 0; i < ARRAY_LEN(units); i++)
        if (text[len] == units[i].unit && !text[len + 1] &&
            num_parse_i64(digits, 0, INT32_MAX, &n) == 0)
            seconds = n * units[i].seconds;
    *out = now_ms - seconds * 1000;
    if (*out < 1)
        *out = 1;
    return 0;
}

/* A closed object (contract 9): no other members. */
static int reply_descriptor(struct http_resp *rs, const char *id, const struct kind *k,
                            const struct scope *scope, const struct buf *text, bool cut,
                            struct err *e)
{
    const char *content = text->len ? text->data : k->nothing;
    size_t len = text->len ? text->len : strlen(k->nothing);
    json_t *v =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:o, s:b}", "sandboxId", id, "kind", k->name, "scope",
                  scope->name, "delivery", "inline", "contentType", "text/plain; charset=utf-8",
                  "content", jx_bytes(content, len), "truncated", cut);

    if (v)
        len = json_string_length(json_object_get(v, "content"));
    (void)json_object_set_new(v, "contentLength", json_integer((json_int_t)len));
    if (strcmp(scope->name, "all") == 0)
        (void)json_object_set_new(v, "warnings", json_pack("[s]", k->all_means));
    return api_reply(rs, 200, v, e);
}

static int reply_legacy(struct http_resp *rs, const struct kind *k, struct buf *text, struct err *e)
{
    if (!text->len && buf_puts(text, k->nothing) < 0)
        return err_nomem(e);
    http_resp_header(rs, "Deprecation", "true");
    return api_reply_text(rs, text, e);
}

int api_diagnostics_logs(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct api *api = app;
    AUTO_BUF struct buf text = BUF_INIT(DIAGNOSTICS_MAX);
    struct diagnostics_logs q = { .tail = LOGS_LINES };
    const struct scope *scope = NULL;
    bool cut;

    if (take_scope(rq, &logs_kind, &scope, e) < 0)
        return -1;
    if (!scope && (take_number(rq, "tail", API_TAIL_MAX, &q.tail, e) < 0 ||
                   take_since(rq, api->lc->clock->wall_ms(), &q.since_ms, e) < 0))
        return -1;
    if (diagnostics_logs(api->lc, rq->params[0], &q, &text, &cut, e) < 0)
        return -1;
    return scope ? reply_descriptor(rs, rq->params[0], &logs_kind, scope, &text, cut, e)
                 : reply_legacy(rs, &logs_kind, &text, e);
}

int api_diagnostics_events(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct api *api = app;
    AUTO_BUF struct buf text = BUF_INIT(DIAGNOSTICS_MAX);
    const struct scope *scope = NULL;
    enum diagnostics_events which = DIAGNOSTICS_ALL;
    int limit = EVENTS;
    bool cut;

    if (take_scope(rq, &events_kind, &scope, e) < 0)
        return -1;
    if (scope)
        which = (enum diagnostics_events)scope->value;
    else if (take_number(rq, "limit", API_EVENTS_MAX, &limit, e) < 0)
        return -1;
    if (diagnostics_events(api->lc, rq->params[0], which, limit, &text, &cut, e) < 0)
        return -1;
    return scope ? reply_descriptor(rs, rq->params[0], &events_kind, scope, &text, cut, e)
                 : reply_legacy(rs, &events_kind, &text, e);
}

int api_diagnostics_inspect(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct api *api = app;
    AUTO_BUF struct buf text = BUF_INIT(DIAGNOSTICS_MAX);

    if (diagnostics_inspect(api->lc, rq->params[0], &text, e) < 0)
        return -1;
    return api_reply_text(rs, &text, e);
}

int api_diagnostics_summary(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct api *api = app;
    AUTO_BUF struct buf text = BUF_INIT(TEXT_MAX);
    int tail = SUMMARY_LINES;
    int events = SUMMARY_EVENTS;

    if (take_number(rq, "tail", API_TAIL_MAX, &tail, e) < 0 ||
        take_number(rq, "event_limit", API_EVENTS_MAX, &events, e) < 0)
        return -1;
    if (diagnostics_summary(api->lc, rq->params[0], tail, events, &text, e) < 0)
        return -1;
    return api_reply_text(rs, &text, e);
}
