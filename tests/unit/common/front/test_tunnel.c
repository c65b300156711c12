/* After a 101: a raw tunnel, in which frames, fragments and closes pass because nothing looks at them. */
#include "tests/unit/common/support/front_env.h"
#include "tests/unit/test.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int set_up(void **state)
{
    struct fe *fe = fe_new(NULL);

    fe->proxy.request.upgrade = true;
    *state = fe;
    return 0;
}

static int tear_down(void **state)
{
    fe_free(*state);
    return 0;
}

#define ASK                                                                                        \
    "GET /p HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"                  \
    "Sec-WebSocket-Protocol: a, b\r\n\r\n"
#define SWITCH                                                                                     \
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nSec-WebSocket-Protocol: b\r\n"
#define ANSWER SWITCH "Connection: upgrade\r\n\r\n"
#define SEEN SWITCH "Connection: Upgrade\r\n\r\n"

static int open_tunnel(struct fe *fe, int *b)
{
    int c = fe_connect(fe);

    fe_send(fe, c, ASK);
    *b = fe_accept(fe);
    fe_expect(fe, *b,
              "GET /p HTTP/1.1\r\nHost: h\r\nSec-WebSocket-Protocol: a, b\r\nUpgrade: websocket\r\n"
              "Connection: Upgrade\r\nX-Forwarded-For: 127.0.0.1\r\n\r\n");
    fe_send(fe, *b, ANSWER);
    fe_expect(fe, c, SEEN);
    assert_int_equal(front_stats(fe->front)->tunnels, 1);
    return c;
}

static void bytes_pass_both_ways(void **state)
{
    static const char ping[] = "\x89\x80\x01\x02\x03\x04";
    static const char odd[] = "GET / HTTP/1.1\nHost\r\n\r\n0\r\n\r\n";
    struct fe *fe = *state;
    int b;
    int c = open_tunnel(fe, &b);

    fe_send(fe, c, ping);
    fe_expect(fe, b, ping);
    fe_send(fe, b, odd);
    fe_expect(fe, c, odd);
    fe_send(fe, c, odd);
    fe_expect(fe, b, odd);
    fe_advance(fe, 24 * 3600 * 1000);
    assert_true(fe_quiet(fe, c) && fe_quiet(fe, b));
    fe_send(fe, b, ping);
    fe_expect(fe, c, ping);
    fe_close(c);
    assert_true(fe_end(fe, b));
    fe_close(b);
    TEST_UNTIL(fe_sockets(fe) == 0, fe_step(fe));
    assert_int_equal(fe->last.status, 101);
    assert_true(fe->last.request_bytes > 6);
}

static void what_comes_with_the_handshake_is_not_lost(void **state)
{
    struct fe *fe = *state;
    int c = fe_connect(fe);
    int b;

    fe_send(fe, c, ASK "early");
    b = fe_accept(fe);
    (void)fe_until(fe, b, "\r\n\r\n");
    fe_send(fe, c, " bird");
    assert_true(fe_quiet(fe, b));
    fe_send(fe, b, ANSWER "hello");
    fe_expect(fe, c, SEEN "hello");
    fe_expect(fe, b, "early bird");
    fe_close(b);
    assert_true(fe_end(fe, c));
    fe_close(c);
}

static void half_closed_sides_go_on(void **state)
{
    struct fe *fe = *state;
    int b;
    int c = open_tunnel(fe, &b);

    fe_send(fe, c, "last");
    assert_int_equal(shutdown(c, SHUT_WR), 0);
    fe_expect(fe, b, "last");
    assert_true(fe_end(fe, b));
    fe_send(fe, b, "answer");
    fe_expect(fe, c, "answer");
    fe_advance(fe, 59000);
    fe_send(fe, b, "more");
    fe_expect(fe, c, "more");
    fe_close(b);
    assert_true(fe_end(fe, c));
    assert_true(fe->last.complete);
    fe_close(c);
    TEST_UNTIL(fe_sockets(fe) == 0, fe_step(fe));
}

static void a_half_closed_tunnel_ends_some_time(void **state)
{
    struct fe *fe = *state;
    int b;
    int c = open_tunnel(fe, &b);

    assert_int_equal(shutdown(b, SHUT_WR), 0);
    assert_true(fe_end(fe, c));
    fe_advance(fe, 59999);
    fe_send(fe, c, "x");
    fe_expect(fe, b, "x");
    fe_advance(fe, 59999);
    assert_int_equal(fe_sockets(fe), 2);
    fe_advance(fe, 1);
    assert_int_equal(fe_sockets(fe), 0);
    fe_close(b);
    fe_close(c);
}

static void resets_pass(void **state)
{
    struct fe *fe = *state;
    int b;
    int c = open_tunnel(fe, &b);

    fe_reset(c);
    (void)fe_end(fe, b);
    TEST_UNTIL(fe_sockets(fe) == 0, fe_step(fe));
    fe_close(b);
    c = open_tunnel(fe, &b);
    fe_reset(b);
    (void)fe_end(fe, c);
    TEST_UNTIL(fe_sockets(fe) == 0, fe_step(fe));
    fe_close(c);
}

static void a_refused_upgrade_is_an_ordinary_response(void **state)
{
    struct fe *fe = *state;
    int c = fe_connect(fe);
    int b;

    fe_send(fe, c, ASK);
    b = fe_accept(fe);
    (void)fe_until(fe, b, "\r\n\r\n");
    fe_send(fe, b, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
    fe_expect(fe, c, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
    fe->proxy.request.upgrade = false;
    fe_send(fe, c, ASK);
    fe_expect(fe, b,
              "GET /p HTTP/1.1\r\nHost: h\r\nSec-WebSocket-Protocol: a, b\r\n"
              "X-Forwarded-For: 127.0.0.1\r\n\r\n");
    fe_send(fe, b, ANSWER); /* unasked */
    assert_contains(fe_until(fe, c, "}"), "BACKEND_RESPONSE_FAILED");
    fe_close(b);
    fe_close(c);
}

static void a_slow_side_stops_the_other(void **state)
{
    static char block[1 << 16];
    struct fe *fe = *state;
    size_t sent = 0;
    size_t got = 0;
    ssize_t n;
    int i;
    int b;
    int c;

    fe->socket_buffer = 16384;
    c = open_tunnel(fe, &b);
    for (i = 0; i < 2000; i++) {
        n = send(b, block, sizeof(block), MSG_DONTWAIT | MSG_NOSIGNAL);
        sent += n > 0 ? (size_t)n : 0;
        fe_settle(fe);
    }
    assert_true(sent > 0 && sent < 64U << 20);
    fe_close(b); /* its end waits behind what is under way */
    while ((n = recv(c, block, sizeof(block), MSG_DONTWAIT)) != 0) {
        got += n > 0 ? (size_t)n : 0;
        fe_settle(fe);
    }
    assert_int_equal(got, sent);
    fe_close(c);
}

#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        T(bytes_pass_both_ways),
        T(what_comes_with_the_handshake_is_not_lost),
        T(half_closed_sides_go_on),
        T(a_half_closed_tunnel_ends_some_time),
        T(resets_pass),
        T(a_refused_upgrade_is_an_ordinary_response),
        T(a_slow_side_stops_the_other),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
