/* Fidelity: what goes through the front comes out as it went in. */
#include "tests/unit/common/support/front_env.h"
#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int set_up(void **state)
{
    *state = fe_new(NULL);
    return 0;
}

static int tear_down(void **state)
{
    fe_free(*state);
    return 0;
}

#define GET_P "GET /p HTTP/1.1\r\nHost: h\r\n\r\n"
#define SEEN_P "GET /p HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 127.0.0.1\r\n\r\n"
#define OK_0 "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

static void keeps_connections_on_both_sides(void **state)
{
    struct fe *fe = *state;
    int c = fe_connect(fe);
    int b = -1;
    int i;

    for (i = 0; i < 3; i++) {
        fe_send(fe, c, GET_P);
        if (b < 0)
            b = fe_accept(fe);
        fe_expect(fe, b, SEEN_P);
        fe_send(fe, b, "HTTP/1.1 200 OK\r\nX-A: b\r\nContent-Length: 2\r\n\r\nhi");
        fe_expect(fe, c, "HTTP/1.1 200 OK\r\nX-A: b\r\nContent-Length: 2\r\n\r\nhi");
    }
    assert_true(fe_none_waiting(fe));
    assert_int_equal(fe->done, 3);
    assert_true(fe->last.complete && fe->last.status == 200 && fe->last.response_bytes == 2);
    assert_true(front_stats(fe->front)->response_bytes >= 2);
    assert_int_equal(front_stats(fe->front)->connects, 1);
    fe_close(c);
    fe_close(b);
}

static void edits_request_and_response(void **state)
{
    static const char *const drop[] = { "cookie", NULL };
    static const char *const drop_back[] = { "server", NULL };
    static const struct rules_field add[] = { { "X-Token", "t" } };
    static const struct rules_field add_back[] = { { "X-Request-ID", "r" } };
    struct fe *fe = *state;
    int c = fe_connect(fe);
    int b;

    fe->proxy.request = (struct rules_request){ .target = "/x%2Fy?z",
                                                .target_len = 8,
                                                .host = "in",
                                                .edit = { drop, add, 1 },
                                                .forwarded_for = "9.9.9.9",
                                                .forwarded_proto = "https" };
    fe->proxy.response = (struct rules_edit){ drop_back, add_back, 1 };
    fe->proxy.location_prefix = "/pre";
    fe_send(fe, c, "GET /p HTTP/1.1\r\nHost: h\r\nCookie: c\r\npeer: 1\r\nZ: 1\r\n\r\n");
    b = fe_accept(fe);
    fe_expect(fe, b,
              "GET /x%2Fy?z HTTP/1.1\r\nHost: in\r\nZ: 1\r\nX-Forwarded-For: 9.9.9.9\r\n"
              "X-Forwarded-Proto: https\r\nX-Forwarded-Host: h\r\nX-Token: t\r\n\r\n");
    fe_send(fe, b,
            "HTTP/1.1 302 Found\r\nServer: s\r\nLocation: /l\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n"
            "Content-Length: 0\r\n\r\n");
    fe_expect(fe, c,
              "HTTP/1.1 302 Found\r\nLocation: /pre/l\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n"
              "Content-Length: 0\r\nX-Request-ID: r\r\n\r\n");
    fe_close(c);
    fe_close(b);
}

static void relays_chunks_and_trailers_byte_for_byte(void **state)
{
    static const char body[] =
        "00a;x=\"y\"\r\n0123456789\r\n1\r\n\n\r\n0\r\nX-T: 1\r\nX-U:\r\n\r\n";
    struct fe *fe = *state;
    int c = fe_connect(fe);
    int b;
    const char *at;

    fe_send(fe, c,
            "POST /p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n");
    b = fe_accept(fe);
    fe_expect(fe, b,
              "POST /p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n"
              "X-Forwarded-For: 127.0.0.1\r\n\r\n");
    for (at = body; *at; at++) { /* each byte at once, in both directions */
        fe_send_bytes(fe, c, at, 1);
        fe_expect(fe, b, (char[]){ *at, '\0' });
    }
    fe_send(fe, b, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    fe_expect(fe, c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (at = body; *at; at++) {
        fe_send_bytes(fe, b, at, 1);
        fe_expect(fe, c, (char[]){ *at, '\0' });
    }
    fe_send(fe, c, GET_P);
    fe_expect(fe, b, SEEN_P); /* both connections go on */
    fe_close(c);
    fe_close(b);
}

static void relays_interim_responses(void **state)
{
    struct fe *fe = *state;
    int c = fe_connect(fe);
    int b;

    fe_send(fe, c,
            "POST /p HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    b = fe_accept(fe);
    (void)fe_until(fe, b, "\r\n\r\n");
    fe_send(fe, b, "HTTP/1.1 100 Continue\r\n\r\n");
    fe_expect(fe, c, "HTTP/1.1 100 Continue\r\n\r\n");
    fe_send(fe, c, "ab");
    fe_expect(fe, b, "ab");
    fe_send(fe, b,
            "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102 P\r\n\r\nHTTP/1.1 2");
    fe_expect(fe, c, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102 P\r\n\r\n");
    fe_send(fe, b, "00 OK\r\nContent-Length: 0\r\n\r\n");
    fe_expect(fe, c, OK_0);
    fe_close(c);
    fe_close(b);
}

/* The body was announced and never asked for: nobody knows whether it comes. */
static void a_refused_expectation_ends_the_connection(void **state)
{
    struct fe *fe = *state;
    int c = fe_connect(fe);
    int b;

    fe_send(fe, c,
            "POST /p HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    b = fe_accept(fe);
    (void)fe_until(fe, b, "\r\n\r\n");
    fe_send(fe, b, "HTTP/1.1 403 No\r\nContent-Length: 1\r\n\r\nn");
    fe_expect(fe, c, "HTTP/1.1 403 No\r\nContent-Length: 1\r\nConnection: close\r\n\r\nn");
    assert_true(fe_end(fe, c) && fe_end(fe, b));
    fe_close(c);
    fe_close(b);
}

static void responses_without_a_body(void **state)
{
    struct fe *fe = *state;
    int c = fe_connect(fe);
    int b;

    fe_send(fe, c, "HEAD /p HTTP/1.1\r\nHost: h\r\n\r\n");
    b = fe_accept(fe);
    (void)fe_until(fe, b, "\r\n\r\n");
    fe_send(fe, b, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n");
    fe_expect(fe, c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n");
    fe_send(fe, c, GET_P);
    fe_expect(fe, b, SEEN_P);
    fe_send(fe, b, "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\nX: y\r\n\r\n");
    fe_expect(fe, c, "HTTP/1.1 204 No Content\r\nX: y\r\n\r\n");
    fe_send(fe, c, GET_P);
    fe_expect(fe, b, SEEN_P);
    fe_send(fe, b, "HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n");
    fe_expect(fe, c, "HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n");
    fe_send(fe, c, GET_P);
    fe_expect(fe, b, SEEN_P);
    fe_close(c);
    fe_close(b);
}

static void a_body_that_ends_with_its_connection(void **state)
{
    struct fe *fe = *state;
    int c = fe_connect(fe);
    int b;

    fe_send(fe, c, GET_P);
    b = fe_accept(fe);
    fe_expect(fe, b, SEEN_P);
    fe_send(fe, b, "HTTP/1.0 200 OK\r\n\r\nfirst");
    fe_expect(fe, c, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nfirst");
    fe_send(fe, b, " second");
    fe_expect(fe, c, " second");
    fe_close(b);
    assert_true(fe_end(fe, c));
    fe_settle(fe);
    assert_int_equal(fe_sockets(fe), 0);
    assert_true(fe->last.complete);
    fe_close(c);
}

static void http_1_0_clients(void **state)
{
    struct fe *fe = *state;
    int c = fe_connect(fe);
    int b;

    fe_send(fe, c, "GET /p HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    b = fe_accept(fe);
    fe_expect(fe, b, "GET /p HTTP/1.0\r\nX-Forwarded-For: 127.0.0.1\r\n\r\n");
    fe_send(fe, b, "HTTP/1.1 103 E\r\n\r\n" OK_0);
    fe_expect(fe, c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n");
    fe_send(fe, c, "GET /p HTTP/1.0\r\n\r\n");
    (void)fe_until(fe, b, "\r\n\r\n");
    fe_send(fe, b, OK_0);
    fe_expect(fe, c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    assert_true(fe_end(fe, c));
    fe_close(c);
    c = fe_connect(fe);
    fe_send(fe, c, "GET /p HTTP/1.0\r\n\r\n");
    (void)fe_until(fe, b, "\r\n\r\n");
    fe_send(fe, b, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    assert_contains(fe_until(fe, c, "\r\n\r\n"), "HTTP/1.1 502 ");
    fe_close(c);
    fe_close(b);
}

static void pipelined_requests_one_at_a_time(void **state)
{
    struct fe *fe = *state;
    int c = fe_connect(fe);
    int b;

    fe_send(fe, c,
            "POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc" GET_P
            "GET /no HTTP/1.1\r\nHost: h\r\n\r\n" GET_P);
    b = fe_accept(fe);
    fe_expect(
        fe, b,
        "POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nX-Forwarded-For: 127.0.0.1\r\n\r\nabc");
    assert_true(fe_quiet(fe, b));
    fe_send(fe, b, OK_0);
    fe_expect(fe, c, OK_0);
    fe_expect(fe, b, SEEN_P);
    fe_send(fe, c, GET_P); /* comes while it is busy */
    assert_true(fe_quiet(fe, b));
    fe_send(fe, b, OK_0);
    fe_expect(fe, c, OK_0);
    assert_contains(fe_until(fe, c, "}"), "HTTP/1.1 404 ");
    fe_expect(fe, b, SEEN_P);
    fe_send(fe, b, OK_0);
    fe_expect(fe, b, SEEN_P);
    fe_send(fe, b, OK_0);
    fe_expect(fe, c, OK_0 OK_0);
    assert_int_equal(fe->done, 5);
    fe_close(c);
    fe_close(b);
}

static void mixes_proxy_internal_and_answers(void **state)
{
    struct fe *fe = *state;
    int c = fe_connect(fe);
    const char *said;
    int b;

    fe_send(fe, c,
            "GET /internal?a HTTP/1.1\r\nHost: h\r\nPeer: 6.6.6.6\r\nX-Forwarded-For: f\r\n\r\n");
    TEST_UNTIL(fe->n_inner == 1, fe_step(fe));
    fe_expect(
        fe, fe->inner[0],
        "GET /internal?a HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: f\r\nPeer: 127.0.0.1\r\n\r\n");
    fe_send(fe, fe->inner[0], "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\ni");
    fe_expect(fe, c, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nX-Id: 7\r\n\r\ni");
    fe_send(fe, c, GET_P);
    b = fe_accept(fe);
    fe_expect(fe, b, SEEN_P);
    fe_send(fe, b, OK_0);
    fe_expect(fe, c, OK_0);
    fe_send(fe, c, "POST /no HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\na");
    said = fe_until(fe, c, "\"}");
    assert_int_equal(strncmp(said, "HTTP/1.1 404 Not Found\r\nDate: ", 30), 0);
    assert_contains(said, " GMT\r\nContent-Type: application/json\r\nContent-Length: 33\r\n\r\n"
                          "{\"code\":\"NO\",\"message\":\"a \\\"b\\\"\"}");
    fe_send(fe, c, "bcPOST /internal HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx");
    fe_expect(
        fe, fe->inner[0],
        "POST /internal HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nPeer: 127.0.0.1\r\n\r\nx");
    fe_send(fe, fe->inner[0], OK_0);
    assert_contains(fe_until(fe, c, "\r\n\r\n"), "X-Id: 7");
    assert_int_equal(fe->n_inner, 1);
    fe_close(c);
    fe_close(b);
}

/* The response goes out while the request still comes, and ends before it. */
static void full_duplex(void **state)
{
    struct fe *fe = *state;
    int c = fe_connect(fe);
    int b;

    fe_send(fe, c, "POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n01");
    b = fe_accept(fe);
    assert_contains(fe_until(fe, b, "01"), "Content-Length: 10");
    fe_send(fe, b, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab");
    fe_expect(fe, c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab");
    fe_send(fe, c, "23");
    fe_expect(fe, b, "23");
    fe_send(fe, b, "cd");
    fe_expect(fe, c, "cd");
    assert_true(fe_end(fe, c)); /* nobody takes the rest */
    assert_true(fe_end(fe, b));
    fe_send(fe, c, "45"); /* is read, so that no reset takes the answer away */
    fe_close(c);
    TEST_UNTIL(fe_sockets(fe) == 0, fe_step(fe));
    fe_close(b);
}

/* It refuses the body and closes: what it said still arrives. */
static void an_early_refusal_is_delivered(void **state)
{
    static const char refusal[] =
        "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\n";
    struct fe *fe = *state;
    char *big = calloc(1, 1 << 20);
    int c = fe_connect(fe);
    int b;
    int i;

    assert_non_null(big);
    fe_send(fe, c, "POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 100000000\r\n\r\n");
    b = fe_accept(fe);
    (void)fe_until(fe, b, "\r\n\r\n");
    fe_send(fe, b, refusal);
    fe_send(fe, b, "no");
    fe_close(b);
    for (i = 0; i < 8; i++)
        (void)send(c, big, 1 << 18, MSG_DONTWAIT | MSG_NOSIGNAL), fe_settle(fe);
    fe_expect(fe, c, "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno");
    fe_close(c);
    TEST_UNTIL(fe_sockets(fe) == 0, fe_step(fe));
    free(big);
}

static size_t read_some(int fd, char *to, size_t len)
{
    ssize_t n = recv(fd, to, len, MSG_DONTWAIT);

    return n > 0 ? (size_t)n : 0;
}

static void large_bodies_both_ways(void **state)
{
    enum { LEN = 3 << 20 };
    static char echo[1 << 16];
    struct fe *fe = *state;
    char *sent = malloc(LEN);
    char *got = malloc(LEN);
    int c = fe_connect(fe);
    size_t in = 0;
    size_t out = 0;
    size_t at;
    ssize_t n;
    int b;

    assert_true(sent && got);
    for (in = 0; in < LEN; in++)
        sent[in] = (char)(in * 31 >> 3);
    fe_send(fe, c, "PUT /p HTTP/1.1\r\nHost: h\r\nContent-Length: 3145728\r\n\r\n");
    b = fe_accept(fe);
    (void)fe_until(fe, b, "\r\n\r\n");
    fe_send(fe, b, "HTTP/1.1 200 OK\r\nContent-Length: 3145728\r\n\r\n");
    (void)fe_until(fe, c, "\r\n\r\n");
    for (in = 0, out = 0; in < LEN;) { /* the backend echoes what it gets */
        n = send(c, sent + out, LEN - out, MSG_DONTWAIT | MSG_NOSIGNAL);
        out += n > 0 ? (size_t)n : 0;
        fe_settle(fe);
        n = recv(b, echo, sizeof(echo), MSG_DONTWAIT);
        for (at = 0; n > 0 && at < (size_t)n;) { /* reads on while it cannot write */
            ssize_t m = send(b, echo + at, (size_t)n - at, MSG_DONTWAIT | MSG_NOSIGNAL);

            at += m > 0 ? (size_t)m : 0;
            fe_settle(fe);
            in += read_some(c, got + in, LEN - in);
        }
        in += read_some(c, got + in, LEN - in);
    }
    assert_memory_equal(sent, got, LEN);
    fe_settle(fe);
    assert_true(fe->last.complete && fe->last.request_bytes == LEN);
    assert_int_equal(front_stats(fe->front)->request_bytes, LEN);
    free(sent);
    free(got);
    fe_close(c);
    fe_close(b);
}

static void heads_in_pieces(void **state)
{
    struct fe *fe = *state;
    int c = fe_connect(fe);
    const char *at;
    int b;

    for (at = GET_P; *at; at++) {
        fe_send_bytes(fe, c, at, 1);
        fe_settle(fe);
    }
    b = fe_accept(fe);
    fe_expect(fe, b, SEEN_P);
    for (at = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"; *at; at++) {
        fe_send_bytes(fe, b, at, 1);
        fe_settle(fe);
    }
    fe_expect(fe, c, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx");
    fe_close(c);
    fe_close(b);
}

static void unix_and_ipv6_backends(void **state)
{
    struct fe *fe = *state;
    struct front_addr a;
    struct sockaddr_un un = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int c = fe_connect(fe);
    char dir[] = "/tmp/front-test-XXXXXX";
    int b = -1;

    assert_non_null(mkdtemp(dir));
    (void)snprintf(un.sun_path, sizeof(un.sun_path), "%s/s", dir);
    assert_int_equal(bind(fd, (struct sockaddr *)&un, sizeof(un)), 0);
    assert_int_equal(listen(fd, 4), 0);
    assert_int_equal(front_addr_unix(&a, un.sun_path), 0);
    fe->proxy.to = &a;
    fe_send(fe, c, GET_P);
    fe_settle(fe);
    b = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
    fe_expect(fe, b, SEEN_P);
    fe_send(fe, b, OK_0);
    fe_expect(fe, c, OK_0);
    fe_close(b);
    (void)unlink(un.sun_path);
    (void)rmdir(dir);
    fe_close(fd);
    fe_settle(fe);
    fe_send(fe, c, GET_P); /* gone: an error, and the client's connection goes on */
    assert_contains(fe_until(fe, c, "}"), "BACKEND_CONNECTION_FAILED");
    assert_int_equal(front_addr_ip(&a, "::1", fe->backend_port), 0);
    fe_send(fe, c, GET_P);
    assert_contains(fe_until(fe, c, "}"), "502 Bad Gateway");
    assert_int_equal(front_addr_ip(&a, "localhost", 1), -1);
    fe_close(c);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(keeps_connections_on_both_sides, set_up, tear_down),
        cmocka_unit_test_setup_teardown(edits_request_and_response, set_up, tear_down),
        cmocka_unit_test_setup_teardown(relays_chunks_and_trailers_byte_for_byte, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(relays_interim_responses, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_refused_expectation_ends_the_connection, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(responses_without_a_body, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_body_that_ends_with_its_connection, set_up, tear_down),
        cmocka_unit_test_setup_teardown(http_1_0_clients, set_up, tear_down),
        cmocka_unit_test_setup_teardown(pipelined_requests_one_at_a_time, set_up, tear_down),
        cmocka_unit_test_setup_teardown(mixes_proxy_internal_and_answers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(full_duplex, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_early_refusal_is_delivered, set_up, tear_down),
        cmocka_unit_test_setup_teardown(large_bodies_both_ways, set_up, tear_down),
        cmocka_unit_test_setup_teardown(heads_in_pieces, set_up, tear_down),
        cmocka_unit_test_setup_teardown(unix_and_ipv6_backends, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
