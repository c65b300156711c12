#include "tests/unit/test.h"

#include "common/base/macros.h"
#include "common/front/head.h"

#include <string.h>

#define HOST "Host: a\r\n"
#define GET "GET / HTTP/1.1\r\n" HOST

/* The same verdict whether the bytes come at once or one by one, and from a place that moves. */
static enum head_result parse(struct head *h, const char *text, size_t len, bool response)
{
    static struct head slow;
    static char copies[2][HEAD_MAX + 4096];
    enum head_result whole;
    enum head_result r = HEAD_MORE;
    unsigned i;
    size_t n;

    head_init(h, response);
    whole = head_parse(h, text, len);
    head_init(&slow, response);
    for (n = 1; n <= len && r == HEAD_MORE; n++) {
        if (len > 1024 && n < len && n % 97) /* big ones in steps */
            continue;
        memcpy(copies[n & 1], text, n);
        r = head_parse(&slow, copies[n & 1], n);
    }
    assert_int_equal(r, whole);
    assert_int_equal(slow.error, h->error);
    if (whole == HEAD_DONE) {
        assert_int_equal(slow.len, h->len);
        assert_int_equal(slow.n_fields, h->n_fields);
        for (i = 0; i < h->n_fields; i++) {
            assert_int_equal(slow.fields[i].name.at, h->fields[i].name.at);
            assert_int_equal(slow.fields[i].value.at, h->fields[i].value.at);
            assert_int_equal(slow.fields[i].value.len, h->fields[i].value.len);
            assert_int_equal(slow.fields[i].id, h->fields[i].id);
        }
    }
    return whole;
}

static void assert_span(const struct head *h, struct head_span s, const char *want)
{
    assert_int_equal(s.len, strlen(want));
    assert_memory_equal(head_text(h, s), want, s.len);
}

static void finds_the_parts_of_a_request(void **state)
{
    static const char text[] =
        "POST /a%2Fb/../c?x=1&&y=%20 HTTP/1.1\r\nHOST:  ex.org:80 \t\r\n"
        "X-Empty:\r\nContent-Length: 5\r\nSet-Thing: a\r\nset-thing: b\r\n\r\nhello";
    struct head h;

    (void)state;
    assert_int_equal(parse(&h, text, sizeof(text) - 1, false), HEAD_DONE);
    assert_int_equal(h.len, sizeof(text) - 1 - 5);
    assert_span(&h, h.method, "POST");
    assert_span(&h, h.target, "/a%2Fb/../c?x=1&&y=%20");
    assert_span(&h, h.path, "/a%2Fb/../c?x=1&&y=%20");
    assert_span(&h, h.host, "ex.org:80");
    assert_true(h.has_length && h.length == 5 && !h.chunked);
    assert_int_equal(h.n_fields, 5);
    assert_span(&h, head_find(&h, "x-empty", 0)->value, "");
    assert_span(&h, head_find(&h, "SET-THING", 0)->value, "a");
    assert_span(&h, head_find(&h, "set-thing", 1)->value, "b");
    assert_null(head_find(&h, "set-thing", 2));
    assert_true(head_persistent(&h));
}

static void finds_the_parts_of_a_response(void **state)
{
    static const char text[] = "HTTP/1.0 404 Not  Found\r\nConnection: Keep-Alive, X-A\r\n"
                               "X-A: 1\r\nX-B: 2\r\n\r\n";
    static const char bare[] = "HTTP/1.1 200\r\n\r\n";
    struct head h;

    (void)state;
    assert_int_equal(parse(&h, text, sizeof(text) - 1, true), HEAD_DONE);
    assert_int_equal(h.status, 404);
    assert_int_equal(h.minor, 0);
    assert_span(&h, h.reason, "Not  Found");
    assert_true(head_persistent(&h));
    assert_true(head_nominated(&h, head_find(&h, "x-a", 0)));
    assert_false(head_nominated(&h, head_find(&h, "x-b", 0)));
    assert_int_equal(parse(&h, bare, sizeof(bare) - 1, true), HEAD_DONE);
    assert_int_equal(h.status, 200);
    assert_int_equal(h.reason.len, 0);
}

static void understands_connection_and_upgrade(void **state)
{
    static const char text[] = GET "Connection: keep-alive, Upgrade,\tTE\r\nUpgrade: websocket\r\n"
                                   "TE: gzip;q=1, trailers\r\nExpect: 100-Continue\r\n\r\n";
    static const char closing[] = GET "Connection: X-A\r\nConnection: ,, close ,\r\n\r\n";
    struct head h;

    (void)state;
    assert_int_equal(parse(&h, text, sizeof(text) - 1, false), HEAD_DONE);
    assert_true(h.names_upgrade && h.names_te && h.keep_alive && h.te_trailers);
    assert_true(h.expect_continue && !h.names_other && !h.close);
    assert_span(&h, h.upgrade, "websocket");
    assert_int_equal(parse(&h, closing, sizeof(closing) - 1, false), HEAD_DONE);
    assert_true(h.close && h.names_other && !head_persistent(&h));
}

/* ---- what is accepted although it looks odd ---- */

static void accepts(void **state)
{
    static const char *const rows[] = {
        "\r\n" GET "\r\n", /* one line end too many after the last body */
        "OPTIONS * HTTP/1.1\r\n" HOST "\r\n",
        "GET http://a/x HTTP/1.1\r\n" HOST "\r\n",
        "GET http://A?x HTTP/1.1\r\n" HOST "\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "M-SEARCH /?q=\"<>{}|\\^` HTTP/1.1\r\n" HOST "\r\n",
        "GET /\xc3\xa4 HTTP/1.1\r\n" HOST "\r\n",
        GET "X: \xc3\xa4 \t b\r\n\r\n",
        GET "Content-Length: 5\r\nContent-Length: 5\r\n\r\n",
        GET "Content-Length: 000\r\n\r\n",
        GET "transfer-encoding: Chunked\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n",
    };
    struct head h;
    unsigned i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(rows); i++)
        if (parse(&h, rows[i], strlen(rows[i]), false) != HEAD_DONE)
            fail_msg("refused (%d %s): %s", h.error, h.why ? h.why : "", rows[i]);
}

/* ---- what is refused: two readers could take it for different messages ---- */

static const struct {
    int status;
    const char *text;
} refused[] = {
    /* line ends */
    { 400, "GET / HTTP/1.1\nHost: a\r\n\r\n" },
    { 400, "GET / HTTP/1.1\r\nHost: a\n\r\n" },
    { 400, GET "X: a\n\n" },
    { 400, GET "\n" },
    { 400, "\n" GET "\r\n" },
    { 400, "\r\n\r\n" GET "\r\n" },
    { 400, GET "X: a\rb\r\n\r\n" },
    { 400, GET "X: a\r\r\n\r\n" },
    { 400, "GET / HTTP/1.1\r\r\nHost: a\r\n\r\n" },
    /* folding, blanks, names */
    { 400, GET "X: a\r\n b\r\n\r\n" },
    { 400, GET "X: a\r\n\tb\r\n\r\n" },
    { 400, "GET / HTTP/1.1\r\n Host: a\r\n\r\n" },
    { 400, GET "Content-Length : 5\r\n\r\n" },
    { 400, GET "Transfer-Encoding\t: chunked\r\n\r\n" },
    { 400, GET "Transfer-Encoding\x0b: chunked\r\n\r\n" },
    { 400, GET ": empty\r\n\r\n" },
    { 400, GET "no colon\r\n\r\n" },
    { 400, GET "nocolon\r\n\r\n" },
    { 400, GET "X(: a\r\n\r\n" },
    { 400, GET "X\x80: a\r\n\r\n" },
    { 400, GET "X: a\x01\r\n\r\n" },
    { 400, GET "X: a\x7f\r\n\r\n" },
    { 400, GET "X: a\x0b\r\n\r\n" },
    /* framing */
    { 400, GET "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" },
    { 400, GET "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n" },
    { 400, GET "Content-Length: 5\r\nContent-Length: 6\r\n\r\n" },
    { 400, GET "Content-Length: 5, 5\r\n\r\n" },
    { 400, GET "Content-Length: +5\r\n\r\n" },
    { 400, GET "Content-Length: -5\r\n\r\n" },
    { 400, GET "Content-Length: 0x5\r\n\r\n" },
    { 400, GET "Content-Length: 5 5\r\n\r\n" },
    { 400, GET "Content-Length: 5;a\r\n\r\n" },
    { 400, GET "Content-Length:\r\n\r\n" },
    { 400, GET "Content-Length: 9999999999999999999\r\n\r\n" },
    { 400, GET "Transfer-Encoding: identity\r\n\r\n" },
    { 400, GET "Transfer-Encoding: gzip\r\n\r\n" },
    { 400, GET "Transfer-Encoding: chunked, gzip\r\n\r\n" },
    { 400, GET "Transfer-Encoding: chunked, identity\r\n\r\n" },
    { 400, GET "Transfer-Encoding: xchunked\r\n\r\n" },
    { 400, GET "Transfer-Encoding: \"chunked\"\r\n\r\n" },
    { 400, GET "Transfer-Encoding: chunked;q=1\r\n\r\n" },
    { 400, GET "Transfer-Encoding:\r\n\r\n" },
    { 400, GET "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" },
    { 400, GET "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n" },
    { 400, "GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n" },
    { 501, GET "Transfer-Encoding: gzip, chunked\r\n\r\n" },
    { 501, GET "Transfer-Encoding: chunked, chunked\r\n\r\n" },
    /* host and target */
    { 400, "GET / HTTP/1.1\r\n\r\n" },
    { 400, "GET / HTTP/1.1\r\nHost:\r\n\r\n" },
    { 400, GET HOST "\r\n" },
    { 400, "GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n" },
    { 400, "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n" },
    { 400, "GET / HTTP/1.1\r\nHost: a@b\r\n\r\n" },
    { 400, "GET / HTTP/1.1\r\nHost: a b\r\n\r\n" },
    { 400, "GET http://b/ HTTP/1.1\r\n" HOST "\r\n" },
    { 400, "GET http://a:80/ HTTP/1.1\r\n" HOST "\r\n" },
    { 400, "GET http://u@a/ HTTP/1.1\r\n" HOST "\r\n" },
    { 400, "GET http:///x HTTP/1.1\r\n" HOST "\r\n" },
    { 400, "GET ftp://a/ HTTP/1.1\r\n" HOST "\r\n" },
    { 400, "GET * HTTP/1.1\r\n" HOST "\r\n" },
    { 400, "GET a HTTP/1.1\r\n" HOST "\r\n" },
    { 400, "GET /a#b HTTP/1.1\r\n" HOST "\r\n" },
    { 400, "GET /a b HTTP/1.1\r\n" HOST "\r\n" },
    { 400, "GET /a\x01 HTTP/1.1\r\n" HOST "\r\n" },
    { 400, "GET  / HTTP/1.1\r\n" HOST "\r\n" },
    { 400, "GET /  HTTP/1.1\r\n" HOST "\r\n" },
    { 400, "GET\t/ HTTP/1.1\r\n" HOST "\r\n" },
    { 400, " GET / HTTP/1.1\r\n" HOST "\r\n" },
    { 400, "GET / HTTP/1.1 \r\n" HOST "\r\n" },
    { 400, "GET /\r\n" },
    { 400, "GET\r\n" },
    { 400, "GE(T / HTTP/1.1\r\n" HOST "\r\n" },
    { 501, "CONNECT a:80 HTTP/1.1\r\n" HOST "\r\n" },
    { 501, "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA / HTTP/1.1\r\n" },
    /* versions */
    { 505, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" },
    { 505, "GET / HTTP/2.0\r\n" HOST "\r\n" },
    { 505, "GET / HTTP/1.2\r\n" HOST "\r\n" },
    { 505, "GET / HTTP/0.9\r\n" HOST "\r\n" },
    { 400, "GET / HTTP/11\r\n" HOST "\r\n" },
    { 400, "GET / http/1.1\r\n" HOST "\r\n" },
    { 400, "GET / HTTP/1.10\r\n" HOST "\r\n" },
    { 400, "GET / HTTP/1,1\r\n" HOST "\r\n" },
    { 400, "\x16\x03\x01\x02\r\n" },
    /* Connection */
    { 400, GET "Connection: a b\r\n\r\n" },
    { 400, GET "Connection: \"close\"\r\n\r\n" },
};

static void refuses_what_can_be_read_in_two_ways(void **state)
{
    struct head h;
    unsigned i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(refused); i++) {
        enum head_result r = parse(&h, refused[i].text, strlen(refused[i].text), false);

        if (r != HEAD_BAD || h.error != refused[i].status || !h.why)
            fail_msg("%d instead of %d: %s", r == HEAD_BAD ? h.error : 0, refused[i].status,
                     refused[i].text);
    }
}

static void refuses_nul_bytes(void **state)
{
    static const char value[] = GET "X: a\0b\r\n\r\n";
    static const char target[] = "GET /\0 HTTP/1.1\r\n" HOST "\r\n";
    struct head h;

    (void)state;
    assert_int_equal(parse(&h, value, sizeof(value) - 1, false), HEAD_BAD);
    assert_int_equal(h.error, 400);
    assert_int_equal(parse(&h, target, sizeof(target) - 1, false), HEAD_BAD);
    assert_int_equal(h.error, 400);
}

static void refuses_malformed_responses(void **state)
{
    static const char *const rows[] = {
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 099 OK\r\n\r\n",
        "HTTP/1.1  200 OK\r\n\r\n",
        "HTTP/2 200 OK\r\n\r\n",
        "HTTP/2.0 200 OK\r\n\r\n",
        "ICY 200 OK\r\n\r\n",
        "HTTP/1.1 200 O\x01K\r\n\r\n",
        "HTTP/1.1 200 OK\n\r\n",
        "\r\nHTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX : a\r\n\r\n",
    };
    struct head h;
    unsigned i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(rows); i++)
        if (parse(&h, rows[i], strlen(rows[i]), true) != HEAD_BAD)
            fail_msg("accepted: %s", rows[i]);
}

/* ---- limits: at the limit and one past it ---- */

static char big[HEAD_MAX + 4096];

static size_t put(char *at, const char *text)
{
    memcpy(at, text, strlen(text) + 1);
    return strlen(text);
}

static size_t with_target(size_t target)
{
    size_t n = put(big, "GET /");

    memset(big + n, 'a', target - 1);
    n += target - 1;
    return n + put(big + n, " HTTP/1.1\r\n" HOST "\r\n");
}

static void limits_the_target(void **state)
{
    struct head h;

    (void)state;
    assert_int_equal(parse(&h, big, with_target(HEAD_TARGET_MAX), false), HEAD_DONE);
    assert_int_equal(h.target.len, HEAD_TARGET_MAX);
    assert_int_equal(parse(&h, big, with_target(HEAD_TARGET_MAX + 1), false), HEAD_BAD);
    assert_int_equal(h.error, 414);
    memset(big, 'a', sizeof(big)); /* and one that never ends */
    memcpy(big, "GET /", 5);
    assert_int_equal(parse(&h, big, HEAD_TARGET_MAX + 100, false), HEAD_BAD);
    assert_int_equal(h.error, 414);
}

static size_t with_fields(unsigned fields)
{
    size_t n = put(big, GET);
    unsigned i;

    for (i = 1; i < fields; i++)
        n += put(big + n, "X: a\r\n");
    return n + put(big + n, "\r\n");
}

static void limits_the_fields(void **state)
{
    struct head h;

    (void)state;
    assert_int_equal(parse(&h, big, with_fields(HEAD_FIELDS_MAX), false), HEAD_DONE);
    assert_int_equal(parse(&h, big, with_fields(HEAD_FIELDS_MAX + 1), false), HEAD_BAD);
    assert_int_equal(h.error, 431);
}

static size_t with_size(size_t size)
{
    size_t n = put(big, GET "X: ");

    memset(big + n, 'v', size - n - 4);
    memcpy(big + size - 4, "\r\n\r\n", 4);
    return size;
}

static void limits_the_whole(void **state)
{
    struct head h;

    (void)state;
    assert_int_equal(parse(&h, big, with_size(HEAD_MAX), false), HEAD_DONE);
    assert_int_equal(h.len, HEAD_MAX);
    assert_int_equal(parse(&h, big, with_size(HEAD_MAX + 1), false), HEAD_BAD);
    assert_int_equal(h.error, 431);
    assert_int_equal(parse(&h, big, HEAD_MAX, false), HEAD_BAD); /* no end in sight */
    assert_int_equal(h.error, 431);
    assert_int_equal(parse(&h, big, HEAD_MAX - 1, false), HEAD_MORE);
}

static void limits_method_and_tokens(void **state)
{
    struct head h;
    size_t n;
    unsigned i;

    (void)state;
    n = put(big, "ABCDEFGHABCDEFGHABCDEFGHABCDEFGH / HTTP/1.1\r\n" HOST "\r\n");
    assert_int_equal(parse(&h, big, n, false), HEAD_DONE);
    n = put(big, GET "Connection: a");
    for (i = 1; i < HEAD_TOKENS_MAX; i++)
        n += put(big + n, ",a");
    memcpy(big + n, "\r\n\r\n", 5);
    assert_int_equal(parse(&h, big, n + 4, false), HEAD_DONE);
    memcpy(big + n, ",a\r\n\r\n", 7);
    assert_int_equal(parse(&h, big, n + 6, false), HEAD_BAD);
    assert_int_equal(h.error, 400);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_the_parts_of_a_request),
        cmocka_unit_test(finds_the_parts_of_a_response),
        cmocka_unit_test(understands_connection_and_upgrade),
        cmocka_unit_test(accepts),
        cmocka_unit_test(refuses_what_can_be_read_in_two_ways),
        cmocka_unit_test(refuses_nul_bytes),
        cmocka_unit_test(refuses_malformed_responses),
        cmocka_unit_test(limits_the_target),
        cmocka_unit_test(limits_the_fields),
        cmocka_unit_test(limits_the_whole),
        cmocka_unit_test(limits_method_and_tokens),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
