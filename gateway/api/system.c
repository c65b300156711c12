/* Health, version and the SDKs' telemetry. */
#include "common/base/buf.h"
#include "common/base/log.h"
#include "common/base/macros.h"
#include "common/json/jx.h"
#include "gateway/api/api.h"

#include <string.h>

int api_health(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    (void)app, (void)rq;
    return http_resp_json(rs, 200, strdup("{\"status\":\"healthy\"}"), e);
}

int api_version(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    (void)app, (void)rq;
    return http_resp_json(rs, 200, strdup("{\"version\":\"" SANDGATE_VERSION "\"}"), e);
}

/* Counters in the text format of Prometheus; runs in the loop, whose counters they are. */
int api_metrics(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    const struct api *api = app;
    AUTO_BUF struct buf out = BUF_INIT(API_METRICS_MAX);

    (void)rq;
    if (api->metrics)
        api->metrics(api->metrics_arg, &out);
    rs->content_type = "text/plain; version=0.0.4; charset=utf-8";
    return http_resp_json(rs, 200, buf_take(&out), e);
}

struct event {
    const char *type;
    const char *sandbox_id;
    const char *image;
    int64_t duration_ms;
    bool success;
};

/* POST /v1/metrics/events (contract 10): sent by the SDKs after every create. Cheap on purpose. */
int api_metrics_event(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    static const struct jx_field fields[] = {
        { "eventType", JX_STR, offsetof(struct event, type), JX_REQUIRED, 0, 0, 128 },
        { "sandboxId", JX_STR, offsetof(struct event, sandbox_id), JX_NULLABLE, 0, 0, 128 },
        { "image", JX_STR, offsetof(struct event, image), JX_NULLABLE, 0, 0, API_IMAGE_MAX },
        { "createDurationMs", JX_I64, offsetof(struct event, duration_ms), JX_REQUIRED, 0,
          INT32_MAX, 0 },
        { "success", JX_BOOL, offsetof(struct event, success), JX_REQUIRED, 0, 0, 0 },
    };
    struct event ev = { 0 };
    json_t *body = api_body(rq, e);
    int rc;

    (void)app;
    if (!body)
        return -1;
    rc = jx_decode(body, "", fields, ARRAY_LEN(fields), false, &ev, e);
    if (rc == 0) {
        log_debug("client event", LOG_S("type", ev.type), LOG_S("id", ev.sandbox_id),
                  LOG_N("ms", ev.duration_ms), LOG_N("success", ev.success));
        rs->status = 204;
    }
    json_decref(body);
    return rc;
}
