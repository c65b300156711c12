#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/ws/internal.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union address {
    struct sockaddr any;
    struct sockaddr_in in4;
    struct sockaddr_in6 in6;
};

/* The length of the address; 0: host is neither an address nor localhost. */
static socklen_t parse_address(const char *host, uint16_t port, union address *out)
{
    *out = (union address){ 0 };
    if (strcmp(host, "localhost") == 0)
        host = "127.0.0.1";
    if (inet_pton(AF_INET, host, &out->in4.sin_addr) == 1) {
        out->in4.sin_family = AF_INET;
        out->in4.sin_port = htons(port);
        return sizeof(out->in4);
    }
    if (inet_pton(AF_INET6, host, &out->in6.sin6_addr) == 1) {
        out->in6.sin6_family = AF_INET6;
        out->in6.sin6_port = htons(port);
        return sizeof(out->in6);
    }
    return 0;
}

static int open_socket(const struct ws_dial *d, struct err *e)
{
    union address to;
    socklen_t len = parse_address(d->host, d->port, &to);
    int one = 1;
    int fd;

    if (!len)
        return err_set(e, ERRC_INVALID, "%.64s is neither an IP address nor localhost", d->host);
    fd = socket(to.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_sys(e, errno, "open a socket");
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (connect(fd, &to.any, len) < 0 && errno != EINPROGRESS) {
        (void)err_sys(e, errno, "connect to %.64s port %u", d->host, d->port);
        (void)close(fd);
        return -1;
    }
    return fd;
}

struct ws *ws_connect(struct ws_set *set, const struct ws_dial *d, const struct ws_options *options,
                      const struct ws_ops *ops, void *owner, struct err *e)
{
    char key[WS_KEY_TEXT];
    AUTO_BUF struct buf request = BUF_INIT(WS_ANSWER_MAX + (64 << 10));
    struct ws *ws;
    int fd;

    ws_make_key(key);
    if (ws_put_request(d, key, &request, e) < 0)
        return NULL;
    fd = open_socket(d, e);
    if (fd < 0)
        return NULL;
    ws = ws_adopt(set, fd, false, options, ops, owner);
    if (!ws) {
        (void)err_nomem(e);
        return NULL;
    }
    ws->state = WS_CONNECTING;
    memcpy(ws->key, key, sizeof(key));
    ws->out.data = request.data;
    ws->out.len = request.len;
    ws->out.cap = request.cap;
    request = BUF_INIT(0);
    ws->cut_mono_ms = clock_mono_ms() + (d->timeout_ms ? d->timeout_ms : WS_DIAL_MS);
    ws_arm(ws);
    ws_watch(ws);
    return ws;
}

void ws_on_connected(struct ws *ws)
{
    char text[WS_REASON_MAX];
    char why[128];
    socklen_t len = sizeof(int);
    int error = 0;

    if (getsockopt(ws->watch.fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
        error = errno;
    if (error) {
        (void)snprintf(text, sizeof(text), "cannot connect: %s",
                       strerror_r(error, why, sizeof(why)));
        ws_die(ws, WS_CODE_ABNORMAL, text);
        return;
    }
    ws->state = WS_SHAKING;
    ws->moved_mono_ms = clock_mono_ms();
    (void)ws_flush(ws);
}

void ws_on_answer(struct ws *ws)
{
    struct err e = { 0 };
    size_t used = 0;
    int rc = ws_read_answer(ws->in.data, ws->in.len, ws->key, &used, &e);

    if (rc < 0)
        ws_die(ws, WS_CODE_ABNORMAL, e.msg);
    if (rc <= 0)
        return;
    buf_consume(&ws->in, used);
    ws->state = WS_OPEN;
    ws->cut_mono_ms = 0;
    ws->heard_mono_ms = ws->pinged_mono_ms = clock_mono_ms();
    if (ws->ops && ws->ops->on_open)
        ws->ops->on_open(ws->owner);
    if (ws->state != WS_DEAD)
        ws_arm(ws);
    ws_process(ws);
}
