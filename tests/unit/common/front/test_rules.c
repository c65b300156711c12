#include "tests/unit/test.h"

#include "common/front/rules.h"

#include <string.h>

static char text[4096];

static const char *request(const char *in, const struct rules_request *r)
{
    struct rules_out o = { .data = text, .cap = sizeof(text) - 1 };
    struct head h;

    head_init(&h, false);
    assert_int_equal(head_parse(&h, in, strlen(in)), HEAD_DONE);
    rules_request(&h, r, &o);
    assert_false(o.full);
    text[o.len] = '\0';
    return text;
}

static const char *response(const char *in, const struct rules_response *r)
{
    struct rules_out o = { .data = text, .cap = sizeof(text) - 1 };
    struct head h;

    head_init(&h, true);
    assert_int_equal(head_parse(&h, in, strlen(in)), HEAD_DONE);
    rules_response(&h, r, &o);
    assert_false(o.full);
    text[o.len] = '\0';
    return text;
}

static void keeps_order_letters_and_repeats(void **state)
{
    static const struct rules_request r = { 0 };

    (void)state;
    assert_string_equal(request("POST /a%2fb?x&&y=%20 HTTP/1.1\r\nzEtA: 1\r\nHost: h:1\r\nA: \r\n"
                                "Content-Length: 3\r\nzeta:2\r\nCookie: c\r\n\r\n",
                                &r),
                        "POST /a%2fb?x&&y=%20 HTTP/1.1\r\nzEtA: 1\r\nHost: h:1\r\nA: \r\n"
                        "Content-Length: 3\r\nzeta: 2\r\nCookie: c\r\n\r\n");
}

static void removes_what_ends_at_this_hop(void **state)
{
    static const struct rules_request r = { 0 };

    (void)state;
    assert_string_equal(
        request("GET / HTTP/1.1\r\nHost: h\r\nConnection: close, X-A\r\nx-a: 1\r\n"
                "X-B: 2\r\nTE: trailers\r\nTrailer: X\r\nKeep-Alive: 1\r\n"
                "Proxy-Connection: x\r\nProxy-Authorization: x\r\nUpgrade: websocket\r\n"
                "HTTP2-Settings: x\r\nconnection: x-c\r\nX-C: 3\r\n\r\n",
                &r),
        "GET / HTTP/1.1\r\nHost: h\r\nX-B: 2\r\n\r\n");
}

/* Connection cannot take away what the message is framed by. */
static void keeps_framing_that_connection_lists(void **state)
{
    static const struct rules_request r = { 0 };

    (void)state;
    assert_string_equal(request("POST / HTTP/1.1\r\nHost: h\r\nConnection: host, content-length\r\n"
                                "Content-Length: 3\r\nContent-Length: 3\r\n\r\n",
                                &r),
                        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\n");
    assert_string_equal(
        request("POST / HTTP/1.1\r\nHost: h\r\nConnection: transfer-encoding\r\n"
                "Transfer-Encoding: chunked\r\nTrailer: X\r\n\r\n",
                &r),
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n");
}

static void te_becomes_trailers_or_nothing(void **state)
{
    static const struct rules_request r = { 0 };

    (void)state;
    assert_string_equal(
        request("GET / HTTP/1.1\r\nHost: h\r\nTE: gzip, trailers\r\nConnection: te\r\n\r\n", &r),
        "GET / HTTP/1.1\r\nHost: h\r\nConnection: TE\r\nTE: trailers\r\n\r\n");
    assert_string_equal(
        request("GET / HTTP/1.1\r\nHost: h\r\nTE: gzip\r\nConnection: te\r\n\r\n", &r),
        "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
}

static void upgrades_but_never_to_http2(void **state)
{
    static const struct rules_request r = { .upgrade = true };

    (void)state;
    assert_string_equal(
        request("GET / HTTP/1.1\r\nHost: h\r\nUpgrade: WebSocket\r\n"
                "Connection: keep-alive, Upgrade\r\nSec-WebSocket-Key: k\r\n\r\n",
                &r),
        "GET / HTTP/1.1\r\nHost: h\r\nSec-WebSocket-Key: k\r\nUpgrade: WebSocket\r\n"
        "Connection: Upgrade\r\n\r\n");
    assert_string_equal(request("GET / HTTP/1.1\r\nHost: h\r\nUpgrade: h2c\r\n"
                                "Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: x\r\n\r\n",
                                &r),
                        "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_string_equal(request("GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket, h2c\r\n"
                                "Connection: Upgrade\r\n\r\n",
                                &r),
                        "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_string_equal(request("GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\n\r\n", &r),
                        "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
}

static void rebuilds_forwarded_and_edits(void **state)
{
    static const char *const drop[] = { "authorization", "cookie", "open-sandbox-*", NULL };
    static const struct rules_field add[] = { { "X-Token", "t" }, { "X-None", NULL } };
    static const struct rules_request r = {
        .target = "/new?q",
        .target_len = 6,
        .host = "10.0.0.2:80",
        .edit = { drop, add, 2 },
        .peer_header = "Peer",
        .forwarded_for = "1.2.3.4",
        .forwarded_proto = "https",
    };

    (void)state;
    assert_string_equal(
        request("GET /old HTTP/1.1\r\nHost: me\r\nAuthorization: a\r\nCOOKIE: c\r\n"
                "Open-Sandbox-API-Key: k\r\nOpen-Sandbox: stays\r\npeer: 6.6.6.6\r\n"
                "X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Port: 1\r\nForwarded: x\r\n"
                "X-Real-IP: 6\r\nX-Forwarded: stays\r\nCookie2: stays\r\n\r\n",
                &r),
        "GET /new?q HTTP/1.1\r\nHost: 10.0.0.2:80\r\nOpen-Sandbox: stays\r\n"
        "X-Forwarded: stays\r\nCookie2: stays\r\nX-Forwarded-For: 1.2.3.4\r\n"
        "X-Forwarded-Proto: https\r\nX-Forwarded-Host: me\r\nX-Token: t\r\n\r\n");
}

static void tells_the_internal_backend_the_peer(void **state)
{
    static const struct rules_request r = { .peer_header = "Peer",
                                            .peer_value = "1.2.3.4",
                                            .keep_forwarded = true };

    (void)state;
    assert_string_equal(
        request("GET /x HTTP/1.1\r\nHost: me\r\nX-Forwarded-For: a\r\nPEER: b\r\n\r\n", &r),
        "GET /x HTTP/1.1\r\nHost: me\r\nX-Forwarded-For: a\r\nPeer: 1.2.3.4\r\n\r\n");
}

static void absolute_targets_and_http_1_0(void **state)
{
    static const struct rules_request r = { 0 };
    static const struct rules_request host = { .host = "b" };

    (void)state;
    assert_string_equal(request("GET http://h/a?b HTTP/1.1\r\nHost: h\r\n\r\n", &r),
                        "GET /a?b HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_string_equal(request("GET http://h?b HTTP/1.1\r\nHost: h\r\n\r\n", &r),
                        "GET /?b HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_string_equal(request("GET http://h HTTP/1.1\r\nHost: h\r\n\r\n", &r),
                        "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_string_equal(request("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", &r),
                        "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_string_equal(request("GET /x HTTP/1.0\r\nExpect: 100-continue\r\n\r\n", &host),
                        "GET /x HTTP/1.0\r\nHost: b\r\n\r\n");
}

static void response_fields(void **state)
{
    static const char *const drop[] = { "server", NULL };
    static const char added[] = "X-Request-ID: 1\r\n";
    static const struct rules_response r = {
        .drop = drop, .added = added, .added_len = sizeof(added) - 1, .connection = "close"
    };

    (void)state;
    assert_string_equal(
        response("HTTP/1.0 299 My  Reason\r\nServer: x\r\nset-cookie: a\r\nSet-Cookie: b\r\n"
                 "Connection: close, x-hop\r\nX-Hop: 1\r\nKeep-Alive: 2\r\nDate: d\r\n"
                 "Trailer: T\r\nSet-Cookie: c\r\nContent-Length: 7\r\n\r\n",
                 &r),
        "HTTP/1.1 299 My  Reason\r\nset-cookie: a\r\nSet-Cookie: b\r\nDate: d\r\nSet-Cookie: c\r\n"
        "Content-Length: 7\r\nX-Request-ID: 1\r\nConnection: close\r\n\r\n");
}

static void response_location(void **state)
{
    static const struct rules_response r = { .location_prefix = "/p/80", .location_prefix_len = 5 };

    (void)state;
    assert_string_equal(response("HTTP/1.1 302 F\r\nlocation: /x?y\r\n\r\n", &r),
                        "HTTP/1.1 302 F\r\nlocation: /p/80/x?y\r\n\r\n");
    assert_string_equal(response("HTTP/1.1 302 F\r\nLocation: /\r\n\r\n", &r),
                        "HTTP/1.1 302 F\r\nLocation: /p/80/\r\n\r\n");
    assert_string_equal(response("HTTP/1.1 302 F\r\nLocation: //x/y\r\n\r\n", &r),
                        "HTTP/1.1 302 F\r\nLocation: //x/y\r\n\r\n");
    assert_string_equal(response("HTTP/1.1 302 F\r\nLocation: http://x/y\r\n\r\n", &r),
                        "HTTP/1.1 302 F\r\nLocation: http://x/y\r\n\r\n");
    assert_string_equal(response("HTTP/1.1 302 F\r\nLocation: y\r\n\r\n", &r),
                        "HTTP/1.1 302 F\r\nLocation: y\r\n\r\n");
}

static void response_framing_and_upgrade(void **state)
{
    static const struct rules_response none = { .no_framing = true };
    static const struct rules_response plain = { 0 };
    static const struct rules_response up = { .upgrade = true, .connection = "Upgrade" };

    (void)state;
    assert_string_equal(response("HTTP/1.1 204 N\r\nContent-Length: 0\r\nA: b\r\n\r\n", &none),
                        "HTTP/1.1 204 N\r\nA: b\r\n\r\n");
    assert_string_equal(
        response(
            "HTTP/1.1 200 K\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\nUpgrade: h2\r\n\r\n",
            &plain),
        "HTTP/1.1 200 K\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n");
    assert_string_equal(
        response("HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: upgrade\r\nX: y\r\n\r\n",
                 &up),
        "HTTP/1.1 101 S\r\nUpgrade: websocket\r\nX: y\r\nConnection: Upgrade\r\n\r\n");
}

static void says_when_it_does_not_fit(void **state)
{
    static const char in[] = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    static const struct rules_request r = { 0 };
    struct rules_out o = { .data = text, .cap = sizeof(in) - 1 };
    struct head h;

    (void)state;
    head_init(&h, false);
    assert_int_equal(head_parse(&h, in, sizeof(in) - 1), HEAD_DONE);
    rules_request(&h, &r, &o);
    assert_false(o.full);
    assert_int_equal(o.len, sizeof(in) - 1);
    o = (struct rules_out){ .data = text, .cap = sizeof(in) - 2 };
    rules_request(&h, &r, &o);
    assert_true(o.full);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_order_letters_and_repeats),
        cmocka_unit_test(removes_what_ends_at_this_hop),
        cmocka_unit_test(keeps_framing_that_connection_lists),
        cmocka_unit_test(te_becomes_trailers_or_nothing),
        cmocka_unit_test(upgrades_but_never_to_http2),
        cmocka_unit_test(rebuilds_forwarded_and_edits),
        cmocka_unit_test(tells_the_internal_backend_the_peer),
        cmocka_unit_test(absolute_targets_and_http_1_0),
        cmocka_unit_test(response_fields),
        cmocka_unit_test(response_location),
        cmocka_unit_test(response_framing_and_upgrade),
        cmocka_unit_test(says_when_it_does_not_fit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
