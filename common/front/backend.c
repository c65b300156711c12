#include "common/front/internal.h"

#include "common/base/err.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- addresses ---- */

int front_addr_ip(struct front_addr *a, const char *text, uint16_t port)
{
    struct front_addr r;

    memset(&r, 0, sizeof(r)); /* compared as bytes */
    if (inet_pton(AF_INET, text, &r.u.in4.sin_addr) == 1) {
        r.u.in4.sin_family = AF_INET;
        r.u.in4.sin_port = htons(port);
        r.len = sizeof(r.u.in4);
    } else if (inet_pton(AF_INET6, text, &r.u.in6.sin6_addr) == 1) {
        r.u.in6.sin6_family = AF_INET6;
        r.u.in6.sin6_port = htons(port);
        r.len = sizeof(r.u.in6);
    } else {
        return -1;
    }
    *a = r;
    return 0;
}

int front_addr_unix(struct front_addr *a, const char *path)
{
    size_t len = strlen(path);

    if (!len || len >= sizeof(a->u.un.sun_path))
        return -1;
    memset(a, 0, sizeof(*a));
    a->u.un.sun_family = AF_UNIX;
    memcpy(a->u.un.sun_path, path, len + 1);
    a->len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + 1);
    return 0;
}

static bool same_addr(const struct front_addr *a, const struct front_addr *b)
{
    return a->len == b->len && memcmp(&a->u, &b->u, a->len) == 0;
}

/* The address without its port. */
static bool same_host(const struct front_addr *a, const struct front_addr *b)
{
    if (a->u.any.sa_family != b->u.any.sa_family)
        return false;
    if (a->u.any.sa_family == AF_INET)
        return a->u.in4.sin_addr.s_addr == b->u.in4.sin_addr.s_addr;
    if (a->u.any.sa_family == AF_INET6)
        return memcmp(&a->u.in6.sin6_addr, &b->u.in6.sin6_addr, sizeof(struct in6_addr)) == 0;
    return same_addr(a, b);
}

static bool any_port(const struct front_addr *a)
{
    return (a->u.any.sa_family == AF_INET && !a->u.in4.sin_port) ||
           (a->u.any.sa_family == AF_INET6 && !a->u.in6.sin6_port);
}

/* ---- pools ---- */

static unsigned bucket_of(const struct front_addr *a)
{
    const unsigned char *p = (const unsigned char *)&a->u;
    uint32_t h = 2166136261U;
    socklen_t i;

    for (i = 0; i < a->len; i++)
        h = (h ^ p[i]) * 16777619U;
    return (h ^ h >> 16) % POOL_BUCKETS;
}

struct pool *pool_of(struct front *f, const struct front_addr *a)
{
    struct pool **bucket = &f->pools[bucket_of(a)];
    struct pool *p;

    for (p = *bucket; p; p = p->next)
        if (same_addr(&p->addr, a))
            return p;
    p = calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    p->addr = *a;
    node_init(&p->idle);
    p->next = *bucket;
    *bucket = p;
    return p;
}

static void pool_drop_if_empty(struct front *f, struct pool *p)
{
    struct pool **at;

    if (p->n_all || p->internal)
        return;
    for (at = &f->pools[bucket_of(&p->addr)]; *at; at = &(*at)->next)
        if (*at == p) {
            *at = p->next;
            free(p);
            return;
        }
}

void pool_hold(struct pool *p)
{
    p->n_all++;
}

void pool_release(struct front *f, struct pool *p)
{
    p->n_all--;
    pool_drop_if_empty(f, p);
}

static void close_idle(struct pool *p)
{
    while (p->idle.next != &p->idle)
        backend_close(CONTAINER_OF(p->idle.next, struct backend, node));
}

static void forget_active(struct front *f, const struct pool *p)
{
    struct node *n;
    struct caller *c;

    for (n = f->clients.next; n != &f->clients; n = n->next) {
        c = CONTAINER_OF(n, struct caller, node);
        if (c->backend && c->backend->pool == p)
            c->backend->forgotten = true;
    }
}

void front_forget(struct front *f, const struct front_addr *a)
{
    struct pool *p;
    struct pool *next;
    unsigned i;

    for (i = 0; i < POOL_BUCKETS; i++)
        for (p = f->pools[i]; p; p = next) {
            next = p->next;
            if (!same_addr(&p->addr, a) && !(any_port(a) && same_host(&p->addr, a)))
                continue;
            forget_active(f, p);
            pool_hold(p);
            close_idle(p);
            pool_release(f, p);
        }
}

void pools_close_idle(struct front *f)
{
    struct pool *p;
    struct pool *next;
    unsigned i;

    close_idle(&f->internal);
    for (i = 0; i < POOL_BUCKETS; i++)
        for (p = f->pools[i]; p; p = next) {
            next = p->next;
            pool_hold(p);
            close_idle(p);
            pool_release(f, p);
        }
}

/* ---- connections ---- */

static void on_event(struct loop_fd *w, uint32_t events)
{
    struct backend *b = CONTAINER_OF(w, struct backend, watch);

    front_reap(b->front);
    if (b->state == BACKEND_IDLE)
        backend_close(b); /* it left, or speaks without being asked */
    else
        exchange_on_backend(b, events);
}

static void on_timeout(struct timed *t)
{
    struct backend *b = CONTAINER_OF(t, struct backend, timed);
    struct caller *c = b->caller;

    if (b->state == BACKEND_IDLE)
        backend_close(b);
    else if (t->kind == TIMEOUT_CONNECT)
        exchange_fail(c, 504, "BACKEND_TIMEOUT",
                      "the backend did not accept the connection in time");
    else if (!c->request.done && !pending_any(&b->out))
        exchange_fail(c, 408, "REQUEST_TIMEOUT", "the request body stopped coming");
    else
        exchange_fail(c, 504, "BACKEND_TIMEOUT", "the backend did not answer in time");
}

static struct backend *backend_alloc(struct front *f)
{
    struct node *n = f->free_backends.next;
    struct backend *b;

    if (n == &f->free_backends)
        return calloc(1, sizeof(*b));
    node_take(n);
    f->n_free_backends--;
    b = CONTAINER_OF(n, struct backend, node);
    memset(b, 0, sizeof(*b));
    return b;
}

static int dial(struct front *f, struct pool *p, bool *connecting, int *sys)
{
    struct err e = { 0 };
    int fd;

    *connecting = false;
    if (p->internal) {
        fd = f->ops->internal ? f->ops->internal(f->owner, &e) : -1;
        *sys = e.sys ? e.sys : ENOTCONN;
        return fd;
    }
    fd = socket(p->addr.u.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        *sys = errno;
        return -1;
    }
    if (p->addr.u.any.sa_family != AF_UNIX)
        sock_options(f, fd);
    if (connect(fd, &p->addr.u.any, p->addr.len) == 0)
        return fd;
    *sys = errno;
    *connecting = *sys == EINPROGRESS;
    if (*connecting)
        return fd;
    (void)close(fd);
    return -1;
}

static struct backend *backend_new(struct front *f, struct pool *p, int *sys)
{
    struct backend *b = backend_alloc(f);
    bool connecting;

    if (!b) {
        *sys = ENOMEM;
        return NULL;
    }
    node_init(&b->node);
    b->timed.on_timeout = on_timeout;
    b->watch.on_event = on_event;
    b->front = f;
    b->pool = p;
    f->stats.connects++;
    b->watch.fd = dial(f, p, &connecting, sys);
    if (b->watch.fd < 0) {
        free(b);
        return NULL;
    }
    b->state = connecting ? BACKEND_CONNECTING : BACKEND_HEAD;
    if (loop_add(f->loop, &b->watch, connecting ? EPOLLOUT : EPOLLIN | EPOLLRDHUP, NULL) < 0) {
        *sys = errno;
        (void)close(b->watch.fd);
        free(b);
        return NULL;
    }
    p->n_all++;
    f->stats.backends++;
    return b;
}

/* Has it been closed, or said something unasked, since the loop last looked? */
static bool is_stale(const struct backend *b)
{
    char byte;

    return recv(b->watch.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 ||
           (errno != EAGAIN && errno != EINTR);
}

struct backend *backend_get(struct pool *p, struct front *f, bool fresh, bool look, int *sys)
{
    struct backend *b;

    pool_hold(p); /* its last idle connection may be closed here */
    while (!fresh && p->idle.next != &p->idle) {
        b = CONTAINER_OF(p->idle.next, struct backend, node);
        if (look && is_stale(b)) {
            backend_close(b);
            continue;
        }
        node_take(&b->node);
        timeout_clear(&b->timed);
        p->n_idle--;
        f->stats.idle_backends--;
        b->state = BACKEND_HEAD;
        pool_release(f, p);
        return b;
    }
    b = backend_new(f, p, sys);
    pool_release(f, p);
    return b;
}

void backend_put(struct backend *b)
{
    struct front *f = b->front;
    struct pool *p = b->pool;

    if (!b->persistent || b->forgotten || f->draining || p->n_idle >= f->opt.pool_idle_max) {
        backend_close(b);
        return;
    }
    b->caller = NULL;
    b->state = BACKEND_IDLE;
    b->reused = true;
    b->received = b->persistent = false;
    node_put_before(p->idle.next, &b->node);
    p->n_idle++;
    f->stats.idle_backends++;
    timeout_set(f, &b->timed, TIMEOUT_POOL);
    if (loop_mod(f->loop, &b->watch, EPOLLIN | EPOLLRDHUP) < 0)
        backend_close(b);
}

/* A backend that does not read would not see the end, which lies behind what it has not read: the
 * kernel would keep both for minutes. */
static void reset_if_stuck(const struct backend *b)
{
    const struct linger hard = { .l_onoff = 1 };
    const struct caller *c = b->caller;

    if ((b->state == BACKEND_HEAD || b->state == BACKEND_BODY) && c &&
        (pending_any(&b->out) || c->request_off < c->request_len))
        (void)setsockopt(b->watch.fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
}

void backend_close(struct backend *b)
{
    struct front *f = b->front;
    struct pool *p = b->pool;

    if (b->state == BACKEND_DEAD)
        return;
    if (b->state == BACKEND_IDLE) {
        p->n_idle--;
        f->stats.idle_backends--;
    }
    reset_if_stuck(b);
    b->state = BACKEND_DEAD;
    if (b->caller)
        b->caller->backend = NULL;
    b->caller = NULL;
    timeout_clear(&b->timed);
    loop_del(f->loop, &b->watch);
    (void)close(b->watch.fd);
    free(b->in);
    b->in = NULL;
    pending_free(&b->out);
    node_take(&b->node);
    node_put_before(&f->dead_backends, &b->node);
    f->stats.backends--;
    b->pool = NULL;
    pool_release(f, p);
}

void backend_watch(struct backend *b)
{
    struct caller *c = b->caller;
    uint32_t events = 0;

    switch (b->state) {
    case BACKEND_CONNECTING:
        events = EPOLLOUT;
        break;
    case BACKEND_HEAD:
    case BACKEND_BODY:
        if (!pending_any(&c->out))
            events |= EPOLLIN | EPOLLRDHUP;
        if (!b->write_broken && (pending_any(&b->out) || c->request_off < c->request_len))
            events |= EPOLLOUT;
        break;
    case BACKEND_TUNNEL:
        if (!pending_any(&c->out) && !b->eof)
            events |= EPOLLIN;
        if (pending_any(&b->out))
            events |= EPOLLOUT;
        break;
    default:
        return;
    }
    if (loop_mod(b->front->loop, &b->watch, events) < 0)
        caller_close(c);
}
