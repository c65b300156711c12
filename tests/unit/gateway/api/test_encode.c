/* Records as JSON: the writer against a parser, and what must be left out. */
#include "tests/unit/test.h"

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/json/jx.h"
#include "gateway/api/api.h"
#include "gateway/sandbox.h"

#include <stdlib.h>
#include <string.h>

static struct sandbox record(void)
{
    return (struct sandbox){ .id = "00000000-0000-4000-8000-000000000001",
                             .state = SANDBOX_RUNNING,
                             .reason = "R",
                             .message = "M",
                             .transition_ms = 1000,
                             .created_ms = 1001,
                             .exit_code = SANDBOX_NO_EXIT_CODE,
                             .token = "hidden-token",
                             .secure_token = "hidden-token",
                             .image = (char *)"img:1",
                             .entrypoint = (char *)"[\"a\",\"b\\n\\u0001\"]",
                             .metadata = (char *)"{}",
                             .extensions = (char *)"{}" };
}

static json_t *encode(const struct sandbox *sb, bool with_image)
{
    struct http_resp rs = { 0 };
    struct err e;
    json_t *v;

    assert_int_equal(api_reply_sandbox(&rs, 200, sb, with_image, &e), 0);
    assert_int_equal(strlen(rs.body), rs.body_len);
    assert_null(strstr(rs.body, "hidden-token"));
    assert_null(strstr(rs.body, "null"));
    v = jx_parse(rs.body, rs.body_len, true, &e); /* strict: duplicate members are errors */
    if (!v)
        fail_msg("%s in %s", e.msg, rs.body);
    free(rs.body);
    return v;
}

static void only_what_there_is(void **state)
{
    struct sandbox sb = record();
    json_t *v = encode(&sb, true);

    (void)state;
    assert_int_equal(json_object_size(v), 5);
    assert_string_equal(json_string_value(json_object_get(v, "createdAt")),
                        "1970-01-01T00:00:01.001000Z");
    assert_string_equal(json_string_value(json_object_get(json_object_get(v, "image"), "uri")),
                        "img:1");
    assert_string_equal(json_string_value(json_array_get(json_object_get(v, "entrypoint"), 1)),
                        "b\n\x01");
    json_decref(v);
    v = encode(&sb, false);
    assert_null(json_object_get(v, "image"));
    json_decref(v);
}

static void all_there_can_be(void **state)
{
    struct sandbox sb = record();
    json_t *v;

    (void)state;
    sb.image = (char *)"";
    (void)snprintf(sb.snapshot_id, sizeof(sb.snapshot_id), "%s", sb.id);
    (void)snprintf(sb.platform_os, sizeof(sb.platform_os), "linux");
    (void)snprintf(sb.platform_arch, sizeof(sb.platform_arch), "arm64");
    sb.metadata = (char *)"{\"a\":\"b\"}";
    sb.extensions = (char *)"{\"x\":\"y\"}";
    sb.expires_ms = 5000;
    sb.ended_ms = 6000;
    v = encode(&sb, true);
    assert_int_equal(json_object_size(v), 10);
    assert_null(json_object_get(v, "image"));
    assert_null(json_object_get(v, "exitCode")); /* none is known */
    json_decref(v);
    sb.exit_code = 0;
    v = encode(&sb, true);
    assert_int_equal(json_integer_value(json_object_get(v, "exitCode")), 0);
    assert_true(json_is_integer(json_object_get(v, "exitCode")));
    json_decref(v);
    sb.ended_ms = 0; /* only records of the end have it */
    v = encode(&sb, true);
    assert_null(json_object_get(v, "exitCode"));
    assert_null(json_object_get(v, "endedAt"));
    json_decref(v);
}

static void messages_are_escaped_and_repaired(void **state)
{
    static const struct {
        const char *in;
        const char *out;
    } cases[] = {
        { "", "" },
        { "plain", "plain" },
        { "say \"hi\" \\ back", "say \"hi\" \\ back" },
        { "tab\tline\n\x01 del\x7f", "tab\tline\n\x01 del\x7f" },
        { "zażółć", "zażółć" },
        { "broken \xff end", "broken \xef\xbf\xbd end" },
    };
    struct sandbox sb = record();
    json_t *v;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        (void)snprintf(sb.message, sizeof(sb.message), "%s", cases[i].in);
        v = encode(&sb, true);
        assert_string_equal(
            json_string_value(json_object_get(json_object_get(v, "status"), "message")),
            cases[i].out);
        json_decref(v);
    }
}

static void pages_count(void **state)
{
    struct sandbox items[2] = { record(), record() };
    struct sandbox_page p = { items, 2, 41 };
    struct api_page at = { 1, 20 };
    struct http_resp rs = { 0 };
    struct err e;
    json_t *v;

    (void)state;
    assert_int_equal(api_reply_page(&rs, &p, &at, &e), 0);
    v = jx_parse(rs.body, rs.body_len, true, &e);
    assert_int_equal(json_array_size(json_object_get(v, "items")), 2);
    free(rs.body);
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(v, "pagination"), "totalPages")), 3);
    assert_true(json_is_true(json_object_get(json_object_get(v, "pagination"), "hasNextPage")));
    json_decref(v);
    p = (struct sandbox_page){ items, 0, 0 };
    rs = (struct http_resp){ 0 };
    assert_int_equal(api_reply_page(&rs, &p, &at, &e), 0);
    assert_string_equal(rs.body, "{\"items\":[],\"pagination\":{\"page\":1,\"pageSize\":20,"
                                 "\"totalItems\":0,\"totalPages\":0,\"hasNextPage\":false}}");
    free(rs.body);
}

/* Messages have a size and may be cut within a character. */
static void texts_are_what_they_say(void **state)
{
    static const char *const rows[][2] = { { "a\xe2\x82; b\n", "a\xef\xbf\xbd\xef\xbf\xbd; b\n" },
                                           { "\xe2\x82\xac\n", "\xe2\x82\xac\n" } };
    struct http_resp rs;
    struct buf text;
    struct err e;
    size_t i;

    (void)state;
    for (i = 0; i < 2; i++) {
        text = BUF_INIT(64);
        rs = (struct http_resp){ 0 };
        assert_int_equal(buf_puts(&text, rows[i][0]), 0);
        assert_int_equal(api_reply_text(&rs, &text, &e), 0);
        assert_string_equal(rs.body, rows[i][1]);
        assert_int_equal(rs.body_len, strlen(rows[i][1]));
        free(rs.body);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_there_is),
        cmocka_unit_test(all_there_can_be),
        cmocka_unit_test(messages_are_escaped_and_repaired),
        cmocka_unit_test(pages_count),
        cmocka_unit_test(texts_are_what_they_say),
    };

    jx_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
