/* The JSON of lifecycle hooks. */
#include "tests/unit/test.h"

#include "common/base/err.h"
#include "common/json/jx.h"
#include "execd/exec/lifecycle.h"

#include <string.h>

static int decode(const char *text, struct lifecycle *out, struct err *e)
{
    json_t *v = jx_parse(text, strlen(text), true, e);
    int rc;

    if (!v)
        fail_msg("%s: %s", text, e->msg);
    rc = lifecycle_decode(v, "lifecycle", NULL, out, e);
    json_decref(v); /* nothing may point into it */
    return rc;
}

static void accepted(void **state)
{
    struct lifecycle lc;
    struct err e = { 0 };

    (void)state;
    assert_int_equal(lifecycle_decode(NULL, "lifecycle", NULL, &lc, &e), 0);
    assert_int_equal(decode("null", &lc, &e), 0);
    assert_int_equal(decode("{}", &lc, &e), 0);
    assert_false(lc.has_pre_start);
    assert_int_equal(decode("{\"version\":1,\"preStart\":null,\"periodic\":null}", &lc, &e), 0);
    assert_int_equal(
        decode("{\"preStart\":{\"command\":[\"a\",\"\"]},\"periodic\":["
               "{\"name\":\" n 1 \",\"schedule\":\"@every 5s\",\"command\":[\"b\"],"
               "\"timeoutSeconds\":300},"
               "{\"name\":\"n2\",\"schedule\":\"TZ=UTC+1 0 0 * * *\",\"command\":[\"c\",\"d\"]}]}",
               &lc, &e),
        0);
    assert_true(lc.has_pre_start);
    assert_int_equal(lc.pre_start.timeout_s, 60);
    assert_int_equal(lc.pre_start.n_argv, 2);
    assert_string_equal(lc.pre_start.argv[0], "a");
    assert_string_equal(lc.pre_start.argv[1], "");
    assert_null(lc.pre_start.argv[2]);
    assert_int_equal(lc.n_periodic, 2);
    assert_string_equal(lc.periodic[0].name, "n 1");
    assert_int_equal(lc.periodic[0].timeout_s, 300);
    assert_int_equal(lc.periodic[0].cron.every_s, 5);
    assert_int_equal(lc.periodic[1].timeout_s, 60);
    assert_int_equal(zone_offset(&lc.periodic[1].zone, 0), 3600);
    lifecycle_free(&lc);
    assert_int_equal(
        decode("{\"preStart\":{\"command\":[\"a\"],\"timeoutSeconds\":10800}}", &lc, &e), 0);
    assert_int_equal(lc.pre_start.timeout_s, 10800);
    lifecycle_free(&lc);
}

#define PERIODIC(body) "{\"periodic\":[" body "]}"
#define GOOD "{\"name\":\"n\",\"schedule\":\"@hourly\",\"command\":[\"a\"]}"

static void refused(void **state)
{
    static const struct {
        const char *json;
        const char *says;
    } rows[] = {
        { "[]", "lifecycle" },
        { "{\"postStop\":{}}", "postStop" },
        { "{\"version\":2}", "version" },
        { "{\"preStart\":[]}", "preStart" },
        { "{\"preStart\":{}}", "lifecycle.preStart.command" },
        { "{\"preStart\":{\"command\":[]}}", "lifecycle.preStart.command" },
        { "{\"preStart\":{\"command\":\"a\"}}", "lifecycle.preStart.command" },
        { "{\"preStart\":{\"command\":[1]}}", "lifecycle.preStart.command.0" },
        { "{\"preStart\":{\"command\":[\" \"]}}", "lifecycle.preStart.command.0" },
        { "{\"preStart\":{\"command\":[\"a\"],\"shell\":true}}", "shell" },
        { "{\"preStart\":{\"command\":[\"a\"],\"timeoutSeconds\":0}}", "timeoutSeconds" },
        { "{\"preStart\":{\"command\":[\"a\"],\"timeoutSeconds\":10801}}", "timeoutSeconds" },
        { "{\"preStart\":{\"command\":[\"a\"],\"timeoutSeconds\":\"5\"}}", "timeoutSeconds" },
        { PERIODIC("7"), "lifecycle.periodic.0" },
        { PERIODIC("{\"schedule\":\"@hourly\",\"command\":[\"a\"]}"), "periodic.0.name" },
        { PERIODIC("{\"name\":\"\\t \",\"schedule\":\"@hourly\",\"command\":[\"a\"]}"),
          "periodic.0.name" },
        { PERIODIC("{\"name\":\"n\",\"command\":[\"a\"]}"), "periodic.0.schedule" },
        { PERIODIC("{\"name\":\"n\",\"schedule\":\" \",\"command\":[\"a\"]}"),
          "periodic.0.schedule" },
        { PERIODIC("{\"name\":\"n\",\"schedule\":\"61 * * * *\",\"command\":[\"a\"]}"),
          "periodic.0.schedule: minute" },
        { PERIODIC("{\"name\":\"n\",\"schedule\":\"TZ=No/Such @daily\",\"command\":[\"a\"]}"),
          "time zone No/Such" },
        { PERIODIC("{\"name\":\"n\",\"schedule\":\"@hourly\",\"command\":[\"\"]}"),
          "periodic.0.command.0" },
        { PERIODIC("{\"name\":\"n\",\"schedule\":\"@hourly\",\"command\":[\"a\"],"
                   "\"timeoutSeconds\":301}"),
          "timeoutSeconds" },
        { PERIODIC(GOOD ",{\"name\":\" n \",\"schedule\":\"@daily\",\"command\":[\"b\"]}"),
          "periodic.1.name" },
        { PERIODIC("{\"name\":\"n\",\"schedule\":\"@hourly\",\"command\":[\"a\"],\"x\":1}"), "x" },
    };
    struct lifecycle lc;
    struct err e;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        e = (struct err){ 0 };
        if (decode(rows[i].json, &lc, &e) == 0)
            fail_msg("%s is accepted", rows[i].json);
        assert_int_equal(e.code, ERRC_INVALID);
        assert_contains(e.msg, rows[i].says);
        assert_null(lc.periodic);
    }
}

static json_t *many(size_t n)
{
    json_t *list = json_array();
    char name[24];
    size_t i;

    for (i = 0; i < n; i++) {
        (void)snprintf(name, sizeof(name), "n%zu", i);
        (void)json_array_append_new(list, json_pack("{s:s, s:s, s:[s]}", "name", name, "schedule",
                                                    "@hourly", "command", "a"));
    }
    return json_pack("{s:o}", "periodic", list);
}

static void limits(void **state)
{
    struct lifecycle lc;
    struct err e = { 0 };
    char name[LIFECYCLE_NAME_MAX + 2] = { 0 };
    json_t *v = many(LIFECYCLE_PERIODIC_MAX);

    (void)state;
    assert_int_equal(lifecycle_decode(v, "lifecycle", NULL, &lc, &e), 0);
    lifecycle_free(&lc);
    memset(name, 'x', LIFECYCLE_NAME_MAX);
    (void)json_object_set_new(json_array_get(json_object_get(v, "periodic"), 0), "name",
                              json_string(name));
    assert_int_equal(lifecycle_decode(v, "lifecycle", NULL, &lc, &e), 0);
    lifecycle_free(&lc);
    name[LIFECYCLE_NAME_MAX] = 'x';
    (void)json_object_set_new(json_array_get(json_object_get(v, "periodic"), 0), "name",
                              json_string(name));
    assert_int_equal(lifecycle_decode(v, "lifecycle", NULL, &lc, &e), -1);
    assert_contains(e.msg, "name");
    json_decref(v);
    v = many(LIFECYCLE_PERIODIC_MAX + 1);
    assert_int_equal(lifecycle_decode(v, "lifecycle", NULL, &lc, &e), -1);
    assert_contains(e.msg, "periodic");
    json_decref(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepted),
        cmocka_unit_test(refused),
        cmocka_unit_test(limits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
