/* Signed routes: what is signed opens, what is changed does not. */
#include "tests/unit/test.h"

#include "gateway/domain/signed.h"

#include <stdlib.h>
#include <string.h>

#define KEY "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

static void opens_what_it_signed_until_it_expires(void **state)
{
    static const int64_t times[] = { 1, 35, 36, 1900000000, INT64_MAX };
    char exp[SIGNED_EXP_TEXT];
    char sig[SIGNED_SIG_TEXT];
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        signed_make(KEY, "id", 80, times[i], exp, sig);
        assert_int_equal(strlen(sig), 32);
        assert_true(signed_check(KEY, "id", 80, exp, sig, times[i] - 1));
        assert_false(signed_check(KEY, "id", 80, exp, sig, times[i]));
    }
}

/* Computed with Python's hmac module. */
static void known_answer(void **state)
{
    char exp[SIGNED_EXP_TEXT];
    char sig[SIGNED_SIG_TEXT];

    (void)state;
    signed_make(KEY, "0b7e1a52-9f7c-4b6e-8d0a-1c2d3e4f5a6b", 8080, 1900000000, exp, sig);
    assert_string_equal(exp, "vf7lds");
    assert_string_equal(sig, "3b79bf9c0a6e1d4c79e4136d750deb57");
}

static void every_part_counts(void **state)
{
    char exp[SIGNED_EXP_TEXT];
    char sig[SIGNED_SIG_TEXT];

    (void)state;
    signed_make(KEY, "id", 80, 1000, exp, sig);
    assert_false(signed_check("other", "id", 80, exp, sig, 1));
    assert_false(signed_check(KEY, "ie", 80, exp, sig, 1));
    assert_false(signed_check(KEY, "id", 81, exp, sig, 1));
    assert_false(signed_check(KEY, "id", 80, "rt", sig, 1));
    assert_false(signed_check(KEY, "id", 80, "RS", sig, 1));
    assert_false(signed_check(KEY, "id", 80, "0rs", sig, 1));
    assert_false(signed_check(KEY, "id", 80, "", sig, 1));
    assert_false(signed_check(KEY, "id", 80, "zzzzzzzzzzzzzz", sig, 1));
    assert_false(signed_check(KEY, "id", 80, exp, "", 1));
    sig[0] = sig[0] == 'a' ? 'b' : 'a';
    assert_false(signed_check(KEY, "id", 80, exp, sig, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens_what_it_signed_until_it_expires),
        cmocka_unit_test(known_answer),
        cmocka_unit_test(every_part_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
