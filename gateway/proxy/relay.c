#include "gateway/proxy/relay.h"

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "common/base/loop.h"
#include "common/base/macros.h"
#include "gateway/domain/places.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum { RELAY_READ = 64 * 1024, RELAY_ACCEPT_BATCH = 32 };

/* One side of a connection. What was read from it and the other side has not taken yet hangs here,
 * and only then; meanwhile nothing more is read from it. */
struct side {
    struct loop_fd watch;
    struct pair *pair;
    struct side *other;
    char *held;
    size_t held_len;
    size_t held_at;
    bool read_end; /* it will send no more */
    bool connecting;
};

struct pair {
    struct port *port;
    struct side client;
    struct side sandbox;
    struct pair *prev;
    struct pair *next;
};

/* One relay: a listener. */
struct port {
    struct relay *relay;
    char id[RUNTIME_ID];
    uint16_t port;
    struct loop_fd watch;
    struct pair *pairs;
    struct port *next;
};

struct relay {
    struct loop *loop;
    struct places *places;
    struct runtime *rt;
    struct port *ports;
    unsigned connections;
    char buf[RELAY_READ];
};

/* ---- a connection ---- */

static void close_side(struct relay *r, struct side *s)
{
    loop_del(r->loop, &s->watch);
    if (s->watch.fd >= 0)
        (void)close(s->watch.fd);
    free(s->held);
}

static void close_pair(struct pair *p)
{
    struct relay *r = p->port->relay;

    if (p->prev)
        p->prev->next = p->next;
    else
        p->port->pairs = p->next;
    if (p->next)
        p->next->prev = p->prev;
    close_side(r, &p->client);
    close_side(r, &p->sandbox);
    r->connections--;
    free(p);
}

/* What is worth waiting for at s: its bytes unless the other side is behind, and room when it is
 * behind itself. */
static void watch(struct relay *r, struct side *s)
{
    uint32_t events = 0;

    if (!s->held && !s->read_end && !s->connecting && !s->other->connecting)
        events |= EPOLLIN;
    if (s->connecting || s->other->held)
        events |= EPOLLOUT;
    if (!s->watch.events && events)
        (void)loop_add(r->loop, &s->watch, events, NULL);
    else if (s->watch.events && events)
        (void)loop_mod(r->loop, &s->watch, events);
    else
        loop_del(r->loop, &s->watch);
}

/* Sends what it can; the rest is kept. -1: the receiver is gone, or memory is out. */
static int pass(struct side *from, const char *data, size_t len)
{
    ssize_t n = send(from->other->watch.fd, data, len, MSG_NOSIGNAL);

    if (n < 0 && errno != EAGAIN && errno != EINTR)
        return -1;
    n = n < 0 ? 0 : n;
    if ((size_t)n == len)
        return 0;
    from->held = malloc(len - (size_t)n);
    if (!from->held)
        return -1;
    memcpy(from->held, data + n, len - (size_t)n);
    from->held_len = len - (size_t)n;
    from->held_at = 0;
    return 0;
}

/* Room at s for what the other side has left. */
static int flush(struct side *s)
{
    struct side *from = s->other;
    ssize_t n;

    if (!from->held)
        return 0;
    n = send(s->watch.fd, from->held + from->held_at, from->held_len - from->held_at, MSG_NOSIGNAL);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    from->held_at += (size_t)n;
    if (from->held_at < from->held_len)
        return 0;
    free(from->held);
    from->held = NULL;
    if (from->read_end)
        (void)shutdown(s->watch.fd, SHUT_WR);
    return 0;
}

static int take(struct relay *r, struct side *s)
{
    ssize_t n = recv(s->watch.fd, r->buf, sizeof(r->buf), 0);

    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    if (n > 0)
        return pass(s, r->buf, (size_t)n);
    s->read_end = true;
    if (!s->held)
        (void)shutdown(s->other->watch.fd, SHUT_WR);
    return 0;
}

static int finish_connect(struct side *s)
{
    int failed = 0;
    socklen_t len = sizeof(failed);

    if (getsockopt(s->watch.fd, SOL_SOCKET, SO_ERROR, &failed, &len) < 0 || failed)
        return -1;
    s->connecting = false;
    return 0;
}

static bool is_over(const struct pair *p)
{
    return p->client.read_end && p->sandbox.read_end && !p->client.held && !p->sandbox.held;
}

static void on_side(struct loop_fd *w, uint32_t events)
{
    struct side *s = CONTAINER_OF(w, struct side, watch);
    struct pair *p = s->pair;
    struct relay *r = p->port->relay;
    int rc = 0;

    if (s->connecting)
        rc = finish_connect(s);
    else if (events & EPOLLERR)
        rc = -1;
    if (rc == 0 && (events & EPOLLOUT))
        rc = flush(s);
    if (rc == 0 && (events & (EPOLLIN | EPOLLHUP)) && !s->held && !s->read_end)
        rc = take(r, s);
    if (rc < 0 || is_over(p)) {
        close_pair(p);
        return;
    }
    watch(r, &p->client);
    watch(r, &p->sandbox);
}

/* ---- a listener ---- */

static int dial(const struct place *place, uint16_t port)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };
    int fd;

    if (inet_pton(AF_INET, place->at.address, &to.sin_addr) != 1)
        return -1;
    fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0 && errno != EINPROGRESS) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

/* Small writes go at once, dead peers of idle connections are found. */
static void tune(int fd)
{
    int one = 1;
    int idle_s = 60;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
}

static bool may_connect(struct port *pt, const struct sockaddr_in *peer, struct place *place)
{
    struct relay *r = pt->relay;
    char text[INET_ADDRSTRLEN];

    if (r->connections >= RELAY_CONNECTIONS_MAX)
        return false;
    if (peer->sin_family == AF_INET && inet_ntop(AF_INET, &peer->sin_addr, text, sizeof(text)) &&
        runtime_is_sandbox_address(r->rt, text))
        return false;
    return places_get(r->places, pt->id, place) && place->state == SANDBOX_RUNNING;
}

static void set_up(struct pair *p, struct side *s, struct side *other, int fd)
{
    s->pair = p;
    s->other = other;
    s->watch.fd = fd;
    s->watch.on_event = on_side;
    tune(fd);
}

/* Takes over both descriptors. */
static void join(struct port *pt, int client, int sandbox)
{
    struct pair *p = calloc(1, sizeof(*p));

    if (!p) {
        (void)close(client);
        (void)close(sandbox);
        return;
    }
    p->port = pt;
    set_up(p, &p->client, &p->sandbox, client);
    set_up(p, &p->sandbox, &p->client, sandbox);
    p->sandbox.connecting = true;
    p->next = pt->pairs;
    if (p->next)
        p->next->prev = p;
    pt->pairs = p;
    pt->relay->connections++;
    watch(pt->relay, &p->client);
    watch(pt->relay, &p->sandbox);
}

static void on_accept(struct loop_fd *w, uint32_t events)
{
    struct port *pt = CONTAINER_OF(w, struct port, watch);
    struct sockaddr_in peer;
    struct place place;
    socklen_t len;
    int sandbox;
    int fd;
    int i;

    (void)events;
    for (i = 0; i < RELAY_ACCEPT_BATCH; i++) {
        len = sizeof(peer);
        fd = accept4(w->fd, (struct sockaddr *)&peer, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            return;
        sandbox = may_connect(pt, &peer, &place) ? dial(&place, pt->port) : -1;
        if (sandbox < 0)
            (void)close(fd);
        else
            join(pt, fd, sandbox);
    }
}

static void close_port(struct port *pt)
{
    while (pt->pairs)
        close_pair(pt->pairs);
    loop_del(pt->relay->loop, &pt->watch);
    (void)close(pt->watch.fd);
    free(pt);
}

/* ---- from other threads ---- */

struct order {
    struct loop_call call;
    struct relay *relay;
    char id[RUNTIME_ID];
    uint16_t port;
    int fd; /* -1: close all of id */
};

static void close_all(struct relay *r, const char *id)
{
    struct port **at = &r->ports;
    struct port *pt;

    while ((pt = *at)) {
        if (strcmp(pt->id, id) == 0) {
            *at = pt->next;
            close_port(pt);
        } else {
            at = &pt->next;
        }
    }
}

/* One that has ended would never be told again: its order to close came before. */
static void open_port(struct relay *r, const struct order *o)
{
    struct place place;
    struct port *pt = places_get(r->places, o->id, &place) ? calloc(1, sizeof(*pt)) : NULL;

    if (!pt) {
        (void)close(o->fd);
        return;
    }
    pt->relay = r;
    memcpy(pt->id, o->id, sizeof(pt->id));
    pt->port = o->port;
    pt->watch.fd = o->fd;
    pt->watch.on_event = on_accept;
    pt->next = r->ports;
    r->ports = pt;
    if (loop_add(r->loop, &pt->watch, EPOLLIN, NULL) < 0)
        log_error("a relay cannot be watched", LOG_S("id", pt->id), LOG_N("port", pt->port));
}

static void carry_out(void *arg)
{
    AUTO_FREE struct order *o = arg;

    if (o->fd < 0)
        close_all(o->relay, o->id);
    else
        open_port(o->relay, o);
}

static void give_order(struct relay *r, const char *id, uint16_t port, int fd)
{
    struct order *o = calloc(1, sizeof(*o));

    if (!o) {
        if (fd >= 0)
            (void)close(fd);
        return;
    }
    o->relay = r;
    (void)snprintf(o->id, sizeof(o->id), "%s", id);
    o->port = port;
    o->fd = fd;
    o->call = (struct loop_call){ .fn = carry_out, .arg = o };
    loop_post(r->loop, &o->call);
}

void relay_open(void *relay, const char *id, uint16_t port, int listen_fd)
{
    give_order(relay, id, port, listen_fd);
}

void relay_close(struct relay *r, const char *id)
{
    give_order(r, id, 0, -1);
}

struct relay *relay_new(struct loop *l, struct places *places, struct runtime *rt, struct err *e)
{
    struct relay *r = calloc(1, sizeof(*r));

    if (!r) {
        (void)err_nomem(e);
        return NULL;
    }
    r->loop = l;
    r->places = places;
    r->rt = rt;
    return r;
}

void relay_free(struct relay *r)
{
    struct port *pt;

    while (r && (pt = r->ports)) {
        r->ports = pt->next;
        close_port(pt);
    }
    free(r);
}
