/* POST of /sandboxes/{id}/snapshots, and GET and DELETE of /snapshots (contract 6). */
#include "gateway/domain/snapshots.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/macros.h"
#include "common/json/jx.h"
#include "gateway/api/api.h"

struct body {
    const char *name;
};

static const struct jx_field body_fields[] = {
    { "name", JX_STR, offsetof(struct body, name), JX_NULLABLE | JX_NONEMPTY, 0, 0,
      SNAPSHOT_NAME_MAX },
};

/* Optional members are left out, never null (contract 12.2). */
static json_t *snapshot_json(const struct snapshot *s)
{
    char moved[CLOCK_TEXT];
    char created[CLOCK_TEXT];
    json_t *v;

    clock_format_ms(s->transition_ms, moved);
    clock_format_ms(s->created_ms, created);
    v = json_pack("{s:s, s:s, s:{s:s, s:s, s:s, s:s}, s:s}", "id", s->id, "sandboxId",
                  s->sandbox_id, "status", "state", snapshot_state_to_string(s->state), "reason",
                  s->reason, "message", s->message, "lastTransitionAt", moved, "createdAt",
                  created);
    if (v && s->name[0])
        (void)json_object_set_new(v, "name", json_string(s->name));
    return v;
}

/* The body may be absent, empty or null. *doc, which out borrows from, is the caller's. */
static int decode(const struct http_req *rq, json_t **doc, struct body *out, struct err *e)
{
    json_t *v;

    if (!rq->body_len)
        return 0;
    v = jx_parse(rq->body, rq->body_len, true, e);
    if (!v)
        return -1;
    if (!json_is_object(v) && !json_is_null(v)) {
        json_decref(v);
        return err_set(e, ERRC_INVALID, "body: must be a JSON object, or absent");
    }
    *doc = v;
    if (json_is_null(v))
        return 0;
    return jx_decode(v, "", body_fields, ARRAY_LEN(body_fields), false, out, e);
}

int api_snapshot_create(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct api *api = app;
    struct body body = { 0 };
    struct snapshot s;
    json_t *doc = NULL;
    int rc = decode(rq, &doc, &body, e);

    if (rc == 0)
        rc = snapshots_create(api->snapshots, rq->params[0], body.name, &s, e);
    json_decref(doc);
    if (rc < 0)
        return -1;
    http_resp_header(rs, "Location", arena_printf(&rq->arena, "/v1/snapshots/%s", s.id));
    return api_reply(rs, 202, snapshot_json(&s), e);
}

int api_snapshot_get(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct api *api = app;
    struct snapshot s;

    if (snapshots_get(api->snapshots, rq->params[0], &s, e) < 0)
        return -1;
    return api_reply(rs, 200, snapshot_json(&s), e);
}

int api_snapshot_delete(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct api *api = app;

    if (snapshots_delete(api->snapshots, rq->params[0], e) < 0)
        return -1;
    rs->status = 204;
    return 0;
}

/* ---- list ---- */

static int take_text(struct http_req *rq, const char *name, const char **out, struct err *e)
{
    return http_req_query(rq, name, 0, out, e) < 0 ? -1 : 0;
}

int api_snapshot_list(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct api *api = app;
    AUTO_SNAPSHOTS struct snapshot_page page = { 0 };
    AUTO_FREE char *states = NULL;
    struct snapshot_query find = { 0 };
    struct api_page at;
    json_t *items;
    size_t i;

    if (api_query_page(rq, &at, e) < 0 || api_query_states(rq, &states, e) < 0 ||
        take_text(rq, "sandboxId", &find.sandbox_id, e) < 0 ||
        take_text(rq, "name", &find.name, e) < 0)
        return -1;
    find.states = states;
    find.offset = (at.page - 1) * at.size;
    find.limit = at.size;
    if (snapshots_list(api->snapshots, &find, &page, e) < 0)
        return -1;
    items = json_array();
    for (i = 0; i < page.len; i++)
        (void)json_array_append_new(items, snapshot_json(&page.items[i]));
    return api_reply(rs, 200, api_page_json(&at, items, page.total), e);
}
