#include "common/front/internal.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- bytes behind the head ---- */

const char *caller_rest(const struct caller *c, size_t *len)
{
    const struct stash *st = c->in;
    size_t from;

    if (!c->held) {
        *len = c->front->rest_len;
        return c->front->rest;
    }
    from = st->off + st->head.len;
    *len = st->len - from;
    return st->data + from;
}

void caller_in_used(struct caller *c, size_t n)
{
    c->in->off += n;
    if (c->in->off < c->in->len)
        return;
    free(c->in);
    c->in = NULL;
}

int caller_rest_used(struct caller *c, size_t n)
{
    struct front *f = c->front;
    size_t left = f->rest_len - n;

    if (c->held) {
        c->held = false;
        caller_in_used(c, c->in->head.len + n);
        return 0;
    }
    f->rest_len = 0;
    return left ? stash_add(&c->in, f->rest + n, left) : 0;
}

/* ---- life ---- */

static void describe_peer(struct caller *c, const struct sockaddr *peer, socklen_t len)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&c->peer;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&c->peer;

    if (peer && len)
        memcpy(&c->peer, peer, len < sizeof(c->peer) ? len : sizeof(c->peer));
    if (c->peer.ss_family == AF_INET)
        (void)inet_ntop(AF_INET, &v4->sin_addr, c->peer_text, sizeof(c->peer_text));
    else if (c->peer.ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
        (void)inet_ntop(AF_INET, &v6->sin6_addr.s6_addr[12], c->peer_text, sizeof(c->peer_text));
    else if (c->peer.ss_family == AF_INET6)
        (void)inet_ntop(AF_INET6, &v6->sin6_addr, c->peer_text, sizeof(c->peer_text));
    else {
        c->peer.ss_family = AF_UNIX;
        memcpy(c->peer_text, "unix", sizeof("unix"));
    }
}

static struct caller *caller_alloc(struct front *f)
{
    struct node *n = f->free_clients.next;
    struct caller *c;

    if (n == &f->free_clients)
        return calloc(1, sizeof(*c));
    node_take(n);
    f->n_free_clients--;
    c = CONTAINER_OF(n, struct caller, node);
    memset(c, 0, sizeof(*c));
    return c;
}

static void on_event(struct loop_fd *w, uint32_t events);
static void on_timeout(struct timed *t);

struct caller *caller_new(struct front *f, int fd, const struct sockaddr *peer, socklen_t len,
                          const void *tag)
{
    struct caller *c = caller_alloc(f);

    if (!c)
        return NULL;
    c->front = f;
    c->watch.fd = fd;
    c->watch.on_event = on_event;
    c->file.fd = -1;
    c->timed.on_timeout = on_timeout;
    node_init(&c->timed.node);
    describe_peer(c, peer, len);
    c->rq.peer = (const struct sockaddr *)&c->peer;
    c->rq.peer_text = c->peer_text;
    c->rq.listener = tag;
    c->request.done = true;
    if (loop_add(f->loop, &c->watch, EPOLLIN | EPOLLRDHUP, NULL) < 0) {
        free(c);
        return NULL;
    }
    node_put_before(&f->clients, &c->node);
    f->stats.clients++;
    f->stats.accepted++;
    timeout_set(f, &c->timed, TIMEOUT_HEAD);
    return c;
}

void caller_done(struct caller *c, bool complete)
{
    struct front *f = c->front;

    if (!c->open)
        return;
    c->open = false;
    if (!complete)
        f->stats.aborted++;
    c->result.complete = complete;
    if (f->ops->done)
        f->ops->done(f->owner, &c->rq, &c->result);
    c->rq.user = NULL;
}

void caller_close(struct caller *c)
{
    struct front *f = c->front;

    if (c->state == CALLER_DEAD)
        return;
    if (c->state == CALLER_TUNNEL)
        f->stats.tunnels--;
    c->state = CALLER_DEAD;
    if (c->backend)
        backend_close(c->backend);
    timeout_clear(&c->timed);
    loop_del(f->loop, &c->watch);
    if (c->loan) /* its reader has a descriptor of its own */
        (void)shutdown(c->watch.fd, SHUT_RDWR);
    loan_return(c);
    (void)close(c->watch.fd);
    free(c->in);
    c->in = NULL;
    pending_free(&c->out);
    if (c->file.fd >= 0)
        (void)close(c->file.fd);
    c->file.fd = -1;
    block_put(f, c->block);
    c->block = NULL;
    node_take(&c->node);
    node_put_before(&f->dead_clients, &c->node);
    f->stats.clients--;
    caller_done(c, false);
}

static bool wants_body(const struct caller *c)
{
    const struct backend *b = c->backend;

    return !c->request.done && b && b->state != BACKEND_CONNECTING && !b->write_broken &&
           !pending_any(&b->out) && c->request_off == c->request_len;
}

void caller_watch(struct caller *c)
{
    uint32_t events = EPOLLRDHUP;

    switch (c->state) {
    case CALLER_DEAD:
        return;
    case CALLER_LINGER:
        events = EPOLLIN;
        break;
    case CALLER_HEAD:
    case CALLER_DISCARD:
        events |= EPOLLIN;
        break;
    case CALLER_FILE:
        events |= EPOLLOUT | (c->request.done && !c->early ? EPOLLIN : 0);
        break;
    case CALLER_TUNNEL:
        events = !c->eof && c->backend && !pending_any(&c->backend->out) ? EPOLLIN : 0;
        break;
    case CALLER_EXCHANGE:
        if (c->request.done ? !c->early : wants_body(c))
            events |= EPOLLIN;
        break;
    default:
        if (c->request.done && !c->early)
            events |= EPOLLIN;
    }
    if (pending_any(&c->out))
        events |= EPOLLOUT;
    if (loop_mod(c->front->loop, &c->watch, events) < 0)
        caller_close(c);
}

/* ---- requests ---- */

static bool is_idempotent(const struct head *h)
{
    static const char *const methods[] = { "GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE" };
    unsigned i;

    for (i = 0; i < ARRAY_LEN(methods); i++)
        if (head_method_is(h, methods[i]))
            return true;
    return false;
}

static void begin_request(struct caller *c, const struct head *h)
{
    c->minor = h->minor;
    c->keep = head_persistent(h) && !c->front->draining;
    c->is_head = head_method_is(h, "HEAD");
    c->safe = is_idempotent(h);
    c->expects = h->expect_continue && h->minor;
    c->upgrade = c->internal = c->responded = c->early = c->eof = c->shut = false;
    c->added_len = c->prefix_len = 0;
    c->request_off = c->request_len = c->request_start = 0;
    c->drop = NULL;
    c->refused = NULL;
    body_init(&c->request,
              h->chunked      ? BODY_CHUNKED
              : h->has_length ? BODY_LENGTH
                              : BODY_NONE,
              h->length);
    c->result = (struct front_result){ .started_mono_ms = front_now(c->front) };
}

static void decide(struct caller *c, const struct head *h)
{
    struct front *f = c->front;

    timeout_clear(&c->timed);
    begin_request(c, h);
    c->state = CALLER_DECIDE;
    c->open = true;
    c->rq.head = h;
    f->stats.requests++;
    c->parked = false;
    f->ops->decide(f->owner, &c->rq);
    if (c->state == CALLER_DECIDE && !c->parked)
        answer_error(c, 500, NULL, "nothing was decided about this request");
}

void front_park(struct front_req *rq, int max_ms)
{
    struct caller *c = CONTAINER_OF(rq, struct caller, rq);
    struct front *f = c->front;
    const struct head *h = rq->head;

    if (!c->held) {
        if (stash_add(&c->in, h->base, h->len + f->rest_len) < 0) {
            caller_close(c);
            return;
        }
        c->in->head = *h;
        c->in->head.base = c->in->data; /* it was empty: the head is at its start */
        c->held = true;
        f->rest_len = 0;
    }
    c->parked = true;
    rq->head = &c->in->head;
    timeout_set_ms(f, &c->timed, TIMEOUT_PARK, max_ms);
    caller_watch(c);
}

static void incomplete(struct caller *c)
{
    if (c->timed.kind != TIMEOUT_HEAD || c->timed.node.next == &c->timed.node)
        timeout_set(c->front, &c->timed, TIMEOUT_HEAD);
    caller_watch(c);
}

/* Parses what lies in c->in. False: nothing more can be done now. */
static bool run_stashed(struct caller *c)
{
    struct stash *st = c->in;

    switch (head_parse(&st->head, st->data + st->off, st->len - st->off)) {
    case HEAD_MORE:
        incomplete(c);
        return false;
    case HEAD_BAD:
        answer_refuse(c, st->head.error, st->head.why);
        return false;
    default:
        c->held = true;
        decide(c, &st->head);
        return true;
    }
}

static void run(struct caller *c)
{
    if (c->running)
        return;
    c->running = true;
    while (c->state == CALLER_HEAD && c->in && run_stashed(c))
        ;
    c->running = false;
}

/* A head that came in one piece is worked on where it was received. */
static void run_received(struct caller *c, const char *data, size_t len)
{
    struct front *f = c->front;
    struct head *h = &f->request_head;

    head_init(h, false);
    switch (head_parse(h, data, len)) {
    case HEAD_MORE:
        if (stash_add(&c->in, data, len) < 0) {
            caller_close(c);
            return;
        }
        memcpy(&c->in->head, h, sizeof(*h));
        incomplete(c);
        break;
    case HEAD_BAD:
        answer_refuse(c, h->error, h->why);
        break;
    default:
        f->rest = data + h->len;
        f->rest_len = len - h->len;
        c->running = true;
        decide(c, h);
        c->running = false;
        run(c);
    }
}

static void read_head(struct caller *c)
{
    struct front *f = c->front;
    ssize_t n = sock_recv(c->watch.fd, f->in, FRONT_READ);

    if (n == -2)
        return;
    if (n <= 0) {
        caller_close(c);
    } else if (c->in) {
        if (stash_add(&c->in, f->in, (size_t)n) < 0)
            caller_close(c);
        else
            run(c);
    } else {
        run_received(c, f->in, (size_t)n);
    }
}

/* ---- between requests ---- */

static void end_connection(struct caller *c)
{
    if (c->request.done && !c->early && !c->in) {
        caller_close(c);
        return;
    }
    /* unread input would make close(2) reset the connection, and the client lose the answer */
    free(c->in);
    c->in = NULL;
    c->state = CALLER_LINGER;
    (void)shutdown(c->watch.fd, SHUT_WR);
    timeout_set(c->front, &c->timed, TIMEOUT_LINGER);
    caller_watch(c);
}

void caller_next(struct caller *c)
{
    struct front *f = c->front;

    loan_return(c);
    block_put(f, c->block);
    c->block = NULL;
    if (pending_any(&c->out)) {
        c->state = CALLER_FLUSH;
        timeout_set(f, &c->timed, TIMEOUT_HALF);
        caller_watch(c);
        return;
    }
    timeout_clear(&c->timed);
    caller_done(c, true);
    if (!c->keep || f->draining) {
        end_connection(c);
        return;
    }
    c->state = CALLER_HEAD;
    c->early = false;
    timeout_set(f, &c->timed, TIMEOUT_IDLE);
    caller_watch(c);
    if (c->in && c->state == CALLER_HEAD) {
        head_init(&c->in->head, false);
        run(c);
    }
}

/* ---- events ---- */

static void discard_body(struct caller *c)
{
    struct front *f = c->front;
    ssize_t n = sock_recv(c->watch.fd, f->in, FRONT_READ);
    ssize_t used;

    if (n == -2)
        return;
    used = n > 0 ? body_take(&c->request, f->in, (size_t)n) : -1;
    if (used < 0 || (used < n && stash_add(&c->in, f->in + used, (size_t)(n - used)) < 0)) {
        caller_close(c);
        return;
    }
    if (c->request.done)
        caller_next(c);
}

static void linger(struct caller *c)
{
    ssize_t n = sock_recv(c->watch.fd, c->front->in, FRONT_READ);

    if (n == 0 || n == -1)
        caller_close(c);
}

/* Nothing is wanted from it now: it left, or it is early. */
static void not_now(struct caller *c, uint32_t events)
{
    if (events & EPOLLRDHUP) {
        caller_close(c);
        return;
    }
    c->early = true;
    caller_watch(c);
}

static void on_writable(struct caller *c)
{
    if (pending_flush(&c->out, c->watch.fd) < 0) {
        caller_close(c);
        return;
    }
    if (c->state == CALLER_FLUSH) {
        caller_next(c);
        return;
    }
    if (c->state == CALLER_FILE) {
        file_send(c);
        return;
    }
    if (pending_any(&c->out))
        return;
    if (c->backend) /* it was paused meanwhile */
        backend_watch(c->backend);
    caller_watch(c);
}

static void on_readable(struct caller *c, uint32_t events)
{
    switch (c->state) {
    case CALLER_HEAD:
        read_head(c);
        break;
    case CALLER_DISCARD:
        discard_body(c);
        break;
    case CALLER_LINGER:
        linger(c);
        break;
    case CALLER_EXCHANGE:
        if (events & EPOLLIN && wants_body(c))
            exchange_upload(c);
        else
            not_now(c, events);
        break;
    case CALLER_DEAD:
        break;
    default:
        not_now(c, events);
    }
}

static void on_event(struct loop_fd *w, uint32_t events)
{
    struct caller *c = CONTAINER_OF(w, struct caller, watch);

    front_reap(c->front);
    if (c->state == CALLER_TUNNEL) {
        tunnel_on_client(c, events);
        return;
    }
    if (events & (EPOLLERR | EPOLLHUP)) {
        caller_close(c);
        return;
    }
    if (events & EPOLLOUT)
        on_writable(c);
    if (events & (EPOLLIN | EPOLLRDHUP))
        on_readable(c, events);
}

static void on_timeout(struct timed *t)
{
    struct caller *c = CONTAINER_OF(t, struct caller, timed);

    if (t->kind == TIMEOUT_PARK)
        answer_error(c, 503, "SERVICE_UNAVAILABLE",
                     "the server did not get to this request in time");
    else if (t->kind == TIMEOUT_HEAD && c->in)
        answer_refuse(c, 408, "the request head did not come in time");
    else
        caller_close(c);
}
