/* The front with the real HTTP layer as its internal backend, over socket pairs in one loop. */
#include "tests/unit/test.h"

#include "common/base/err.h"
#include "common/base/loop.h"
#include "common/base/macros.h"
#include "common/front/front.h"
#include "common/http/http.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BIG = 2 << 20 };

struct env {
    struct loop *loop;
    struct http_server *api;
    struct front *front;
    struct http_stream *stream;
    unsigned adopted;
    unsigned closed;
    size_t taken;
};

/* ---- the API ---- */

static int health(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    const char *peer = http_req_header(rq, "Peer");

    (void)app;
    assert_string_equal(peer, "10.0.0.9");
    return http_resp_json(rs, 200, strdup("{}"), e);
}

static int echo_len(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    ((struct env *)app)->taken = rq->body_len;
    return http_resp_json(rs, 200, strdup("{}"), e);
}

static int big(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    (void)app, (void)rq;
    rs->body = malloc(BIG);
    if (!rs->body)
        return err_nomem(e);
    memset(rs->body, 'b', BIG);
    rs->body_len = BIG;
    return 0;
}

static void on_close(void *owner)
{
    ((struct env *)owner)->closed++;
}

static int stream(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    static const struct http_stream_ops ops = { .on_close = on_close };
    struct env *env = app;

    (void)rq;
    env->stream = http_stream_new(env->api, 1 << 16, &ops, env);
    rs->stream = env->stream;
    return env->stream ? 0 : err_nomem(e);
}

static const struct http_route routes[] = {
    { "GET", "/health", health, HTTP_OPEN, 0, NULL },
    { "POST", "/echo", echo_len, HTTP_OPEN, BIG, NULL },
    { "GET", "/big", big, HTTP_OPEN, 0, NULL },
    { "GET", "/stream", stream, HTTP_OPEN, 0, NULL },
};

/* ---- the front ---- */

static void decide(void *owner, struct front_req *rq)
{
    (void)owner;
    front_internal(rq, NULL);
}

static int internal(void *owner, struct err *e)
{
    struct env *env = owner;
    struct sockaddr none = { .sa_family = AF_UNIX };
    int fds[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0)
        return err_sys(e, errno, "socketpair");
    env->adopted++;
    if (http_server_adopt(env->api, fds[1], &none, sizeof(none), e) < 0) {
        (void)close(fds[0]);
        return -1;
    }
    return fds[0];
}

static int set_up(void **state)
{
    static const struct front_ops ops = { .decide = decide, .internal = internal };
    static const struct front_options opt = { .peer_header = "Peer" };
    static struct env env;
    struct http_service svc = {
        .app = &env, .routes = routes, .n_routes = ARRAY_LEN(routes), .max_connections = 100
    };
    struct err e = { 0 };

    env = (struct env){ 0 };
    env.loop = loop_new(&e);
    assert_non_null(env.loop);
    env.api = http_server_new(env.loop, &svc, &e);
    assert_non_null(env.api);
    env.front = front_new(env.loop, &ops, &env, &opt, &e);
    assert_non_null(env.front);
    *state = &env;
    return 0;
}

static int tear_down(void **state)
{
    struct env *env = *state;

    front_free(env->front);
    if (env->stream)
        http_stream_release(env->stream);
    http_server_free(env->api);
    loop_free(env->loop);
    return 0;
}

static int connect_client(struct env *env)
{
    struct sockaddr_in peer = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(0x0a000009) };
    struct err e = { 0 };
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    assert_int_equal(
        front_adopt(env->front, fds[1], (struct sockaddr *)&peer, sizeof(peer), NULL, &e), 0);
    return fds[0];
}

static void step(struct env *env)
{
    struct err e = { 0 };

    assert_int_equal(loop_step(env->loop, 10, &e), 0);
}

/* Reads until the text holds part; returns it. */
static const char *until(struct env *env, int fd, const char *part)
{
    static char got[4096];
    size_t have = 0;
    ssize_t n = 0;

    for (got[0] = '\0'; !strstr(got, part); got[have] = '\0') {
        TEST_UNTIL((n = recv(fd, got + have, sizeof(got) - 1 - have, MSG_DONTWAIT)) >= 0,
                   step(env));
        assert_true(n > 0);
        have += (size_t)n;
    }
    return got;
}

static void say(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

/* ---- tests ---- */

static void one_connection_serves_many_clients(void **state)
{
    struct env *env = *state;
    int c[3];
    int i;

    for (i = 0; i < 3; i++)
        c[i] = connect_client(env);
    for (i = 0; i < 9; i++) {
        say(c[i % 3], "GET /health HTTP/1.1\r\nHost: h\r\nPeer: 6.6.6.6\r\n\r\n");
        assert_contains(until(env, c[i % 3], "{}"), "HTTP/1.1 200 OK\r\n");
    }
    assert_int_equal(env->adopted, 1);
    say(c[0], "GET /none HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_contains(until(env, c[0], "}"), "HTTP/1.1 404 ");
    for (i = 0; i < 3; i++)
        (void)close(c[i]);
}

static void bodies_are_taken(void **state)
{
    struct env *env = *state;
    char *body = calloc(1, BIG);
    int c = connect_client(env);
    size_t sent = 0;
    ssize_t n;

    assert_non_null(body);
    say(c, "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 2097152\r\n\r\n");
    while (sent < BIG) {
        n = send(c, body + sent, BIG - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        sent += n > 0 ? (size_t)n : 0;
        step(env);
    }
    assert_contains(until(env, c, "{}"), "HTTP/1.1 200 ");
    assert_int_equal(env->taken, BIG);
    say(c, "POST /echo HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    (void)until(env, c, "HTTP/1.1 100 Continue\r\n\r\n");
    say(c, "ab");
    assert_contains(until(env, c, "{}"), "HTTP/1.1 200 ");
    assert_int_equal(env->taken, 2);
    free(body);
    (void)close(c);
}

static void large_answers_arrive_whole(void **state)
{
    static char block[1 << 16];
    struct env *env = *state;
    int c = connect_client(env);
    size_t sum = 0;
    ssize_t n = 0;

    say(c, "GET /big HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    for (;;) {
        TEST_UNTIL((n = recv(c, block, sizeof(block), MSG_DONTWAIT)) >= 0, step(env));
        if (n == 0)
            break;
        sum += (size_t)n;
    }
    assert_true(sum > BIG && sum < BIG + 1024);
    (void)close(c);
}

static void streams_flow_and_end_with_their_client(void **state)
{
    struct env *env = *state;
    int c = connect_client(env);

    say(c, "GET /stream HTTP/1.1\r\nHost: h\r\n\r\n");
    TEST_UNTIL(env->stream, step(env));
    assert_int_equal(http_stream_write(env->stream, "data: 1\n\n", 9), 0);
    assert_contains(until(env, c, "data: 1\n\n"), "Transfer-Encoding: chunked");
    assert_int_equal(http_stream_write(env->stream, "data: 2\n\n", 9), 0);
    (void)until(env, c, "data: 2\n\n");
    (void)close(c);
    TEST_UNTIL(env->closed == 1, step(env));
    TEST_UNTIL(front_stats(env->front)->backends == 0, step(env));
}

#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        T(one_connection_serves_many_clients),
        T(bodies_are_taken),
        T(large_answers_arrive_whole),
        T(streams_flow_and_end_with_their_client),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
