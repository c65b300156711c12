#include "common/base/clock.h"
#include "common/json/jx.h"
#include "gateway/api/api.h"
#include "gateway/sandbox.h"

static json_t *date(int64_t ms)
{
    char text[CLOCK_TEXT];

    clock_format_ms(ms, text);
    return json_string(text);
}

static json_t *status_json(const struct sandbox *sb)
{
    return json_pack("{s:s, s:s, s:s, s:o}", "state", sandbox_state_to_string(sb->state), "reason",
                     sb->reason, "message", sb->message, "lastTransitionAt",
                     date(sb->transition_ms));
}

/* Optional members are left out, never null (contract 12.2). */
static void add_map(json_t *to, const char *name, const char *text)
{
    json_t *map = json_loads(text, 0, NULL);

    if (json_object_size(map))
        (void)json_object_set(to, name, map);
    json_decref(map);
}

json_t *api_sandbox_json(const struct sandbox *sb, bool with_image)
{
    json_t *v =
        json_pack("{s:s, s:o, s:o, s:o}", "id", sb->id, "status", status_json(sb), "createdAt",
                  date(sb->created_ms), "entrypoint", json_loads(sb->entrypoint, 0, NULL));

    if (!v)
        return NULL;
    if (sb->snapshot_id[0])
        (void)json_object_set_new(v, "snapshotId", json_string(sb->snapshot_id));
    else if (with_image)
        (void)json_object_set_new(v, "image", json_pack("{s:s}", "uri", sb->image));
    if (sb->platform_os[0])
        (void)json_object_set_new(
            v, "platform",
            json_pack("{s:s, s:s}", "os", sb->platform_os, "arch", sb->platform_arch));
    if (sb->expires_ms)
        (void)json_object_set_new(v, "expiresAt", date(sb->expires_ms));
    add_map(v, "metadata", sb->metadata);
    add_map(v, "extensions", sb->extensions);
    return v;
}

int api_reply(struct http_resp *rs, int status, json_t *v, struct err *e)
{
    char *text = v ? jx_dump(v, false) : NULL;

    json_decref(v);
    return http_resp_json(rs, status, text, e);
}

json_t *api_body(const struct http_req *rq, struct err *e)
{
    json_t *v;

    if (!rq->body_len) {
        (void)err_set(e, ERRC_INVALID, "a JSON body is required");
        return NULL;
    }
    v = jx_parse(rq->body, rq->body_len, true, e);
    if (v && !json_is_object(v)) {
        json_decref(v);
        (void)err_set(e, ERRC_INVALID, "body: must be a JSON object");
        return NULL;
    }
    return v;
}
