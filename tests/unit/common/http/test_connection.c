/* Connections: reuse, limits, drain, hand-over, listeners. */
#include "tests/unit/test.h"

#include "common/base/listen.h"
#include "common/base/loop.h"
#include "common/base/macros.h"
#include "common/http/http.h"
#include "tests/unit/common/support/http_env.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_CONNECTIONS = 8 };

static struct http_env env;

static struct {
    sem_t entered;
    sem_t open;
    atomic_int handled;
} at;

static int say_path(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    (void)app;
    atomic_fetch_add(&at.handled, 1);
    return http_resp_json(rs, 200, strdup(rq->params[0]), e);
}

static int gated(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    (void)app, (void)rq;
    sem_post(&at.entered);
    sem_wait(&at.open);
    return http_resp_json(rs, 200, strdup("{\"gated\":1}"), e);
}

static int send_file(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    (void)app;
    rs->file_fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    rs->file_off = 1;
    rs->file_len = 100000;
    rs->content_type = "application/octet-stream";
    return http_req_header(rq, "X-Fail") ? err_set(e, ERRC_RANGE, "no such range") : 0;
}

static int say_peer(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    char text[32];

    (void)app;
    (void)snprintf(text, sizeof(text), "%d", rq->peer->sa_family);
    return http_resp_json(rs, 200, strdup(text), e);
}

static const struct http_route routes[] = {
    { "GET", "/say/{x}", say_path, 0, 0, NULL },
    { "POST", "/say/{x}", say_path, 0, 100, NULL },
    { "GET", "/gated", gated, HTTP_BLOCKING, 0, NULL },
    { "GET", "/file", send_file, 0, 0, NULL },
    { "GET", "/slow-file", send_file, HTTP_BLOCKING, 0, NULL },
    { "GET", "/peer", say_peer, 0, 0, NULL },
};

static const struct http_service svc = {
    .routes = routes,
    .n_routes = ARRAY_LEN(routes),
    .max_connections = MAX_CONNECTIONS,
};

static int start(void **state)
{
    (void)state;
    sem_init(&at.entered, 0, 0);
    sem_init(&at.open, 0, 0);
    atomic_store(&at.handled, 0);
    http_env_start(&env, &svc, 2, 8);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    http_env_stop(&env);
    sem_destroy(&at.entered);
    sem_destroy(&at.open);
    return 0;
}

static void reply_is(struct client *c, const char *body)
{
    struct reply r;

    client_reply(c, false, &r);
    assert_int_equal(r.status, 200);
    assert_string_equal(r.body, body);
    reply_free(&r);
}

/* ---- reuse ---- */

static void connection_is_reused(void **state)
{
    struct client c;
    int i;

    (void)state;
    client_open(&c, &env);
    for (i = 0; i < 100; i++) {
        char first[32];
        char want[8];

        (void)snprintf(want, sizeof(want), "%d", i % 1000);
        (void)snprintf(first, sizeof(first), "GET /say/%s", want);
        client_request(&c, first, "", NULL);
        reply_is(&c, want);
    }
    client_close(&c);
}

static void pipelined_requests_are_answered_in_order(void **state)
{
    enum { MANY = 50 };
    struct client c;
    char want[8];
    int i;

    (void)state;
    client_open(&c, &env);
    for (i = 0; i < MANY; i++) {
        char text[128];

        (void)snprintf(text, sizeof(text), "%s /say/%d HTTP/1.1\r\nHost: t\r\nContent-Length: %s",
                       i % 2 ? "GET" : "POST", i, i % 2 ? "0\r\n\r\n" : "3\r\n\r\nabc");
        client_text(&c, text);
    }
    for (i = 0; i < MANY; i++) {
        (void)snprintf(want, sizeof(want), "%d", i % 1000);
        reply_is(&c, want);
    }
    client_close(&c);
}

/* A blocking handler in between must not let a later request overtake. */
static void pipelined_behind_a_blocking_one(void **state)
{
    struct client c;

    (void)state;
    client_open(&c, &env);
    client_text(&c,
                "GET /gated HTTP/1.1\r\nHost: t\r\n\r\nGET /say/next HTTP/1.1\r\nHost: t\r\n\r\n");
    http_env_wait(&at.entered);
    assert_int_equal(atomic_load(&at.handled), 0);
    sem_post(&at.open);
    reply_is(&c, "{\"gated\":1}");
    reply_is(&c, "next");
    client_close(&c);
}

static void close_is_honoured(void **state)
{
    struct client c;

    (void)state;
    client_open(&c, &env);
    client_request(&c, "GET /say/x", "Connection: close\r\n", NULL);
    reply_is(&c, "x");
    assert_true(client_at_end(&c));
    client_close(&c);
    client_open(&c, &env);
    client_text(&c, "GET /say/x HTTP/1.0\r\n\r\n");
    reply_is(&c, "x");
    assert_true(client_at_end(&c));
    client_close(&c);
}

/* A client that has nothing more to say still gets its answers. */
static void half_closed_client_is_answered(void **state)
{
    struct client c;
    int i;

    (void)state;
    for (i = 0; i < 5; i++) {
        client_open(&c, &env);
        client_request(&c, "GET /say/x", "", NULL);
        shutdown(c.fd, SHUT_WR);
        reply_is(&c, "x");
        assert_true(client_at_end(&c));
        client_close(&c);
    }
    client_open(&c, &env);
    client_request(&c, "GET /gated", "", NULL);
    http_env_wait(&at.entered);
    shutdown(c.fd, SHUT_WR);
    sem_post(&at.open);
    reply_is(&c, "{\"gated\":1}");
    assert_true(client_at_end(&c));
    client_close(&c);
}

/* Half a request and the end in one go: the place must be free at once, not after the idle timeout. */
static void leaving_with_the_last_bytes_is_noticed(void **state)
{
    struct reply r;
    int i;

    (void)state;
    for (i = 0; i < 3 * MAX_CONNECTIONS; i++) {
        struct client c;

        client_open(&c, &env);
        client_text(&c, i % 2 ? "GET /say/x HT"
                              : "POST /say/x HTTP/1.1\r\nHost: t\r\nContent-Length: 9\r\n\r\nabc");
        client_close(&c);
    }
    r.status = 0;
    TEST_UNTIL(r.status == 200, {
        http_once(&env, "GET /say/x", "", NULL, &r);
        free(r.head);
        free(r.body);
    });
}

/* ---- files ---- */

static void file_is_sent(void **state)
{
    static const char *const firsts[] = { "GET /file", "GET /slow-file" };
    char *want = malloc(100000);
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    struct client c;
    struct reply r;
    int i;

    (void)state;
    assert_non_null(want);
    assert_int_equal(pread(fd, want, 100000, 1), 100000);
    close(fd);
    client_open(&c, &env);
    for (i = 0; i < 6; i++) {
        client_request(&c, firsts[i % 2], "", NULL);
        client_reply(&c, false, &r);
        assert_int_equal(r.status, 200);
        assert_int_equal(r.body_len, 100000);
        assert_memory_equal(r.body, want, 100000);
        reply_free(&r);
    }
    client_close(&c);
    free(want);
}

static unsigned open_fds(void)
{
    unsigned n = 0;
    int fd;

    for (fd = 0; fd < 1024; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* A handler that opens a file and then fails sends its error and leaks nothing. */
static void failed_file_is_an_error(void **state)
{
    struct client c;
    struct reply r;
    unsigned before;
    int i;

    (void)state;
    client_open(&c, &env);
    client_request(&c, "GET /say/x", "", NULL);
    reply_is(&c, "x");
    before = open_fds();
    for (i = 0; i < 6; i++) {
        client_request(&c, i % 2 ? "GET /slow-file" : "GET /file", "X-Fail: 1\r\n", NULL);
        client_reply(&c, false, &r);
        assert_int_equal(r.status, 416);
        assert_contains(r.body, "no such range");
        reply_free(&r);
    }
    client_request(&c, "GET /say/x", "", NULL);
    reply_is(&c, "x");
    assert_int_equal(open_fds(), before);
    client_close(&c);
}

/* ---- limits ---- */

static void count_active(void *arg)
{
    *(unsigned *)arg = http_server_active(env.server);
}

/* All at once: the limit must hold before libmicrohttpd has looked at the first. */
static void too_many_connections_are_503(void **state)
{
    enum { MANY = 30 };
    struct client c[MANY];
    struct reply r;
    int served = 0;
    int refused = 0;
    int i;

    (void)state;
    for (i = 0; i < MANY; i++)
        client_open(&c[i], &env);
    for (i = 0; i < MANY; i++)
        client_request(&c[i], "GET /say/x", "", NULL);
    for (i = 0; i < MANY; i++) {
        client_reply(&c[i], false, &r);
        served += r.status == 200;
        refused += r.status == 503;
        if (r.status == 503) {
            assert_contains(r.body, "too many connections");
            assert_string_equal(reply_header(&r, "Retry-After"), "1");
            assert_true(client_at_end(&c[i]));
        }
        reply_free(&r);
    }
    assert_int_equal(served, MAX_CONNECTIONS);
    assert_int_equal(refused, MANY - MAX_CONNECTIONS);
    for (i = 0; i < MANY; i++)
        client_close(&c[i]);
    TEST_UNTIL(served > MAX_CONNECTIONS,
               { /* room again as soon as the server has seen them leave */
                 http_once(&env, "GET /say/x", "", NULL, &r);
                 served += r.status == 200;
                 reply_free(&r);
               });
}

static void at_the_limit_everyone_is_served(void **state)
{
    struct client c[MAX_CONNECTIONS];
    int round;
    int i;

    (void)state;
    for (i = 0; i < MAX_CONNECTIONS; i++)
        client_open(&c[i], &env);
    for (round = 0; round < 3; round++)
        for (i = 0; i < MAX_CONNECTIONS; i++) {
            client_request(&c[i], "GET /say/x", "", NULL);
            reply_is(&c[i], "x");
        }
    for (i = 0; i < MAX_CONNECTIONS; i++)
        client_close(&c[i]);
}

/* Out of descriptors the server serves on, and comes back to its listener. */
static void accept_survives_lack_of_descriptors(void **state)
{
    struct rlimit old;
    struct rlimit low;
    struct client c;
    struct client extra;
    int i;

    (void)state;
    client_open(&c, &env);
    client_request(&c, "GET /say/x", "", NULL);
    reply_is(&c, "x");
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    extra = (struct client){ .fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) };
    low = old;
    low.rlim_cur = (rlim_t)extra.fd + 1;
    close(extra.fd);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    client_open(&extra, &env); /* takes the last descriptor: none is left to accept it */
    for (i = 0; i < 20; i++) {
        client_request(&c, "GET /say/x", "", NULL); /* the other connection still works */
        reply_is(&c, "x");
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    client_request(&extra, "GET /say/late", "", NULL);
    reply_is(&extra, "late");
    client_close(&extra);
    client_close(&c);
}

/* ---- drain ---- */

static void do_drain(void *arg)
{
    (void)arg;
    http_server_drain(env.server);
}

static void drain_lets_running_requests_finish(void **state)
{
    struct client busy;
    struct client idle;
    struct client late;
    struct reply r;
    unsigned active = 0;

    (void)state;
    client_open(&busy, &env);
    client_request(&busy, "GET /gated", "", NULL);
    http_env_wait(&at.entered);
    client_open(&idle, &env);
    client_request(&idle, "GET /say/x", "", NULL);
    reply_is(&idle, "x");
    http_env_call(&env, do_drain, NULL);
    http_env_call(&env, count_active, &active);
    assert_int_equal(active, 1);
    late = (struct client){ .fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) };
    {
        struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(env.port) };

        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        assert_int_equal(connect(late.fd, (struct sockaddr *)&to, sizeof(to)), -1);
    }
    client_close(&late);
    sem_post(&at.open);
    client_reply(&busy, false, &r);
    assert_int_equal(r.status, 200);
    assert_string_equal(r.body, "{\"gated\":1}");
    assert_string_equal(reply_header(&r, "Connection"), "close");
    reply_free(&r);
    assert_true(client_at_end(&busy));
    client_request(&idle, "GET /say/y", "", NULL);
    reply_is(&idle, "y");
    assert_true(client_at_end(&idle));
    TEST_UNTIL(active == 0, http_env_call(&env, count_active, &active));
    client_close(&busy);
    client_close(&idle);
}

/* ---- hand-over ---- */

struct adopted {
    int fd;
    int rc;
};

static void do_adopt(void *arg)
{
    static const struct sockaddr peer = { .sa_family = AF_UNIX };
    struct adopted *a = arg;

    a->rc = http_server_adopt(env.server, a->fd, &peer, sizeof(peer), NULL);
}

static void socket_pair_is_a_connection(void **state)
{
    struct client c = { 0 };
    struct adopted a;
    int sv[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
    assert_int_equal(fcntl(sv[0], F_SETFL, O_NONBLOCK), 0);
    a.fd = sv[0];
    http_env_call(&env, do_adopt, &a);
    assert_int_equal(a.rc, 0);
    c.fd = sv[1];
    client_request(&c, "GET /say/pair", "", NULL);
    reply_is(&c, "pair");
    client_request(&c, "GET /peer", "", NULL);
    client_wait(&c, 1);
    client_close(&c);
}

static void listeners(void **state)
{
    static const char *const hosts[] = { "127.0.0.1", "0.0.0.0", "::", "::1" };
    static const char *const bad[] = { "",      "localhost", "127.0.0.256",
                                       "1.2.3", "::g",       "127.0.0.1:80" };
    struct err e = { 0 };
    uint16_t port = 0;
    uint16_t same = 0;
    int fd = -1;
    int second = -1;
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(hosts); i++) {
        if (listen_tcp(hosts[i], 0, 16, &fd, &port, &e) < 0) {
            if (strchr(hosts[i], ':')) /* a machine without IPv6 */
                continue;
            fail_msg("%s: %s", hosts[i], e.msg);
        }
        assert_true(port != 0);
        assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
        assert_int_equal(fcntl(fd, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
        assert_int_equal(listen_tcp(hosts[i], port, 16, &second, &same, &e), -1);
        assert_contains(e.msg, "in use");
        close(fd);
    }
    for (i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(listen_tcp(bad[i], 0, 16, &second, &same, &e), -1);
        assert_contains(e.msg, "not an IPv4 or IPv6 address");
    }
    assert_int_equal(second, -1);
}

static void server_without_connections_ends(void **state)
{
    struct err e = { 0 };
    struct loop *l = loop_new(&e);
    struct http_server *s = http_server_new(l, &svc, &e);

    (void)state;
    assert_non_null(s);
    http_server_drain(s);
    http_server_drain(s);
    http_server_free(s);
    http_server_free(NULL);
    loop_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(connection_is_reused, start, stop),
        cmocka_unit_test_setup_teardown(pipelined_requests_are_answered_in_order, start, stop),
        cmocka_unit_test_setup_teardown(pipelined_behind_a_blocking_one, start, stop),
        cmocka_unit_test_setup_teardown(close_is_honoured, start, stop),
        cmocka_unit_test_setup_teardown(half_closed_client_is_answered, start, stop),
        cmocka_unit_test_setup_teardown(leaving_with_the_last_bytes_is_noticed, start, stop),
        cmocka_unit_test_setup_teardown(file_is_sent, start, stop),
        cmocka_unit_test_setup_teardown(failed_file_is_an_error, start, stop),
        cmocka_unit_test_setup_teardown(too_many_connections_are_503, start, stop),
        cmocka_unit_test_setup_teardown(at_the_limit_everyone_is_served, start, stop),
        cmocka_unit_test_setup_teardown(accept_survives_lack_of_descriptors, start, stop),
        cmocka_unit_test_setup_teardown(drain_lets_running_requests_finish, start, stop),
        cmocka_unit_test_setup_teardown(socket_pair_is_a_connection, start, stop),
        cmocka_unit_test(listeners),
        cmocka_unit_test(server_without_connections_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
