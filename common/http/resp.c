#include "common/http/internal.h"

#include "common/base/cleanup.h"

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

/* ---- files ---- */

/* libmicrohttpd's own answer from a descriptor reads 4 KiB at a time: four times slower. */
enum { FILE_BLOCK = 64 * 1024 };

struct file {
    int fd;
    uint64_t off;
};

static ssize_t file_read(void *cls, uint64_t pos, char *out, size_t max)
{
    const struct file *f = cls;
    ssize_t n;

    do
        n = pread(f->fd, out, max, (off_t)(f->off + pos));
    while (n < 0 && errno == EINTR);
    return n > 0 ? n : MHD_CONTENT_READER_END_WITH_ERROR; /* 0: it was cut meanwhile */
}

static void file_free(void *cls)
{
    struct file *f = cls;

    (void)close(f->fd);
    free(f);
}

/* Takes over fd. */
static struct MHD_Response *make_file(int fd, uint64_t off, uint64_t len)
{
    size_t block = len < FILE_BLOCK ? (size_t)len + 1 : FILE_BLOCK; /* none may be 0 */
    struct file *f = malloc(sizeof(*f));
    struct MHD_Response *r;

    if (!f) {
        (void)close(fd);
        return NULL;
    }
    *f = (struct file){ fd, off };
    r = MHD_create_response_from_callback(len, block, file_read, f, file_free);
    if (!r)
        file_free(f);
    return r;
}

/* For who stands in front: named instead of sent. */
static struct MHD_Response *name_file(struct exchange *x)
{
    struct http_resp *rs = &x->rs;
    const struct http_file file = { rs->file_fd, rs->file_off, rs->file_len };
    struct MHD_Response *r = MHD_create_response_from_buffer(0, (char *)"", MHD_RESPMEM_PERSISTENT);
    char name[HTTP_NAME_MAX];

    if (r && (lend_file(x->server, x->from, &file, name) < 0 ||
              MHD_add_response_header(r, x->server->svc.file_header, name) != MHD_YES)) {
        MHD_destroy_response(r);
        return NULL;
    }
    if (r)
        rs->file_fd = -1;
    return r;
}

/* ---- all ---- */

static struct MHD_Response *make(struct exchange *x)
{
    struct http_resp *rs = &x->rs;
    struct MHD_Response *r;

    if (rs->upgrade)
        return upgrade_response(x);
    if (rs->stream)
        return stream_response(rs->stream, x->conn);
    if (rs->file_fd >= 0 && x->server->svc.file_header && x->from)
        return name_file(x);
    if (rs->file_fd >= 0)
        return make_file(TAKE_FD(rs->file_fd), rs->file_off, rs->file_len);
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
    if (x->server->draining && !rs->upgrade)
        (void)MHD_add_response_header(r, "Connection", "close");
}

enum MHD_Result resp_queue(struct exchange *x)
{
    struct MHD_Response *r;
    enum MHD_Result ok;

    upgrade_check(x);
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
