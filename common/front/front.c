#include "common/front/front.h"

#include "common/base/err.h"
#include "common/base/log.h"
#include "common/front/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

enum { ACCEPT_BATCH = 32, ACCEPT_PAUSE_MS = 100 };

/* ---- objects ---- */

static void reap_list(struct node *dead, struct node *kept, unsigned *n_kept)
{
    struct node *n;

    while (dead->next != dead) {
        n = dead->next;
        node_take(n);
        node_put_before(kept->next, n);
        ++*n_kept;
    }
}

static void free_clients(struct node *list, unsigned keep, unsigned *n)
{
    struct node *at;

    for (; *n > keep; --*n) {
        at = list->next;
        node_take(at);
        free(CONTAINER_OF(at, struct caller, node));
    }
}

static void free_backends(struct node *list, unsigned keep, unsigned *n)
{
    struct node *at;

    for (; *n > keep; --*n) {
        at = list->next;
        node_take(at);
        free(CONTAINER_OF(at, struct backend, node));
    }
}

void front_reap(struct front *f)
{
    if (f->dead_clients.next != &f->dead_clients) {
        reap_list(&f->dead_clients, &f->free_clients, &f->n_free_clients);
        free_clients(&f->free_clients, OBJECTS_KEPT, &f->n_free_clients);
    }
    if (f->dead_backends.next != &f->dead_backends) {
        reap_list(&f->dead_backends, &f->free_backends, &f->n_free_backends);
        free_backends(&f->free_backends, OBJECTS_KEPT, &f->n_free_backends);
    }
}

static void set_options(struct front *f, const struct front_options *o)
{
    if (o)
        f->opt = *o;
    if (!f->opt.clock)
        f->opt.clock = &clock_system;
    if (!f->opt.max_clients)
        f->opt.max_clients = 8192;
    if (!f->opt.pool_idle_max)
        f->opt.pool_idle_max = 128;
    if (!f->opt.keepalive_s)
        f->opt.keepalive_s = 60;
}

struct front *front_new(struct loop *l, const struct front_ops *ops, void *owner,
                        const struct front_options *options, struct err *e)
{
    struct front *f = calloc(1, sizeof(*f));

    if (!f) {
        (void)err_nomem(e);
        return NULL;
    }
    f->loop = l;
    f->ops = ops;
    f->owner = owner;
    set_options(f, options);
    node_init(&f->clients);
    node_init(&f->dead_clients);
    node_init(&f->dead_backends);
    node_init(&f->free_clients);
    node_init(&f->free_backends);
    node_init(&f->internal.idle);
    f->internal.internal = true;
    timeouts_init(f);
    f->in = malloc(FRONT_READ);
    f->out = malloc(FRONT_OUT_MAX);
    if (!f->in || !f->out) {
        front_free(f);
        (void)err_nomem(e);
        return NULL;
    }
    return f;
}

const struct front_stats *front_stats(const struct front *f)
{
    return &f->stats;
}

/* ---- accepting ---- */

/* Past the limit a client is told so instead of being left in the dark. */
static void turn_away(struct front *f, int fd)
{
    static const char full[] =
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
        "Retry-After: 1\r\nConnection: close\r\n\r\n" /* ends with the connection */
        "{\"code\":\"SERVICE_UNAVAILABLE\",\"message\":\"too many connections; try again\"}";
    int i;

    f->stats.turned_away++;
    (void)sock_send(fd, full, sizeof(full) - 1);
    (void)shutdown(fd, SHUT_WR);
    for (i = 0; i < 16 && sock_recv(fd, f->in, FRONT_READ) > 0; i++)
        ;
    (void)close(fd);
}

int front_adopt(struct front *f, int fd, const struct sockaddr *peer, socklen_t len,
                const void *tag, struct err *e)
{
    if (f->stats.clients >= f->opt.max_clients) {
        turn_away(f, fd);
        return err_set(e, ERRC_BUSY, "connection limit of %u reached", f->opt.max_clients);
    }
    if (!caller_new(f, fd, peer, len, tag)) {
        (void)close(fd);
        return err_nomem(e);
    }
    return 0;
}

static void go_on(struct loop_timer *t)
{
    struct listener *ln = CONTAINER_OF(t, struct listener, pause);

    if (loop_mod(ln->front->loop, &ln->watch, EPOLLIN) < 0)
        (void)loop_timer_set(ln->front->loop, t, clock_mono_ms() + ACCEPT_PAUSE_MS);
}

/* Without descriptors the listener stays readable: the loop would spin until one is given back. */
static void pause_listener(struct listener *ln)
{
    log_debug("front cannot accept connections: out of descriptors or memory");
    if (loop_timer_set(ln->front->loop, &ln->pause, clock_mono_ms() + ACCEPT_PAUSE_MS) == 0)
        (void)loop_mod(ln->front->loop, &ln->watch, 0);
}

static void on_accept(struct loop_fd *w, uint32_t events)
{
    struct listener *ln = CONTAINER_OF(w, struct listener, watch);
    struct sockaddr_storage peer;
    socklen_t len;
    int fd;
    int i;

    (void)events;
    front_reap(ln->front);
    for (i = 0; i < ACCEPT_BATCH; i++) {
        len = sizeof(peer);
        fd = accept4(w->fd, (struct sockaddr *)&peer, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
                pause_listener(ln);
            return;
        }
        (void)front_adopt(ln->front, fd, (struct sockaddr *)&peer, len, ln->tag, NULL);
    }
}

int front_listen(struct front *f, int listen_fd, const void *tag, struct err *e)
{
    struct listener *ln = calloc(1, sizeof(*ln));

    if (!ln) {
        (void)close(listen_fd);
        return err_nomem(e);
    }
    ln->front = f;
    ln->tag = tag;
    ln->watch.fd = listen_fd;
    ln->watch.on_event = on_accept;
    ln->pause.on_fire = go_on;
    sock_options(f, listen_fd); /* accepted sockets inherit them */
    if (loop_add(f->loop, &ln->watch, EPOLLIN, e) < 0) {
        (void)close(listen_fd);
        free(ln);
        return -1;
    }
    ln->next = f->listeners;
    f->listeners = ln;
    return 0;
}

/* ---- the end ---- */

static void close_listeners(struct front *f)
{
    struct listener *ln;

    while ((ln = f->listeners)) {
        f->listeners = ln->next;
        loop_del(f->loop, &ln->watch);
        loop_timer_clear(f->loop, &ln->pause);
        (void)close(ln->watch.fd);
        free(ln);
    }
}

void front_drain(struct front *f)
{
    struct node *n;
    struct node *next;
    struct caller *c;

    f->draining = true;
    close_listeners(f);
    for (n = f->clients.next; n != &f->clients; n = next) {
        next = n->next;
        c = CONTAINER_OF(n, struct caller, node);
        if (c->state == CALLER_HEAD && !c->in)
            caller_close(c);
    }
    pools_close_idle(f);
}

static void free_blocks(struct front *f)
{
    struct block *b;

    while ((b = f->blocks)) {
        f->blocks = b->next;
        free(b);
    }
}

void front_free(struct front *f)
{
    if (!f)
        return;
    close_listeners(f);
    while (f->clients.next != &f->clients)
        caller_close(CONTAINER_OF(f->clients.next, struct caller, node));
    pools_close_idle(f);
    front_reap(f);
    free_clients(&f->free_clients, 0, &f->n_free_clients);
    free_backends(&f->free_backends, 0, &f->n_free_backends);
    free_blocks(f);
    loop_timer_clear(f->loop, &f->tick);
    free(f->in);
    free(f->out);
    free(f);
}
