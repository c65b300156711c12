#include "tests/unit/test.h"

#include "common/base/err.h"
#include "common/base/macros.h"
#include "common/json/jx.h"

#include <stdlib.h>
#include <string.h>

struct thing {
    const char *name;
    int64_t n;
    bool on;
    json_t *env;
    json_t *args;
    json_t *spec;
    json_t *rows;
};

enum { NAME_MAX_LEN = 8 };

static const struct jx_field fields[] = {
    { "name", JX_STR, offsetof(struct thing, name), JX_REQUIRED | JX_NONEMPTY, 0, 0, NAME_MAX_LEN },
    { "n", JX_I64, offsetof(struct thing, n), JX_NULLABLE, 1, 100, 0 },
    { "on", JX_BOOL, offsetof(struct thing, on), 0, 0, 0, 0 },
    { "env", JX_STR_MAP, offsetof(struct thing, env), 0, 0, 2, 4 },
    { "args", JX_STR_LIST, offsetof(struct thing, args), 0, 1, 3, 4 },
    { "spec", JX_OBJ, offsetof(struct thing, spec), 0, 0, 0, 0 },
    { "rows", JX_LIST, offsetof(struct thing, rows), 0, 0, 2, 0 },
};

static const struct jx_field lax_fields[] = {
    { "n", JX_I64, offsetof(struct thing, n), JX_LAX, 0, 0, 0 },
    { "on", JX_BOOL, offsetof(struct thing, on), JX_LAX, 0, 0, 0 },
    { "env", JX_STR_MAP, offsetof(struct thing, env), JX_NULL_VALUES, 0, 0, 0 },
};

/* ---- parse ---- */

static int parse(const char *text, bool strict, struct err *e)
{
    json_t *v = jx_parse(text, strlen(text), strict, e);
    int ok = v != NULL;

    json_decref(v);
    return ok;
}

static void parse_takes_any_value(void **state)
{
    static const char *const good[] = {
        "{}", "[]", "\"x\"", "1", "-1.5e3", "true", "null", " {} \n"
    };
    struct err e = { 0 };
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(good); i++)
        assert_true(parse(good[i], true, &e));
}

static void parse_refuses(void **state)
{
    static const char *const bad[] = {
        "{",
        "{]",
        "{\"a\":}",
        "{'a':1}",
        "{\"a\":1,}",
        "[1,]",
        "01",
        "1.",
        "nul",
        "\"\\u0000\"",
        "\"\\ud800\"",
        "\"\xff\"",
        "\"\n\"",
        "1e999",
        "{\"a\":1,\"a\":2}",
        "\"\xed\xa0\x80\"",
        "99999999999999999999",
        "{\"a\":1",
        "[\"a\" \"b\"]",
        "\xef\xbb\xbf{}",
    };
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(bad); i++) {
        struct err e = { 0 };

        if (parse(bad[i], true, &e))
            fail_msg("%s was accepted", bad[i]);
        assert_int_equal(e.code, ERRC_INVALID);
        assert_contains(e.msg, "not valid JSON");
        assert_contains(e.msg, "line 1");
    }
}

static void parse_of_nothing_says_so(void **state)
{
    struct err e = { 0 };

    (void)state;
    assert_null(jx_parse(NULL, 0, true, &e));
    assert_int_equal(e.code, ERRC_INVALID);
    assert_contains(e.msg, "JSON body is required");
    assert_null(jx_parse("", 0, true, &e));
    assert_contains(e.msg, "JSON body is required");
}

/* The text ends in a response and in the log: a value may be a secret. */
static void parse_error_does_not_quote_the_body(void **state)
{
    struct err e = { 0 };

    (void)state;
    assert_false(parse("{\"token\": \"hunter2secret\" \"x\": 1}", true, &e));
    assert_null(strstr(e.msg, "hunter2"));
    assert_false(parse("{\"token\": hunter2secret}", true, &e));
    assert_null(strstr(e.msg, "hunter2"));
    assert_false(parse("[\"hunter2secret", true, &e));
    assert_null(strstr(e.msg, "hunter2"));
    assert_false(parse("{\"hunter2secret\" 1}", true, &e));
    assert_null(strstr(e.msg, "hunter2"));
    assert_false(parse("{\"hunter2secret\":1,\"hunter2secret\":2}", true, &e));
    assert_null(strstr(e.msg, "hunter2"));
    assert_contains(e.msg, "duplicate");
}

static void what_follows_matters_when_strict(void **state)
{
    struct err e = { 0 };

    (void)state;
    assert_false(parse("{} x", true, &e));
    assert_false(parse("{}{}", true, &e));
    assert_true(parse("{} x", false, &e));
    assert_true(parse("{}{}", false, &e));
}

static void nested(char *out, int depth, char open, char close)
{
    memset(out, open, (size_t)depth);
    memset(out + depth, close, (size_t)depth);
    out[2 * depth] = '\0';
}

static void depth_is_limited(void **state)
{
    char text[4 * JX_DEPTH_MAX];
    struct err e = { 0 };

    (void)state;
    nested(text, JX_DEPTH_MAX, '[', ']');
    assert_true(parse(text, true, &e));
    nested(text, JX_DEPTH_MAX + 1, '[', ']');
    assert_false(parse(text, true, &e));
    assert_contains(e.msg, "deeper than 64");
    assert_false(parse(text, false, &e));
}

static void brackets_in_strings_do_not_count(void **state)
{
    char text[400] = "[\"\\\"";
    struct err e = { 0 };

    (void)state;
    memset(text + 4, '[', 200);
    memcpy(text + 204, "\"]", 3);
    assert_true(parse(text, true, &e));
}

/* ---- decode ---- */

/* Returns the decoder's result; *out is only good until the next call. */
static int decode(const char *text, const char *at, struct thing *out, struct err *e)
{
    static json_t *kept;
    json_t *v = jx_parse(text, strlen(text), true, e);

    assert_non_null(v);
    json_decref(kept);
    kept = v;
    return jx_decode(v, at, fields, ARRAY_LEN(fields), false, out, e);
}

static int decode_lax(const char *text, struct thing *out, struct err *e)
{
    json_t *v = jx_parse(text, strlen(text), true, e);
    int rc;

    assert_non_null(v);
    rc = jx_decode(v, "", lax_fields, ARRAY_LEN(lax_fields), false, out, e);
    out->env = NULL;
    json_decref(v);
    return rc;
}

static void decodes_every_kind(void **state)
{
    struct thing t = { 0 };
    struct err e = { 0 };

    (void)state;
    assert_int_equal(
        decode("{\"name\":\"x\",\"n\":30,\"on\":true,\"env\":{\"A\":\"1\"},\"args\":[\"a\",\"b\"],"
               "\"spec\":{},\"rows\":[1,{}],\"more\":1}",
               "", &t, &e),
        0);
    assert_string_equal(t.name, "x");
    assert_int_equal(t.n, 30);
    assert_true(t.on);
    assert_int_equal(json_object_size(t.env), 1);
    assert_int_equal(json_array_size(t.args), 2);
    assert_non_null(t.spec);
    assert_int_equal(json_array_size(t.rows), 2);
}

static void absent_leaves_the_default(void **state)
{
    struct thing t = { .n = 7, .on = true };
    struct err e = { 0 };

    (void)state;
    assert_int_equal(decode("{\"name\":\"x\"}", "", &t, &e), 0);
    assert_int_equal(t.n, 7);
    assert_true(t.on);
    assert_null(t.env);
    assert_int_equal(decode("{\"name\":\"x\",\"n\":null}", "", &t, &e), 0);
    assert_int_equal(t.n, 7);
}

static void says_what_is_wrong_and_where(void **state)
{
    static const struct {
        const char *text;
        const char *want;
    } rows[] = {
        { "{}", "name: is required" },
        { "{\"name\":null}", "name: must be a string" },
        { "{\"name\":1}", "name: must be a string" },
        { "{\"name\":\"\"}", "name: must not be empty" },
        { "{\"name\":\"123456789\"}", "name: is too long" },
        { "{\"name\":\"x\",\"n\":\"1\"}", "n: must be an integer" },
        { "{\"name\":\"x\",\"n\":1.5}", "n: must be an integer" },
        { "{\"name\":\"x\",\"n\":true}", "n: must be an integer" },
        { "{\"name\":\"x\",\"n\":1e300}", "n: must be an integer" },
        { "{\"name\":\"x\",\"n\":0}", "n: must be between 1 and 100" },
        { "{\"name\":\"x\",\"n\":101}", "n: must be between 1 and 100" },
        { "{\"name\":\"x\",\"n\":101.0}", "n: must be between 1 and 100" },
        { "{\"name\":\"x\",\"on\":1}", "on: must be true or false" },
        { "{\"name\":\"x\",\"on\":\"true\"}", "on: must be true or false" },
        { "{\"name\":\"x\",\"on\":null}", "on: must be true or false" },
        { "{\"name\":\"x\",\"env\":[]}", "env: must be an object" },
        { "{\"name\":\"x\",\"env\":null}", "env: must be an object" },
        { "{\"name\":\"x\",\"env\":{\"A\":1}}", "env.A: must be a string" },
        { "{\"name\":\"x\",\"env\":{\"A\":null}}", "env.A: must be a string" },
        { "{\"name\":\"x\",\"env\":{\"A\":\"12345\"}}", "env.A: is too long" },
        { "{\"name\":\"x\",\"env\":{\"A\":\"\",\"B\":\"\",\"C\":\"\"}}",
          "env: has too many entries" },
        { "{\"name\":\"x\",\"args\":{}}", "args: must be an array" },
        { "{\"name\":\"x\",\"args\":[]}", "args: has too few items" },
        { "{\"name\":\"x\",\"args\":[\"a\",\"b\",\"c\",\"d\"]}", "args: has too many items" },
        { "{\"name\":\"x\",\"args\":[\"a\",1]}", "args.1: must be a string" },
        { "{\"name\":\"x\",\"args\":[\"12345\"]}", "args.0: is too long" },
        { "{\"name\":\"x\",\"spec\":[]}", "spec: must be an object" },
        { "{\"name\":\"x\",\"rows\":{}}", "rows: must be an array" },
        { "{\"name\":\"x\",\"rows\":[1,2,3]}", "rows: has too many items" },
    };
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(rows); i++) {
        struct thing t = { 0 };
        struct err e = { 0 };
        char deeper[200];

        if (decode(rows[i].text, "", &t, &e) == 0)
            fail_msg("%s was accepted", rows[i].text);
        assert_int_equal(e.code, ERRC_INVALID);
        assert_string_equal(e.msg, rows[i].want);
        (void)snprintf(deeper, sizeof(deeper), "a.b.%s", rows[i].want);
        assert_int_equal(decode(rows[i].text, "a.b", &t, &e), -1);
        assert_string_equal(e.msg, deeper);
    }
}

static void limits_are_inclusive(void **state)
{
    static const char *const good[] = {
        "{\"name\":\"12345678\"}",
        "{\"name\":\"x\",\"n\":1}",
        "{\"name\":\"x\",\"n\":100}",
        "{\"name\":\"x\",\"n\":100.0}",
        "{\"name\":\"x\",\"env\":{\"A\":\"1234\",\"B\":\"\"}}",
        "{\"name\":\"x\",\"args\":[\"1\",\"2\",\"1234\"]}",
        "{\"name\":\"x\",\"args\":[\"\"]}",
        "{\"name\":\"x\",\"rows\":[1,2]}",
    };
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(good); i++) {
        struct thing t = { 0 };
        struct err e = { 0 };

        if (decode(good[i], "", &t, &e) < 0)
            fail_msg("%s was refused: %s", good[i], e.msg);
    }
}

static void default_string_limit(void **state)
{
    static const struct jx_field field = { "s", JX_STR, offsetof(struct thing, name), 0, 0, 0, 0 };
    char *text = malloc(JX_STR_MAX + 2);
    struct thing t = { 0 };
    struct err e = { 0 };
    json_t *obj;

    (void)state;
    assert_non_null(text);
    memset(text, 's', JX_STR_MAX + 1);
    text[JX_STR_MAX] = '\0';
    obj = json_pack("{s:s}", "s", text);
    assert_int_equal(jx_decode(obj, "", &field, 1, true, &t, &e), 0);
    json_decref(obj);
    text[JX_STR_MAX] = 's';
    text[JX_STR_MAX + 1] = '\0';
    obj = json_pack("{s:s}", "s", text);
    assert_int_equal(jx_decode(obj, "", &field, 1, true, &t, &e), -1);
    json_decref(obj);
    free(text);
}

static void lax_numbers(void **state)
{
    struct thing t = { 0 };
    struct err e = { 0 };

    (void)state;
    assert_int_equal(decode_lax("{\"n\":\"120\"}", &t, &e), 0);
    assert_int_equal(t.n, 120);
    assert_int_equal(decode_lax("{\"n\":\"-5\"}", &t, &e), 0);
    assert_int_equal(t.n, -5);
    assert_int_equal(decode_lax("{\"n\":120.0}", &t, &e), 0);
    assert_int_equal(t.n, 120);
    assert_int_equal(decode_lax("{\"n\":9223372036854775807}", &t, &e), 0);
    assert_true(t.n == INT64_MAX);
    assert_int_equal(decode_lax("{\"n\":\"120x\"}", &t, &e), -1);
    assert_int_equal(decode_lax("{\"n\":\"\"}", &t, &e), -1);
    assert_int_equal(decode_lax("{\"n\":\" 1\"}", &t, &e), -1);
    assert_int_equal(decode_lax("{\"n\":true}", &t, &e), -1);
}

static void lax_booleans(void **state)
{
    static const char *const yes[] = { "true",    "1",        "\"1\"", "\"on\"",
                                       "\"YES\"", "\"True\"", "\"t\"", "\"y\"" };
    static const char *const no[] = { "false",  "0",         "\"0\"", "\"off\"",
                                      "\"No\"", "\"FALSE\"", "\"f\"", "\"n\"" };
    static const char *const bad[] = {
        "2", "-1", "\"\"", "\"2\"", "1.0", "[]", "\"maybe\"", "null"
    };
    char text[64];
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(yes); i++) {
        struct thing t = { .on = false };
        struct err e = { 0 };

        (void)snprintf(text, sizeof(text), "{\"on\":%s}", yes[i]);
        assert_int_equal(decode_lax(text, &t, &e), 0);
        assert_true(t.on);
        (void)snprintf(text, sizeof(text), "{\"on\":%s}", no[i]);
        assert_int_equal(decode_lax(text, &t, &e), 0);
        assert_false(t.on);
        (void)snprintf(text, sizeof(text), "{\"on\":%s}", bad[i]);
        assert_int_equal(decode_lax(text, &t, &e), -1);
    }
}

static void null_map_values(void **state)
{
    struct thing t = { 0 };
    struct err e = { 0 };

    (void)state;
    assert_int_equal(decode_lax("{\"env\":{\"A\":null,\"B\":\"x\"}}", &t, &e), 0);
    assert_int_equal(decode_lax("{\"env\":{\"A\":1}}", &t, &e), -1);
}

static void closed_tables_refuse_unknown_members(void **state)
{
    json_t *obj = json_pack("{s:i, s:i}", "n", 1, "m", 2);
    struct thing t = { 0 };
    struct err e = { 0 };

    (void)state;
    assert_int_equal(jx_decode(obj, "", lax_fields, ARRAY_LEN(lax_fields), false, &t, &e), 0);
    assert_int_equal(jx_decode(obj, "hooks", lax_fields, ARRAY_LEN(lax_fields), true, &t, &e), -1);
    assert_string_equal(e.msg, "hooks.m: unknown field");
    json_decref(obj);
}

static void null_and_wrong_objects(void **state)
{
    struct thing t = { 0 };
    struct err e = { 0 };
    json_t *list = json_array();

    (void)state;
    assert_int_equal(jx_decode(NULL, "", lax_fields, ARRAY_LEN(lax_fields), true, &t, &e), 0);
    assert_int_equal(jx_decode(json_null(), "", lax_fields, ARRAY_LEN(lax_fields), true, &t, &e),
                     0);
    assert_int_equal(jx_decode(json_null(), "", fields, ARRAY_LEN(fields), true, &t, &e), -1);
    assert_string_equal(e.msg, "name: is required");
    assert_int_equal(jx_decode(list, "", fields, ARRAY_LEN(fields), true, &t, &e), -1);
    assert_string_equal(e.msg, "body: must be an object");
    assert_int_equal(jx_decode(list, "spec", fields, ARRAY_LEN(fields), true, &t, &e), -1);
    assert_string_equal(e.msg, "spec: must be an object");
    json_decref(list);
}

/* A member's name is the client's: cut, and never a format. */
static void strange_member_names(void **state)
{
    char text[1000] = "{\"name\":\"x\",\"env\":{\"";
    size_t len = strlen(text);
    struct thing t = { 0 };
    struct err e = { 0 };

    (void)state;
    assert_int_equal(decode("{\"name\":\"x\",\"env\":{\"%s%n\":1}}", "", &t, &e), -1);
    assert_string_equal(e.msg, "env.%s%n: must be a string");
    memset(text + len, 'k', 500);
    memcpy(text + len + 500, "\":1}}", 6);
    assert_int_equal(decode(text, "", &t, &e), -1);
    assert_true(strlen(e.msg) < 130);
    assert_contains(e.msg, "must be a string");
}

/* ---- strings out ---- */

static void bytes_become_a_string(void **state)
{
    json_t *v = jx_bytes("a\xff"
                         "b",
                         3);
    char *text;

    (void)state;
    assert_string_equal(json_string_value(v), "a\xef\xbf\xbd"
                                              "b");
    text = jx_dump(v, true);
    assert_string_equal(text, "\"a\\uFFFDb\"");
    free(text);
    text = jx_dump(v, false);
    assert_string_equal(text, "\"a\xef\xbf\xbd"
                              "b\"");
    free(text);
    json_decref(v);
    v = jx_bytes("a\0b", 3);
    text = jx_dump(v, false);
    assert_string_equal(text, "\"a\\u0000b\"");
    free(text);
    json_decref(v);
}

/* An empty struct buf has no data at all. */
static void no_bytes_are_an_empty_string(void **state)
{
    json_t *v = jx_bytes(NULL, 0);

    (void)state;
    assert_non_null(v);
    assert_string_equal(json_string_value(v), "");
    json_decref(v);
    v = jx_bytes("", 0);
    assert_non_null(v);
    json_decref(v);
}

static void what_others_said_is_read(void **state)
{
    char text[] = "{\"a\\u0000b\":\"x\\u0000\",\"c\":\"\\\\u0000\",\"d\":1,\"d\":2}";
    char cut[] = "[\"\\u000";
    struct err e;
    json_t *v = jx_parse_foreign(text, strlen(text), &e);

    (void)state;
    assert_non_null(v);
    assert_string_equal(json_string_value(json_object_get(v, "a\xef\xbf\xbd"
                                                             "b")),
                        "x\xef\xbf\xbd");
    assert_string_equal(json_string_value(json_object_get(v, "c")), "\\u0000");
    assert_int_equal(json_integer_value(json_object_get(v, "d")), 2);
    json_decref(v);
    assert_null(jx_parse_foreign(cut, strlen(cut), &e));
    assert_null(jx_parse_foreign(NULL, 0, &e));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parse_takes_any_value),
        cmocka_unit_test(parse_refuses),
        cmocka_unit_test(parse_of_nothing_says_so),
        cmocka_unit_test(parse_error_does_not_quote_the_body),
        cmocka_unit_test(what_follows_matters_when_strict),
        cmocka_unit_test(depth_is_limited),
        cmocka_unit_test(brackets_in_strings_do_not_count),
        cmocka_unit_test(decodes_every_kind),
        cmocka_unit_test(absent_leaves_the_default),
        cmocka_unit_test(says_what_is_wrong_and_where),
        cmocka_unit_test(limits_are_inclusive),
        cmocka_unit_test(default_string_limit),
        cmocka_unit_test(lax_numbers),
        cmocka_unit_test(lax_booleans),
        cmocka_unit_test(null_map_values),
        cmocka_unit_test(closed_tables_refuse_unknown_members),
        cmocka_unit_test(null_and_wrong_objects),
        cmocka_unit_test(strange_member_names),
        cmocka_unit_test(bytes_become_a_string),
        cmocka_unit_test(no_bytes_are_an_empty_string),
        cmocka_unit_test(what_others_said_is_read),
    };

    jx_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
