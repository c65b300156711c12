/* Pause, resume, renew and metadata of a sandbox (contract 4.4 to 4.6). */
#include "common/base/clock.h"
#include "common/json/jx.h"
#include "gateway/api/api.h"
#include "gateway/domain/lifecycle.h"

#include <math.h>

int api_sandbox_pause(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct api *api = app;

    if (lifecycle_pause(api->lc, rq->params[0], e) < 0)
        return -1;
    rs->status = 202;
    return 0;
}

int api_sandbox_resume(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct api *api = app;

    if (lifecycle_resume(api->lc, rq->params[0], e) < 0)
        return -1;
    rs->status = 202;
    return 0;
}

/* RFC 3339 text or, lax, epoch seconds. */
static int take_date(const json_t *v, int64_t *out, struct err *e)
{
    double seconds = json_number_value(v);

    if (json_is_string(v) && clock_parse_ms(json_string_value(v), out) == 0)
        return 0;
    if (json_is_number(v) && fabs(seconds) < 1e11) {
        *out = (int64_t)(seconds * 1000);
        return 0;
    }
    return err_set(e, ERRC_INVALID, "expiresAt: must be a date such as 2030-01-31T12:00:00Z");
}

int api_sandbox_renew(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct api *api = app;
    json_t *body = api_body(rq, e);
    char text[CLOCK_TEXT];
    int64_t at;
    int rc;

    if (!body)
        return -1;
    rc = take_date(json_object_get(body, "expiresAt"), &at, e);
    json_decref(body);
    if (rc < 0 || lifecycle_renew(api->lc, rq->params[0], at, e) < 0)
        return -1;
    clock_format_ms(at, text);
    return api_reply(rs, 200, json_pack("{s:s}", "expiresAt", text), e);
}

static int check_patch(const json_t *patch, struct err *e)
{
    const char *key;
    json_t *v;

    if (json_object_size(patch) > API_MAP_MAX)
        return err_set(e, ERRC_INVALID, "body: has more than %d entries", API_MAP_MAX);
    json_object_foreach((json_t *)patch, key, v) {
        if (!json_is_string(v) && !json_is_null(v))
            return err_set(e, ERRC_INVALID, "%.80s: must be a string, or null to delete", key);
    }
    return 0;
}

int api_sandbox_metadata(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct api *api = app;
    AUTO_SANDBOX struct sandbox sb = { 0 };
    json_t *patch = api_body(rq, e);
    int rc;

    if (!patch)
        return -1;
    rc = check_patch(patch, e);
    if (rc == 0)
        rc = lifecycle_patch_metadata(api->lc, rq->params[0], patch, &sb, e);
    json_decref(patch);
    return rc < 0 ? -1 : api_reply_sandbox(rs, 200, &sb, true, e);
}
