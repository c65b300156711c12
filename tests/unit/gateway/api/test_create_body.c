/* Decoding of POST /sandboxes: what clients really send, and what must be refused. */
#include "tests/unit/test.h"

#include "common/base/err.h"
#include "gateway/api/api.h"
#include "gateway/domain/lifecycle.h"

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
        json_decref(doc);
    }
    assert_string_equal(rq.platform_os, "linux");
    assert_string_equal(rq.platform_arch, "amd64");
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
        { "{" IMG "," ENTRY ",\"timeout\":99999999999999}", "timeout", NULL },
        { "{" IMG "," ENTRY ",\"resourceLimits\":{\"cpu\":1}}", "resourceLimits.cpu", NULL },
        { "{" IMG "," ENTRY ",\"metadata\":{\"a\":null}}", "metadata.a", NULL },
        { "{" IMG "," ENTRY ",\"env\":{\"A=B\":\"1\"}}", "A=B", "SANDBOX::INVALID_PARAMETER" },
        { "{" IMG "," ENTRY ",\"env\":{\"OPENSANDBOX_LIFECYCLE\":\"1\"}}", "reserved", NULL },
        { "{" IMG "," ENTRY ",\"platform\":{\"os\":\"plan9\",\"arch\":\"amd64\"}}", "platform",
          "SANDBOX::INVALID_PARAMETER" },
        { "{" IMG "," ENTRY ",\"platform\":{\"os\":\"linux\"}}", "platform.arch", NULL },
        { "{" IMG "," ENTRY ",\"secureAccess\":\"perhaps\"}", "secureAccess", NULL },
        { "{" IMG "," ENTRY ",\"networkPolicy\":{}}", "networkPolicy", NULL },
        { "{" IMG "," ENTRY ",\"volumes\":[{}]}", "volumes", "VOLUME::UNSUPPORTED_BACKEND" },
        { "{" IMG "," ENTRY ",\"extensions\":{\"poolRef\":\"p\"}}", "poolRef",
          "SANDBOX::UNSUPPORTED_POOL_REF" },
        { "{" IMG "," ENTRY ",\"extensions\":{\"access.renew.extend.seconds\":\"299\"}}",
          "access.renew.extend.seconds", NULL },
        { "{" IMG "," ENTRY ",\"extensions\":{\"proxy.login.ports\":\"80,x\"}}",
          "proxy.login.ports", "SANDBOX::INVALID_PARAMETER" },
        { "{" IMG "," ENTRY ",\"extensions\":{\"proxy.login.ports\":\"65536\"}}",
          "proxy.login.ports", "SANDBOX::INVALID_PARAMETER" },
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
                            "\"other\":\"2\"},\"env\":{\"OPENSANDBOX_EGRESS_LOG_LEVEL\":\"d\","
                            "\"A\":null}}",
                            &doc, &rq, &e),
                     0);
    assert_int_equal(json_object_size(rq.extensions), 1);
    assert_non_null(json_object_get(rq.extensions, "opensandbox.extensions.x"));
    assert_int_equal(json_object_size(rq.env), 1);
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
        cmocka_unit_test(takes_a_snapshot_instead_of_an_image),
        cmocka_unit_test(login_ports_are_a_list_of_ports),
        cmocka_unit_test(keeps_only_the_extensions_that_are_echoed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
