/* Decoding of POST /sandboxes: what clients really send, and what must be refused. */
#include "tests/unit/test.h"

#include "common/base/err.h"
#include "gateway/api/api.h"
#include "gateway/domain/lifecycle.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IMG "\"image\":{\"uri\":\"python:3.11\"}"
#define ENTRY "\"entrypoint\":[\"tail\",\"-f\",\"/dev/null\"]"

static int decode(const char *body, json_t **doc, struct create_req *out, struct err *e)
{
    struct http_req rq = { .body = body, .body_len = strlen(body) };

    *doc = NULL;
    memset(e, 0, sizeof(*e));
    return api_decode_create(&rq, doc, out, e);
}

static void takes_what_the_sdks_send(void **state)
{
    static const char *const bodies[] = {
        /* Python 1.1.1 */
        "{" IMG ",\"timeout\":600,\"resourceLimits\":{\"cpu\":\"1\",\"memory\":\"2Gi\"}," ENTRY
        ",\"secureAccess\":false}",
        /* JS: empty maps */
        "{" IMG "," ENTRY ",\"env\":{},\"metadata\":{},\"extensions\":{},\"volumes\":[]}",
        /* Go: nulls where nothing was set */
        "{" IMG "," ENTRY ",\"resourceLimits\":null,\"timeout\":null,\"networkPolicy\":null}",
        /* lax numbers (contract 1.3), unknown fields */
        "{" IMG "," ENTRY ",\"timeout\":\"120\",\"secureAccess\":\"false\",\"later\":1}",
        "{" IMG "," ENTRY
        ",\"timeout\":120.0,\"platform\":{\"os\":\" Linux \",\"arch\":\"AMD64\"}}",
    };
    struct create_req rq;
    struct err e;
    json_t *doc;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        if (decode(bodies[i], &doc, &rq, &e) < 0)
            fail_msg("%s: %s", bodies[i], e.msg);
        assert_string_equal(rq.image, "python:3.11");
        assert_int_equal(json_array_size(rq.entrypoint), 3);
        if (rq.platform_os)
            assert_string_equal(rq.platform_os, " Linux "); /* the domain knows the words */
        json_decref(doc);
    }
    assert_int_equal(rq.timeout_s, 120);
}

static void refuses_and_names_the_field(void **state)
{
    static const struct {
        const char *body;
        const char *text; /* must occur in the message */
        const char *code; /* NULL: the class's default */
    } rows[] = {
        { "", "body is required", NULL },
        { "{", "not valid JSON", NULL },
        { "[]", "must be a JSON object", NULL },
        { "{} x", "not valid JSON", NULL },
        { "{" ENTRY "}", "image", "SANDBOX::INVALID_PARAMETER" },
        { "{" IMG "}", "entrypoint", "DOCKER::INVALID_ENTRYPOINT" },
        { "{" IMG ",\"entrypoint\":[]}", "entrypoint", NULL },
        { "{" IMG ",\"entrypoint\":[\"\"]}", "entrypoint[0]", "DOCKER::INVALID_ENTRYPOINT" },
        { "{" IMG ",\"entrypoint\":[1]}", "entrypoint.0", NULL },
        { "{\"image\":\"x\"," ENTRY "}", "image", NULL },
        { "{\"image\":{\"uri\":\" \"}," ENTRY "}", "image.uri", "SANDBOX::INVALID_PARAMETER" },
        { "{\"image\":{\"uri\":\"x\",\"auth\":{\"username\":\"u\"}}," ENTRY "}",
          "image.auth.password", NULL },
        { "{" IMG "," ENTRY ",\"timeout\":59}", "timeout", NULL },
        { "{" IMG "," ENTRY ",\"timeout\":60.5}", "timeout", NULL },
        { "{" IMG "," ENTRY ",\"timeout\":true}", "timeout", NULL },
        { "{" IMG "," ENTRY ",\"timeout\":9223372036854775808}", "not valid JSON", NULL },
        { "{" IMG "," ENTRY ",\"resourceLimits\":{\"cpu\":1}}", "resourceLimits.cpu", NULL },
        { "{" IMG "," ENTRY ",\"metadata\":{\"a\":null}}", "metadata.a", NULL },
        { "{" IMG "," ENTRY ",\"platform\":{\"os\":\"linux\"}}", "platform.arch", NULL },
        { "{" IMG "," ENTRY ",\"secureAccess\":\"perhaps\"}", "secureAccess", NULL },
        { "{" IMG "," ENTRY ",\"networkPolicy\":{}}", "networkPolicy", NULL },
        { "{" IMG "," ENTRY ",\"volumes\":[{}]}", "volumes[0].name", NULL },
        { "{" IMG "," ENTRY ",\"extensions\":{\"poolRef\":\"p\"}}", "poolRef",
          "SANDBOX::UNSUPPORTED_POOL_REF" },
        { "{" IMG "," ENTRY ",\"extensions\":{\"access.renew.extend.seconds\":\"299\"}}",
          "access.renew.extend.seconds", NULL },
        { "{" IMG "," ENTRY ",\"extensions\":{\"proxy.login.ports\":\"80,x\"}}",
          "proxy.login.ports", "SANDBOX::INVALID_PARAMETER" },
        { "{" IMG "," ENTRY ",\"extensions\":{\"proxy.login.ports\":\"65536\"}}",
          "proxy.login.ports", "SANDBOX::INVALID_PARAMETER" },
        { "{" IMG "," ENTRY ",\"extensions\":{\"access.renew.extend.seconds\":\"3 00\"}}",
          "access.renew.extend.seconds", NULL },
        { "{" IMG "," ENTRY ",\"extensions\":{\"access.renew.extend.seconds\":\"\"}}",
          "access.renew.extend.seconds", NULL },
        { "{" IMG "," ENTRY ",\"extensions\":{\"access.renew.extend.seconds\":\"86401\"}}",
          "access.renew.extend.seconds", NULL },
        { "{" IMG "," ENTRY ",\"snapshotId\":\"s\"}", "Exactly one", "SANDBOX::INVALID_PARAMETER" },
        { "{" IMG "," ENTRY ",\"resourceRequests\":{\"cpu\":1}}", "resourceRequests.cpu", NULL },
        { "{\"templateId\":\"t\"}", "templateId", "SANDBOX::API_NOT_SUPPORTED" },
        { "{" IMG "," IMG "," ENTRY "}", "not valid JSON", NULL },
    };
    struct create_req rq;
    struct err e;
    json_t *doc;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (decode(rows[i].body, &doc, &rq, &e) == 0)
            fail_msg("accepted: %s", rows[i].body);
        if (!strstr(e.msg, rows[i].text))
            fail_msg("%s: message '%s' lacks '%s'", rows[i].body, e.msg, rows[i].text);
        if (rows[i].code)
            assert_string_equal(e.api_code, rows[i].code);
        assert_int_equal(e.code, ERRC_INVALID);
    }
}

/* A row of the body around what a test fills in. */
static char *with(const char *member, const char *value)
{
    static const char frame[] = "{" IMG "," ENTRY ",\"%s\":%s}";
    size_t size = sizeof(frame) + strlen(member) + strlen(value);
    char *out = malloc(size);

    (void)snprintf(out, size, frame, member, value);
    return out;
}

static void hooks_are_strict(void **state)
{
    static const struct {
        const char *value;
        const char *text; /* must occur in the message */
    } rows[] = {
        { "[]", "lifecycle" },
        { "{\"preStop\":{}}", "preStop" },
        { "{\"preStart\":[]}", "lifecycle.preStart" },
        { "{\"preStart\":{}}", "lifecycle.preStart.command" },
        { "{\"preStart\":{\"command\":[]}}", "lifecycle.preStart.command" },
        { "{\"preStart\":{\"command\":\"true\"}}", "lifecycle.preStart.command" },
        { "{\"preStart\":{\"command\":[\" \"]}}", "lifecycle.preStart.command[0]" },
        { "{\"preStart\":{\"command\":[\"a\"],\"timeoutSeconds\":0}}", "timeoutSeconds" },
        { "{\"preStart\":{\"command\":[\"a\"],\"timeoutSeconds\":10801}}", "timeoutSeconds" },
        { "{\"preStart\":{\"command\":[\"a\"],\"timeoutSeconds\":\"60\"}}", "timeoutSeconds" },
        { "{\"preStart\":{\"command\":[\"a\"],\"shell\":true}}", "shell" },
        { "{\"periodic\":{}}", "lifecycle.periodic" },
        { "{\"periodic\":[1]}", "lifecycle.periodic[0]" },
        { "{\"periodic\":[{\"schedule\":\"@daily\",\"command\":[\"a\"]}]}", "name" },
        { "{\"periodic\":[{\"name\":\" \",\"schedule\":\"@daily\",\"command\":[\"a\"]}]}",
          "lifecycle.periodic[0].name" },
        { "{\"periodic\":[{\"name\":\"n\",\"schedule\":\"\",\"command\":[\"a\"]}]}",
          "lifecycle.periodic[0].schedule" },
        { "{\"periodic\":[{\"name\":\"n\",\"schedule\":\"@daily\",\"command\":[\"a\"],"
          "\"timeoutSeconds\":301}]}",
          "timeoutSeconds" },
        { "{\"periodic\":[{\"name\":\"n\",\"schedule\":\"@daily\",\"command\":[\"a\"]},"
          "{\"name\":\" n \",\"schedule\":\"@daily\",\"command\":[\"b\"]}]}",
          "lifecycle.periodic[1].name" },
    };
    struct create_req rq;
    struct err e;
    json_t *doc;
    char *body;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        body = with("lifecycle", rows[i].value);
        if (decode(body, &doc, &rq, &e) == 0)
            fail_msg("accepted: %s", body);
        if (!strstr(e.msg, rows[i].text))
            fail_msg("%s: message '%s' lacks '%s'", body, e.msg, rows[i].text);
        assert_int_equal(e.code, ERRC_INVALID);
        free(body);
    }
}

static void hooks_are_completed(void **state)
{
    static const char hooks[] =
        "{\"preStart\":{\"command\":[\"sh\",\"\"],\"timeoutSeconds\":10800},\"periodic\":[{\"name\":"
        "\" a \",\"schedule\":\" @daily\",\"command\":[\"b\"],\"timeoutSeconds\":null}]}";
    static const char want[] =
        "{\"periodic\":[{\"command\":[\"b\"],\"name\":\"a\",\"schedule\":\"@daily\","
        "\"timeoutSeconds\":60}],\"preStart\":{\"command\":[\"sh\",\"\"],\"timeoutSeconds\":10800}}";
    static const char *const none[] = { "null", "{}", "{\"preStart\":null,\"periodic\":[]}" };
    struct create_req rq;
    struct err e;
    json_t *doc;
    char *body = with("lifecycle", hooks);
    char *text;
    size_t i;

    (void)state;
    assert_int_equal(decode(body, &doc, &rq, &e), 0);
    text = json_dumps(rq.hooks, JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(text, want);
    assert_int_equal(rq.pre_start_s, 10800);
    json_decref(doc);
    free(text);
    free(body);
    for (i = 0; i < 3; i++) {
        body = with("lifecycle", none[i]);
        assert_int_equal(decode(body, &doc, &rq, &e), 0);
        assert_null(rq.hooks);
        assert_int_equal(rq.pre_start_s, 0);
        json_decref(doc);
        free(body);
    }
}

/* n copies of `one`, joined by commas, between the brackets. */
static char *many(const char *open, const char *one, size_t n, const char *close)
{
    size_t size = strlen(open) + n * (strlen(one) + 1) + strlen(close) + 1;
    char *out = malloc(size);
    size_t len = (size_t)snprintf(out, size, "%s", open);
    size_t i;

    for (i = 0; i < n; i++)
        len += (size_t)snprintf(out + len, size - len, "%s%s", i ? "," : "", one);
    (void)snprintf(out + len, size - len, "%s", close);
    return out;
}

/* A text of n characters between the quotes that open and close hold. */
static char *text_of(const char *open, size_t n, const char *close)
{
    size_t size = strlen(open) + n + strlen(close) + 1;
    char *out = malloc(size);

    (void)snprintf(out, size, "%s%*s%s", open, (int)n, "", close);
    memset(out + strlen(open), 'x', n);
    return out;
}

/* Takes value over. */
static void expect_decode(const char *member, char *value, bool ok)
{
    struct create_req rq;
    struct err e;
    json_t *doc;
    char *body = with(member, value);
    int rc = decode(body, &doc, &rq, &e);

    if ((rc == 0) != ok)
        fail_msg("%s of %zu bytes: %s", member, strlen(value), rc < 0 ? e.msg : "accepted");
    if (rc < 0)
        assert_contains(e.msg, member);
    json_decref(doc);
    free(body);
    free(value);
}

/* Every size at its limit and one past it. */
static void sizes_have_limits(void **state)
{
    static const char hook[] = "\",\"schedule\":\"@daily\",\"command\":[\"a\"]}]}";
    size_t past;

    (void)state;
    for (past = 0; past < 2; past++) {
        expect_decode("snapshotId", text_of("\" ", 126 + past, " \""), false);
        expect_decode("env", text_of("{\"A\":\"", API_STRING_MAX + past, "\"}"), !past);
        expect_decode("metadata", text_of("{\"A\":\"", 1024 + past, "\"}"), !past);
        expect_decode("resourceLimits", text_of("{\"A\":\"", 1024 + past, "\"}"), !past);
        expect_decode("resourceRequests", text_of("{\"A\":\"", 1024 + past, "\"}"), !past);
        expect_decode("extensions", text_of("{\"A\":\"", 4096 + past, "\"}"), !past);
        expect_decode("lifecycle",
                      text_of("{\"periodic\":[{\"name\":\"", API_HOOK_NAME_MAX + past, hook),
                      !past);
        expect_decode("lifecycle",
                      text_of("{\"periodic\":[{\"name\":\"a\",\"command\":[\"a\"],\"schedule\":\"",
                              API_SCHEDULE_MAX + past, "\"}]}"),
                      !past);
        expect_decode(
            "lifecycle",
            many("{\"preStart\":{\"command\":[", "\"a\"", API_ENTRYPOINT_MAX + past, "]}}"), !past);
        expect_decode("lifecycle",
                      text_of("{\"preStart\":{\"command\":[\"", API_STRING_MAX + past, "\"]}}"),
                      !past);
    }
    /* names differ, so they cannot be made of copies */
    expect_decode("lifecycle", many("{\"periodic\":[", "{}", API_HOOKS_MAX + 1, "]}"), false);
}

/* An object of n members with values of their own kind. */
static char *members(size_t n)
{
    size_t size = n * 24 + 8;
    char *out = malloc(size);
    size_t len = (size_t)snprintf(out, size, "{");
    size_t i;

    for (i = 0; i < n; i++)
        len += (size_t)snprintf(out + len, size - len, "%s\"k%zu\":\"v\"", i ? "," : "", i);
    (void)snprintf(out + len, size - len, "}");
    return out;
}

static void maps_have_a_number_of_members(void **state)
{
    static const char *const maps[] = { "env", "metadata", "extensions", "resourceLimits",
                                        "resourceRequests" };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(maps) / sizeof(maps[0]); i++) {
        expect_decode(maps[i], members(API_MAP_MAX), true);
        expect_decode(maps[i], members(API_MAP_MAX + 1), false);
    }
}

static char *body_of(const char *image, const char *entrypoint)
{
    size_t size = strlen(image) + strlen(entrypoint) + 64;
    char *out = malloc(size);

    (void)snprintf(out, size, "{\"image\":{\"uri\":\"%s\"},\"entrypoint\":%s}", image, entrypoint);
    return out;
}

static void image_and_entrypoint_have_limits(void **state)
{
    struct create_req rq;
    struct err e;
    json_t *doc;
    size_t past;
    char *parts[3];
    char *body;

    (void)state;
    for (past = 0; past < 2; past++) {
        parts[0] = text_of("", API_IMAGE_MAX + past, "");
        parts[1] = many("[", "\"a\"", API_ENTRYPOINT_MAX + past, "]");
        parts[2] = text_of("[\"", API_STRING_MAX + past, "\"]");
        body = body_of(parts[0], "[\"a\"]");
        assert_int_equal(decode(body, &doc, &rq, &e), past ? -1 : 0);
        json_decref(doc);
        free(body);
        body = body_of("x", parts[1]);
        assert_int_equal(decode(body, &doc, &rq, &e), past ? -1 : 0);
        json_decref(doc);
        free(body);
        body = body_of("x", parts[2]);
        assert_int_equal(decode(body, &doc, &rq, &e), past ? -1 : 0);
        json_decref(doc);
        free(body);
        free(parts[0]);
        free(parts[1]);
        free(parts[2]);
    }
}

/* The order of members, blanks and escapes do not make another request; a value does. */
static void the_hash_names_the_content(void **state)
{
    struct create_req a;
    struct create_req b;
    struct create_req c;
    struct err e;
    json_t *doc;

    (void)state;
    assert_int_equal(decode("{" IMG "," ENTRY ",\"env\":{\"A\":\"1\",\"B\":\"2\"}}", &doc, &a, &e),
                     0);
    json_decref(doc);
    assert_int_equal(
        decode("{ \"env\" : {\"B\":\"\\u0032\", \"A\":\"1\"}, " ENTRY "," IMG "}", &doc, &b, &e),
        0);
    json_decref(doc);
    assert_int_equal(decode("{" IMG "," ENTRY ",\"env\":{\"A\":\"1\",\"B\":\"3\"}}", &doc, &c, &e),
                     0);
    json_decref(doc);
    assert_int_equal(strlen(a.body_sha256), 64);
    assert_string_equal(a.body_sha256, b.body_sha256);
    assert_string_not_equal(a.body_sha256, c.body_sha256);
}

static void takes_a_snapshot_instead_of_an_image(void **state)
{
    static const char *const bad[] = {
        "{" IMG ",\"snapshotId\":\"s1\"," ENTRY "}",
        "{\"snapshotId\":\" \"," ENTRY "}",
        "{\"snapshotId\":null," ENTRY "}",
    };
    struct create_req rq;
    struct err e;
    json_t *doc;
    size_t i;

    (void)state;
    assert_int_equal(decode("{\"snapshotId\":\"s1\"}", &doc, &rq, &e), 0);
    assert_null(rq.image);
    assert_string_equal(rq.snapshot_id, "s1");
    assert_string_equal(json_string_value(json_array_get(rq.entrypoint, 0)), "tail");
    json_decref(doc);
    assert_int_equal(
        decode("{\"snapshotId\":\"s1\",\"image\":null,\"entrypoint\":[\"sh\"]}", &doc, &rq, &e), 0);
    assert_string_equal(json_string_value(json_array_get(rq.entrypoint, 0)), "sh");
    json_decref(doc);
    assert_int_equal(decode("{" IMG ",\"snapshotId\":\" \"," ENTRY "}", &doc, &rq, &e), 0);
    assert_null(rq.snapshot_id);
    json_decref(doc);
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(decode(bad[i], &doc, &rq, &e), -1);
        assert_contains(e.msg, "Exactly one of image or snapshotId must be provided.");
        assert_string_equal(e.api_code, "SANDBOX::INVALID_PARAMETER");
    }
}

static void keeps_only_the_extensions_that_are_echoed(void **state)
{
    struct create_req rq;
    struct err e;
    json_t *doc;

    (void)state;
    assert_int_equal(decode("{" IMG "," ENTRY ",\"extensions\":{\"opensandbox.extensions.x\":\"1\","
                            "\"other\":\"2\",\"poolRef\":\" \",\"bootstrap.execd.isolation\":"
                            "\"disable\",\"access.renew.extend.seconds\":\" 300\\n\"}}",
                            &doc, &rq, &e),
                     0);
    assert_int_equal(json_object_size(rq.extensions), 1);
    assert_non_null(json_object_get(rq.extensions, "opensandbox.extensions.x"));
    assert_int_equal(rq.renew_s, 300);
    assert_false(rq.isolation);
    json_decref(doc);
    assert_int_equal(decode("{" IMG "," ENTRY
                            ",\"extensions\":{\"bootstrap.execd.isolation\":\"enable\"}}",
                            &doc, &rq, &e),
                     0);
    assert_true(rq.isolation);
    json_decref(doc);
}

static void login_ports_are_a_list_of_ports(void **state)
{
    struct create_req rq;
    struct err e;
    json_t *doc;

    (void)state;
    assert_int_equal(decode("{" IMG "," ENTRY
                            ",\"extensions\":{\"proxy.login.ports\":\" 3000, 80 \"}}",
                            &doc, &rq, &e),
                     0);
    assert_string_equal(rq.login_ports, ",3000,80,");
    assert_int_equal(json_object_size(rq.extensions), 0);
    json_decref(doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_what_the_sdks_send),
        cmocka_unit_test(refuses_and_names_the_field),
        cmocka_unit_test(hooks_are_strict),
        cmocka_unit_test(hooks_are_completed),
        cmocka_unit_test(sizes_have_limits),
        cmocka_unit_test(maps_have_a_number_of_members),
        cmocka_unit_test(image_and_entrypoint_have_limits),
        cmocka_unit_test(the_hash_names_the_content),
        cmocka_unit_test(takes_a_snapshot_instead_of_an_image),
        cmocka_unit_test(login_ports_are_a_list_of_ports),
        cmocka_unit_test(keeps_only_the_extensions_that_are_echoed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
