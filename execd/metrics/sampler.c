#include "execd/metrics/sampler.h"

void sampler_add(struct sampler *s, int64_t now_ms, uint64_t cpu_us)
{
    struct sample now = { now_ms, cpu_us };

    if (s->any && now_ms - s->last.at_ms < SAMPLER_WINDOW_MS)
        return;
    s->before = s->any ? s->last : now;
    s->last = now;
    s->any = true;
}

double sampler_percent(const struct sampler *s, int64_t now_ms, uint64_t cpu_us, double cpus)
{
    const struct sample *from = now_ms - s->last.at_ms < SAMPLER_WINDOW_MS ? &s->before : &s->last;
    double percent;

    if (!s->any || now_ms <= from->at_ms || cpu_us <= from->cpu_us)
        return 0;
    percent = (double)(cpu_us - from->cpu_us) / ((double)(now_ms - from->at_ms) * 10.0 * cpus);
    return percent < 100 ? percent : 100;
}
