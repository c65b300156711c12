/* CPU use as a percentage without waiting for it: between now and a sample that was kept before.
 * Pure; times are monotonic milliseconds. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum { SAMPLER_WINDOW_MS = 500 }; /* between two samples that are kept */

struct sample {
    int64_t at_ms;
    uint64_t cpu_us;
};

/* Zeroed is empty. */
struct sampler {
    struct sample before;
    struct sample last;
    bool any;
};

/* Keeps the sample when the last one is old enough. */
void sampler_add(struct sampler *s, int64_t now_ms, uint64_t cpu_us);
/* 0..100 of cpus (> 0), since the newest sample that is SAMPLER_WINDOW_MS old, else the oldest. */
double sampler_percent(const struct sampler *s, int64_t now_ms, uint64_t cpu_us, double cpus);
