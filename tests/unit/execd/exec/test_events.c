/* Events are what jansson would have written, for any bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/base/buf.h"
#include "common/json/jx.h"
#include "execd/exec/events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT(number) ((struct event_stamp){ 5, (number) })
/* The traceback argument and its length. */
#define LINES(...)                                                                                 \
    (const char *const[]){ __VA_ARGS__ },                                                          \
        sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *)

static void same_as_jansson(const char *text, size_t len)
{
    struct buf out = BUF_INIT(1 << 20);
    json_t *want = json_pack("{s:s, s:o, s:I}", "type", "stdout", "text", jx_bytes(text, len),
                             "timestamp", (json_int_t)1760000000000);
    json_t *got;

    assert_int_equal(
        event_text(&out, "stdout", text, len, (struct event_stamp){ 1760000000000, 0 }), 0);
    assert_true(out.len > 2 && strcmp(out.data + out.len - 2, "\n\n") == 0);
    out.data[out.len - 2] = '\0';
    assert_null(strchr(out.data, '\n'));
    got = json_loads(out.data, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    assert_non_null(got);
    assert_true(json_equal(got, want));
    for (const char *p = out.data; *p; p++)
        assert_in_range((unsigned char)*p, 0x20, 0x7e);
    json_decref(got);
    json_decref(want);
    buf_free(&out);
}

static void any_bytes(void **state)
{
    char data[64];
    unsigned seed = 1;
    unsigned round;
    size_t i;

    (void)state;
    same_as_jansson("", 0);
    same_as_jansson("hi\n", 3);
    same_as_jansson("\0\x01\x1f \"\\/\b\f\n\r\t\x7f", 14);
    same_as_jansson("é☕你好😀\xe2\x80\xa8\xc2\x85", strlen("é☕你好😀\xe2\x80\xa8\xc2\x85"));
    same_as_jansson("\xff\xc0\x80\xed\xa0\x80\xf4\x90\x80\x80\xf8\xe2\x82", 13);
    for (round = 0; round < 3000; round++) {
        for (i = 0; i < sizeof(data); i++) {
            seed = seed * 1103515245 + 12345;
            data[i] = (char)(seed >> 16);
            if (seed >> 24 & 1) /* make multi-byte sequences likely */
                data[i] = (char)(0x80 | (data[i] & 0x3f));
        }
        same_as_jansson(data, round % sizeof(data));
    }
}

static void exact_text(void **state)
{
    struct buf out = BUF_INIT(4096);

    (void)state;
    assert_int_equal(event_text(&out, "ping", "pong", 4, AT(0)), 0);
    assert_string_equal(out.data, "{\"type\":\"ping\",\"text\":\"pong\",\"timestamp\":5}\n\n");
    buf_clear(&out);
    assert_int_equal(event_complete(&out, 7, AT(0)), 0);
    assert_string_equal(
        out.data, "{\"type\":\"execution_complete\",\"execution_time\":7,\"timestamp\":5}\n\n");
    buf_clear(&out);
    assert_int_equal(event_error(&out, "CommandExecError", "3", LINES("exit status 3"), AT(0)), 0);
    assert_string_equal(out.data, "{\"type\":\"error\",\"error\":{\"ename\":\"CommandExecError\","
                                  "\"evalue\":\"3\",\"traceback\":[\"exit status 3\"]},"
                                  "\"timestamp\":5}\n\n");
    buf_clear(&out);
    assert_int_equal(event_error(&out, "E", "-1", LINES("a\"b", "c"), AT(0)), 0);
    assert_non_null(strstr(out.data, "\"traceback\":[\"a\\\"b\",\"c\"]"));
    buf_free(&out);
}

static void a_full_buffer_is_told(void **state)
{
    struct buf out = BUF_INIT(40);

    (void)state;
    assert_int_equal(event_text(&out, "stdout", "0123456789012345678901234567890", 31, AT(0)), -1);
    buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_bytes),
        cmocka_unit_test(exact_text),
        cmocka_unit_test(a_full_buffer_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
