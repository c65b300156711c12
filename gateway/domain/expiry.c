#include "gateway/domain/expiry.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/jobs.h"
#include "common/base/log.h"
#include "gateway/domain/lifecycle.h"
#include "gateway/domain/worker.h"
#include "gateway/store/sandbox_store.h"

enum {
    EXPIRY_BATCH = 32,
    EXPIRY_THREADS = 4,
    EXPIRY_RETRY_MS = 1000, /* after a failure, e.g. while the engine is away */
    EXPIRY_LOOK_MS = 30000, /* at the latest: an independent look at the clock and the index */
};

struct expiry {
    struct lifecycle *lc;
    struct jobs *jobs;
    struct worker worker;
    pthread_mutex_t guard; /* guards the two below */
    pthread_cond_t finished;
    unsigned running;
    unsigned failed;
};

struct removal {
    struct expiry *x;
    const char *id;
};

static void remove_one(void *arg)
{
    struct removal *r = arg;
    struct expiry *x = r->x;
    struct err e = { 0 };
    int rc = lifecycle_expire(x->lc, r->id, &e);

    if (rc < 0 && e.code != ERRC_BUSY)
        log_warn("expired sandbox not removed yet", LOG_S("id", r->id), LOG_S("error", e.msg));
    (void)pthread_mutex_lock(&x->guard);
    x->failed += rc < 0;
    x->running--;
    (void)pthread_cond_signal(&x->finished);
    (void)pthread_mutex_unlock(&x->guard);
}

/* Removes the batch side by side and waits for all; the number that failed. */
static unsigned remove_all(struct expiry *x, const struct sandbox_ids *due)
{
    struct removal rs[EXPIRY_BATCH];
    size_t i;

    x->failed = 0;
    for (i = 0; i < due->len && i < EXPIRY_BATCH; i++) {
        rs[i] = (struct removal){ x, due->ids[i] };
        (void)pthread_mutex_lock(&x->guard);
        x->running++;
        (void)pthread_mutex_unlock(&x->guard);
        if (jobs_post(x->jobs, remove_one, &rs[i], NULL) < 0)
            remove_one(&rs[i]);
    }
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&x->guard);
    while (x->running)
        (void)pthread_cond_wait(&x->finished, &x->guard);
    return x->failed;
}

/* One round; how long until the next, ms. */
static int64_t look(void *arg)
{
    struct expiry *x = arg;
    struct sandbox_ids due = { 0 };
    struct err e = { 0 };
    int64_t now = x->lc->clock->wall_ms();
    int64_t next = 0;
    unsigned failed;

    if (sandbox_store_due(x->lc->db, now, EXPIRY_BATCH, &due, &next, &e) < 0) {
        log_error("cannot read expiry times", LOG_S("error", e.msg));
        return EXPIRY_RETRY_MS;
    }
    failed = remove_all(x, &due);
    free(due.ids);
    if (failed)
        return EXPIRY_RETRY_MS;
    if (due.len == EXPIRY_BATCH)
        return 0;
    if (!next || next - now > EXPIRY_LOOK_MS)
        return EXPIRY_LOOK_MS;
    return next - now;
}

struct expiry *expiry_new(struct lifecycle *lc, struct err *e)
{
    struct expiry *x = calloc(1, sizeof(*x));

    if (!x) {
        (void)err_nomem(e);
        return NULL;
    }
    x->lc = lc;
    (void)pthread_mutex_init(&x->guard, NULL);
    (void)pthread_cond_init(&x->finished, NULL);
    worker_init(&x->worker, look, x);
    x->jobs = jobs_new(EXPIRY_THREADS, EXPIRY_BATCH, e);
    if (!x->jobs) {
        expiry_free(x);
        return NULL;
    }
    return x;
}

int expiry_start(struct expiry *x, struct err *e)
{
    return worker_start(&x->worker, e);
}

void expiry_kick(struct expiry *x)
{
    worker_kick(&x->worker);
}

void expiry_free(struct expiry *x)
{
    if (!x)
        return;
    worker_stop(&x->worker);
    jobs_free(x->jobs);
    (void)pthread_cond_destroy(&x->finished);
    (void)pthread_mutex_destroy(&x->guard);
    free(x);
}
