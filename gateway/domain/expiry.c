#include "gateway/domain/expiry.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "gateway/domain/crew.h"
#include "gateway/domain/deadlines.h"
#include "gateway/domain/fault.h"
#include "gateway/domain/lifecycle.h"
#include "gateway/domain/worker.h"

enum {
    EXPIRY_THREADS = 16,      /* removals at one time, those in their grace included */
    EXPIRY_IDS_MAX = 1 << 17, /* that wait to be removed */
    EXPIRY_RETRY_MS = 1000,   /* after a failure; doubles with each */
    EXPIRY_RETRY_MAX_MS = 30000,
    EXPIRY_BUSY_MS = 100, /* somebody else is changing the sandbox */
    EXPIRY_BUSY_MAX_MS = 1000,
    EXPIRY_LOOK_MS = 5000, /* at the latest: the wall clock may have been set */
};

struct expiry {
    struct lifecycle *lc;
    struct worker worker;
    struct crew *crew;
    pthread_mutex_t guard; /* guards times; taken before the crew's */
    struct deadlines *times;
};

static int64_t delay(int64_t first_ms, int64_t max_ms, unsigned tries)
{
    int64_t ms = first_ms << (tries < 16 ? tries : 16);

    return ms < max_ms ? ms : max_ms;
}

/* Of the crew. */
static int64_t remove_one(void *arg, const char *id, unsigned tries)
{
    struct expiry *x = arg;
    struct err e = { 0 };
    int64_t next = 0;
    int rc = lifecycle_try_expire(x->lc, id, &next, &e);

    if (rc > 0)
        return delay(EXPIRY_BUSY_MS, EXPIRY_BUSY_MAX_MS, tries);
    if (rc == 0) {
        if (next)
            expiry_hint(x, id, next); /* renewed; whatever was set since is not older */
        return CREW_DONE;
    }
    if ((tries & (tries - 1)) == 0) /* 0, 1, 2, 4, ...: an outage is no flood of lines */
        log_warn("sandbox not removed yet; retrying", LOG_S("id", id), LOG_N("tries", tries + 1),
                 LOG_S("error", e.msg));
    return delay(EXPIRY_RETRY_MS, EXPIRY_RETRY_MAX_MS, tries);
}

/* Hands over what is due. */
static void hand_over(struct expiry *x, int64_t now)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&x->guard);
    char id[RUNTIME_ID];
    struct err e;

    while (deadlines_take(x->times, now, id))
        if (crew_want(x->crew, id, 0, &e) < 0)
            log_error("expired sandbox is left to the sweep", LOG_S("id", id),
                      LOG_S("error", e.msg));
}

static int64_t until_next(struct expiry *x, int64_t now)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&x->guard);
    int64_t at;

    if (!deadlines_next(x->times, &at) || at - now > EXPIRY_LOOK_MS)
        return EXPIRY_LOOK_MS;
    return at > now ? at - now : 0;
}

/* One round; how long until the next, ms. */
static int64_t look(void *arg)
{
    struct expiry *x = arg;
    int64_t now = x->lc->clock->wall_ms();

    (void)fault_point("expiry.look");
    hand_over(x, now);
    return until_next(x, x->lc->clock->wall_ms());
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
    worker_init(&x->worker, look, x);
    x->times = deadlines_new();
    if (x->times)
        x->crew = crew_new(EXPIRY_THREADS, EXPIRY_IDS_MAX, remove_one, x, e);
    else
        (void)err_nomem(e);
    if (!x->crew) {
        expiry_free(x);
        return NULL;
    }
    return x;
}

int expiry_start(struct expiry *x, struct err *e)
{
    return worker_start(&x->worker, e);
}

/* True when the thread has to look earlier than it meant to. */
static bool note(struct expiry *x, const char *id, int64_t at_ms)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&x->guard);
    int64_t before = INT64_MAX;
    int64_t after = INT64_MAX;

    (void)deadlines_next(x->times, &before);
    if (deadlines_put_earlier(x->times, id, at_ms, NULL) < 0)
        log_warn("out of memory: an expiry is left to the sweep", LOG_S("id", id));
    (void)deadlines_next(x->times, &after);
    return after < before;
}

void expiry_hint(struct expiry *x, const char *id, int64_t at_ms)
{
    if (note(x, id, at_ms))
        worker_kick(&x->worker);
}

void expiry_drop(struct expiry *x, const char *id)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&x->guard);

    deadlines_drop(x->times, id);
}

size_t expiry_len(struct expiry *x)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&x->guard);

    return deadlines_len(x->times);
}

void expiry_remove(struct expiry *x, const char *id)
{
    struct err e;

    if (crew_want(x->crew, id, 0, &e) < 0)
        log_error("sandbox cannot be removed yet", LOG_S("id", id), LOG_S("error", e.msg));
}

void expiry_kick(struct expiry *x)
{
    worker_kick(&x->worker);
}

void expiry_hurry(struct expiry *x)
{
    crew_hurry(x->crew);
    worker_kick(&x->worker);
}

void expiry_free(struct expiry *x)
{
    if (!x)
        return;
    worker_stop(&x->worker);
    crew_free(x->crew);
    deadlines_free(x->times);
    (void)pthread_mutex_destroy(&x->guard);
    free(x);
}
