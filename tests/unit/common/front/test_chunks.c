#include "tests/unit/test.h"

#include "common/base/macros.h"
#include "common/front/chunks.h"

#include <string.h>

/* Fed at once and byte by byte: the same bytes belong to the body. -1 when refused. */
static ssize_t feed(const char *text, size_t len, bool *done)
{
    struct chunks whole = { 0 };
    struct chunks slow = { 0 };
    ssize_t n = chunks_feed(&whole, text, len);
    ssize_t sum = 0;
    size_t i;

    for (i = 0; i < len && sum >= 0 && !chunks_done(&slow); i++) {
        ssize_t one = chunks_feed(&slow, text + i, 1);

        sum = one < 0 ? -1 : sum + one;
    }
    assert_int_equal(sum, n);
    if (n >= 0)
        assert_int_equal(chunks_done(&whole), chunks_done(&slow));
    *done = chunks_done(&whole);
    return n;
}

static void follows_bodies(void **state)
{
    static const char *const rows[] = {
        "0\r\n\r\n",
        "5\r\nhello\r\n0\r\n\r\n",
        "00005\r\nhello\r\n000\r\n\r\n",
        "a;name=value;x=\"y z\"\r\n0123456789\r\nA \t;x\r\n0123456789\r\n0;last\r\n\r\n",
        "1\r\n\r\r\n1\r\n\n\r\n0\r\n\r\n",
        "5\r\nhello\r\n0\r\nGrpc-Status: 0\r\nX-Empty:\r\nX: \xc3\xa4\t1\r\n\r\n",
    };
    char more[128];
    bool done;
    unsigned i;
    size_t len;

    (void)state;
    for (i = 0; i < ARRAY_LEN(rows); i++) {
        len = strlen(rows[i]);
        if (feed(rows[i], len, &done) != (ssize_t)len || !done)
            fail_msg("refused: %s", rows[i]);
        assert_int_equal(feed(rows[i], len - 1, &done), len - 1);
        assert_false(done);
        memcpy(more, rows[i], len);
        memcpy(more + len, "GET ", 4); /* is not part of it */
        assert_int_equal(feed(more, len + 4, &done), len);
        assert_true(done);
    }
}

static void refuses(void **state)
{
    static const char *const rows[] = {
        "\r\n",
        "g\r\n",
        "-1\r\n",
        "+1\r\n",
        "0x1\r\n",
        " 1\r\n",
        "1 \r\n",
        "1 x\r\n",
        "1\n",
        "1\r\r\n",
        "1\ra",
        ";x\r\n",
        "1;a\x01\r\n",
        "1;a\nb\r\n",
        "1;a\rb\r\n",
        "1\r\nab",
        "1\r\na\n",
        "1\r\na\rb",
        "5\r\nhello0\r\n",
        "0000000000000000\r\n", /* 16 digits */
        "fffffffffffffffff\r\n",
        "0\r\n\n",
        "0\r\n\rX",
        "0\r\nX\r\n",
        "0\r\n: x\r\n",
        "0\r\nX : x\r\n",
        "0\r\n X: x\r\n",
        "0\r\nX: a\n",
        "0\r\nX: a\x01",
        "0\r\nX: a\r\r",
        "0\r\nX: a\r\n b\r\n",
    };
    bool done;
    unsigned i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(rows); i++)
        if (feed(rows[i], strlen(rows[i]), &done) != -1)
            fail_msg("accepted: %s", rows[i]);
}

static void data_by_itself(void **state)
{
    static const char body[] = "5;x=y\r\nhello\r\n1\r\n \r\n00A\r\nwide world\r\n0\r\nT: v\r\n\r\n";
    struct chunks c = { 0 };
    char got[64];
    size_t len = 0;
    size_t at = 0;
    size_t n;

    (void)state;
    while (!chunks_done(&c)) {
        assert_true(at < sizeof(body) - 1);
        n = chunks_data(&c, sizeof(body) - 1 - at);
        memcpy(got + len, body + at, n);
        len += n;
        n = n ? n : 1;
        assert_int_equal(chunks_feed(&c, body + at, n), n);
        at += n;
    }
    assert_int_equal(at, sizeof(body) - 1);
    assert_int_equal(len, 16);
    assert_memory_equal(got, "hello wide world", 16);
    assert_int_equal(chunks_data(&c, 5), 0);
}

static void limits(void **state)
{
    static char text[CHUNKS_TRAILER_MAX + 64];
    struct chunks c = { 0 };
    size_t n;

    (void)state;
    /* digits */
    assert_int_equal(chunks_feed(&c, "fffffffffffffff\r\n", 17), 17);
    assert_true(c.left == 0xfffffffffffffff);
    /* extensions */
    memset(text, 'a', sizeof(text));
    memcpy(text, "1;", 2);
    n = 2 + CHUNKS_EXT_MAX - 1;
    text[n] = '\r'; /* counts, too */
    c = (struct chunks){ 0 };
    assert_int_equal(chunks_feed(&c, text, n + 1), n + 1);
    text[n] = 'a';
    text[n + 1] = '\r';
    c = (struct chunks){ 0 };
    assert_int_equal(chunks_feed(&c, text, n + 2), -1);
    /* trailers */
    memset(text, 'a', sizeof(text));
    memcpy(text, "0\r\nX:", 5);
    n = 3 + CHUNKS_TRAILER_MAX - 4;
    memcpy(text + n, "\r\n\r\n", 4);
    c = (struct chunks){ 0 };
    assert_int_equal(chunks_feed(&c, text, n + 4), n + 4);
    assert_true(chunks_done(&c));
    text[n] = 'a';
    memcpy(text + n + 1, "\r\n\r\n", 4);
    c = (struct chunks){ 0 };
    assert_int_equal(chunks_feed(&c, text, n + 5), -1);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(follows_bodies),
        cmocka_unit_test(refuses),
        cmocka_unit_test(data_by_itself),
        cmocka_unit_test(limits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
