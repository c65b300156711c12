/* Which client gets stripped lines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "execd/exec/lines.h"

static void by_user_agent(void **state)
{
    (void)state;
    assert_false(lines_strip(LINES_AUTO, NULL));
    assert_false(lines_strip(LINES_AUTO, ""));
    assert_false(lines_strip(LINES_AUTO, "curl/8"));
    assert_true(lines_strip(LINES_AUTO, "OpenSandbox-Python-SDK/1.1.0"));
    assert_true(lines_strip(LINES_AUTO, "OpenSandbox-Python-SDK/0.1.7"));
    assert_false(lines_strip(LINES_AUTO, "OpenSandbox-Python-SDK/1.1.1"));
    assert_false(lines_strip(LINES_AUTO, "OpenSandbox-Python-SDK/1.10"));
    assert_false(lines_strip(LINES_AUTO, "OpenSandbox-Python-SDK/2"));
    assert_true(lines_strip(LINES_AUTO, "OpenSandbox-CLI/1.1.0"));
    assert_false(lines_strip(LINES_AUTO, "OpenSandbox-CLI/1.1.1"));
    assert_true(lines_strip(LINES_AUTO, "OpenSandbox-JS-SDK/0.1.11"));
    assert_false(lines_strip(LINES_AUTO, "OpenSandbox-JS-SDK/1.1.1"));
    assert_true(lines_strip(LINES_AUTO, "OpenSandbox-Go-SDK/1.0.2"));
    assert_false(lines_strip(LINES_AUTO, "OpenSandbox-Go-SDK/1.1.0"));
    assert_true(lines_strip(LINES_AUTO, "OpenSandbox-Kotlin-SDK/1.0.12"));
    assert_true(lines_strip(LINES_AUTO, "app/9 OpenSandbox-Go-SDK/1.0.2 (linux)"));
    assert_false(lines_strip(LINES_AUTO, "OpenSandbox-Go-SDKx/1.0.2"));
    assert_false(lines_strip(LINES_AUTO, "OpenSandbox-Go-SDK/dev"));
}

static void by_switch(void **state)
{
    enum lines mode;

    (void)state;
    assert_false(lines_strip(LINES_KEEP, "OpenSandbox-Go-SDK/1.0.2"));
    assert_true(lines_strip(LINES_STRIP, "OpenSandbox-Python-SDK/1.1.1"));
    assert_int_equal(lines_parse("Strip", &mode), 0);
    assert_int_equal(mode, LINES_STRIP);
    assert_int_equal(lines_parse("auto", &mode), 0);
    assert_int_equal(mode, LINES_AUTO);
    assert_int_equal(lines_parse("", &mode), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_user_agent),
        cmocka_unit_test(by_switch),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
