#include "execd/code/jupyter_rest.h"

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/loop.h"
#include "common/base/num.h"
#include "common/front/chunks.h"
#include "common/front/front.h"
#include "common/front/head.h"

#include <netinet/tcp.h>
#include <string.h>

enum { READ = 16 * 1024, HTTP_PORT = 80, REQUEST_MAX = 64 * 1024 };

struct rest_call {
    struct rest *home;
    struct loop_fd watch; /* fd -1: closed */
    struct loop_timer timer;
    rest_done done;
    void *owner;
    struct buf out;
    size_t sent;
    bool connected;
    struct buf in; /* the head, then what is not looked at */
    struct head head;
    bool has_head;
    struct chunks chunks;
    struct buf body;
    struct err failure; /* to be told by the timer; code 0: the time is over */
};

/* ---- the address ---- */

static int bad_url(struct err *e, const char *what)
{
    return err_set(e, ERRC_INVALID,
                   "JUPYTER_HOST: %s; it has to be http://ADDRESS[:PORT][/PATH], as in "
                   "http://127.0.0.1:44771",
                   what);
}

/* The host in front of rest: an address in brackets, or what stands before ':' or '/'. */
static int take_host(struct rest *r, const char **rest, struct err *e)
{
    const char *s = *rest;
    bool v6 = *s == '[';
    size_t len = v6 ? strcspn(++s, "]") : strcspn(s, ":/");
    struct front_addr addr;

    if (!len || len >= sizeof(r->host) || (v6 && s[len] != ']'))
        return bad_url(e, "there is no address in it");
    memcpy(r->host, s, len);
    r->host[len] = '\0';
    *rest = s + len + v6;
    if (strcmp(r->host, "localhost") == 0)
        (void)snprintf(r->host, sizeof(r->host), "127.0.0.1");
    if (front_addr_ip(&addr, r->host, 1) < 0)
        return bad_url(e, "names are not resolved here");
    return 0;
}

static bool path_ok(const char *s)
{
    for (; *s; s++)
        if (*s <= ' ' || *s == 0x7f || strchr("?#\"<>\\^`{|}", *s))
            return false;
    return true;
}

static int take_url(struct rest *r, const char *url, struct err *e)
{
    char port[8] = "";
    int64_t n = HTTP_PORT;
    size_t len;

    if (strncasecmp(url, "https://", 8) == 0)
        return bad_url(e, "TLS is not spoken here");
    if (strncasecmp(url, "http://", 7) != 0)
        return bad_url(e, "it does not begin with http://");
    url += 7;
    if (take_host(r, &url, e) < 0)
        return -1;
    if (*url == ':') {
        len = strcspn(++url, "/");
        if (len >= sizeof(port))
            return bad_url(e, "the port is none");
        memcpy(port, url, len);
        url += len;
        if (num_parse_i64(port, 1, UINT16_MAX, &n) < 0)
            return bad_url(e, "the port is none");
    }
    len = strlen(url);
    while (len && url[len - 1] == '/')
        len--;
    if ((*url && *url != '/') || len >= REST_BASE_MAX || !path_ok(url))
        return bad_url(e, "its path cannot be used");
    r->port = (uint16_t)n;
    memcpy(r->base, url, len);
    r->base[len] = '\0';
    return 0;
}

int rest_init(struct rest *r, struct loop *l, const char *url, const char *token, struct err *e)
{
    bool v6;

    *r = (struct rest){ .loop = l };
    if (take_url(r, url, e) < 0)
        return -1;
    if (strlen(token) > REST_TOKEN_MAX)
        return err_set(e, ERRC_INVALID, "JUPYTER_TOKEN: longer than %d bytes", REST_TOKEN_MAX);
    if (strpbrk(token, "\r\n"))
        return err_set(e, ERRC_INVALID, "JUPYTER_TOKEN: has a line end in it");
    if (*token)
        (void)snprintf(r->authorization, sizeof(r->authorization), "Token %s", token);
    v6 = strchr(r->host, ':') != NULL;
    (void)snprintf(r->url, sizeof(r->url), "http://%s%s%s:%u%s", v6 ? "[" : "", r->host,
                   v6 ? "]" : "", r->port, r->base);
    return 0;
}

/* ---- one call ---- */

static void call_close(struct rest_call *c)
{
    if (c->watch.fd < 0)
        return;
    loop_del(c->home->loop, &c->watch);
    (void)close(c->watch.fd);
    c->watch.fd = -1;
}

void rest_cancel(struct rest_call *c)
{
    if (!c)
        return;
    call_close(c);
    loop_timer_clear(c->home->loop, &c->timer);
    buf_free(&c->out);
    buf_free(&c->in);
    buf_free(&c->body);
    free(c);
}

static void finish(struct rest_call *c, const struct err *e)
{
    struct rest_answer a = { .status = c->head.status,
                             .body = c->body.data ? c->body.data : "",
                             .len = c->body.len };

    call_close(c);
    loop_timer_clear(c->home->loop, &c->timer);
    c->done(c->owner, e ? NULL : &a, e);
    rest_cancel(c);
}

static void fail(struct rest_call *c, const struct err *e)
{
    struct err said = *e;

    (void)err_wrap(&said, "the Jupyter server at %s", c->home->url);
    finish(c, &said);
}

static void fail_text(struct rest_call *c, const char *why)
{
    struct err e = { 0 };

    (void)err_set(&e, ERRC_BAD_GATEWAY, "%s", why);
    fail(c, &e);
}

/* Nothing listens there, or not yet: the one failure that may pass by itself. */
static void no_server(struct err *e, int errnum)
{
    (void)err_sys(e, errnum, "cannot be reached");
    e->code = ERRC_BUSY;
}

/* Data of the body: -1: there is too much of it. */
static int keep(struct rest_call *c, const char *data, size_t len)
{
    return buf_append(&c->body, data, len);
}

/* 1: the body is whole; 0: more is needed; -1: *why. */
static int take_chunks(struct rest_call *c, const char **why)
{
    const char *p = c->in.data;
    size_t left = c->in.len;
    size_t n;

    while (left && !chunks_done(&c->chunks)) {
        n = chunks_data(&c->chunks, left);
        *why = "sent an answer that is too long";
        if (n && keep(c, p, n) < 0)
            return -1;
        n = n ? n : 1;
        *why = "sent a malformed answer";
        if (chunks_feed(&c->chunks, p, n) < 0)
            return -1;
        p += n;
        left -= n;
    }
    buf_consume(&c->in, c->in.len - left);
    return chunks_done(&c->chunks);
}

static int take_body(struct rest_call *c, const char **why)
{
    const struct head *h = &c->head;
    size_t n = c->in.len;

    if (h->status == 204 || h->status == 304)
        return 1;
    if (h->chunked)
        return take_chunks(c, why);
    *why = "sent an answer that is too long";
    if (h->has_length && h->length > REST_ANSWER_MAX)
        return -1;
    if (h->has_length && n > h->length - c->body.len)
        n = (size_t)h->length - c->body.len;
    if (keep(c, c->in.data, n) < 0)
        return -1;
    buf_consume(&c->in, n);
    return h->has_length && c->body.len == h->length;
}

static int take_head(struct rest_call *c, const char **why)
{
    enum head_result rc = head_parse(&c->head, c->in.data, c->in.len);

    *why = "sent a malformed answer";
    if (rc != HEAD_DONE)
        return rc == HEAD_BAD ? -1 : 0;
    buf_consume(&c->in, c->head.len);
    if (c->head.status >= 200) {
        c->has_head = true;
        return 1;
    }
    if (c->head.status == 101)
        return -1;
    head_init(&c->head, true); /* interim: another one follows */
    return c->in.len ? take_head(c, why) : 0;
}

static void look(struct rest_call *c)
{
    const char *why = "";
    int rc = 1;

    if (!c->has_head)
        rc = take_head(c, &why);
    if (rc > 0 && c->has_head)
        rc = take_body(c, &why);
    if (rc < 0)
        fail_text(c, why);
    else if (rc > 0)
        finish(c, NULL);
}

static void at_end(struct rest_call *c)
{
    if (c->has_head && !c->head.chunked && !c->head.has_length)
        finish(c, NULL);
    else
        fail_text(c, "ended the connection before its answer");
}

static void receive(struct rest_call *c)
{
    char *at = buf_reserve(&c->in, READ);
    ssize_t n = at ? recv(c->watch.fd, at, READ, MSG_DONTWAIT) : -1;

    if (!at) {
        fail_text(c, "sent an answer that is too long");
    } else if (n > 0) {
        c->in.len += (size_t)n;
        at[n] = '\0';
        look(c);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        at_end(c);
    }
}

/* -1: told. */
static int send_request(struct rest_call *c)
{
    ssize_t n;

    while (c->sent < c->out.len) {
        n = send(c->watch.fd, c->out.data + c->sent, c->out.len - c->sent,
                 MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return 0;
        if (n < 0) {
            at_end(c);
            return -1;
        }
        c->sent += (size_t)n;
    }
    if (loop_mod(c->home->loop, &c->watch, EPOLLIN) < 0) {
        fail_text(c, "cannot be watched");
        return -1;
    }
    return 0;
}

static void on_event(struct loop_fd *w, uint32_t events)
{
    struct rest_call *c = CONTAINER_OF(w, struct rest_call, watch);
    socklen_t len = sizeof(int);
    struct err e = { 0 };
    int error = 0;

    if (!c->connected) {
        if (getsockopt(w->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
            error = errno;
        if (error) {
            no_server(&e, error);
            fail(c, &e);
            return;
        }
        c->connected = true;
    }
    if (events & EPOLLOUT && send_request(c) < 0)
        return;
    if (events & ~(uint32_t)EPOLLOUT)
        receive(c);
}

static void on_timer(struct loop_timer *t)
{
    struct rest_call *c = CONTAINER_OF(t, struct rest_call, timer);

    if (!c->failure.code)
        (void)err_set(&c->failure, ERRC_TIMEOUT, "does not answer");
    fail(c, &c->failure);
}

static int put_request(struct rest_call *c, const char *method, const char *path, const char *body,
                       struct err *e)
{
    const struct rest *r = c->home;
    bool v6 = strchr(r->host, ':') != NULL;
    const char *auth = r->authorization;

    if (buf_printf(&c->out, "%s %s%s HTTP/1.1\r\nHost: %s%s%s:%u\r\nConnection: close\r\n%s%s%s",
                   method, r->base, path, v6 ? "[" : "", r->host, v6 ? "]" : "", r->port,
                   *auth ? "Authorization: " : "", auth, *auth ? "\r\n" : "") < 0 ||
        (body && buf_puts(&c->out, "Content-Type: application/json\r\n") < 0) ||
        buf_printf(&c->out, "Content-Length: %zu\r\n\r\n%s", body ? strlen(body) : 0,
                   body ? body : "") < 0)
        return err_nomem(e);
    return 0;
}

/* What keeps the connection from being made is told later, as everything else is. */
static void dial(struct rest_call *c)
{
    struct front_addr to;
    int one = 1;

    (void)front_addr_ip(&to, c->home->host, c->home->port);
    c->watch.fd = socket(to.u.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->watch.fd < 0) {
        (void)err_sys(&c->failure, errno, "open a socket");
        return;
    }
    (void)setsockopt(c->watch.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (connect(c->watch.fd, &to.u.any, to.len) < 0 && errno != EINPROGRESS)
        no_server(&c->failure, errno);
    else
        (void)loop_add(c->home->loop, &c->watch, EPOLLIN | EPOLLOUT, &c->failure);
}

struct rest_call *rest_call(struct rest *r, const char *method, const char *path, const char *body,
                            int timeout_ms, rest_done done, void *owner, struct err *e)
{
    struct rest_call *c = calloc(1, sizeof(*c));

    if (!c) {
        (void)err_nomem(e);
        return NULL;
    }
    c->home = r;
    c->done = done;
    c->owner = owner;
    c->watch.fd = -1;
    c->watch.on_event = on_event;
    c->timer.on_fire = on_timer;
    c->out = BUF_INIT(REQUEST_MAX);
    c->in = BUF_INIT(HEAD_MAX + READ);
    c->body = BUF_INIT(REST_ANSWER_MAX);
    head_init(&c->head, true);
    if (put_request(c, method, path, body, e) < 0) {
        rest_cancel(c);
        return NULL;
    }
    dial(c);
    if (loop_timer_set(r->loop, &c->timer, clock_mono_ms() + (c->failure.code ? 0 : timeout_ms)) <
        0) {
        (void)err_nomem(e);
        rest_cancel(c);
        return NULL;
    }
    return c;
}
