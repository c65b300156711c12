/* What every unit test includes first: cmocka with the headers it wants before it, and a deadline instead of sleeps. */
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/clock.h"

/* How long a test waits for something that must happen. Generous: sanitizers on a busy machine. */
enum { TEST_DEADLINE_MS = 20000 };

static inline int64_t test_deadline(void)
{
    return clock_mono_ms() + TEST_DEADLINE_MS;
}

/* Runs step until cond holds; fails the test at the deadline. step must itself wait for an event, bounded. */
#define TEST_UNTIL(cond, step)                                                                     \
    do {                                                                                           \
        int64_t until_ = test_deadline();                                                          \
        while (!(cond)) {                                                                          \
            if (clock_mono_ms() > until_)                                                          \
                fail_msg("still not true at the deadline: %s", #cond);                             \
            step;                                                                                  \
        }                                                                                          \
    } while (0)

#define assert_contains(text, part)                                                                \
    do {                                                                                           \
        if (!strstr((text), (part)))                                                               \
            fail_msg("\"%s\" does not contain \"%s\"", (text), (part));                            \
    } while (0)
