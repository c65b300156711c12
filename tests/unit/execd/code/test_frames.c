/* Messages of drivers: what they may be, and what becomes of others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/base/err.h"
#include "execd/code/frames.h"

#include <stdlib.h>
#include <string.h>

static void put(struct frames *f, const char *text, size_t len)
{
    char *at = frames_reserve(f, len);

    assert_non_null(at);
    memcpy(at, text, len);
    frames_commit(f, len);
}

static void say(struct frames *f, const char *text)
{
    put(f, text, strlen(text));
}

static void a_message_is_a_line(void **state)
{
    struct frames f;
    struct frame fr;
    struct err e = { 0 };

    (void)state;
    frames_init(&f);
    say(&f,
        "{\"type\":\"ready\"}\n{\"type\":\"result\",\"count\":2,\"data\":{\"text/plain\":\"4\"");
    assert_int_equal(frames_next(&f, &fr, &e), 1);
    assert_int_equal(fr.type, FRAME_READY);
    frame_free(&fr);
    assert_int_equal(frames_next(&f, &fr, &e), 0);
    say(&f, "}}\n");
    assert_int_equal(frames_next(&f, &fr, &e), 1);
    assert_int_equal(fr.type, FRAME_RESULT);
    assert_int_equal(fr.count, 2);
    assert_string_equal(json_string_value(json_object_get(fr.data, "text/plain")), "4");
    frame_free(&fr);
    assert_int_equal(frames_next(&f, &fr, &e), 0);
    assert_null(f.line.data);
    frames_free(&f);
}

static void an_error_has_all_of_its_parts(void **state)
{
    struct frames f;
    struct frame fr;
    struct err e = { 0 };

    (void)state;
    frames_init(&f);
    say(&f, "{\"type\":\"error\",\"ename\":\"E\",\"evalue\":\"v\",\"traceback\":[\"a\"]}\n");
    assert_int_equal(frames_next(&f, &fr, &e), 1);
    assert_string_equal(fr.ename, "E");
    assert_string_equal(fr.evalue, "v");
    assert_int_equal(json_array_size(fr.traceback), 1);
    frame_free(&fr);
    frames_free(&f);
}

static void what_is_none_is_dropped_and_others_follow(void **state)
{
    static const char *const bad[] = {
        "",
        "nonsense",
        "[]",
        "{}",
        "{\"type\":\"other\"}",
        "{\"type\":\"result\"}",
        "{\"type\":\"result\",\"data\":{\"text/plain\":5}}",
        "{\"type\":\"error\",\"ename\":\"E\"}",
        "{\"type\":\"error\",\"ename\":\"E\",\"evalue\":\"v\",\"traceback\":[1]}",
        "{\"type\":\"idle\",\"count\":-1}",
        "\xff",
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct frames f;
        struct frame fr;
        struct err e = { 0 };

        frames_init(&f);
        say(&f, bad[i]);
        say(&f, "\n{\"type\":\"idle\"}\n");
        assert_int_equal(frames_next(&f, &fr, &e), -1);
        assert_int_equal(e.code, ERRC_INVALID);
        assert_int_equal(frames_next(&f, &fr, &e), 1);
        assert_int_equal(fr.type, FRAME_IDLE);
        frame_free(&fr);
        frames_free(&f);
    }
}

static void a_line_that_is_too_long_is_dropped_once(void **state)
{
    struct frames f;
    struct frame fr;
    struct err e = { 0 };
    char chunk[65536];
    unsigned bad = 0;
    size_t n;
    int rc;

    (void)state;
    memset(chunk, 'x', sizeof(chunk));
    frames_init(&f);
    for (n = 0; n < 3 * (size_t)FRAMES_LINE_MAX; n += sizeof(chunk)) {
        put(&f, chunk, sizeof(chunk));
        while ((rc = frames_next(&f, &fr, &e)) != 0) {
            assert_int_equal(rc, -1);
            bad++;
        }
        assert_true(f.line.len <= FRAMES_LINE_MAX + sizeof(chunk));
    }
    assert_int_equal(bad, 1);
    say(&f, "\n{\"type\":\"idle\"}\n");
    assert_int_equal(frames_next(&f, &fr, &e), 1);
    frame_free(&fr);
    frames_free(&f);
}

static void a_line_of_too_many_values_is_not_read(void **state)
{
    struct frames f;
    struct frame fr;
    struct err e = { 0 };
    unsigned i;

    (void)state;
    frames_init(&f);
    for (i = 0; i < FRAMES_VALUES_MAX; i++)
        say(&f, "[],");
    say(&f, "\n");
    assert_int_equal(frames_next(&f, &fr, &e), -1);
    assert_non_null(strstr(e.msg, "values"));
    frames_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_is_a_line),
        cmocka_unit_test(an_error_has_all_of_its_parts),
        cmocka_unit_test(what_is_none_is_dropped_and_others_follow),
        cmocka_unit_test(a_line_that_is_too_long_is_dropped_once),
        cmocka_unit_test(a_line_of_too_many_values_is_not_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
