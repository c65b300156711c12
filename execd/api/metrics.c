/* GET /metrics and /metrics/watch (contract/execd.md 11). In the loop: files of the kernel do not block. */
#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "execd/api/api.h"
#include "execd/app.h"
#include "execd/metrics/sampler.h"
#include "execd/metrics/usage.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum {
    SAMPLE_MS = 2000, /* between the samples that answers are compared with */
    WATCH_MS = 2000,  /* between two events */
    TEXT_MAX = 512,
    WATCH_MAX = 4096, /* bytes held for a slow client; what comes meanwhile is left out */
};

struct watch {
    struct metrics *m;
    struct http_stream *stream;
    struct loop_timer timer;
    struct watch *next;
    struct watch *prev;
};

struct metrics {
    struct app *app;
    struct cgroups groups;
    unsigned width;
    struct sampler sampler;
    struct loop_timer timer;
    struct watch *watches;
};

/* Two digits are enough for everybody. */
static double rounded(double n)
{
    return round(n * 100) / 100;
}

static int describe(struct metrics *m, char out[TEXT_MAX], struct err *e)
{
    static const double mib = 1024.0 * 1024.0;
    int64_t now = clock_mono_ms();
    struct usage u;

    if (usage_read(&m->groups, m->width, &u, e) < 0)
        return -1;
    (void)snprintf(out, TEXT_MAX,
                   "{\"cpu_count\":%.12g,\"cpu_used_pct\":%.12g,\"mem_total_mib\":%.12g,"
                   "\"mem_used_mib\":%.12g,\"timestamp\":%" PRId64 "}",
                   rounded(u.cpus) > 0 ? rounded(u.cpus) : 0.01,
                   rounded(sampler_percent(&m->sampler, now, u.cpu_us, u.cpus)),
                   rounded((double)u.mem_total / mib), rounded((double)u.mem_used / mib),
                   clock_wall_ms());
    sampler_add(&m->sampler, now, u.cpu_us);
    return 0;
}

static void on_sample_time(struct loop_timer *t)
{
    struct metrics *m = CONTAINER_OF(t, struct metrics, timer);
    uint64_t cpu_us;

    if (usage_cpu(&m->groups, &cpu_us, NULL) == 0)
        sampler_add(&m->sampler, clock_mono_ms(), cpu_us);
    (void)loop_timer_set(m->app->loop, t, clock_mono_ms() + SAMPLE_MS);
}

int metrics_begin(struct app *app, struct err *e)
{
    struct metrics *m = calloc(1, sizeof(*m));

    if (!m)
        return err_nomem(e);
    m->app = app;
    m->width = usage_width();
    m->timer.on_fire = on_sample_time;
    cgroups_find(&m->groups, "");
    app->metrics = m;
    on_sample_time(&m->timer);
    return 0;
}

int metrics_get(void *arg, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct app *app = arg;
    char text[TEXT_MAX];

    (void)rq;
    if (describe(app->metrics, text, e) < 0)
        return -1;
    return http_resp_json(rs, 200, strdup(text), e);
}

/* ---- watch ---- */

/* The stream is not released: whoever calls has its last call, or ends it. */
static void forget(struct watch *w)
{
    struct watch **at = w->prev ? &w->prev->next : &w->m->watches;

    *at = w->next;
    if (w->next)
        w->next->prev = w->prev;
    loop_timer_clear(w->m->app->loop, &w->timer);
    http_stream_release(w->stream);
    free(w);
}

static void on_close(void *owner)
{
    forget(owner);
}

static void on_drain(void *owner)
{
    (void)owner;
}

static const struct http_stream_ops watch_ops = { on_drain, on_close };

static void on_watch_time(struct loop_timer *t)
{
    struct watch *w = CONTAINER_OF(t, struct watch, timer);
    AUTO_BUF struct buf b = BUF_INIT(2 * TEXT_MAX);
    char text[TEXT_MAX];

    if (describe(w->m, text, NULL) < 0)
        (void)snprintf(text, sizeof(text), "{\"error\":\"the metrics cannot be read\"}");
    if (buf_printf(&b, "%s\n\n", text) == 0)
        (void)http_stream_write(w->stream, b.data, b.len);
    (void)loop_timer_set(w->m->app->loop, t, clock_mono_ms() + WATCH_MS);
}

int metrics_watch(void *arg, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct app *app = arg;
    struct watch *w = calloc(1, sizeof(*w));

    (void)rq;
    if (!w)
        return err_nomem(e);
    w->m = app->metrics;
    w->timer.on_fire = on_watch_time;
    w->stream = http_stream_new(app->server, WATCH_MAX, &watch_ops, w);
    if (!w->stream) {
        free(w);
        return err_nomem(e);
    }
    w->next = w->m->watches;
    if (w->next)
        w->next->prev = w;
    w->m->watches = w;
    rs->content_type = "text/event-stream";
    http_resp_header(rs, "Cache-Control", "no-cache");
    http_resp_header(rs, "X-Accel-Buffering", "no");
    rs->stream = w->stream;
    on_watch_time(&w->timer);
    return 0;
}

void metrics_stop(struct app *app)
{
    while (app->metrics && app->metrics->watches) {
        http_stream_end(app->metrics->watches->stream);
        forget(app->metrics->watches);
    }
}

void metrics_free(struct app *app)
{
    if (!app->metrics)
        return;
    metrics_stop(app);
    loop_timer_clear(app->loop, &app->metrics->timer);
    free(app->metrics);
    app->metrics = NULL;
}
