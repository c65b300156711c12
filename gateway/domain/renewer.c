#include "gateway/domain/renewer.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/jobs.h"
#include "common/base/log.h"
#include "gateway/domain/lifecycle.h"

#include <search.h>
#include <string.h>

enum { RENEWER_THREADS = 2, RENEWER_QUEUE = 256, RENEWER_KNOWN_MAX = 8192 };

/* When a sandbox was last handed to the jobs. */
struct seen {
    char id[RUNTIME_ID]; /* first: entries compare as their ids */
    int64_t at_mono_ms;
};

struct renewer {
    struct lifecycle *lc;
    struct jobs *jobs;
    int64_t interval_ms;
    pthread_mutex_t guard; /* guards the two below */
    void *root;            /* tsearch(3) tree of struct seen */
    unsigned known;
};

struct note {
    struct renewer *renewer;
    char id[RUNTIME_ID];
};

static int by_id(const void *a, const void *b)
{
    return strcmp(a, b);
}

struct renewer *renewer_new(struct lifecycle *lc, int64_t interval_ms, struct err *e)
{
    struct renewer *r = calloc(1, sizeof(*r));

    if (!r) {
        (void)err_nomem(e);
        return NULL;
    }
    r->lc = lc;
    r->interval_ms = interval_ms;
    (void)pthread_mutex_init(&r->guard, NULL);
    r->jobs = jobs_new(RENEWER_THREADS, RENEWER_QUEUE, e);
    if (!r->jobs) {
        renewer_free(r);
        return NULL;
    }
    return r;
}

void renewer_free(struct renewer *r)
{
    if (!r)
        return;
    jobs_free(r->jobs);
    tdestroy(r->root, free);
    (void)pthread_mutex_destroy(&r->guard);
    free(r);
}

static void renew(void *arg)
{
    AUTO_FREE struct note *n = arg;
    struct err e = { 0 };

    if (lifecycle_renew_by_access(n->renewer->lc, n->id, &e) < 0)
        log_warn("renewal by access failed", LOG_S("id", n->id), LOG_S("error", e.msg));
}

/* Is it time, and if so, from now on not for an interval. Past the bound the memory of all is
 * dropped: some are renewed once more than needed. */
static bool is_due(struct renewer *r, const char *id)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&r->guard);
    struct seen **found = tfind(id, &r->root, by_id);
    struct seen *s = found ? *found : NULL;
    int64_t now = clock_mono_ms();

    if (s) {
        if (now - s->at_mono_ms < r->interval_ms)
            return false;
        s->at_mono_ms = now;
        return true;
    }
    if (r->known >= RENEWER_KNOWN_MAX) {
        tdestroy(r->root, free);
        r->root = NULL;
        r->known = 0;
    }
    s = calloc(1, sizeof(*s));
    if (!s)
        return true;
    (void)snprintf(s->id, sizeof(s->id), "%s", id);
    s->at_mono_ms = now;
    if (tsearch(s, &r->root, by_id))
        r->known++;
    else
        free(s);
    return true;
}

void renewer_note(struct renewer *r, const char *id)
{
    struct note *n;

    if (!is_due(r, id))
        return;
    n = calloc(1, sizeof(*n));
    if (!n)
        return;
    n->renewer = r;
    (void)snprintf(n->id, sizeof(n->id), "%s", id);
    if (jobs_post(r->jobs, renew, n, NULL) < 0) {
        log_warn("renewal by access dropped: too many at once", LOG_S("id", id));
        free(n);
    }
}
