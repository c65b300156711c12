#include "execd/proxy/proxy.h"

#include "common/agent/wire.h"
#include "common/base/err.h"
#include "common/base/macros.h"
#include "common/base/rand.h"
#include "common/front/front.h"
#include "common/http/http.h"
#include "execd/api/api.h"
#include "execd/app.h"
#include "execd/proxy/port_path.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    REQUEST_ID_BYTES = 16,
    FORWARDED_MAX = 256, /* longer: not an address */
    POOL_IDLE_MAX = 32,
    /* the programs of the sandbox take the time they take: whoever asked may leave */
    RESPONSE_MS = 24 * 3600 * 1000,
};

/* What is meant for the agent or the gateway, and the forwarded fields that are set anew. */
static const char *const drop[] = {
    AGENT_TOKEN_HEADER,
    "OPEN-SANDBOX-API-KEY",
    "OpenSandbox-Secure-Access",
    "X-Forwarded-For",
    "X-Forwarded-Proto",
    "X-Forwarded-Host",
    NULL,
};

#define UPLOAD_PATH "/files/upload"

struct proxy {
    struct app *app;
    struct front *front;
    uint16_t port;     /* the agent's own */
    unsigned internal; /* requests at the API */
};

/* ---- to the sandbox's programs ---- */

/* The first element of a list, or the whole of a single value; false: there is none. */
static bool first_hop(const struct head *h, const char *name, char out[FORWARDED_MAX])
{
    const struct head_field *f = head_find(h, name, 0);
    const char *text = f ? head_text(h, f->value) : "";
    size_t len = f ? f->value.len : 0;
    const char *comma = memchr(text, ',', len);

    if (comma)
        len = (size_t)(comma - text);
    while (len && (text[len - 1] == ' ' || text[len - 1] == '\t'))
        len--;
    if (!len || len >= FORWARDED_MAX)
        return false;
    memcpy(out, text, len);
    out[len] = '\0';
    return true;
}

static void forward(struct front_req *rq, const struct port_path *at)
{
    const struct head *h = rq->head;
    char client[FORWARDED_MAX];
    char target[HEAD_TARGET_MAX + 2] = "/";
    struct rules_field add[] = { { "X-Forwarded-For", client }, { "X-Forwarded-Proto", "http" } };
    struct front_addr to;
    struct front_proxy fp = {
        .to = &to,
        .request = { .target = at->rest,
                     .target_len = at->rest_len,
                     .edit = { .drop = drop, .add = add, .n_add = ARRAY_LEN(add) },
                     .keep_forwarded = true,
                     .upgrade = true },
        .refused = "nothing listens on this port in the sandbox: start a server on 127.0.0.1 or "
                   "0.0.0.0 there, and try again",
    };

    if (!at->rest_len || *at->rest != '/') {
        memcpy(target + 1, at->rest, at->rest_len);
        fp.request.target = target;
        fp.request.target_len = at->rest_len + 1;
    }
    if (!first_hop(h, "X-Forwarded-For", client) && !first_hop(h, "X-Real-IP", client))
        (void)snprintf(client, sizeof(client), "%s", rq->peer_text);
    (void)front_addr_ip(&to, "127.0.0.1", at->port);
    front_proxy(rq, &fp);
}

static void refuse(struct front_req *rq)
{
    char id[2 * REQUEST_ID_BYTES + 1];
    struct rules_field add = { "X-Request-ID", id };
    struct front_answer a = {
        .status = 400,
        .code = api_codes[ERRC_INVALID],
        .message = "port is required: the path must be /proxy/{port}/..., port being 1 to 65535",
        .add = &add,
        .n_add = 1,
    };

    rand_hex(id, REQUEST_ID_BYTES);
    front_answer(rq, &a);
}

/* ---- to the API ---- */

static ssize_t read_loan(void *arg, char *out, size_t cap, struct err *e)
{
    ssize_t n = front_loan_read(arg, out, cap);

    return n != -1 ? n
                   : err_set(e, ERRC_INVALID,
                             "the request body breaks off or is not chunked as it says");
}

static void close_loan(void *arg)
{
    front_loan_close(arg);
}

/* For bodies of files: the server reads them where they come in. The name under which it knows one; NULL: it goes the
 * usual way. */
static char *lend(struct proxy *p, struct front_req *rq)
{
    const struct head *h = rq->head;
    struct http_source src = { .read = read_loan, .close = close_loan };
    char *name;

    if (!head_method_is(h, "POST") || !p->app->server ||
        !memmem(head_text(h, h->path), h->path.len, UPLOAD_PATH, sizeof(UPLOAD_PATH) - 1))
        return NULL;
    src.arg = front_lend(rq);
    if (!src.arg)
        return NULL;
    src.fd = front_loan_fd(src.arg);
    name = malloc(HTTP_NAME_MAX);
    if (name && http_server_lend(p->app->server, &src, name) == 0)
        return name;
    free(name);
    front_unlend(rq);
    front_loan_close(src.arg);
    return NULL;
}

static void hand_over(struct proxy *p, struct front_req *rq)
{
    char *name = lend(p, rq);

    p->internal++;
    rq->user = name ? name : (void *)p;
    if (name)
        front_internal_lent(rq, NULL, name);
    else
        front_internal(rq, NULL);
}

static int on_file(void *owner, const char *name, size_t len, struct front_file *out)
{
    struct proxy *p = owner;
    struct http_file file;

    if (!p->app->server || http_server_take_file(p->app->server, name, len, &file) < 0)
        return -1;
    *out = (struct front_file){ file.fd, file.off, file.len };
    return 0;
}

static int on_internal(void *owner, struct err *e)
{
    struct proxy *p = owner;

    if (!p->app->server)
        return err_set(e, ERRC_BUSY, "the agent is ending");
    return http_server_connect(p->app->server, e);
}

/* ---- the front's callbacks ---- */

/* Secure access: the published port of the agent must be no way around it. */
static bool may_pass(const struct app *app, const struct head *h)
{
    const struct head_field *f = head_find(h, AGENT_TOKEN_HEADER, 0);
    char token[APP_TOKEN_MAX + 1];

    if (!app->closed_ports)
        return true;
    if (!f || f->value.len > APP_TOKEN_MAX)
        return false;
    memcpy(token, head_text(h, f->value), f->value.len);
    token[f->value.len] = '\0';
    return secret_equal(app->token, token);
}

static void on_decide(void *owner, struct front_req *rq)
{
    struct proxy *p = owner;
    const struct head *h = rq->head;
    struct port_path at = { 0 };
    enum port_path_kind kind = port_path_parse(head_text(h, h->path), h->path.len, &at);

    if (p->app->state != APP_OPEN || kind == PORT_PATH_OTHER || at.port == p->port ||
        !may_pass(p->app, h))
        hand_over(p, rq); /* which also says why not */
    else if (kind == PORT_PATH_BAD)
        refuse(rq);
    else
        forward(rq, &at);
}

static void on_done(void *owner, struct front_req *rq, const struct front_result *result)
{
    struct proxy *p = owner;

    (void)result;
    if (!rq->user)
        return;
    p->internal--;
    if (rq->user == p)
        return;
    if (p->app->server)
        http_server_take_back(p->app->server, rq->user);
    free(rq->user);
}

static size_t on_stamp(void *owner, char *out, size_t cap)
{
    char id[2 * REQUEST_ID_BYTES + 1];
    int n;

    (void)owner;
    rand_hex(id, REQUEST_ID_BYTES);
    n = snprintf(out, cap, "X-Request-ID: %s\r\n", id);
    return n > 0 && (size_t)n < cap ? (size_t)n : 0;
}

static const struct front_ops ops = { .decide = on_decide,
                                      .done = on_done,
                                      .internal = on_internal,
                                      .file = on_file,
                                      .stamp = on_stamp };

/* ---- life ---- */

struct proxy *proxy_new(struct app *app, struct err *e)
{
    struct front_options options = {
        .body_header = APP_BODY_HEADER,
        .file_header = APP_FILE_HEADER,
        .max_clients = APP_CONNECTIONS_MAX,
        .pool_idle_max = POOL_IDLE_MAX,
        .idle_timeout_ms = APP_IDLE_TIMEOUT_S * 1000,
        .half_timeout_ms = APP_IDLE_TIMEOUT_S * 1000, /* for slow readers of an output, too */
        .response_timeout_ms = RESPONSE_MS,
    };
    struct proxy *p = calloc(1, sizeof(*p));

    if (!p) {
        (void)err_nomem(e);
        return NULL;
    }
    p->app = app;
    p->front = front_new(app->loop, &ops, p, &options, e);
    if (!p->front) {
        free(p);
        return NULL;
    }
    return p;
}

int proxy_listen(struct proxy *p, int fd, uint16_t port, struct err *e)
{
    p->port = port;
    return front_listen(p->front, fd, NULL, e);
}

bool proxy_busy(const struct proxy *p)
{
    return p->internal > 0;
}

void proxy_free(struct proxy *p)
{
    if (!p)
        return;
    front_free(p->front); /* done comes for each open request */
    free(p);
}
