/* How many calls went to the engine, by operation and result: a small fixed set of counters. Safe
 * from any thread. */
#pragma once
#include <stdatomic.h>

struct buf;

enum calls_result {
    CALLS_OK,
    CALLS_REFUSED, /* the engine answered with an error */
    CALLS_FAILED,  /* it did not answer, or too late, or half */
    CALLS_RESULTS_,
};

enum { CALLS_OPS = 32 }; /* at least the operations that calls.c tells apart */

/* Zero-initialise. */
struct calls {
    atomic_ulong count[CALLS_OPS][CALLS_RESULTS_];
};

/* method and path as in engine.h: the operation is read from them. */
void calls_count(struct calls *c, const char *method, const char *path, enum calls_result r);
/* Appends sandgate_engine_calls_total{op,result} in Prometheus text. */
void calls_metrics(struct calls *c, struct buf *out);
