/* What the server counts: fixed counters and histograms, few labels, no allocation. Knows no HTTP.
 * Lives in struct lifecycle's owner, zeroed; all functions but metrics_write_state are safe from any
 * thread and never block; a NULL struct metrics counts nothing. */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf;
struct err;
struct lifecycle;

enum metrics_op {
    METRICS_CREATE,
    METRICS_PAUSE,
    METRICS_RESUME,
    METRICS_RENEW,
    METRICS_PATCH,
    METRICS_DELETE,
    METRICS_EXPIRE,
    METRICS_OP_MAX_
};

enum metrics_result {
    METRICS_OK,
    METRICS_FAILED,  /* our side's or the engine's fault */
    METRICS_REFUSED, /* the caller's */
    METRICS_PENDING, /* of create: answered before it was done */
    METRICS_RESULT_MAX_
};

/* Parts of a create, in order. */
enum metrics_phase {
    METRICS_STORE, /* the intent is written */
    METRICS_PULL,  /* only when the image was not there */
    METRICS_START,
    METRICS_CLAIM,
    METRICS_TOTAL,
    METRICS_PHASE_MAX_
};

/* Who reported the time of a create. */
enum metrics_sdk {
    METRICS_SDK_OTHER,
    METRICS_SDK_PYTHON,
    METRICS_SDK_JS,
    METRICS_SDK_GO,
    METRICS_SDK_KOTLIN,
    METRICS_SDK_CSHARP,
    METRICS_SDK_CLI,
    METRICS_SDK_MAX_
};

enum { METRICS_BOUNDS = 17 }; /* of every histogram: 1 ms to 5 min */

struct metrics_histogram {
    _Atomic uint64_t buckets[METRICS_BOUNDS + 1]; /* the last: beyond all bounds */
    _Atomic uint64_t sum_us;
};

struct metrics {
    _Atomic uint64_t ops[METRICS_OP_MAX_][METRICS_RESULT_MAX_];
    struct metrics_histogram phases[METRICS_PHASE_MAX_];
    struct metrics_histogram expiry_lag;
    struct metrics_histogram client[METRICS_SDK_MAX_][2]; /* by success */
    _Atomic uint64_t stream_connects;
    _Atomic bool stream_up;
};

void metrics_count(struct metrics *m, enum metrics_op op, enum metrics_result result);
/* The same by what a function returned; returns rc. */
int metrics_done(struct metrics *m, enum metrics_op op, int rc, const struct err *e);
/* Monotonic microseconds: what metrics_phase measures from. */
int64_t metrics_now_us(void);
void metrics_phase(struct metrics *m, enum metrics_phase phase, int64_t since_us);
/* A sandbox was removed so long after its expiry. */
void metrics_expired(struct metrics *m, int64_t late_ms);
void metrics_client_create(struct metrics *m, enum metrics_sdk sdk, bool success,
                           int64_t duration_ms);
/* The stream of the runtime's events was opened (again), or broke. */
void metrics_stream(struct metrics *m, bool up);

/* ---- in the text format of Prometheus; what no longer fits into out is left out ---- */

void metrics_write(const struct metrics *m, struct buf *out);
/* What the store and the runtime say now, and this process. Blocks. -1: the store cannot be read. */
int metrics_write_state(struct lifecycle *lc, struct buf *out, struct err *e);
