/* The last bytes by offset: every size of write, around every edge. */
#include "tests/unit/test.h"

#include "execd/pty/ring.h"

#include <stdlib.h>
#include <string.h>

static char byte_at(uint64_t at)
{
    return (char)(at * 31 + at / 257);
}

static void put(struct ring *r, size_t len)
{
    char *data = malloc(len + 1);
    size_t i;

    for (i = 0; i < len; i++)
        data[i] = byte_at(r->total + i);
    ring_write(r, data, len);
    free(data);
}

static void check(const struct ring *r, uint64_t want_start)
{
    uint64_t start = ring_start(r);
    size_t len = (size_t)(r->total - start);
    char *out = malloc(len + 1);
    size_t i;

    assert_int_equal(start, want_start);
    ring_copy(r, start, out, len);
    for (i = 0; i < len; i++)
        if (out[i] != byte_at(start + i))
            fail_msg("byte %zu of %zu is wrong", i, len);
    free(out);
}

static void nothing(void **state)
{
    struct ring r = { 0 };

    (void)state;
    check(&r, 0);
    put(&r, 0);
    check(&r, 0);
    ring_free(&r);
}

static void memory_grows_with_what_is_kept(void **state)
{
    struct ring r = { 0 };

    (void)state;
    put(&r, 100);
    assert_true(r.cap <= 4096);
    put(&r, 4000);
    assert_true(r.cap <= 8192);
    check(&r, 0);
    put(&r, RING_SIZE - 4100);
    assert_int_equal(r.cap, RING_SIZE);
    check(&r, 0); /* exactly full */
    put(&r, 1);
    check(&r, 1);
    ring_free(&r);
}

static void the_oldest_go(void **state)
{
    static const size_t sizes[] = { 1,         4095,          4096,
                                    32768,     500000,        RING_SIZE - 1,
                                    RING_SIZE, RING_SIZE + 1, 3 * RING_SIZE + 7 };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct ring r = { 0 };

        while (r.total < 4 * (uint64_t)RING_SIZE) {
            put(&r, sizes[i] > 4096 ? sizes[i] : sizes[i] * 16);
            if (sizes[i] > 4096 || r.total % 65536 < 64)
                check(&r, r.total > RING_SIZE ? r.total - RING_SIZE : 0);
        }
        check(&r, r.total - RING_SIZE);
        ring_free(&r);
    }
}

static void peeks_stay_inside(void **state)
{
    struct ring r = { 0 };
    size_t len;

    (void)state;
    put(&r, RING_SIZE + 10);
    (void)ring_peek(&r, RING_SIZE - 5, 100, &len); /* up to where the memory wraps */
    assert_int_equal(len, 5);
    (void)ring_peek(&r, RING_SIZE, 100, &len);
    assert_int_equal(len, 10);
    (void)ring_peek(&r, RING_SIZE + 10, 100, &len);
    assert_int_equal(len, 0);
    ring_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing),
        cmocka_unit_test(memory_grows_with_what_is_kept),
        cmocka_unit_test(the_oldest_go),
        cmocka_unit_test(peeks_stay_inside),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
