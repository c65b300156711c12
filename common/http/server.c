#include "common/http/internal.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/macros.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ACCEPT_BATCH = 32, ACCEPT_PAUSE_MS = 100 };

struct listener {
    struct http_server *server;
    struct loop_fd watch;
    struct loop_timer pause;
    bool starved; /* and said so */
    struct listener *next;
};

/* ---- libmicrohttpd inside our loop ---- */

static void on_mhd(struct loop_fd *w, uint32_t events)
{
    (void)events;
    (void)MHD_run(CONTAINER_OF(w, struct http_server, mhd_fd)->mhd);
}

/* Lets libmicrohttpd do what is due (resumed connections), then says how long it can wait. */
static int before_wait(void *arg)
{
    struct http_server *s = arg;
    MHD_UNSIGNED_LONG_LONG ms = 0;
    int rounds;

    for (rounds = 0; rounds < 8; rounds++) {
        if (!s->resumed && MHD_get_timeout(s->mhd, &ms) != MHD_YES)
            return -1;
        if (!s->resumed && ms > 0)
            return ms > 60000 ? 60000 : (int)ms;
        s->resumed = false;
        (void)MHD_run(s->mhd);
    }
    return 0;
}

/* Paths stay percent-encoded: the router decodes segment by segment. */
static size_t keep_encoded(void *cls, struct MHD_Connection *conn, char *s)
{
    (void)cls, (void)conn;
    return strlen(s);
}

__attribute__((format(printf, 2, 0))) static void on_mhd_log(void *cls, const char *fmt, va_list ap)
{
    char text[256];

    (void)cls;
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    text[strcspn(text, "\n")] = '\0';
    log_debug("libmicrohttpd", LOG_S("text", text));
}

struct peer *server_peer(struct MHD_Connection *conn)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(conn, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    return info ? info->socket_context : NULL;
}

/* libmicrohttpd is blind to the end of a connection in two cases: while that is suspended, and when
 * the end came together with the last data (it takes a short read for the end of an edge). A stream
 * is cut; else a suspension and resumption make it read once more. */
static void on_hangup(struct loop_fd *w, uint32_t events)
{
    struct peer *p = CONTAINER_OF(w, struct peer, watch);
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(p->conn, MHD_CONNECTION_INFO_CONNECTION_SUSPENDED);

    (void)events;
    p->gone = true;
    if (p->stream) {
        http_stream_abort(p->stream);
    } else if (info && !info->suspended) {
        MHD_suspend_connection(p->conn);
        server_resume(p->server, p->conn);
    }
}

static struct peer *peer_new(struct http_server *s, struct MHD_Connection *conn)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct peer *p = info ? calloc(1, sizeof(*p)) : NULL;

    if (!p)
        return NULL;
    p->server = s;
    p->conn = conn;
    p->watch.fd = info->connect_fd;
    p->watch.on_event = on_hangup;
    (void)loop_add(s->loop, &p->watch, EPOLLRDHUP | EPOLLET, NULL);
    return p;
}

static void on_connection(void *cls, struct MHD_Connection *conn, void **ctx,
                          enum MHD_ConnectionNotificationCode code)
{
    struct http_server *s = cls;
    struct peer *p = *ctx;

    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        s->connections++;
        *ctx = peer_new(s, conn);
        return;
    }
    s->connections--;
    if (p) {
        loop_del(s->loop, &p->watch);
        lend_drop(s, p);
    }
    free(p);
    *ctx = NULL;
}

static struct MHD_Daemon *start_daemon(struct http_server *s)
{
    /* clang-format off */
    return MHD_start_daemon(
        MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME | MHD_ALLOW_UPGRADE | MHD_USE_ERROR_LOG, 0,
        NULL, NULL, exchange_access, s,
        MHD_OPTION_EXTERNAL_LOGGER, on_mhd_log, NULL,
        MHD_OPTION_URI_LOG_CALLBACK, exchange_begin, s,
        MHD_OPTION_UNESCAPE_CALLBACK, keep_encoded, NULL,
        MHD_OPTION_NOTIFY_COMPLETED, exchange_end, s,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, s,
        MHD_OPTION_CONNECTION_TIMEOUT, s->svc.idle_timeout_s,
        MHD_OPTION_CONNECTION_LIMIT, s->svc.max_connections + 1,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HTTP_CONN_MEMORY,
        MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
    /* clang-format on */
}

struct http_server *http_server_new(struct loop *l, const struct http_service *svc, struct err *e)
{
    struct http_server *s = calloc(1, sizeof(*s));
    const union MHD_DaemonInfo *info;

    if (!s) {
        (void)err_nomem(e);
        return NULL;
    }
    s->loop = l;
    s->svc = *svc;
    s->mhd = start_daemon(s);
    info = s->mhd ? MHD_get_daemon_info(s->mhd, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
    if (!info) {
        (void)err_set(e, ERRC_INTERNAL, "cannot start the HTTP server");
        free(s);
        return NULL;
    }
    s->mhd_fd.fd = info->epoll_fd;
    s->mhd_fd.on_event = on_mhd;
    if (loop_add(l, &s->mhd_fd, EPOLLIN, e) < 0) {
        MHD_stop_daemon(s->mhd);
        free(s);
        return NULL;
    }
    s->hook = (struct loop_hook){ .before_wait = before_wait, .arg = s };
    loop_hook_add(l, &s->hook);
    return s;
}

/* ---- sockets ---- */

/* Past the connection limit a client is told so instead of being left in the dark. */
static void turn_away(int fd)
{
    static const char full[] =
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
        "Retry-After: 1\r\nConnection: close\r\n\r\n" /* ends with the connection */
        "{\"code\":\"SERVICE_UNAVAILABLE\",\"message\":\"too many connections; try again\"}";
    char scrap[4096];
    int i;

    (void)!send(fd, full, sizeof(full) - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    (void)shutdown(fd, SHUT_WR);
    /* unread input would make close(2) reset the connection, and the client lose the answer */
    for (i = 0; i < 16 && recv(fd, scrap, sizeof(scrap), MSG_DONTWAIT) > 0; i++)
        ;
    (void)close(fd);
}

int http_server_adopt(struct http_server *s, int fd, const struct sockaddr *peer, socklen_t len,
                      struct err *e)
{
    if (s->connections >= s->svc.max_connections) {
        turn_away(fd);
        return err_set(e, ERRC_BUSY, "connection limit of %u reached", s->svc.max_connections);
    }
    if (MHD_add_connection(s->mhd, fd, peer, len) != MHD_YES) /* it closes fd on failure, too */
        return err_sys(e, errno, "take over connection");
    return 0;
}

static void go_on(struct loop_timer *t)
{
    struct listener *ln = CONTAINER_OF(t, struct listener, pause);

    if (loop_mod(ln->server->loop, &ln->watch, EPOLLIN) < 0)
        (void)loop_timer_set(ln->server->loop, t, clock_mono_ms() + ACCEPT_PAUSE_MS);
}

/* Without descriptors the listener stays readable: the loop would spin until one is given back. */
static void pause_listener(struct listener *ln)
{
    if (!ln->starved)
        log_warn("cannot accept connections: out of descriptors or memory");
    ln->starved = true;
    if (loop_timer_set(ln->server->loop, &ln->pause, clock_mono_ms() + ACCEPT_PAUSE_MS) == 0)
        (void)loop_mod(ln->server->loop, &ln->watch, 0);
}

static void on_accept(struct loop_fd *w, uint32_t events)
{
    struct listener *ln = CONTAINER_OF(w, struct listener, watch);
    struct sockaddr_storage peer;
    socklen_t len;
    int one = 1;
    int fd;
    int i;

    (void)events;
    for (i = 0; i < ACCEPT_BATCH; i++) {
        len = sizeof(peer);
        fd = accept4(w->fd, (struct sockaddr *)&peer, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
                pause_listener(ln);
            return;
        }
        ln->starved = false;
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        (void)http_server_adopt(ln->server, fd, (struct sockaddr *)&peer, len, NULL);
    }
}

int http_server_connect(struct http_server *s, struct err *e)
{
    struct sockaddr_in none = { .sin_family = AF_INET }; /* libmicrohttpd wants some address */
    int fds[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) < 0)
        return err_sys(e, errno, "make socket pair");
    if (http_server_adopt(s, fds[1], (struct sockaddr *)&none, sizeof(none), e) < 0) {
        (void)close(fds[0]);
        return -1;
    }
    return fds[0];
}

int http_server_listen(struct http_server *s, int listen_fd, struct err *e)
{
    struct listener *ln = calloc(1, sizeof(*ln));

    if (!ln) {
        (void)close(listen_fd);
        return err_nomem(e);
    }
    ln->server = s;
    ln->watch.fd = listen_fd;
    ln->watch.on_event = on_accept;
    ln->pause.on_fire = go_on;
    if (loop_add(s->loop, &ln->watch, EPOLLIN, e) < 0) {
        (void)close(listen_fd);
        free(ln);
        return -1;
    }
    ln->next = s->listeners;
    s->listeners = ln;
    return 0;
}

static void close_listeners(struct http_server *s)
{
    struct listener *ln;

    while ((ln = s->listeners)) {
        s->listeners = ln->next;
        loop_del(s->loop, &ln->watch);
        loop_timer_clear(s->loop, &ln->pause);
        (void)close(ln->watch.fd);
        free(ln);
    }
}

void http_server_drain(struct http_server *s)
{
    s->draining = true;
    close_listeners(s);
}

unsigned http_server_active(const struct http_server *s)
{
    return s->active;
}

void http_server_give_up(struct http_server *s)
{
    if (s)
        atomic_store(&s->given_up, true);
}

void http_server_free(struct http_server *s)
{
    struct http_stream *st;
    struct http_stream *next;

    if (!s)
        return;
    s->closing = true;
    close_listeners(s);
    loop_run_posted(s->loop); /* the ends of the last jobs: they resume their connections */
    (void)MHD_run(s->mhd);
    for (st = s->streams; st; st = next) {
        next = stream_next(st);
        http_stream_abort(st);
    }
    while (s->deferred) {
        struct err e;

        (void)err_set(&e, ERRC_BUSY, "the server is stopping");
        http_complete(&s->deferred->rq, &e);
    }
    /* takes the resumed connections to their end: none may be suspended below */
    (void)MHD_run(s->mhd);
    (void)MHD_run(s->mhd);
    loop_del(s->loop, &s->mhd_fd);
    loop_hook_del(s->loop, &s->hook);
    MHD_stop_daemon(s->mhd);
    lend_drop(s, NULL);
    loop_run_posted(s->loop); /* streams that were released meanwhile */
    free(s);
}
