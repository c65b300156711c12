#include "common/base/log.h"
#include "common/base/macros.h"
#include "common/json/jx.h"
#include "gateway/api/api.h"

#include <string.h>

struct body {
    const char *type;
    const char *sandbox_id;
    const char *image;
    int64_t duration_ms;
    bool success;
};

int api_decode_event(const struct http_req *rq, struct api_event *out, struct err *e)
{
    static const struct jx_field fields[] = {
        { "eventType", JX_STR, offsetof(struct body, type), JX_REQUIRED, 0, 0, 128 },
        { "sandboxId", JX_STR, offsetof(struct body, sandbox_id), JX_NULLABLE, 0, 0, 128 },
        { "image", JX_STR, offsetof(struct body, image), JX_NULLABLE, 0, 0, API_IMAGE_MAX },
        { "createDurationMs", JX_I64, offsetof(struct body, duration_ms), JX_REQUIRED, 0, INT32_MAX,
          0 },
        { "success", JX_BOOL, offsetof(struct body, success), JX_REQUIRED, 0, 0, 0 },
    };
    struct body b = { 0 };
    json_t *doc = api_body(rq, e);
    int rc;

    if (!doc)
        return -1;
    rc = jx_decode(doc, "", fields, ARRAY_LEN(fields), false, &b, e);
    if (rc == 0) {
        log_debug("client event", LOG_S("type", b.type), LOG_S("id", b.sandbox_id),
                  LOG_N("ms", b.duration_ms), LOG_N("success", b.success));
        *out = (struct api_event){ .create = strcmp(b.type, "sandbox.create") == 0,
                                   .success = b.success,
                                   .duration_ms = b.duration_ms };
    }
    json_decref(doc);
    return rc;
}
