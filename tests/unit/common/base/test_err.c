#include "tests/unit/test.h"

#include "common/base/err.h"

#include <string.h>

static void set_fills_and_returns_minus_one(void **state)
{
    struct err e = { 0 };

    (void)state;
    assert_int_equal(err_set(&e, ERRC_CONFLICT, "%s is %d", "x", 7), -1);
    assert_int_equal(e.code, ERRC_CONFLICT);
    assert_null(e.api_code);
    assert_string_equal(e.msg, "x is 7");
    assert_int_equal(err_api(&e, ERRC_NOT_FOUND, "A::B", "gone"), -1);
    assert_int_equal(e.code, ERRC_NOT_FOUND);
    assert_string_equal(e.api_code, "A::B");
    assert_string_equal(e.msg, "gone");
    assert_int_equal(err_nomem(&e), -1);
    assert_int_equal(e.code, ERRC_NOMEM);
    assert_null(e.api_code);
}

static void sys_adds_the_system_text(void **state)
{
    struct err e = { 0 };

    (void)state;
    assert_int_equal(err_sys(&e, EACCES, "open %s", "/x"), -1);
    assert_int_equal(e.code, ERRC_SYS);
    assert_int_equal(e.sys, EACCES);
    assert_string_equal(e.msg, "open /x: Permission denied");
    (void)err_sys(&e, ENOMEM, "x");
    assert_int_equal(e.code, ERRC_NOMEM);
    (void)err_sys(&e, ENOENT, "x");
    assert_int_equal(e.code, ERRC_NOT_FOUND);
    (void)err_sys(&e, 99999, "x");
    assert_contains(e.msg, "99999");
}

static void wrap_prefixes_and_keeps_codes(void **state)
{
    struct err e = { 0 };

    (void)state;
    (void)err_api(&e, ERRC_BUSY, "C", "inner");
    e.retry_after_s = 3;
    assert_int_equal(err_wrap(&e, "pause %s", "id"), -1);
    assert_string_equal(e.msg, "pause id: inner");
    assert_int_equal(e.code, ERRC_BUSY);
    assert_string_equal(e.api_code, "C");
    assert_int_equal(e.retry_after_s, 3);
}

static void set_forgets_the_previous_error(void **state)
{
    struct err e = { 0 };

    (void)state;
    (void)err_sys(&e, EIO, "x");
    e.retry_after_s = 9;
    (void)err_set(&e, ERRC_INVALID, "y");
    assert_int_equal(e.sys, 0);
    assert_int_equal(e.retry_after_s, 0);
}

static void long_text_is_cut_and_terminated(void **state)
{
    struct err e = { 0 };
    char text[2000];

    (void)state;
    memset(text, 'm', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    (void)err_set(&e, ERRC_INVALID, "%s", text);
    assert_int_equal(strlen(e.msg), sizeof(e.msg) - 1);
    (void)err_wrap(&e, "%s", text);
    assert_int_equal(strlen(e.msg), sizeof(e.msg) - 1);
    (void)err_sys(&e, EIO, "%s", text);
    assert_int_equal(strlen(e.msg), sizeof(e.msg) - 1);
}

static void nobody_cares(void **state)
{
    (void)state;
    assert_int_equal(err_set(NULL, ERRC_INVALID, "x"), -1);
    assert_int_equal(err_api(NULL, ERRC_INVALID, "x", "x"), -1);
    assert_int_equal(err_sys(NULL, EIO, "x"), -1);
    assert_int_equal(err_wrap(NULL, "x"), -1);
    assert_int_equal(err_nomem(NULL), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(set_fills_and_returns_minus_one),
        cmocka_unit_test(sys_adds_the_system_text),
        cmocka_unit_test(wrap_prefixes_and_keeps_codes),
        cmocka_unit_test(set_forgets_the_previous_error),
        cmocka_unit_test(long_text_is_cut_and_terminated),
        cmocka_unit_test(nobody_cares),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
