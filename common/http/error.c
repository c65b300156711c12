#include "common/http/internal.h"
#include "common/json/jx.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
    int status;
    const char *code; /* when neither the error nor the service names one */
} table[ERRC_MAX_] = {
    /* clang-format off */
    [ERRC_NONE] = { 500, "INTERNAL_ERROR" },
    [ERRC_INVALID] = { 400, "INVALID_REQUEST" },
    [ERRC_UNAUTHORIZED] = { 401, "UNAUTHORIZED" },
    [ERRC_FORBIDDEN] = { 403, "FORBIDDEN" },
    [ERRC_NOT_FOUND] = { 404, "NOT_FOUND" },
    [ERRC_METHOD] = { 405, "METHOD_NOT_ALLOWED" },
    [ERRC_CONFLICT] = { 409, "CONFLICT" },
    [ERRC_GONE] = { 410, "GONE" },
    [ERRC_TOO_LARGE] = { 413, "PAYLOAD_TOO_LARGE" },
    [ERRC_URI_LONG] = { 414, "URI_TOO_LONG" },
    [ERRC_RANGE] = { 416, "RANGE_NOT_SATISFIABLE" },
    [ERRC_UPGRADE] = { 426, "UPGRADE_REQUIRED" },
    [ERRC_LIMIT] = { 429, "LIMIT_REACHED" },
    [ERRC_INTERNAL] = { 500, "INTERNAL_ERROR" },
    [ERRC_NOMEM] = { 500, "OUT_OF_MEMORY" },
    [ERRC_SYS] = { 500, "INTERNAL_ERROR" },
    [ERRC_UNSUPPORTED] = { 501, "NOT_SUPPORTED" },
    [ERRC_BAD_GATEWAY] = { 502, "BAD_GATEWAY" },
    [ERRC_BUSY] = { 503, "SERVICE_UNAVAILABLE" },
    [ERRC_TIMEOUT] = { 504, "TIMEOUT" },
    /* clang-format on */
};

static unsigned row_of(const struct err *e)
{
    return (unsigned)e->code < ERRC_MAX_ ? (unsigned)e->code : ERRC_INTERNAL;
}

int http_status_of(const struct err *e)
{
    return table[row_of(e)].status;
}

static const char *code_of(const struct http_service *svc, const struct err *e)
{
    if (e->api_code)
        return e->api_code;
    if (svc->codes && svc->codes[row_of(e)])
        return svc->codes[row_of(e)];
    return table[row_of(e)].code;
}

void error_fill(const struct http_service *svc, const struct err *e, struct http_req *rq,
                struct http_resp *rs)
{
    const char *msg = e->msg[0] ? e->msg : "An unexpected error occurred.";
    json_t *text = jx_bytes(msg, strlen(msg));
    json_t *body = json_pack("{s:s, s:o*}", "code", code_of(svc, e), "message", text);

    /* what a handler had prepared before it failed; a stream is its owner's */
    free(rs->body);
    if (rs->file_fd >= 0)
        (void)close(rs->file_fd);
    rs->file_fd = -1;
    rs->stream = NULL;
    rs->upgrade = NULL;
    rs->status = http_status_of(e);
    rs->content_type = NULL;
    rs->body = body ? jx_dump(body, false) : NULL;
    rs->body_len = rs->body ? strlen(rs->body) : 0;
    json_decref(body);
    if (e->retry_after_s > 0)
        http_resp_header(rs, "Retry-After", arena_printf(&rq->arena, "%d", e->retry_after_s));
}
