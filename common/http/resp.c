#include "common/http/internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void http_resp_header(struct http_resp *rs, const char *name, const char *value)
{
    if (value && rs->n_headers < HTTP_HEADERS_OUT_MAX)
        rs->headers[rs->n_headers++] = (struct http_header){ name, value };
}

int http_resp_json(struct http_resp *rs, int status, char *text, struct err *e)
{
    if (!text)
        return err_nomem(e);
    rs->status = status;
    rs->body = text;
    rs->body_len = strlen(text);
    return 0;
}

static struct MHD_Response *make(struct exchange *x)
{
    struct http_resp *rs = &x->rs;
    struct MHD_Response *r;
    int fd = rs->file_fd;

    if (rs->stream)
        return stream_response(rs->stream, x->conn);
    if (fd >= 0) {
        rs->file_fd = -1;
        r = MHD_create_response_from_fd_at_offset64(rs->file_len, fd, rs->file_off);
        if (!r)
            (void)close(fd);
        return r;
    }
    r = MHD_create_response_from_buffer(rs->body_len, rs->body ? rs->body : (char *)"",
                                        rs->body ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
    if (r)
        rs->body = NULL;
    return r;
}

/* contract/lifecycle.md 1.3: any origin is reflected. */
static void add_cors(struct exchange *x, struct MHD_Response *r)
{
    const char *origin = http_req_header(&x->rq, "Origin");

    (void)MHD_add_response_header(r, "Vary", "Origin");
    if (!origin)
        return;
    (void)MHD_add_response_header(r, "Access-Control-Allow-Origin", origin);
    (void)MHD_add_response_header(r, "Access-Control-Allow-Credentials", "true");
    (void)MHD_add_response_header(r, "Access-Control-Expose-Headers", "OPEN-SANDBOX-ORIGIN");
}

static void add_headers(struct exchange *x, struct MHD_Response *r)
{
    const struct http_resp *rs = &x->rs;
    const char *type = rs->content_type;
    unsigned i;

    if (!type && rs->body_len)
        type = "application/json";
    if (type)
        (void)MHD_add_response_header(r, "Content-Type", type);
    (void)MHD_add_response_header(r, "X-Request-ID", x->rq.request_id);
    for (i = 0; i < rs->n_headers; i++)
        (void)MHD_add_response_header(r, rs->headers[i].name, rs->headers[i].value);
    if (x->server->svc.cors)
        add_cors(x, r);
    if (x->server->draining)
        (void)MHD_add_response_header(r, "Connection", "close");
}

enum MHD_Result resp_queue(struct exchange *x)
{
    struct MHD_Response *r;
    enum MHD_Result ok;

    if (x->failed)
        error_fill(&x->server->svc, &x->err, &x->rq, &x->rs);
    if (!x->rs.status)
        x->rs.status = 200;
    x->status = x->rs.status;
    x->phase = PHASE_SENT;
    r = make(x);
    if (!r)
        return MHD_NO; /* out of memory: the connection is closed */
    add_headers(x, r);
    ok = MHD_queue_response(x->conn, (unsigned)x->rs.status, r);
    MHD_destroy_response(r);
    return ok;
}
