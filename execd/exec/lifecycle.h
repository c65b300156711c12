/* What hooks a sandbox has: the JSON of a claim's `lifecycle`, or of OPENSANDBOX_LIFECYCLE
 * (contract/newest.md 3.5), checked completely before anything runs. Starts nothing. */
#pragma once
#include "execd/exec/cron.h"
#include "execd/exec/zone.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct err;

enum {
    LIFECYCLE_JSON_MAX = 1 << 20,
    LIFECYCLE_PERIODIC_MAX = 64,
    LIFECYCLE_ARGS_MAX = 1024,
    LIFECYCLE_NAME_MAX = 128, /* bytes after trimming */
    LIFECYCLE_TIMEOUT_S = 60, /* when none is given */
    LIFECYCLE_PRE_START_MAX_S = 10800,
    LIFECYCLE_PERIODIC_MAX_S = 300,
};

struct lifecycle_hook {
    char *name;  /* trimmed; NULL for preStart */
    char **argv; /* n_argv strings and a NULL */
    size_t n_argv;
    int64_t timeout_s;
    struct cron cron;
    struct zone zone;
};

/* Zeroed: no hooks. Does not move once decoded (zones point into themselves). */
struct lifecycle {
    bool has_pre_start;
    struct lifecycle_hook pre_start;
    struct lifecycle_hook *periodic;
    size_t n_periodic;
};

/* v: NULL or null means none. at names v in errors. tz: the sandbox's variable TZ, or NULL.
 * -1: err names the field; *out is empty then. */
int lifecycle_decode(const json_t *v, const char *at, const char *tz, struct lifecycle *out,
                     struct err *e);
void lifecycle_free(struct lifecycle *lc);
