#include "tests/unit/test.h"

#include "common/base/arena.h"

#include <string.h>

static void is_aligned_and_zeroed(void **state)
{
    struct arena a = ARENA_INIT(1 << 20);
    size_t len;

    (void)state;
    for (len = 0; len < 300; len++) {
        unsigned char *p = arena_alloc(&a, len);
        size_t i;

        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 16, 0);
        for (i = 0; i < len; i++)
            assert_int_equal(p[i], 0);
        memset(p, 0xff, len);
    }
    arena_free(&a);
}

static void hands_out_exactly_max(void **state)
{
    struct arena a = ARENA_INIT(64);

    (void)state;
    assert_non_null(arena_alloc(&a, 64));
    assert_null(arena_alloc(&a, 1));
    arena_free(&a);
}

static void one_past_max_fails(void **state)
{
    struct arena a = ARENA_INIT(64);

    (void)state;
    assert_null(arena_alloc(&a, 65));
    assert_null(arena_alloc(&a, SIZE_MAX));
    assert_null(arena_alloc(&a, SIZE_MAX - 8));
    assert_null(arena_strndup(&a, "x", SIZE_MAX));
    assert_null(arena_strndup(&a, "x", 64));
    assert_non_null(arena_alloc(&a, 16));
    arena_free(&a);
}

static void many_small_ones_stop_at_max(void **state)
{
    struct arena a = ARENA_INIT(100000);
    size_t n = 0;

    (void)state;
    while (arena_alloc(&a, 16))
        n++;
    assert_in_range(n, 6000, 6250); /* 100000 / 16, less the rest of the last block */
    assert_true(a.used <= a.max);
    arena_free(&a);
}

static void large_and_small_mix(void **state)
{
    struct arena a = ARENA_INIT(1 << 20);
    char *small = arena_strndup(&a, "small", 5);
    char *large = arena_alloc(&a, 100000);
    char *again = arena_printf(&a, "%s-%d", "x", 7);

    (void)state;
    assert_non_null(large);
    memset(large, 'l', 100000);
    assert_string_equal(small, "small");
    assert_string_equal(again, "x-7");
    arena_free(&a);
}

static void strndup_cuts_at_len(void **state)
{
    struct arena a = ARENA_INIT(1024);

    (void)state;
    assert_string_equal(arena_strndup(&a, "abcdef", 3), "abc");
    assert_string_equal(arena_strndup(&a, "", 0), "");
    arena_free(&a);
}

static void is_reusable_after_free(void **state)
{
    struct arena a = ARENA_INIT(64);

    (void)state;
    assert_non_null(arena_alloc(&a, 64));
    arena_free(&a);
    assert_int_equal(a.used, 0);
    assert_non_null(arena_alloc(&a, 64));
    arena_free(&a);
    arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_aligned_and_zeroed),  cmocka_unit_test(hands_out_exactly_max),
        cmocka_unit_test(one_past_max_fails),     cmocka_unit_test(many_small_ones_stop_at_max),
        cmocka_unit_test(large_and_small_mix),    cmocka_unit_test(strndup_cuts_at_len),
        cmocka_unit_test(is_reusable_after_free),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
