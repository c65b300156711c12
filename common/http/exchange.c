#include "common/http/internal.h"

#include "common/base/clock.h"
#include "common/base/jobs.h"
#include "common/base/log.h"
#include "common/base/macros.h"
#include "common/base/num.h"
#include "common/base/rand.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- beginning: before the head is parsed ---- */

/* libmicrohttpd would split the query into its connection's memory: some 400 parameters exhaust
 * that, and 0.9.75 then never answers. The target is its own, writable line buffer, which it goes
 * on to parse after this callback: an empty query costs nothing. req.c reads our copy. */
static void hide_query(const char *target)
{
    char *q = strchr((char *)target, '?');

    if (q)
        q[1] = '\0';
}

void *exchange_begin(void *server, const char *target, struct MHD_Connection *conn)
{
    struct exchange *x = calloc(1, sizeof(*x));

    if (!x) {
        hide_query(target);
        return NULL; /* exchange_access closes the connection */
    }
    x->server = server;
    x->conn = conn;
    x->rq.arena = ARENA_INIT(HTTP_ARENA_MAX);
    x->rq.conn = conn;
    x->rs.file_fd = -1;
    x->start_mono_ms = clock_mono_ms();
    if (strlen(target) <= HTTP_TARGET_MAX)
        x->rq.target = arena_strndup(&x->rq.arena, target, strlen(target));
    hide_query(target);
    return x;
}

static bool id_ok(const char *s)
{
    size_t i;

    for (i = 0; s[i]; i++)
        if ((unsigned char)s[i] < 0x21 || (unsigned char)s[i] > 0x7e)
            return false;
    return i > 0 && i <= HTTP_REQUEST_ID_MAX;
}

/* contract/lifecycle.md 1.4: the client's X-Request-ID is echoed, else one of 32 hex digits. */
static void set_request_id(struct exchange *x)
{
    const char *id = http_req_header(&x->rq, "X-Request-ID");

    if (id && id_ok(id))
        memcpy(x->request_id, id, strlen(id) + 1);
    else
        rand_hex(x->request_id, 16);
    x->rq.request_id = x->request_id;
}

static int split_target(struct exchange *x)
{
    char *q;

    if (!x->rq.target)
        return err_set(&x->err, ERRC_URI_LONG, "request target is longer than %d bytes",
                       HTTP_TARGET_MAX);
    x->rq.path = arena_strndup(&x->rq.arena, x->rq.target, strlen(x->rq.target));
    if (!x->rq.path)
        return err_nomem(&x->err);
    q = strchr(x->rq.path, '?');
    x->rq.query = q ? q + 1 : "";
    if (q)
        *q = '\0';
    return 0;
}

static bool is_preflight(struct exchange *x, const char *method)
{
    return x->server->svc.cors && strcmp(method, "OPTIONS") == 0 &&
           http_req_header(&x->rq, "Origin") &&
           http_req_header(&x->rq, "Access-Control-Request-Method");
}

/* contract/lifecycle.md 1.3: answered before authorization, for every path. */
static void preflight(struct exchange *x)
{
    const char *asked = http_req_header(&x->rq, "Access-Control-Request-Headers");

    x->rs.status = 200;
    x->rs.body = strdup("OK");
    x->rs.body_len = x->rs.body ? 2 : 0;
    x->rs.content_type = "text/plain; charset=utf-8";
    http_resp_header(&x->rs, "Access-Control-Allow-Methods",
                     "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT");
    http_resp_header(&x->rs, "Access-Control-Max-Age", "600");
    http_resp_header(&x->rs, "Access-Control-Allow-Headers", asked);
}

/* The declared length against the route's limit: a client is told before it has sent it all. */
static int check_length(struct exchange *x)
{
    const char *text = http_req_header(&x->rq, "Content-Length");
    int64_t len;

    if (!text || x->rq.route->sink || num_parse_i64(text, 0, INT64_MAX, &len) < 0)
        return 0;
    if ((uint64_t)len > x->rq.route->max_body)
        return err_set(&x->err, ERRC_TOO_LARGE, "request body is larger than %zu bytes",
                       x->rq.route->max_body);
    return 0;
}

static bool blocking(const struct exchange *x)
{
    return x->rq.route->flags & (HTTP_BLOCKING | HTTP_BRIEF);
}

static int open_sink(struct exchange *x)
{
    if (x->sink_opened)
        return 0;
    x->sink_opened = true;
    return x->rq.route->sink->open(x->server->svc.app, &x->rq, &x->rq.sink, &x->err);
}

static int decide(struct exchange *x)
{
    const struct http_service *svc = &x->server->svc;
    const char *allow = NULL;

    if (router_match(svc, &x->rq, &allow, &x->err) < 0) {
        struct err first = { 0 };

        /* an unknown path must not tell a stranger that it is unknown: 401 wins over 404 */
        if (svc->authorize && svc->authorize(svc->app, &x->rq, &first) < 0)
            x->err = first;
        else
            http_resp_header(&x->rs, "Allow", allow);
        return -1;
    }
    if (!(x->rq.route->flags & HTTP_OPEN) && svc->authorize &&
        svc->authorize(svc->app, &x->rq, &x->err) < 0)
        return -1;
    if (check_length(x) < 0)
        return -1;
    x->body = BUF_INIT(x->rq.route->max_body);
    x->stage = BUF_INIT(2 * HTTP_STAGE);
    return x->rq.route->sink && !blocking(x) ? open_sink(x) : 0;
}

/* An answer before the body is read ends the connection. It is for bodies that are too much to be
 * read and dropped, and for clients that wait for a word before they send. */
static bool answer_early(const struct exchange *x)
{
    const char *text = http_req_header(&x->rq, "Content-Length");
    int64_t len;

    return http_req_header(&x->rq, "Expect") ||
           (text && (num_parse_i64(text, 0, INT64_MAX, &len) < 0 || len > HTTP_SWALLOW_MAX));
}

/* A body that came another way. It is read, and perhaps dropped, in any case but where nobody would. */
static void take_source(struct exchange *x)
{
    const char *header = x->server->svc.body_header;
    const char *name = header ? http_req_header(&x->rq, header) : NULL;

    x->source = name ? lend_take_source(x->server, name) : NULL;
    x->source_over = !x->answered && !x->rq.route->sink;
}

static enum MHD_Result start(struct exchange *x, const char *method)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(x->conn, MHD_CONNECTION_INFO_CLIENT_ADDRESS);

    x->server->active++;
    x->counted = true;
    set_request_id(x);
    (void)snprintf(x->method, sizeof(x->method), "%s", method);
    x->head = strcmp(method, "HEAD") == 0;
    x->rq.method = x->head ? "GET" : x->method;
    if (info && info->client_addr) {
        socklen_t len = info->client_addr->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                                 : sizeof(struct sockaddr_in);

        memcpy(&x->peer, info->client_addr, len);
    }
    x->rq.peer = (struct sockaddr *)&x->peer;
    x->from = server_peer(x->conn);
    x->phase = PHASE_BODY;
    if (is_preflight(x, method)) {
        preflight(x);
        x->answered = true;
    } else if (split_target(x) < 0 || decide(x) < 0) {
        x->answered = x->failed = true;
    }
    take_source(x);
    return x->answered && answer_early(x) ? resp_queue(x) : MHD_YES;
}

/* ---- jobs: the connection is suspended while one runs ---- */

static void job_done(void *arg)
{
    struct exchange *x = arg;

    x->sinking = false;
    server_resume(x->server, x->conn);
}

static void run_handler(struct exchange *x)
{
    if ((x->rq.route->sink && open_sink(x) < 0) ||
        x->rq.route->handler(x->server->svc.app, &x->rq, &x->rs, &x->err) < 0) {
        x->failed = true;
        x->rs.upgrade = NULL;
        x->rs.stream = NULL; /* a handler that fails has released what it made */
    }
}

void exchange_sink(struct exchange *x, const char *data, size_t len)
{
    if (open_sink(x) < 0 || x->rq.route->sink->write(x->rq.sink, data, len, &x->err) < 0)
        x->answered = x->failed = true;
}

/* What was collected for the pool. */
static void sink_stage(struct exchange *x)
{
    if (x->stage.len && !x->answered)
        exchange_sink(x, x->stage.data, x->stage.len);
    buf_clear(&x->stage);
}

static void handler_job(void *arg)
{
    struct exchange *x = arg;

    sink_stage(x);
    if (!x->failed)
        run_handler(x);
    loop_post(x->server->loop, &x->done);
}

static void sink_job(void *arg)
{
    struct exchange *x = arg;

    sink_stage(x);
    loop_post(x->server->loop, &x->done);
}

bool exchange_post(struct exchange *x, job_fn fn, void (*done)(void *arg))
{
    const struct http_service *svc = &x->server->svc;
    bool brief = x->rq.route && x->rq.route->flags & HTTP_BRIEF;

    x->done = (struct loop_call){ .fn = done, .arg = x };
    if (jobs_post(brief ? svc->brief_jobs : svc->jobs, fn, x, &x->err) == 0)
        return true;
    x->answered = x->failed = true;
    return false;
}

/* Hands the exchange to the pool and suspends it; false when the pool is full. The job may end
 * before the suspension: job_done still comes later, in this thread. */
static bool offload(struct exchange *x, job_fn fn)
{
    if (!exchange_post(x, fn, job_done))
        return false;
    MHD_suspend_connection(x->conn);
    return true;
}

bool http_req_gone(const struct http_req *rq)
{
    const struct exchange *x = CONTAINER_OF(rq, struct exchange, rq);

    return atomic_load(&x->server->given_up) || (x->from && atomic_load(&x->from->gone));
}

/* ---- deferred answers ---- */

void http_defer(struct http_req *rq)
{
    struct exchange *x = CONTAINER_OF(rq, struct exchange, rq);

    x->deferred = true;
    x->deferred_prev = NULL;
    x->deferred_next = x->server->deferred;
    if (x->deferred_next)
        x->deferred_next->deferred_prev = x;
    x->server->deferred = x;
}

void exchange_undefer(struct exchange *x)
{
    x->deferred = false;
    if (x->deferred_prev)
        x->deferred_prev->deferred_next = x->deferred_next;
    else
        x->server->deferred = x->deferred_next;
    if (x->deferred_next)
        x->deferred_next->deferred_prev = x->deferred_prev;
}

void http_complete(struct http_req *rq, const struct err *e)
{
    struct exchange *x = CONTAINER_OF(rq, struct exchange, rq);

    if (!x->deferred)
        return;
    exchange_undefer(x);
    if (e) {
        x->err = *e;
        x->failed = true;
    }
    if (x->suspended) /* else the handler has not returned yet */
        server_resume(x->server, x->conn);
}

/* ---- body ---- */

/* When the answer is known the rest of the body is read and dropped, up to a bound: the client may
 * not look at the answer before it has sent everything, and goes on to use the connection. */
static enum MHD_Result swallow(struct exchange *x, size_t *len)
{
    x->swallowed += *len;
    *len = 0;
    if (x->rq.route &&
        x->rq.route->sink) /* such a body has no limit, and its sender reads no answer before */
        return MHD_YES;
    return x->swallowed > HTTP_SWALLOW_MAX ? MHD_NO : MHD_YES;
}

static enum MHD_Result take_sink(struct exchange *x, const char *data, size_t *len)
{
    if (!blocking(x)) {
        exchange_sink(x, data, *len);
        *len = 0;
        return MHD_YES;
    }
    if (buf_append(&x->stage, data, *len) < 0) {
        x->answered = x->failed = true;
        (void)err_nomem(&x->err);
        return swallow(x, len);
    }
    *len = 0;
    if (x->stage.len >= HTTP_STAGE)
        x->sinking = offload(x, sink_job); /* when refused: answered is set, the rest is dropped */
    return MHD_YES;
}

static enum MHD_Result take_body(struct exchange *x, const char *data, size_t *len)
{
    if (x->sinking) /* offered all the same, with the next chunk of a chunked body: later */
        return MHD_YES;
    if (x->answered)
        return swallow(x, len);
    if (x->rq.route->sink)
        return take_sink(x, data, len);
    if (buf_append(&x->body, data, *len) < 0) {
        x->answered = x->failed = true;
        (void)err_set(&x->err, ERRC_TOO_LARGE, "request body is larger than %zu bytes",
                      x->body.max);
    }
    *len = 0;
    return MHD_YES;
}

/* The whole body is here: run the handler, now or in the pool. */
static enum MHD_Result finish(struct exchange *x)
{
    x->phase = PHASE_REPLY;
    if (x->answered)
        return resp_queue(x);
    x->rq.body = x->body.data;
    x->rq.body_len = x->body.len;
    if (blocking(x)) {
        if (offload(x, handler_job))
            return MHD_YES;
        return resp_queue(x);
    }
    run_handler(x);
    if (x->deferred && !x->failed) {
        x->suspended = true;
        MHD_suspend_connection(x->conn);
        return MHD_YES;
    }
    return resp_queue(x);
}

enum MHD_Result exchange_access(void *server, struct MHD_Connection *conn, const char *url,
                                const char *method, const char *version, const char *upload,
                                size_t *upload_len, void **con_cls)
{
    struct exchange *x = *con_cls;

    (void)server, (void)conn, (void)url, (void)version;
    if (!x || (x->server->closing && x->phase != PHASE_REPLY))
        return MHD_NO;
    switch (x->phase) {
    case PHASE_NEW:
        return start(x, method);
    case PHASE_BODY:
        if (x->source && !x->source_over) {
            source_pump(x);
            return MHD_YES;
        }
        return *upload_len ? take_body(x, upload, upload_len) : finish(x);
    case PHASE_REPLY:
        return resp_queue(x);
    case PHASE_SENT:
        break;
    }
    *upload_len = 0;
    return MHD_YES;
}

/* ---- end ---- */

static void log_request(const struct exchange *x)
{
    const char *route = x->rq.route ? x->rq.route->pattern : "-";

    log_info("request", LOG_S("request_id", x->request_id), LOG_S("method", x->method),
             LOG_S("route", route), LOG_N("status", x->status),
             LOG_N("ms", clock_mono_ms() - x->start_mono_ms),
             LOG_S("error", x->failed ? x->err.msg : ""));
}

void exchange_end(void *server, struct MHD_Connection *conn, void **con_cls,
                  enum MHD_RequestTerminationCode code)
{
    struct exchange *x = *con_cls;

    (void)server, (void)conn, (void)code;
    if (!x)
        return;
    *con_cls = NULL;
    if (x->deferred)
        exchange_undefer(x);
    source_close(x);
    upgrade_conn_gone(x);
    if (x->rs.stream)
        stream_conn_gone(x->rs.stream);
    if (x->rq.sink)
        x->rq.route->sink->close(x->rq.sink);
    if (x->counted) {
        x->server->active--;
        if (x->server->svc.log_requests)
            log_request(x);
    }
    if (x->rs.file_fd >= 0)
        (void)close(x->rs.file_fd);
    free(x->rs.body);
    buf_free(&x->body);
    buf_free(&x->stage);
    arena_free(&x->rq.arena);
    free(x);
}
