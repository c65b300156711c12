/* Frames and the handshake, byte by byte. */
#include "tests/unit/test.h"

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/macros.h"
#include "common/ws/frame.h"
#include "common/ws/handshake.h"

#include <stdlib.h>
#include <string.h>

#define BYTES(s) (s), sizeof(s) - 1

enum { MAX = 1000 };

/* Feeds all of it in steps and says what came first. */
static enum ws_event feed(struct ws_parser *p, const char *in, size_t len, size_t step,
                          struct ws_item *out)
{
    size_t at = 0;
    size_t used;
    enum ws_event ev;

    while (at < len) {
        ev = ws_parse(p, in + at, len - at < step ? len - at : step, &used, out);
        at += used;
        if (ev != WS_EVENT_NONE)
            return ev;
    }
    return WS_EVENT_NONE;
}

/* The event of a fresh parser, the same for every way to cut the input. */
static enum ws_event one(bool server, const char *in, size_t len, unsigned *code)
{
    enum ws_event ev = WS_EVENT_NONE;
    size_t step;

    for (step = 1; step <= len; step++) {
        struct ws_parser p;
        struct ws_item item = { 0 };

        ws_parser_init(&p, server, MAX);
        ev = feed(&p, in, len, step, &item);
        if (code)
            *code = item.code;
        ws_parser_free(&p);
    }
    return ev;
}

static void messages_come_whole(void **state)
{
    /* RFC 6455 section 5.7: "Hello", masked, and in two fragments with a Ping between them */
    static const char masked[] = "\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58";
    static const char parts[] = "\x01\x03Hel\x89\x02hi\x80\x02lo";
    struct ws_parser p;
    struct ws_item item;
    size_t step;
    size_t used;

    (void)state;
    for (step = 1; step < sizeof(masked); step++) {
        ws_parser_init(&p, true, MAX);
        assert_int_equal(feed(&p, BYTES(masked), step, &item), WS_EVENT_MESSAGE);
        assert_true(item.text);
        assert_string_equal(item.data, "Hello");
        assert_int_equal(item.len, 5);
        ws_parser_free(&p);
    }
    ws_parser_init(&p, false, MAX);
    assert_int_equal(ws_parse(&p, BYTES(parts), &used, &item), WS_EVENT_PING);
    assert_memory_equal(item.data, "hi", 2);
    assert_int_equal(ws_parse(&p, parts + used, sizeof(parts) - 1 - used, &used, &item),
                     WS_EVENT_MESSAGE);
    assert_string_equal(item.data, "Hello");
    assert_int_equal(ws_parse(&p, BYTES("\x82\x00"), &used, &item), WS_EVENT_MESSAGE);
    assert_false(item.text);
    assert_string_equal(item.data, "");
    ws_parser_free(&p);
}

static void lengths(void **state)
{
    static const size_t sizes[] = { 0, 1, 125, 126, 127, 65535, 65536, 70000 };
    char *text = calloc(1, 70000 + WS_HEAD_MAX);
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(sizes); i++) {
        unsigned char head[WS_HEAD_MAX];
        unsigned char mask[4] = { 1, 2, 3, 4 };
        size_t n = ws_head(head, WS_BINARY, sizes[i], mask);
        struct ws_parser p;
        struct ws_item item;

        memcpy(text, head, n);
        memset(text + n, 'x', sizes[i]);
        ws_mask(text + n, sizes[i], mask, 0);
        ws_parser_init(&p, true, 70000);
        assert_int_equal(feed(&p, text, n + sizes[i], 4093, &item), WS_EVENT_MESSAGE);
        assert_int_equal(item.len, sizes[i]);
        assert_true(!sizes[i] || item.data[sizes[i] - 1] == 'x');
        ws_parser_free(&p);
    }
    free(text);
}

static void what_breaks_the_rules(void **state)
{
    static const struct {
        const char *in;
        size_t len;
        unsigned code;
    } rows[] = {
        { BYTES("\xc1\x00"), WS_CODE_PROTOCOL },                 /* a reserved bit */
        { BYTES("\x81\x80\x01\x02\x03\x04"), WS_CODE_PROTOCOL }, /* masked by a server */
        { BYTES("\x83\x00"), WS_CODE_PROTOCOL },                 /* unknown opcodes */
        { BYTES("\x8b\x00"), WS_CODE_PROTOCOL },
        { BYTES("\x09\x00"), WS_CODE_PROTOCOL },           /* a Ping in parts */
        { BYTES("\x89\x7e\x00\x7e"), WS_CODE_PROTOCOL },   /* a long one */
        { BYTES("\x80\x01x"), WS_CODE_PROTOCOL },          /* nothing to continue */
        { BYTES("\x01\x01x\x01\x01x"), WS_CODE_PROTOCOL }, /* a beginning inside */
        { BYTES("\x82\x7e\x00\x7d"), WS_CODE_PROTOCOL },   /* longer than need be */
        { BYTES("\x82\x7f\x00\x00\x00\x00\x00\x00\xff\xff"), WS_CODE_PROTOCOL },
        { BYTES("\x82\x7f\x80\x00\x00\x00\x00\x01\x00\x00"), WS_CODE_PROTOCOL },
        { BYTES("\x88\x01x"), WS_CODE_PROTOCOL },        /* half a code */
        { BYTES("\x88\x02\x03\xed"), WS_CODE_PROTOCOL }, /* 1005 */
        { BYTES("\x88\x02\x03\xe7"), WS_CODE_PROTOCOL }, /* 999 */
        { BYTES("\x88\x02\x13\x88"), WS_CODE_PROTOCOL }, /* 5000 */
        { BYTES("\x88\x03\x03\xe8\xff"), WS_CODE_BAD_TEXT },
        { BYTES("\x81\x02\xc3\x28"), WS_CODE_BAD_TEXT },
        { BYTES("\x82\x7e\x03\xe9"), WS_CODE_TOO_BIG }, /* MAX + 1 */
        { BYTES("\x82\x7f\x00\x00\x00\xff\x00\x00\x00\x00"), WS_CODE_TOO_BIG },
    };
    unsigned code = 0;
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(rows); i++) {
        assert_int_equal(one(false, rows[i].in, rows[i].len, &code), WS_EVENT_BAD);
        if (code != rows[i].code)
            fail_msg("row %zu: code %u, not %u", i, code, rows[i].code);
    }
    assert_int_equal(one(true, BYTES("\x81\x01x"), &code), WS_EVENT_BAD); /* unmasked by a client */
}

static void a_message_in_parts_has_the_limit_too(void **state)
{
    char part[502] = "\x02\x7e\x01\xf0";
    struct ws_parser p;
    struct ws_item item;

    (void)state;
    ws_parser_init(&p, false, 1000);
    assert_int_equal(feed(&p, part, 500, 500, &item), WS_EVENT_NONE);
    part[0] = 0;
    assert_int_equal(feed(&p, part, 500, 500, &item), WS_EVENT_NONE);
    assert_int_equal(feed(&p, BYTES("\x00\x08xxxxxxxx"), 500, &item), WS_EVENT_NONE); /* 1000 */
    assert_int_equal(feed(&p, BYTES("\x80\x01x"), 500, &item), WS_EVENT_BAD);
    assert_int_equal(item.code, WS_CODE_TOO_BIG);
    ws_parser_free(&p);
}

static void close_frames(void **state)
{
    unsigned code = 0;

    (void)state;
    assert_int_equal(one(false, BYTES("\x88\x00"), &code), WS_EVENT_CLOSE);
    assert_int_equal(code, WS_CODE_NONE);
    assert_int_equal(one(false,
                         BYTES("\x88\x05\x0f\xa1"
                               "bye"),
                         &code),
                     WS_EVENT_CLOSE);
    assert_int_equal(code, 4001);
}

/* ---- handshake ---- */

static void accept_of_the_standard(void **state)
{
    char accept[WS_ACCEPT_TEXT];
    char key[WS_KEY_TEXT];

    (void)state;
    ws_accept_of("dGhlIHNhbXBsZSBub25jZQ==", accept); /* RFC 6455 section 1.3 */
    assert_string_equal(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    ws_make_key(key);
    assert_int_equal(strlen(key), 24);
    assert_string_equal(key + 22, "==");
}

static void requests(void **state)
{
    static const char *const headers[] = { "Authorization", "token abc" };
    static const char *const evil[] = { "X", "a\r\nY: b" };
    struct ws_dial d = {
        .host = "::1", .port = 8888, .target = "/a?b=c", .headers = headers, .n_headers = 1
    };
    struct buf out = BUF_INIT(4096);
    struct err e;

    (void)state;
    assert_int_equal(ws_put_request(&d, "KEY", &out, &e), 0);
    assert_string_equal(out.data,
                        "GET /a?b=c HTTP/1.1\r\nHost: [::1]:8888\r\nConnection: Upgrade\r\n"
                        "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                        "Sec-WebSocket-Key: KEY\r\nAuthorization: token abc\r\n\r\n");
    d.headers = evil;
    assert_int_equal(ws_put_request(&d, "KEY", &out, &e), -1);
    d.headers = headers;
    d.target = "/a b";
    assert_int_equal(ws_put_request(&d, "KEY", &out, &e), -1);
    d.target = "a";
    assert_int_equal(ws_put_request(&d, "KEY", &out, &e), -1);
    buf_free(&out);
}

#define KEY "dGhlIHNhbXBsZSBub25jZQ=="
#define GOOD                                                                                        \
    "HTTP/1.1 101 Switching Protocols\r\nupgrade: WebSocket\r\nCONNECTION: keep-alive, Upgrade\r\n" \
    "Sec-WebSocket-Accept:  s3pPLMBiTxaQ9kYGzzhZRbK+xOo= \r\n"

static void answers(void **state)
{
    static const struct {
        const char *text;
        const char *says;
    } bad[] = {
        { "HTTP/1.1 403 No\r\n\r\n", "HTTP 403" },
        { "HTTP/1.0 101 X\r\n\r\n", "not HTTP/1.1" },
        { "SSH-2.0-x\r\n\r\n", "not HTTP/1.1" },
        { "HTTP/1.1 xyz\r\n\r\n", "no status" },
        { "HTTP/1.1 101 X\r\n\r\n", "another protocol" },
        { "HTTP/1.1 101 X\r\nUpgrade: websocket\r\n\r\n", "Connection" },
        { "HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n", "Accept" },
        { "HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n",
          "Accept" },
        { GOOD "Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n", "extension" },
    };
    char *lots = malloc(WS_ANSWER_MAX);
    struct err e;
    size_t used = 0;
    size_t i;

    (void)state;
    for (i = 1; i < strlen(GOOD) + 2; i++)
        assert_int_equal(ws_read_answer(GOOD "\r\n", i, KEY, &used, &e), 0);
    assert_int_equal(ws_read_answer(GOOD "\r\n\x81\x00", strlen(GOOD) + 4, KEY, &used, &e), 1);
    assert_int_equal(used, strlen(GOOD) + 2);
    for (i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(ws_read_answer(bad[i].text, strlen(bad[i].text), KEY, &used, &e), -1);
        assert_contains(e.msg, bad[i].says);
    }
    memset(lots, 'x', WS_ANSWER_MAX);
    assert_int_equal(ws_read_answer(lots, WS_ANSWER_MAX - 1, KEY, &used, &e), 0);
    assert_int_equal(ws_read_answer(lots, WS_ANSWER_MAX, KEY, &used, &e), -1);
    free(lots);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_come_whole),
        cmocka_unit_test(lengths),
        cmocka_unit_test(what_breaks_the_rules),
        cmocka_unit_test(a_message_in_parts_has_the_limit_too),
        cmocka_unit_test(close_frames),
        cmocka_unit_test(accept_of_the_standard),
        cmocka_unit_test(requests),
        cmocka_unit_test(answers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
