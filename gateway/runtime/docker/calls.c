#include "gateway/runtime/docker/calls.h"

#include "common/base/buf.h"
#include "common/base/macros.h"

#include <stdbool.h>
#include <string.h>

/* The first row that fits decides; the last one fits everything. */
static const struct {
    const char *name;
    const char *method; /* "": any */
    const char *path;   /* beginning */
    const char *part;   /* must occur before or in the query; "": anything */
} ops[] = {
    { "create", "POST", "/containers/create", "" },
    { "start", "POST", "/containers/", "/start" },
    { "stop", "POST", "/containers/", "/stop" },
    { "resume", "POST", "/containers/", "/unpause" },
    { "pause", "POST", "/containers/", "/pause" },
    { "list", "GET", "/containers/json", "" },
    { "logs", "GET", "/containers/", "/logs?" },
    { "archive", "", "/containers/", "/archive?" },
    { "inspect", "GET", "/containers/", "/json" },
    { "remove", "DELETE", "/containers/", "" },
    { "pull", "POST", "/images/create", "fromImage=" },
    { "import", "POST", "/images/", "" },
    { "image", "", "/images/", "" },
    { "commit", "POST", "/commit", "" },
    { "volume", "", "/volumes", "" },
    { "network", "", "/networks", "" },
    { "events", "GET", "/events", "" },
    { "info", "GET", "/info", "" },
    { "other", "", "", "" },
};

_Static_assert(ARRAY_LEN(ops) <= CALLS_OPS, "CALLS_OPS");

static const char *const results[] = { "ok", "refused", "failed" };

_Static_assert(ARRAY_LEN(results) == CALLS_RESULTS_, "results");

static bool fits(size_t i, const char *method, const char *path)
{
    return (!*ops[i].method || strcmp(ops[i].method, method) == 0) &&
           strncmp(ops[i].path, path, strlen(ops[i].path)) == 0 && strstr(path, ops[i].part);
}

void calls_count(struct calls *c, const char *method, const char *path, enum calls_result r)
{
    size_t i = 0;

    while (!fits(i, method, path))
        i++;
    atomic_fetch_add_explicit(&c->count[i][r], 1, memory_order_relaxed);
}

void calls_metrics(struct calls *c, struct buf *out)
{
    size_t i;
    size_t r;

    (void)buf_puts(out, "# HELP sandgate_engine_calls_total Calls to the container engine.\n"
                        "# TYPE sandgate_engine_calls_total counter\n");
    for (i = 0; i < ARRAY_LEN(ops); i++)
        for (r = 0; r < ARRAY_LEN(results); r++)
            (void)buf_printf(out, "sandgate_engine_calls_total{op=\"%s\",result=\"%s\"} %lu\n",
                             ops[i].name, results[r],
                             atomic_load_explicit(&c->count[i][r], memory_order_relaxed));
}
