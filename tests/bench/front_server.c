/* Servers for tests/bench/front.sh, each in one thread:
 *   proxy PORT IP:PORT   the front, everything proxied to one backend
 *   api PORT             libmicrohttpd alone: GET /health
 *   front-api PORT       the same behind the front and a socket pair */
#include "common/base/err.h"
#include "common/base/listen.h"
#include "common/base/loop.h"
#include "common/base/num.h"
#include "common/front/front.h"
#include "common/http/http.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct bench {
    struct loop *loop;
    struct http_server *api;
    struct front_addr to;
};

static int health(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    (void)app, (void)rq;
    return http_resp_json(rs, 200, strdup("{\"status\":\"healthy\"}"), e);
}

static const struct http_route routes[] = { { "GET", "/health", health, HTTP_OPEN, 0, NULL } };

static int internal(void *owner, struct err *e)
{
    struct bench *b = owner;
    int fds[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0)
        return err_sys(e, errno, "socketpair");
    if (http_server_adopt(b->api, fds[1], &(struct sockaddr){ .sa_family = AF_UNIX },
                          sizeof(struct sockaddr), e) < 0) {
        (void)close(fds[0]);
        return -1;
    }
    return fds[0];
}

static void decide(void *owner, struct front_req *rq)
{
    static const char *const drop[] = { "authorization", "cookie", "open-sandbox-api-key",
                                        "opensandbox-*", NULL };
    struct bench *b = owner;
    const char *at = head_text(rq->head, rq->head->path);
    size_t len = rq->head->path.len;
    struct front_proxy p = {
        .to = &b->to,
        .request = { .edit = { .drop = drop }, .forwarded_proto = "http", .upgrade = true }
    };
    const char *cut = NULL;

    if (b->api) {
        front_internal(rq, NULL);
        return;
    }
    /* as the gateway: /v1/sandboxes/ID/proxy/PORT/path */
    if (len > 14 && memcmp(at, "/v1/sandboxes/", 14) == 0)
        cut = memmem(at, len, "/proxy/", 7);
    cut = cut ? memchr(cut + 7, '/', len - (size_t)(cut + 7 - at)) : NULL;
    if (cut) {
        p.request.target = cut;
        p.request.target_len = len - (size_t)(cut - at);
    }
    front_proxy(rq, &p);
}

static int make_api(struct bench *b, struct err *e)
{
    struct http_service svc = { .app = b,
                                .routes = routes,
                                .n_routes = 1,
                                .cors = true,
                                .max_connections = 8192,
                                .idle_timeout_s = 75 };

    b->api = http_server_new(b->loop, &svc, e);
    return b->api ? 0 : -1;
}

static int serve(struct bench *b, const char *mode, int fd, const char *to, struct err *e)
{
    static const struct front_ops ops = { .decide = decide, .internal = internal };
    struct front_options opt = { .peer_header = "Sandgate-Peer", .max_clients = 20000 };
    struct front *f;
    char ip[64] = { 0 };
    int64_t port;
    const char *colon;

    if (strcmp(mode, "proxy") != 0 && make_api(b, e) < 0)
        return -1;
    if (strcmp(mode, "api") == 0)
        return http_server_listen(b->api, fd, e);
    if (strcmp(mode, "proxy") == 0) {
        colon = to ? strrchr(to, ':') : NULL;
        if (!colon || (size_t)(colon - to) >= sizeof(ip))
            return err_set(e, ERRC_INVALID, "IP:PORT of the backend is missing");
        memcpy(ip, to, (size_t)(colon - to));
        if (num_parse_i64(colon + 1, 1, 65535, &port) < 0 ||
            front_addr_ip(&b->to, ip, (uint16_t)port) < 0)
            return err_set(e, ERRC_INVALID, "%s is not IP:PORT", to);
    }
    f = front_new(b->loop, &ops, b, &opt, e);
    return f ? front_listen(f, fd, NULL, e) : -1;
}

int main(int argc, char **argv)
{
    struct bench b = { 0 };
    struct err e = { 0 };
    uint16_t bound;
    int64_t port;
    int fd;

    if (argc < 3 || num_parse_i64(argv[2], 0, 65535, &port) < 0) {
        (void)fprintf(stderr, "usage: front_server proxy|api|front-api PORT [IP:PORT]\n");
        return 2;
    }
    b.loop = loop_new(&e);
    if (!b.loop || listen_tcp("127.0.0.1", (uint16_t)port, 1024, &fd, &bound, &e) < 0 ||
        serve(&b, argv[1], fd, argv[3], &e) < 0 || loop_run(b.loop, &e) < 0) {
        (void)fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    return 0;
}
