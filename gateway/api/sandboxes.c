/* POST, GET and DELETE of /sandboxes and /sandboxes/{id} (contract 3, 4.1 to 4.3, 4.7). */
#include "common/base/cleanup.h"
#include "common/base/num.h"
#include "common/json/jx.h"
#include "gateway/api/api.h"
#include "gateway/app.h"
#include "gateway/domain/lifecycle.h"

#include <string.h>

/* 1 to API_KEY_MAX printable characters. */
static int take_key(struct http_req *rq, const char **out, struct err *e)
{
    const char *key = http_req_header(rq, "Idempotency-Key");
    size_t len = key ? strlen(key) : 0;
    size_t i;

    *out = key;
    if (!key)
        return 0;
    for (i = 0; i < len; i++)
        if (key[i] < ' ' || key[i] > '~')
            break;
    if (!len || len > API_KEY_MAX || i < len)
        return err_api(e, ERRC_INVALID, "SANDBOX::INVALID_PARAMETER",
                       "Idempotency-Key: must be 1 to %d printable ASCII characters", API_KEY_MAX);
    return 0;
}

int api_sandbox_create(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct api *api = app;
    AUTO_SANDBOX struct sandbox sb = { 0 };
    struct create_req create;
    const char *key;
    json_t *doc;
    int rc;

    if (take_key(rq, &key, e) < 0 || api_decode_create(rq, &doc, &create, e) < 0)
        return -1;
    create.key = key;
    rc = lifecycle_create(api->lc, &create, &sb, e);
    json_decref(doc);
    if (rc < 0)
        return -1;
    http_resp_header(rs, "Location", arena_printf(&rq->arena, "/v1/sandboxes/%s", sb.id));
    return api_reply_sandbox(rs, 202, &sb, false, e);
}

/* include=ended: records of sandboxes that are gone, too (design decision 15). */
static int take_include(struct http_req *rq, bool *ended, struct err *e)
{
    const char *text;
    int rc = http_req_query(rq, "include", 0, &text, e);

    *ended = rc > 0;
    if (rc > 0 && strcmp(text, "ended") != 0)
        return err_set(e, ERRC_INVALID, "include: must be \"ended\", or be left out");
    return rc < 0 ? -1 : 0;
}

int api_sandbox_get(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct api *api = app;
    AUTO_SANDBOX struct sandbox sb = { 0 };
    bool ended;

    if (take_include(rq, &ended, e) < 0 ||
        (ended ? lifecycle_find : lifecycle_get)(api->lc, rq->params[0], &sb, e) < 0)
        return -1;
    return api_reply_sandbox(rs, 200, &sb, true, e);
}

int api_sandbox_delete(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct api *api = app;
    const char *peer = http_req_header(rq, APP_PEER_HEADER);
    const char *by = arena_printf(&rq->arena, "request %s from %s", rq->request_id,
                                  peer ? peer : "an unknown address");

    if (lifecycle_delete(api->lc, rq->params[0], by, e) < 0)
        return -1;
    rs->status = 204;
    return 0;
}

/* ---- list ---- */

struct list_query {
    struct api_page at;
    char *states;   /* JSON array, NULL: any */
    char *metadata; /* JSON object, NULL: any */
    bool ended;
};

static int take_number(struct http_req *rq, const char *name, int64_t max, int64_t *out,
                       struct err *e)
{
    const char *text;
    int rc = http_req_query(rq, name, 0, &text, e);

    if (rc <= 0)
        return rc;
    if (num_parse_i64(text, 1, max, out) < 0)
        return err_set(e, ERRC_INVALID, "%s: must be a number from 1 to %lld", name,
                       (long long)max);
    return 0;
}

int api_query_page(struct http_req *rq, struct api_page *out, struct err *e)
{
    *out = (struct api_page){ .page = 1, .size = API_PAGE_SIZE_DEFAULT };
    if (take_number(rq, "page", INT32_MAX, &out->page, e) < 0)
        return -1;
    return take_number(rq, "pageSize", API_PAGE_SIZE_MAX, &out->size, e);
}

int api_query_states(struct http_req *rq, char **out, struct err *e)
{
    json_t *list = json_array();
    const char *text;
    unsigned n = 0;
    int rc;

    while ((rc = http_req_query(rq, "state", n, &text, e)) > 0) {
        if (n++ == API_STATES_MAX)
            rc = err_set(e, ERRC_INVALID, "state: at most %d of them", API_STATES_MAX);
        else if (json_array_append_new(list, jx_bytes(text, strlen(text))) < 0)
            rc = err_nomem(e);
        if (rc < 0)
            break;
    }
    *out = rc == 0 && n ? json_dumps(list, JSON_COMPACT) : NULL;
    json_decref(list);
    return rc < 0 ? -1 : 0;
}

/* One k=v of the metadata filter, decoded a second time: clients differ in how often they encode
 * (contract 4.3). */
static int add_filter(struct http_req *rq, json_t *map, const char *part, size_t len, struct err *e)
{
    const char *eq = memchr(part, '=', len);
    const char *k;
    const char *v;

    if (!eq || http_percent_decode(&rq->arena, part, (size_t)(eq - part), true, &k) < 0 ||
        http_percent_decode(&rq->arena, eq + 1, len - (size_t)(eq + 1 - part), true, &v) < 0 ||
        json_object_set_new(map, k, json_string(v)) < 0)
        return err_api(e, ERRC_INVALID, "INVALID_METADATA_FORMAT",
                       "metadata: must be key=value pairs joined by '&'");
    return 0;
}

static int take_metadata(struct http_req *rq, char **out, struct err *e)
{
    const char *text;
    const char *p;
    size_t len;
    json_t *map;
    int rc = http_req_query(rq, "metadata", 0, &text, e);

    if (rc <= 0)
        return rc;
    if (!*text)
        return 0;
    map = json_object();
    for (p = text, rc = 0; p && rc == 0; p = p[len] ? p + len + 1 : NULL) {
        len = strcspn(p, "&");
        rc = add_filter(rq, map, p, len, e);
    }
    *out = rc == 0 ? json_dumps(map, JSON_COMPACT) : NULL;
    json_decref(map);
    return rc;
}

static int take_query(struct http_req *rq, struct list_query *q, struct err *e)
{
    if (take_include(rq, &q->ended, e) < 0 || api_query_page(rq, &q->at, e) < 0 ||
        api_query_states(rq, &q->states, e) < 0)
        return -1;
    return take_metadata(rq, &q->metadata, e);
}

json_t *api_page_json(const struct api_page *at, json_t *items, int64_t total)
{
    int64_t pages = (total + at->size - 1) / at->size;

    return json_pack("{s:o, s:{s:I, s:I, s:I, s:I, s:b}}", "items", items, "pagination", "page",
                     (json_int_t)at->page, "pageSize", (json_int_t)at->size, "totalItems",
                     (json_int_t)total, "totalPages", (json_int_t)pages, "hasNextPage",
                     at->page < pages);
}

int api_sandbox_list(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct api *api = app;
    AUTO_PAGE struct sandbox_page page = { 0 };
    struct list_query q = { 0 };
    struct sandbox_query find;
    int rc = take_query(rq, &q, e);

    AUTO_FREE char *states = q.states;
    AUTO_FREE char *metadata = q.metadata;
    if (rc < 0)
        return -1;
    find = (struct sandbox_query){ .states = states,
                                   .metadata = metadata,
                                   .with_ended = q.ended,
                                   .offset = (q.at.page - 1) * q.at.size,
                                   .limit = q.at.size };
    if (lifecycle_list(api->lc, &find, &page, e) < 0)
        return -1;
    return api_reply_page(rs, &page, &q.at, e);
}
