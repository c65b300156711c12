#include "gateway/domain/metrics.h"

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "gateway/domain/lifecycle.h"
#include "gateway/store/count_store.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static const int64_t bounds_us[METRICS_BOUNDS] = {
    1000,    2500,    5000,    10000,    25000,    50000,    100000,    250000,    500000,
    1000000, 2500000, 5000000, 10000000, 30000000, 60000000, 120000000, 300000000,
};

static const char *const op_names[METRICS_OP_MAX_] = {
    [METRICS_CREATE] = "create", [METRICS_PAUSE] = "pause", [METRICS_RESUME] = "resume",
    [METRICS_RENEW] = "renew",   [METRICS_PATCH] = "patch", [METRICS_DELETE] = "delete",
    [METRICS_EXPIRE] = "expire",
};

static const char *const result_names[METRICS_RESULT_MAX_] = {
    [METRICS_OK] = "ok",
    [METRICS_FAILED] = "failed",
    [METRICS_REFUSED] = "refused",
    [METRICS_PENDING] = "pending",
};

static const char *const phase_names[METRICS_PHASE_MAX_] = {
    [METRICS_STORE] = "store", [METRICS_PULL] = "pull",   [METRICS_START] = "start",
    [METRICS_CLAIM] = "claim", [METRICS_TOTAL] = "total",
};

static const char *const sdk_names[METRICS_SDK_MAX_] = {
    [METRICS_SDK_OTHER] = "other", [METRICS_SDK_PYTHON] = "python", [METRICS_SDK_JS] = "js",
    [METRICS_SDK_GO] = "go",       [METRICS_SDK_KOTLIN] = "kotlin", [METRICS_SDK_CSHARP] = "csharp",
    [METRICS_SDK_CLI] = "cli",
};

/* ---- counting ---- */

static void add(_Atomic uint64_t *counter, uint64_t n)
{
    (void)atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static uint64_t get(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static void observe(struct metrics_histogram *h, int64_t us)
{
    int i = 0;

    if (us < 0)
        us = 0; /* a wall clock that was set back */
    while (i < METRICS_BOUNDS && us > bounds_us[i])
        i++;
    add(&h->buckets[i], 1);
    add(&h->sum_us, (uint64_t)us);
}

void metrics_count(struct metrics *m, enum metrics_op op, enum metrics_result result)
{
    if (m)
        add(&m->ops[op][result], 1);
}

static enum metrics_result result_of(const struct err *e)
{
    switch (e ? e->code : ERRC_INTERNAL) {
    case ERRC_INTERNAL:
    case ERRC_NOMEM:
    case ERRC_SYS:
    case ERRC_BAD_GATEWAY:
    case ERRC_BUSY:
    case ERRC_TIMEOUT:
        return METRICS_FAILED;
    default:
        return METRICS_REFUSED;
    }
}

int metrics_done(struct metrics *m, enum metrics_op op, int rc, const struct err *e)
{
    metrics_count(m, op, rc == 0 ? METRICS_OK : result_of(e));
    return rc;
}

int64_t metrics_now_us(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

void metrics_phase(struct metrics *m, enum metrics_phase phase, int64_t since_us)
{
    if (m)
        observe(&m->phases[phase], metrics_now_us() - since_us);
}

void metrics_expired(struct metrics *m, int64_t late_ms)
{
    if (m)
        observe(&m->expiry_lag, late_ms * 1000);
}

void metrics_client_create(struct metrics *m, enum metrics_sdk sdk, bool success,
                           int64_t duration_ms)
{
    if (m)
        observe(&m->client[sdk][success], duration_ms * 1000);
}

void metrics_stream(struct metrics *m, bool up)
{
    if (!m)
        return;
    if (up && !atomic_exchange(&m->stream_up, true))
        add(&m->stream_connects, 1);
    else if (!up)
        atomic_store(&m->stream_up, false);
}

/* ---- writing ---- */

static void head(struct buf *out, const char *name, const char *type, const char *help)
{
    (void)buf_printf(out, "# HELP sandgate_%s %s\n# TYPE sandgate_%s %s\n", name, help, name, type);
}

static uint64_t seen(const struct metrics_histogram *h)
{
    uint64_t n = 0;
    int i;

    for (i = 0; i <= METRICS_BOUNDS; i++)
        n += get(&h->buckets[i]);
    return n;
}

/* labels: "" or pairs joined by commas. The buckets are read once each: what is counted meanwhile
 * may be missing, but the sums fit together. */
static void put_histogram(struct buf *out, const char *name, const char *labels,
                          const struct metrics_histogram *h)
{
    const char *comma = labels[0] ? "," : "";
    const char *open = labels[0] ? "{" : "";
    const char *close = labels[0] ? "}" : "";
    uint64_t n = 0;
    int i;

    for (i = 0; i < METRICS_BOUNDS; i++) {
        n += get(&h->buckets[i]);
        (void)buf_printf(out, "sandgate_%s_bucket{%s%sle=\"%g\"} %" PRIu64 "\n", name, labels,
                         comma, (double)bounds_us[i] / 1e6, n);
    }
    n += get(&h->buckets[METRICS_BOUNDS]);
    (void)buf_printf(out,
                     "sandgate_%s_bucket{%s%sle=\"+Inf\"} %" PRIu64 "\n"
                     "sandgate_%s_sum%s%s%s %.6f\nsandgate_%s_count%s%s%s %" PRIu64 "\n",
                     name, labels, comma, n, name, open, labels, close,
                     (double)get(&h->sum_us) / 1e6, name, open, labels, close, n);
}

static void write_ops(const struct metrics *m, struct buf *out)
{
    int op;
    int r;

    head(out, "sandbox_operations_total", "counter",
         "Operations on sandboxes, by what came of it.");
    for (op = 0; op < METRICS_OP_MAX_; op++)
        for (r = 0; r < METRICS_RESULT_MAX_; r++)
            if (r != METRICS_PENDING || op == METRICS_CREATE)
                (void)buf_printf(out,
                                 "sandgate_sandbox_operations_total{operation=\"%s\","
                                 "result=\"%s\"} %" PRIu64 "\n",
                                 op_names[op], result_names[r], get(&m->ops[op][r]));
}

static void write_histograms(const struct metrics *m, struct buf *out)
{
    char labels[64];
    int i;

    head(out, "create_duration_seconds", "histogram", "Time of the phases of a create.");
    for (i = 0; i < METRICS_PHASE_MAX_; i++) {
        (void)snprintf(labels, sizeof(labels), "phase=\"%s\"", phase_names[i]);
        put_histogram(out, "create_duration_seconds", labels, &m->phases[i]);
    }
    head(out, "expiry_removal_lag_seconds", "histogram", "Time from expiry to removal.");
    put_histogram(out, "expiry_removal_lag_seconds", "", &m->expiry_lag);
    head(out, "client_create_duration_seconds", "histogram", "Creates as the clients report them.");
    for (i = 0; i < 2 * METRICS_SDK_MAX_; i++) {
        if (!seen(&m->client[i / 2][i % 2]))
            continue; /* most servers have clients of one language */
        (void)snprintf(labels, sizeof(labels), "language=\"%s\",success=\"%s\"", sdk_names[i / 2],
                       i % 2 ? "true" : "false");
        put_histogram(out, "client_create_duration_seconds", labels, &m->client[i / 2][i % 2]);
    }
}

void metrics_write(const struct metrics *m, struct buf *out)
{
    uint64_t connects;

    if (!m)
        return;
    write_ops(m, out);
    write_histograms(m, out);
    connects = get(&m->stream_connects);
    head(out, "engine_events_connected", "gauge",
         "Whether the stream of the engine's events is open.");
    (void)buf_printf(out, "sandgate_engine_events_connected %d\n", atomic_load(&m->stream_up));
    head(out, "engine_events_reconnects_total", "counter",
         "How often that stream was opened again.");
    (void)buf_printf(out, "sandgate_engine_events_reconnects_total %" PRIu64 "\n",
                     connects ? connects - 1 : 0);
}

/* ---- what others know ---- */

static int write_store(struct lifecycle *lc, struct buf *out, struct err *e)
{
    int64_t now = lc->clock->wall_ms();
    struct sandbox_counts c;
    struct snapshot_counts s;
    int64_t late;
    size_t i;

    if (count_store_sandboxes(lc->db, &c, e) < 0 || count_store_snapshots(lc->db, &s, e) < 0)
        return -1;
    head(out, "sandboxes", "gauge", "Sandboxes that exist, by state.");
    for (i = 0; i < SANDBOX_STATE_MAX_; i++)
        (void)buf_printf(out, "sandgate_sandboxes{state=\"%s\"} %" PRId64 "\n",
                         sandbox_state_to_string((enum sandbox_state)i), c.by_state[i]);
    head(out, "ended_records", "gauge", "Records kept of sandboxes that are gone.");
    (void)buf_printf(out, "sandgate_ended_records %" PRId64 "\n", c.ended);
    late = c.earliest_expiry_ms && c.earliest_expiry_ms < now ? now - c.earliest_expiry_ms : 0;
    head(out, "expiry_lag_seconds", "gauge",
         "By how much the most overdue sandbox outlives its expiry.");
    (void)buf_printf(out, "sandgate_expiry_lag_seconds %.3f\n", (double)late / 1e3);
    head(out, "snapshots", "gauge", "Snapshots, by state.");
    for (i = 0; i < s.len; i++)
        (void)buf_printf(out, "sandgate_snapshots{state=\"%s\"} %" PRId64 "\n", s.items[i].state,
                         s.items[i].n);
    return 0;
}

/* Resident set in bytes; 0 when /proc cannot be read. */
static uint64_t resident_bytes(void)
{
    FILE *f = fopen("/proc/self/statm", "re");
    unsigned long size;
    unsigned long pages = 0;

    if (!f)
        return 0;
    if (fscanf(f, "%lu %lu", &size, &pages) != 2)
        pages = 0;
    (void)fclose(f);
    return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static unsigned open_descriptors(void)
{
    DIR *d = opendir("/proc/self/fd");
    unsigned n = 0;

    if (!d)
        return 0;
    while (readdir(d))
        n++;
    (void)closedir(d);
    return n > 3 ? n - 3 : 0; /* ".", ".." and the directory itself */
}

static double seconds(const struct timeval *t)
{
    return (double)t->tv_sec + (double)t->tv_usec / 1e6;
}

static void process_value(struct buf *out, const char *name, const char *type, double value)
{
    (void)buf_printf(out, "# TYPE process_%s %s\nprocess_%s %.17g\n", name, type, name, value);
}

/* Under the names that every exporter uses. */
static void write_process(struct buf *out, int64_t started_ms)
{
    struct rlimit lim = { 0 };
    struct rusage use = { 0 };

    (void)getrlimit(RLIMIT_NOFILE, &lim);
    (void)getrusage(RUSAGE_SELF, &use);
    process_value(out, "resident_memory_bytes", "gauge", (double)resident_bytes());
    process_value(out, "open_fds", "gauge", (double)open_descriptors());
    process_value(out, "max_fds", "gauge", (double)lim.rlim_cur);
    process_value(out, "cpu_seconds_total", "counter",
                  seconds(&use.ru_utime) + seconds(&use.ru_stime));
    process_value(out, "start_time_seconds", "gauge", (double)started_ms / 1e3);
}

int metrics_write_state(struct lifecycle *lc, struct buf *out, struct err *e)
{
    if (write_store(lc, out, e) < 0)
        return -1;
    head(out, "build_info", "gauge", "Always 1.");
    (void)buf_printf(out, "sandgate_build_info{version=\"%s\"} 1\n", SANDGATE_VERSION);
    write_process(out, lc->started_ms);
    runtime_metrics(lc->rt, out);
    return 0;
}
