#include "tests/unit/test.h"

#include "common/base/num.h"
#include "gateway/domain/deadlines.h"

#include <stdlib.h>
#include <string.h>

static void earliest_comes_first_and_not_before_its_time(void **state)
{
    struct deadlines *d = deadlines_new();
    char id[RUNTIME_ID];
    int64_t at;

    (void)state;
    assert_false(deadlines_next(d, &at));
    assert_int_equal(deadlines_put(d, "b", 20, NULL), 0);
    assert_int_equal(deadlines_put(d, "a", 10, NULL), 0);
    assert_int_equal(deadlines_put(d, "c", 30, NULL), 0);
    assert_true(deadlines_next(d, &at));
    assert_int_equal(at, 10);
    assert_false(deadlines_take(d, 9, id));
    assert_true(deadlines_take(d, 10, id));
    assert_string_equal(id, "a");
    assert_true(deadlines_take(d, 99, id));
    assert_string_equal(id, "b");
    assert_int_equal(deadlines_len(d), 1);
    deadlines_free(d);
}

static void moving_and_dropping(void **state)
{
    struct deadlines *d = deadlines_new();
    char id[RUNTIME_ID];
    int64_t at;

    (void)state;
    assert_int_equal(deadlines_put(d, "a", 10, NULL), 0);
    assert_int_equal(deadlines_put(d, "b", 20, NULL), 0);
    assert_int_equal(deadlines_put(d, "a", 30, NULL), 0);         /* later */
    assert_int_equal(deadlines_put_earlier(d, "a", 40, NULL), 0); /* no: it is earlier */
    assert_true(deadlines_get(d, "a", &at));
    assert_int_equal(at, 30);
    assert_int_equal(deadlines_put_earlier(d, "a", 5, NULL), 0);
    assert_true(deadlines_take(d, 5, id));
    assert_string_equal(id, "a");
    deadlines_drop(d, "a");
    deadlines_drop(d, "b");
    assert_int_equal(deadlines_len(d), 0);
    assert_false(deadlines_get(d, "b", &at));
    assert_int_equal(deadlines_put(d, "x", 9, NULL), 0);
    assert_int_equal(deadlines_put(d, "y", 8, NULL), 0);
    deadlines_all_at(d, 7);
    assert_true(deadlines_take(d, 7, id));
    assert_true(deadlines_take(d, 7, id));
    deadlines_free(d);
}

static int64_t number(const char *text)
{
    int64_t n = -1;

    assert_int_equal(num_parse_i64(text, 0, 1000, &n), 0);
    return n;
}

enum { IDS = 64, STEPS = 20000 };

/* Against an array that is searched from end to end. */
static void behaves_as_a_plain_table(void **state)
{
    struct deadlines *d = deadlines_new();
    int64_t model[IDS] = { 0 }; /* 0: not there */
    unsigned seed = 1;
    char id[RUNTIME_ID];
    int64_t at;
    int64_t least;
    int i;
    int k;

    (void)state;
    for (i = 0; i < STEPS; i++) {
        k = rand_r(&seed) % IDS;
        (void)snprintf(id, sizeof(id), "%d", k);
        if (rand_r(&seed) % 4) {
            model[k] = 1 + rand_r(&seed) % 1000;
            assert_int_equal(deadlines_put(d, id, model[k], NULL), 0);
        } else {
            model[k] = 0;
            deadlines_drop(d, id);
        }
        least = INT64_MAX;
        for (k = 0; k < IDS; k++)
            if (model[k] && model[k] < least)
                least = model[k];
        assert_int_equal(deadlines_next(d, &at), least != INT64_MAX);
        if (least == INT64_MAX)
            continue;
        assert_int_equal(at, least);
        if (i % 7)
            continue;
        assert_true(deadlines_take(d, least, id));
        k = (int)number(id);
        assert_int_equal(model[k], least);
        model[k] = 0;
    }
    deadlines_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(earliest_comes_first_and_not_before_its_time),
        cmocka_unit_test(moving_and_dropping),
        cmocka_unit_test(behaves_as_a_plain_table),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
