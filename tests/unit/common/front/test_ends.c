/* Ends, failures and time: aborts, stale connections, parked requests, timeouts, back-pressure. */
#include "tests/unit/common/support/front_env.h"
#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
#define STREAM "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

static void assert_no_sockets(struct fe *fe)
{
    TEST_UNTIL(fe_sockets(fe) == 0, fe_step(fe));
}

/* A client with a request that the backend has. */
static int request(struct fe *fe, int *b)
{
    int c = fe_connect(fe);

    fe_send(fe, c, GET_P);
    *b = fe_accept(fe);
    fe_expect(fe, *b, SEEN_P);
    return c;
}

/* ---- aborts ---- */

static void a_client_that_leaves_closes_the_backend(void **state)
{
    static void (*const leave[])(int) = { fe_close, fe_reset };
    struct fe *fe = *state;
    int b;
    int c;
    int i;

    for (i = 0; i < 6; i++) {
        c = request(fe, &b);
        if (i >= 2)
            fe_send(fe, b, STREAM);
        if (i >= 4) /* in the middle of a chunk */
            fe_send(fe, b, "5\r\nab");
        if (i >= 2)
            (void)fe_until(fe, c, i >= 4 ? "ab" : "\r\n\r\n");
        leave[i % 2](c);
        assert_true(fe_end(fe, b));
        fe_close(b);
        assert_no_sockets(fe);
        assert_false(fe->last.complete);
    }
    assert_int_equal(front_stats(fe->front)->aborted, 6);
}

static void a_client_that_leaves_during_its_body(void **state)
{
    struct fe *fe = *state;
    int c = fe_connect(fe);
    int b;

    fe_send(fe, c, "POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc");
    b = fe_accept(fe);
    (void)fe_until(fe, b, "abc");
    fe_close(c);
    assert_true(fe_end(fe, b));
    assert_no_sockets(fe);
    fe_close(b);
}

/* With a length or chunks the missing end tells; without, only a reset does. */
static void a_backend_that_breaks_off_closes_the_client(void **state)
{
    static const struct {
        const char *said;
        bool reset;
        bool clean;
    } rows[] = {
        { "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", false, true },
        { "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", true, true },
        { STREAM "5\r\nab", false, true },
        { STREAM "2\r\nab\r\nnonsense", false, true },
        { "HTTP/1.1 200 OK\r\n\r\nab", true, false },
    };
    struct fe *fe = *state;
    unsigned i;
    int b;
    int c;

    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        c = request(fe, &b);
        fe_send(fe, b, rows[i].said);
        if (!strstr(rows[i].said, "nonsense"))
            (void)fe_until(fe, c, "ab");
        else
            (void)fe_until(fe, c, "\r\n\r\n");
        (rows[i].reset ? fe_reset : fe_close)(b);
        if (fe_end(fe, c) != rows[i].clean)
            fail_msg("row %u", i);
        fe_close(c);
        assert_no_sockets(fe);
        assert_false(fe->last.complete);
    }
}

static void backends_that_fail_before_the_head(void **state)
{
    static const char *const rows[] = { "", "HTTP/1.1 20", "nonsense\r\n\r\n",
                                        "HTTP/1.1 101 S\r\nUpgrade: x\r\n\r\n",
                                        "HTTP/1.1 200 OK\nX: y\r\n\r\n" };
    struct fe *fe = *state;
    int c = fe_connect(fe);
    unsigned i;
    int b;

    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        fe_send(fe, c, GET_P);
        b = fe_accept(fe);
        fe_expect(fe, b, SEEN_P);
        fe_send(fe, b, rows[i]);
        fe_close(b);
        assert_contains(fe_until(fe, c, "}"), "BACKEND_RESPONSE_FAILED");
        assert_int_equal(fe->last.status, 502);
    }
    fe_close(c);
}

static void many_aborted_streams_leave_nothing(void **state)
{
    struct fe *fe = *state;
    int i;
    int b;
    int c;

    for (i = 0; i < 300; i++) {
        c = request(fe, &b);
        fe_send(fe, b, STREAM "5\r\n");
        (void)fe_until(fe, c, "5\r\n");
        (i & 1 ? fe_close : fe_reset)(i & 2 ? b : c);
        (void)fe_end(fe, i & 2 ? c : b);
        fe_close(i & 2 ? c : b);
    }
    assert_no_sockets(fe);
}

/* ---- stale connections ---- */

static void reuse(struct fe *fe, int c, int *b)
{
    fe_send(fe, c, GET_P);
    *b = fe_accept(fe);
    fe_expect(fe, *b, SEEN_P);
    fe_send(fe, *b, OK_0);
    fe_expect(fe, c, OK_0);
}

static void an_idle_backend_that_closes_is_dropped(void **state)
{
    struct fe *fe = *state;
    int c = fe_connect(fe);
    int b;

    reuse(fe, c, &b);
    assert_int_equal(front_stats(fe->front)->idle_backends, 1);
    fe_send(fe, b, "x"); /* or speaks unasked */
    TEST_UNTIL(front_stats(fe->front)->idle_backends == 0, fe_step(fe));
    fe_close(b);
    reuse(fe, c, &b);
    fe_close(b);
    TEST_UNTIL(front_stats(fe->front)->idle_backends == 0, fe_step(fe));
    fe_close(c);
}

/* It takes the request and closes without a word. */
static void a_stale_connection_is_replaced_for_safe_methods_only(void **state)
{
    struct fe *fe = *state;
    int c = fe_connect(fe);
    int b;

    reuse(fe, c, &b);
    fe_send(fe, c, GET_P);
    fe_expect(fe, b, SEEN_P);
    fe_close(b);
    b = fe_accept(fe); /* comes again */
    fe_expect(fe, b, SEEN_P);
    fe_send(fe, b, OK_0);
    fe_expect(fe, c, OK_0);
    assert_int_equal(front_stats(fe->front)->retries, 1);
    fe_send(fe, c, "POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n");
    (void)fe_until(fe, b, "\r\n\r\n");
    fe_close(b);
    assert_contains(fe_until(fe, c, "}"), "BACKEND_RESPONSE_FAILED");
    assert_true(fe_none_waiting(fe));
    fe_close(c);
}

/* Bytes of the body that are gone cannot be sent again. */
static void a_body_that_is_gone_is_not_sent_again(void **state)
{
    struct fe *fe = *state;
    int c = fe_connect(fe);
    int b;

    reuse(fe, c, &b);
    fe_send(fe, c, "PUT /p HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nab");
    (void)fe_until(fe, b, "ab");
    fe_close(b);
    b = fe_accept(fe); /* all of it was still at hand */
    (void)fe_until(fe, b, "ab");
    fe_send(fe, c, "cd");
    fe_expect(fe, b, "cd");
    fe_send(fe, b, OK_0);
    fe_expect(fe, c, OK_0);
    fe_send(fe, c, "PUT /p HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nab");
    (void)fe_until(fe, b, "ab");
    fe_send(fe, c, "cd");
    fe_expect(fe, b, "cd");
    fe_close(b);
    assert_contains(fe_until(fe, c, "}"), "BACKEND_RESPONSE_FAILED");
    fe_close(c);
}

/* Its end lies in the socket when a POST comes: nothing is sent to it. */
static void a_post_looks_before_it_is_sent(void **state)
{
    struct fe *fe = *state;
    int c = fe_connect(fe);
    int b;

    reuse(fe, c, &b);
    fe_send(fe, c, "POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab");
    fe_close(b); /* both before the loop looks; the order of the events does not matter */
    b = fe_accept(fe);
    (void)fe_until(fe, b, "ab");
    fe_send(fe, b, OK_0);
    fe_expect(fe, c, OK_0);
    fe_close(b);
    fe_close(c);
}

/* What the backend no longer takes is not taken for the next request, which follows in the same read. */
static void a_broken_upload_keeps_the_next_request_apart(void **state)
{
    struct fe *fe = *state;
    int c = fe_connect(fe);
    int b;

    fe_send(fe, c, "POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nab");
    b = fe_accept(fe);
    (void)fe_until(fe, b, "ab");
    fe_settle(fe);
    /* in this order: the front finds out by writing */
    fe_send(fe, c, "cdefghijGET /no HTTP/1.1\r\nHost: h\r\n\r\n");
    fe_reset(b);
    assert_contains(fe_until(fe, c, "}"), "HTTP/1.1 502 ");
    assert_contains(fe_until(fe, c, "}"), "HTTP/1.1 404 ");
    fe_close(c);
}

static void a_fresh_connection_is_not_tried_twice(void **state)
{
    struct fe *fe = *state;
    int b;
    int c = request(fe, &b);

    fe_close(b);
    assert_contains(fe_until(fe, c, "}"), "502 Bad Gateway");
    assert_true(fe_none_waiting(fe));
    assert_int_equal(front_stats(fe->front)->retries, 0);
    fe_close(c);
}

static void forgotten_backends_are_not_kept(void **state)
{
    struct fe *fe = *state;
    struct front_addr any = fe->to;
    int busy;
    int idle;
    int c = request(fe, &busy);
    int d = fe_connect(fe);

    reuse(fe, d, &idle);
    any.u.in4.sin_port = 0;
    front_forget(fe->front, &any);
    assert_true(fe_end(fe, idle));
    fe_send(fe, busy, OK_0);
    fe_expect(fe, c, OK_0);
    assert_true(fe_end(fe, busy));
    fe_close(c);
    fe_close(d);
    fe_close(busy);
    fe_close(idle);
    assert_no_sockets(fe);
}

static void a_response_that_says_too_much_is_not_reused(void **state)
{
    struct fe *fe = *state;
    int b;
    int c = request(fe, &b);

    fe_send(fe, b, OK_0 OK_0);
    fe_expect(fe, c, OK_0);
    assert_true(fe_quiet(fe, c));
    assert_int_equal(front_stats(fe->front)->backends, 0);
    fe_close(b);
    fe_close(c);
}

/* ---- parked ---- */

static void a_parked_request_is_decided_later(void **state)
{
    static const struct front_answer later = { .status = 202, .body = "{}", .body_len = 2 };
    struct fe *fe = *state;
    int c = fe_connect(fe);
    int b;

    fe_send(fe, c, "PUT /park?q HTTP/1.1\r\nHost: h\r\nX: y\r\nContent-Length: 3\r\n\r\nab");
    TEST_UNTIL(fe->parked, fe_step(fe));
    fe_send(fe, c, "c" GET_P);
    fe_settle(fe);
    assert_int_equal(fe->decided, 1);
    front_proxy(fe->parked, &fe->proxy);
    b = fe_accept(fe);
    fe_expect(fe, b,
              "PUT /park?q HTTP/1.1\r\nHost: h\r\nX: y\r\nContent-Length: 3\r\n"
              "X-Forwarded-For: 127.0.0.1\r\n\r\nabc");
    fe_send(fe, b, OK_0);
    fe_expect(fe, c, OK_0);
    fe_expect(fe, b, SEEN_P);
    fe_send(fe, b, OK_0);
    fe_expect(fe, c, OK_0);
    fe->parked = NULL;
    fe_send(fe, c, "GET /park HTTP/1.1\r\nHost: h\r\n\r\n" GET_P);
    TEST_UNTIL(fe->parked, fe_step(fe));
    front_answer(fe->parked, &later);
    assert_contains(fe_until(fe, c, "{}"), "202 Accepted");
    fe_expect(fe, b, SEEN_P);
    fe_close(b);
    fe_close(c);
}

static void parked_requests_end_by_time_or_by_leaving(void **state)
{
    struct fe *fe = *state;
    int c = fe_connect(fe);

    fe_send(fe, c, "GET /park HTTP/1.1\r\nHost: h\r\n\r\n");
    TEST_UNTIL(fe->parked, fe_step(fe));
    fe_advance(fe, 999);
    assert_non_null(fe->parked);
    fe_advance(fe, 1);
    assert_null(fe->parked);
    assert_contains(fe_until(fe, c, "}"), "HTTP/1.1 503 ");
    fe_send(fe, c, "GET /park HTTP/1.1\r\nHost: h\r\n\r\n");
    TEST_UNTIL(fe->parked, fe_step(fe));
    fe_close(c);
    TEST_UNTIL(!fe->parked, fe_step(fe));
    assert_int_equal(fe->done_parked, 2);
    assert_no_sockets(fe);
}

/* ---- time ---- */

static void slow_heads_and_idle_connections(void **state)
{
    struct fe *fe = *state;
    int slow = fe_connect(fe);
    int silent = fe_connect(fe);
    int idle = fe_connect(fe);

    fe_send(fe, idle, "GET /no HTTP/1.1\r\nHost: h\r\n\r\n");
    (void)fe_until(fe, idle, "}");
    fe_send(fe, slow, "GET /p HT");
    fe_settle(fe);
    fe_advance(fe, 20000);
    fe_send(fe, slow, "TP/1.1\r\n"); /* does not win time */
    fe_settle(fe);
    fe_advance(fe, 10000);
    assert_contains(fe_until(fe, slow, "}"), "HTTP/1.1 408 ");
    assert_true(fe_end(fe, slow));
    assert_true(fe_end(fe, silent));
    assert_true(fe_quiet(fe, idle));
    fe_advance(fe, 45000);
    assert_true(fe_end(fe, idle));
    fe_close(slow);
    fe_close(silent);
    fe_close(idle);
    assert_no_sockets(fe);
    assert_int_equal(front_stats(fe->front)->slow, 1);
}

static void a_backend_has_180_s_to_begin(void **state)
{
    struct fe *fe = *state;
    int b;
    int c = request(fe, &b);

    fe_advance(fe, 179999);
    assert_true(fe_quiet(fe, c));
    fe_advance(fe, 1);
    assert_contains(fe_until(fe, c, "}"), "BACKEND_TIMEOUT");
    assert_int_equal(fe->last.status, 504);
    assert_true(fe_end(fe, b));
    fe_close(b);
    fe_close(c);
}

static void an_idle_stream_is_never_cut(void **state)
{
    struct fe *fe = *state;
    int b;
    int c = request(fe, &b);
    int hour;

    fe_send(fe, b, STREAM "4\r\ntick\r\n");
    (void)fe_until(fe, c, "tick\r\n");
    for (hour = 0; hour < 24; hour++) {
        fe_advance(fe, 3600 * 1000);
        assert_true(fe_quiet(fe, c) && fe_quiet(fe, b));
    }
    fe_send(fe, b, "0\r\n\r\n");
    fe_expect(fe, c, "0\r\n\r\n");
    fe_close(b);
    fe_close(c);
}

static void an_upload_that_stops_is_408(void **state)
{
    struct fe *fe = *state;
    int c = fe_connect(fe);
    int b;

    fe_send(fe, c, "POST /p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    b = fe_accept(fe);
    (void)fe_until(fe, b, "\r\n\r\n");
    fe_advance(fe, 100000);
    fe_send(fe, c, "1\r\na\r\n"); /* wins time */
    fe_expect(fe, b, "1\r\na\r\n");
    fe_advance(fe, 100000);
    assert_true(fe_quiet(fe, c));
    fe_advance(fe, 80000);
    assert_contains(fe_until(fe, c, "}"), "HTTP/1.1 408 ");
    assert_true(fe_end(fe, c) && fe_end(fe, b));
    fe_close(b);
    fe_close(c);
}

static void idle_backends_are_closed_in_time(void **state)
{
    struct fe *fe = *state;
    int c = fe_connect(fe);
    int b;

    reuse(fe, c, &b);
    fe_advance(fe, 29999);
    assert_true(fe_quiet(fe, b));
    fe_advance(fe, 1);
    assert_true(fe_end(fe, b));
    fe_close(b);
    fe_close(c);
}

/* ---- refusals ---- */

static void malformed_requests_are_refused_and_closed(void **state)
{
    static const struct {
        const char *text;
        const char *status;
    } rows[] = {
        { "GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 400 " },
        { "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/1.1 505 " },
        { "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n", "HTTP/1.1 501 " },
        { "POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
          "0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n",
          "HTTP/1.1 400 " },
        { "POST /p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nZ\r\n",
          "HTTP/1.1 400 " },
        { "POST /no HTTP/1.1\r\nHost: h\r\nContent-Length: 65537\r\n\r\n", "HTTP/1.1 404 " },
        { "POST /no HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n",
          "HTTP/1.1 404 " },
    };
    struct fe *fe = *state;
    const char *got;
    unsigned decided;
    unsigned i;
    int c;

    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        decided = fe->decided;
        c = fe_connect(fe);
        fe_send(fe, c, rows[i].text);
        got = fe_until(fe, c, "}");
        assert_contains(got, rows[i].status);
        assert_contains(got, "Connection: close\r\n");
        if (fe->decided == decided) /* only the stamp can mark it */
            assert_contains(got, "X-Id: 0\r\n");
        assert_true(fe_end(fe, c));
        fe_close(c);
        assert_no_sockets(fe);
    }
    assert_true(fe_none_waiting(fe));
}

static void chunks_that_go_wrong_later_cut_both(void **state)
{
    struct fe *fe = *state;
    int c = fe_connect(fe);
    int b;

    fe_send(fe, c, "POST /p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n");
    b = fe_accept(fe);
    (void)fe_until(fe, b, "1\r\na\r\n");
    fe_send(fe, c, "1\r\nab\r\n");
    assert_contains(fe_until(fe, c, "}"), "HTTP/1.1 400 ");
    assert_true(fe_end(fe, b));
    assert_true(fe_end(fe, c));
    fe_close(b);
    fe_close(c);
}

static void too_many_clients_are_told(void **state)
{
    const struct front_options two = { .max_clients = 2 };
    struct fe *fe = fe_new(&two);
    int c[3];
    int i;

    (void)state;
    for (i = 0; i < 3; i++)
        c[i] = fe_connect(fe);
    assert_contains(fe_until(fe, c[2], "}"), "HTTP/1.1 503 ");
    assert_true(fe_end(fe, c[2]));
    fe_send(fe, c[0], "GET /no HTTP/1.1\r\nHost: h\r\n\r\n");
    (void)fe_until(fe, c[0], "}");
    assert_int_equal(front_stats(fe->front)->turned_away, 1);
    for (i = 0; i < 3; i++)
        fe_close(c[i]);
    fe_free(fe);
}

/* ---- back-pressure ---- */

static size_t fill(struct fe *fe, int fd)
{
    static char block[1 << 16];
    size_t sum = 0;
    ssize_t n;
    int i;

    for (i = 0; i < 4000; i++) {
        n = send(fd, block, sizeof(block), MSG_DONTWAIT | MSG_NOSIGNAL);
        sum += n > 0 ? (size_t)n : 0;
        fe_settle(fe);
        if (n <= 0 && send(fd, block, 0, MSG_DONTWAIT) == 0 && i > 100)
            break;
    }
    return sum;
}

/* What a sender can get rid of while the receiver sleeps is bounded by socket buffers and one read. */
static void a_slow_receiver_stops_the_sender(void **state)
{
    struct fe *fe = *state;
    size_t sent;
    int b;
    int c;

    fe->socket_buffer = 16384;
    c = request(fe, &b);
    fe_send(fe, b, "HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n");
    (void)fe_until(fe, c, "\r\n\r\n");
    sent = fill(fe, b);
    assert_true(sent < 64U << 20);
    assert_int_equal(fill(fe, b), 0);
    fe_close(c); /* and its leaving is still seen */
    TEST_UNTIL(fe_sockets(fe) == 0, fe_step(fe));
    fe_close(b);
    c = fe_connect(fe);
    fe_send(fe, c, "POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000000\r\n\r\n");
    b = fe_accept(fe);
    (void)fe_until(fe, b, "\r\n\r\n");
    sent = fill(fe, c);
    assert_true(sent < 64U << 20);
    assert_int_equal(fill(fe, c), 0);
    fe_close(c);
    assert_no_sockets(fe);
    fe_close(b);
}

static void drains(void **state)
{
    struct fe *fe = *state;
    int idle = fe_connect(fe);
    int b;
    int c = request(fe, &b);

    fe_settle(fe);
    front_drain(fe->front);
    assert_true(fe_end(fe, idle));
    fe_send(fe, b, OK_0);
    fe_expect(fe, c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    assert_true(fe_end(fe, c));
    assert_no_sockets(fe);
    fe_close(idle);
    fe_close(b);
    fe_close(c);
}

#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        T(a_client_that_leaves_closes_the_backend),
        T(a_client_that_leaves_during_its_body),
        T(a_backend_that_breaks_off_closes_the_client),
        T(backends_that_fail_before_the_head),
        T(many_aborted_streams_leave_nothing),
        T(an_idle_backend_that_closes_is_dropped),
        T(a_stale_connection_is_replaced_for_safe_methods_only),
        T(a_body_that_is_gone_is_not_sent_again),
        T(a_post_looks_before_it_is_sent),
        T(a_broken_upload_keeps_the_next_request_apart),
        T(a_fresh_connection_is_not_tried_twice),
        T(forgotten_backends_are_not_kept),
        T(a_response_that_says_too_much_is_not_reused),
        T(a_parked_request_is_decided_later),
        T(parked_requests_end_by_time_or_by_leaving),
        T(slow_heads_and_idle_connections),
        T(a_backend_has_180_s_to_begin),
        T(an_idle_stream_is_never_cut),
        T(an_upload_that_stops_is_408),
        T(idle_backends_are_closed_in_time),
        T(malformed_requests_are_refused_and_closed),
        T(chunks_that_go_wrong_later_cut_both),
        cmocka_unit_test(too_many_clients_are_told),
        T(a_slow_receiver_stops_the_sender),
        T(drains),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
