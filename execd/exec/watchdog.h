/* The second line behind the gateway's own expiry (pains X3): when a sandbox is past its time and nobody
 * has ended it, the agent does. Times are counted on a clock that goes on while the host sleeps and
 * while the sandbox is paused, and that nobody sets. For the loop's thread. */
#pragma once
#include <stdint.h>

struct err;
struct loop;
struct watchdog;

enum {
    WATCHDOG_GRACE_MS = 60000, /* after the deadline: the gateway's own way of ending comes first */
    /* This part of the grace late, the sandbox was paused or its host slept: news of another deadline
     * may be waiting, so a whole grace is given again. */
    WATCHDOG_LATE_PART = 16,
};

/* on_late: once per deadline, from the loop. NULL: err set. */
struct watchdog *watchdog_new(struct loop *l, int64_t grace_ms, void (*on_late)(void *arg),
                              void *arg, struct err *e);
void watchdog_free(struct watchdog *w); /* takes NULL */
/* The deadline is left_ms from now (negative: it was). Replaces the one before. One that is past by
 * more than the grace counts as now. */
void watchdog_set(struct watchdog *w, int64_t left_ms);
void watchdog_clear(struct watchdog *w); /* there is none */
