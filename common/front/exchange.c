#include "common/front/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAILED "BACKEND_RESPONSE_FAILED"

/* ---- failures ---- */

/* The client must see that the response is not whole: with framing by its absence, else by a reset. */
static void cut(struct caller *c)
{
    struct linger hard = { .l_onoff = 1 };

    if (c->responded && c->response.kind == BODY_CLOSE)
        (void)setsockopt(c->watch.fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
    caller_close(c);
}

void exchange_fail(struct caller *c, int status, const char *code, const char *message)
{
    if (c->responded) {
        cut(c);
        return;
    }
    if (c->backend)
        backend_close(c->backend);
    if (!c->request.done) /* bytes of the body are gone, and who knows where it ends */
        c->keep = c->keep && c->request.kind == BODY_LENGTH;
    answer_error(c, status, code, message);
}

static void connect_failed(struct caller *c, int sys)
{
    char text[128];
    char why[64];

    (void)snprintf(text, sizeof(text), "cannot connect to the backend: %s",
                   strerror_r(sys, why, sizeof(why)));
    exchange_fail(c, 502, "BACKEND_CONNECTION_FAILED",
                  c->refused && sys == ECONNREFUSED ? c->refused : text);
}

/* ---- start ---- */

static void attach(struct caller *c, struct backend *b)
{
    c->backend = b;
    b->caller = c;
    c->replayable = true;
    c->request_off = c->request_start;
    timeout_set(c->front, &b->timed,
                b->state == BACKEND_CONNECTING ? TIMEOUT_CONNECT : TIMEOUT_RESPONSE);
}

static void go(struct caller *c)
{
    if (c->backend->state == BACKEND_CONNECTING)
        caller_watch(c);
    else
        exchange_upload(c);
}

/* What has come of the body goes out with the head, as far as the block has room. */
static int take_body_prefix(struct caller *c)
{
    size_t len;
    const char *rest = caller_rest(c, &len);
    size_t room = c->block->cap - c->request_len;
    ssize_t used = 0;

    if (c->loan) { /* which has a copy */
        c->request.done = c->early = true;
        return caller_rest_used(c, len);
    }
    if (len) {
        used = body_take(&c->request, rest, len < room ? len : room);
        if (used < 0)
            return -1;
        memcpy(c->block->data + c->request_len, rest, (size_t)used);
        c->request_len += (size_t)used;
        count_bytes(c, (uint64_t)used, 0);
    }
    return caller_rest_used(c, (size_t)used);
}

void exchange_start(struct caller *c, struct pool *p)
{
    struct backend *b;
    int sys = 0;

    c->state = CALLER_EXCHANGE;
    timeout_clear(&c->timed);
    if (take_body_prefix(c) < 0) {
        answer_refuse(c, 400, "the request body is not chunked as it says");
        return;
    }
    b = backend_get(p, c->front, false, !c->safe, &sys);
    if (!b) {
        connect_failed(c, sys);
        return;
    }
    attach(c, b);
    go(c);
}

/* The connection died before it said anything. It had served before, so it may just have been closed
 * for idleness; true: the request goes out again on a fresh one. */
static bool try_again(struct caller *c)
{
    struct backend *old = c->backend;
    struct front *f = c->front;
    struct pool *p = old->pool;
    struct backend *b;
    int sys = 0;

    if (!old->reused || old->received || !c->replayable ||
        (!c->safe && c->request_off > c->request_start))
        return false;
    f->stats.retries++;
    pool_hold(p);
    backend_close(old);
    b = backend_get(p, f, true, false, &sys);
    pool_release(f, p);
    if (b) {
        attach(c, b);
        go(c);
    } else {
        connect_failed(c, sys);
    }
    return true;
}

/* ---- towards the backend ---- */

/* It takes no more; but what it said before may still lie in the socket. */
static void upload_broken(struct caller *c)
{
    if (c->request_off == c->request_start && try_again(c))
        return;
    c->backend->write_broken = true;
    caller_watch(c);
    if (c->backend)
        backend_watch(c->backend);
}

static int send_block(struct caller *c)
{
    ssize_t n = sock_send(c->backend->watch.fd, c->block->data + c->request_off,
                          c->request_len - c->request_off);

    if (n < 0)
        return -1;
    c->request_off += (size_t)n;
    return 0;
}

/* Passes on body bytes. 0, -1: the backend takes no more, -2: the client is closed or answered. */
static int pass_body(struct caller *c, const char *data, size_t len, size_t *used)
{
    ssize_t n = body_take(&c->request, data, len);

    if (n < 0) {
        if (c->responded) {
            caller_close(c);
        } else {
            backend_close(c->backend);
            answer_refuse(c, 400, "the request body is not chunked as it says");
        }
        return -2;
    }
    *used = (size_t)n;
    c->replayable = false;
    count_bytes(c, (uint64_t)n, 0);
    return pending_send(&c->backend->out, c->backend->watch.fd, data, (size_t)n);
}

static int upload_stashed(struct caller *c)
{
    size_t used;
    int r = pass_body(c, c->in->data + c->in->off, c->in->len - c->in->off, &used);

    if (r != -2) /* a backend that takes no more does not make them come again */
        caller_in_used(c, used);
    return r;
}

/* As pass_body; 1: there is no more for now. */
static int upload_received(struct caller *c)
{
    struct front *f = c->front;
    ssize_t n = sock_recv(c->watch.fd, f->in, FRONT_READ);
    size_t used;
    int r;

    if (n == -2)
        return 1;
    if (n <= 0) {
        caller_close(c);
        return -2;
    }
    r = pass_body(c, f->in, (size_t)n, &used);
    if (r != -2 && used < (size_t)n && stash_add(&c->in, f->in + used, (size_t)n - used) < 0) {
        caller_close(c);
        return -2;
    }
    return r == 0 && n < FRONT_READ ? 1 : r;
}

static int upload_body(struct caller *c)
{
    int rounds = PUMP_ROUNDS;
    int r = 0;

    while (r == 0 && !c->request.done && !pending_any(&c->backend->out) && rounds--)
        r = c->in ? upload_stashed(c) : upload_received(c);
    return r;
}

void exchange_upload(struct caller *c)
{
    struct backend *b = c->backend;
    int r = 0;

    if (c->request_off < c->request_len)
        r = send_block(c);
    if (r == 0 && !b->write_broken)
        r = pending_flush(&b->out, b->watch.fd);
    if (r == 0 && c->request_off == c->request_len && !c->request.done && !b->write_broken) {
        r = upload_body(c);
        if (r == -2)
            return;
        if (!c->responded && b->state == BACKEND_HEAD)
            timeout_set(c->front, &b->timed, TIMEOUT_RESPONSE); /* there was progress */
    }
    if (r == -1) {
        upload_broken(c);
        return;
    }
    caller_watch(c);
    if (c->backend)
        backend_watch(c->backend);
}

/* ---- towards the client ---- */

static int to_client(struct caller *c, const char *data, size_t len)
{
    if (pending_send(&c->out, c->watch.fd, data, len) == 0)
        return 0;
    caller_close(c);
    return -1;
}

/* The response is all here. */
static void let_backend_go(struct caller *c, bool extra)
{
    struct backend *b = c->backend;
    bool sent = c->request.done && !pending_any(&b->out) && c->request_off == c->request_len;

    if (extra || !sent || b->write_broken)
        b->persistent = false;
    if (!c->request.done)
        c->keep = false;
    c->backend = NULL;
    backend_put(b);
}

static void finish(struct caller *c, bool extra)
{
    let_backend_go(c, extra);
    caller_next(c);
}

/* Body bytes behind hlen bytes of head in f->out. */
static void relay(struct caller *c, size_t hlen, const char *data, size_t len)
{
    char *out = c->front->out;
    ssize_t n = body_take(&c->response, data, len);

    if (n < 0) {
        if (!hlen || to_client(c, out, hlen) == 0)
            cut(c);
        return;
    }
    count_bytes(c, 0, (uint64_t)n);
    if (hlen && (size_t)n <= FRONT_OUT_MAX - hlen) { /* one packet */
        memcpy(out + hlen, data, (size_t)n);
        if (to_client(c, out, hlen + (size_t)n) < 0)
            return;
    } else if ((hlen && to_client(c, out, hlen) < 0) || to_client(c, data, (size_t)n) < 0) {
        return;
    }
    if (c->response.done)
        finish(c, (size_t)n < len);
}

ssize_t exchange_head(struct caller *c, const struct head *h, const char *connection)
{
    struct rules_out o = { .data = c->front->out, .cap = FRONT_OUT_MAX };
    struct rules_response r = {
        .drop = c->drop,
        .connection = connection,
        .upgrade = h->status == 101,
        .no_framing = h->status < 200 || h->status == 204,
    };

    if (c->file.fd >= 0) {
        r.file_header = c->front->opt.file_header;
        r.file_length = c->file.left;
    }

    if (h->status >= 200) {
        r.added = c->block->data;
        r.added_len = c->added_len;
        r.location_prefix = c->block->data + c->added_len;
        r.location_prefix_len = c->prefix_len;
    }
    rules_response(h, &r, &o);
    return o.full ? -1 : (ssize_t)o.len;
}

static void response_framing(struct caller *c, const struct head *h)
{
    if (c->is_head || h->status == 204 || h->status == 304)
        body_init(&c->response, BODY_NONE, 0);
    else if (h->chunked)
        body_init(&c->response, BODY_CHUNKED, 0);
    else if (h->has_length)
        body_init(&c->response, BODY_LENGTH, h->length);
    else
        body_init(&c->response, BODY_CLOSE, 0);
}

/* Whether the body is a file; -1: it is, but nobody has it. */
static int take_file(struct caller *c, const struct head *h)
{
    struct front *f = c->front;
    const struct head_field *name =
        c->internal && f->opt.file_header ? head_find(h, f->opt.file_header, 0) : NULL;

    if (!name)
        return 0;
    if (f->ops->file(f->owner, head_text(h, name->value), name->value.len, &c->file) == 0)
        return 1;
    c->file.fd = -1;
    return -1;
}

/* Behind n bytes of head in f->out. */
static void relay_file(struct caller *c, size_t n, size_t extra)
{
    if (to_client(c, c->front->out, n) < 0)
        return;
    let_backend_go(c, extra > 0);
    file_start(c);
}

static void begin_response(struct caller *c, const struct head *h, const char *rest, size_t len)
{
    struct backend *b = c->backend;
    ssize_t n;

    if (take_file(c, h) < 0) {
        exchange_fail(c, 502, FAILED, "the file of the response is not there");
        return;
    }
    loan_return(c);
    response_framing(c, h);
    if (c->response.kind == BODY_CHUNKED && !c->minor) {
        exchange_fail(c, 502, FAILED, "the backend answered HTTP/1.0 with a chunked body");
        return;
    }
    b->persistent = head_persistent(h) && c->response.kind != BODY_CLOSE;
    c->keep = c->keep && c->response.kind != BODY_CLOSE && !c->front->draining &&
              (c->request.done || (b->persistent && !c->expects)); /* else the rest is not taken */
    n = exchange_head(c, h, !c->keep ? "close" : c->minor ? NULL : "keep-alive");
    if (n < 0) {
        exchange_fail(c, 502, FAILED, "the head of the backend's response is too long");
        return;
    }
    timeout_clear(&b->timed);
    b->state = BACKEND_BODY;
    c->responded = true;
    c->result.status = h->status;
    if (c->request_off == c->request_len) {
        block_put(c->front, c->block);
        c->block = NULL;
    }
    if (c->file.fd >= 0)
        relay_file(c, (size_t)n, len);
    else
        relay(c, (size_t)n, rest, len);
}

static void interim(struct caller *c, const struct head *h)
{
    ssize_t n = exchange_head(c, h, NULL);

    timeout_set(c->front, &c->backend->timed, TIMEOUT_RESPONSE);
    if (h->status == 100)
        c->expects = false; /* the body comes */
    if (n > 0 && c->minor)
        (void)to_client(c, c->front->out, (size_t)n);
}

/* One head of a response. True: it was interim, the next one follows. */
static bool take_head(struct caller *c, const struct head *h, const char *rest, size_t len)
{
    if (h->status >= 200) {
        begin_response(c, h, rest, len);
        return false;
    }
    if (h->status != 101) {
        interim(c, h);
        return c->state == CALLER_EXCHANGE;
    }
    if (c->upgrade && c->request.done && c->request_off == c->request_len) {
        ssize_t n = exchange_head(c, h, "Upgrade");

        c->result.status = 101;
        c->responded = true;
        if (n >= 0 && to_client(c, c->front->out, (size_t)n) == 0)
            tunnel_start(c, rest, len);
        return false;
    }
    exchange_fail(c, 502, FAILED, "the backend switched protocols without being asked");
    return false;
}

/* Heads in data; st is NULL, or holds data and is given back or freed. */
static void take_heads(struct backend *b, struct stash *st, struct head *h, const char *data,
                       size_t len)
{
    struct caller *c = b->caller;
    struct front *f = b->front;
    enum head_result r;

    while ((r = head_parse(h, data, len)) == HEAD_DONE) {
        size_t used = h->len;

        if (!take_head(c, h, data + used, len - used))
            break;
        data += used;
        len -= used;
        h = &f->response_head;
        head_init(h, true);
    }
    if (r == HEAD_BAD)
        exchange_fail(c, 502, FAILED, "the head of the backend's response is malformed");
    if (r == HEAD_MORE && len) {
        if (stash_add(&b->in, data, len) < 0)
            caller_close(c);
        else
            memcpy(&b->in->head, h, sizeof(*h));
    }
    free(st);
}

static void received(struct backend *b, const char *data, size_t len)
{
    struct front *f = b->front;
    struct stash *st = b->in;

    b->received = true;
    if (b->state == BACKEND_BODY) {
        relay(b->caller, 0, data, len);
    } else if (!st) {
        head_init(&f->response_head, true);
        take_heads(b, NULL, &f->response_head, data, len);
    } else if (stash_add(&st, data, len) < 0) {
        caller_close(b->caller);
    } else {
        b->in = NULL;
        take_heads(b, st, &st->head, st->data, st->len);
    }
}

static void ended(struct backend *b, bool broken)
{
    struct caller *c = b->caller;

    if (b->state == BACKEND_BODY) {
        if (c->response.kind == BODY_CLOSE && !broken)
            finish(c, false);
        else
            cut(c);
        return;
    }
    if (!try_again(c))
        exchange_fail(c, 502, FAILED, "the backend closed the connection before it answered");
}

static bool under_way(const struct backend *b, const struct caller *c)
{
    return b->caller == c && (b->state == BACKEND_HEAD || b->state == BACKEND_BODY);
}

static void download(struct backend *b)
{
    struct caller *c = b->caller;
    struct front *f = b->front;
    int rounds = PUMP_ROUNDS;
    ssize_t n;

    do {
        n = sock_recv(b->watch.fd, f->in, FRONT_READ);
        if (n == -2)
            return;
        if (n <= 0) {
            ended(b, n < 0);
            return;
        }
        received(b, f->in, (size_t)n);
        if (!under_way(b, c))
            return;
    } while (n == FRONT_READ && !pending_any(&c->out) && --rounds);
    if (pending_any(&c->out)) {
        backend_watch(b);
        caller_watch(c);
    }
}

static void connected(struct backend *b)
{
    struct caller *c = b->caller;
    int sys = 0;
    socklen_t len = sizeof(sys);

    (void)getsockopt(b->watch.fd, SOL_SOCKET, SO_ERROR, &sys, &len);
    if (sys) {
        connect_failed(c, sys);
        return;
    }
    b->state = BACKEND_HEAD;
    timeout_set(c->front, &b->timed, TIMEOUT_RESPONSE);
    exchange_upload(c);
}

void exchange_on_backend(struct backend *b, uint32_t events)
{
    struct caller *c = b->caller;

    if (b->state == BACKEND_CONNECTING) {
        connected(b);
        return;
    }
    if (b->state == BACKEND_TUNNEL) {
        tunnel_on_backend(b, events);
        return;
    }
    if (events & EPOLLOUT)
        exchange_upload(c);
    if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR) && under_way(b, c) &&
        !pending_any(&c->out))
        download(b);
}
