#include "common/front/internal.h"

/* After a 101 both sides are the same: bytes from one go to the other, and the end of one is told to
 * the other once everything before it is through. */

static void settle(struct caller *c)
{
    struct backend *b = c->backend;

    if (c->eof && !c->shut && !pending_any(&b->out)) {
        c->shut = true;
        (void)shutdown(b->watch.fd, SHUT_WR);
    }
    if (b->eof && !b->shut && !pending_any(&c->out)) {
        b->shut = true;
        (void)shutdown(c->watch.fd, SHUT_WR);
    }
    if (c->shut && b->shut) {
        caller_done(c, true);
        caller_close(c);
        return;
    }
    if (c->eof || b->eof)
        timeout_set(c->front, &c->timed, TIMEOUT_HALF);
    caller_watch(c);
    if (c->backend)
        backend_watch(c->backend);
}

/* -1: one of the sides is broken. */
static int pump(struct front *f, int from, bool *eof, struct pending *out, int to, uint64_t *count)
{
    int rounds = PUMP_ROUNDS;
    ssize_t n;

    do {
        if (*eof || pending_any(out))
            return 0;
        n = sock_recv(from, f->in, FRONT_READ);
        if (n == -2)
            return 0;
        if (n < 0)
            return -1;
        if (n == 0) {
            *eof = true;
            return 0;
        }
        *count += (uint64_t)n;
        if (pending_send(out, to, f->in, (size_t)n) < 0)
            return -1;
    } while (n == FRONT_READ && --rounds);
    return 0;
}

static int from_client(struct caller *c)
{
    uint64_t n = 0;
    int rc = pump(c->front, c->watch.fd, &c->eof, &c->backend->out, c->backend->watch.fd, &n);

    count_bytes(c, n, 0);
    return rc;
}

static int from_backend(struct caller *c)
{
    uint64_t n = 0;
    int rc = pump(c->front, c->backend->watch.fd, &c->backend->eof, &c->out, c->watch.fd, &n);

    count_bytes(c, 0, n);
    return rc;
}

void tunnel_start(struct caller *c, const char *data, size_t len)
{
    struct backend *b = c->backend;
    struct front *f = c->front;
    size_t early = c->in ? c->in->len - c->in->off : 0;

    block_put(f, c->block);
    c->block = NULL;
    timeout_clear(&b->timed);
    c->state = CALLER_TUNNEL;
    b->state = BACKEND_TUNNEL;
    f->stats.tunnels++;
    count_bytes(c, early, len);
    if (pending_send(&c->out, c->watch.fd, data, len) < 0 ||
        (early && pending_send(&b->out, b->watch.fd, c->in->data + c->in->off, early) < 0)) {
        caller_close(c);
        return;
    }
    if (early)
        caller_in_used(c, early);
    settle(c);
}

/* Room on one side lets the other go on. */
static int client_events(struct caller *c, uint32_t events)
{
    if (events & EPOLLOUT && (pending_flush(&c->out, c->watch.fd) < 0 || from_backend(c) < 0))
        return -1;
    return events & ~(uint32_t)EPOLLOUT ? from_client(c) : 0;
}

static int backend_events(struct caller *c, uint32_t events)
{
    struct backend *b = c->backend;

    if (events & EPOLLOUT && (pending_flush(&b->out, b->watch.fd) < 0 || from_client(c) < 0))
        return -1;
    return events & ~(uint32_t)EPOLLOUT ? from_backend(c) : 0;
}

void tunnel_on_client(struct caller *c, uint32_t events)
{
    if (client_events(c, events) < 0)
        caller_close(c);
    else
        settle(c);
}

void tunnel_on_backend(struct backend *b, uint32_t events)
{
    struct caller *c = b->caller;

    if (backend_events(c, events) < 0)
        caller_close(c);
    else
        settle(c);
}
