/* The command line: ours and upstream's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/agent/wire.h"
#include "common/base/err.h"
#include "execd/options.h"

#include <string.h>

#define HASH "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define PARSE(o, e, ...)                                                                           \
    options_parse((const char *const[]){ "execd", __VA_ARGS__, NULL }, (o), (e))

static void held(void **state)
{
    struct options o;
    struct err e;

    (void)state;
    assert_int_equal(PARSE(&o, &e, "--held", "--id=x", "--claim-sha256=" HASH), 0);
    assert_true(o.held);
    assert_false(o.isolation);
    assert_string_equal(o.id, "x");
    assert_int_equal(PARSE(&o, &e, "--held", "--id=x", "--claim-sha256=" HASH, AGENT_ARG_ISOLATION),
                     0);
    assert_true(o.isolation);
    assert_int_equal(o.port, AGENT_PORT);
    assert_int_equal(o.level, LOG_WARN);
    assert_int_equal(PARSE(&o, &e, "--held", "--claim-sha256=" HASH), -1);
    assert_int_equal(PARSE(&o, &e, "--held", "--id=x"), -1);
    assert_int_equal(PARSE(&o, &e, "--held", "--id=x", "--claim-sha256=12"), -1);
}

static void classic(void **state)
{
    struct options o;
    struct err e;

    (void)state;
    log_set_level(LOG_OFF);
    assert_int_equal(PARSE(&o, &e, "-port", "80", "--jupyter-host=http://x", "-log-level=7",
                           "--runtime-init=false", "--access-token", "t"),
                     0);
    assert_false(o.held);
    assert_int_equal(o.port, 80);
    assert_int_equal(o.level, LOG_DEBUG);
    assert_string_equal(o.access_token, "t");
    assert_string_equal(o.jupyter_host, "http://x");
    assert_null(o.jupyter_token);
    assert_null(o.entrypoint);
    assert_int_equal(PARSE(&o, &e, "--init", "--", "sh", "--port"), 0);
    assert_string_equal(o.entrypoint[0], "sh");
    assert_string_equal(o.entrypoint[1], "--port");
    assert_int_equal(PARSE(&o, &e, "--port"), -1);
    assert_int_equal(PARSE(&o, &e, "--port=65536"), -1);
    assert_int_equal(PARSE(&o, &e, "--nope"), -1);
    assert_int_equal(PARSE(&o, &e, "word"), -1);
    assert_int_equal(PARSE(&o, &e, "--log-level=8"), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(held),
        cmocka_unit_test(classic),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
