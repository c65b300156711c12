#include "gateway/domain/worker.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/thread.h"

/* Waits; false when it is time to stop. */
static bool wait_for_round(struct worker *w, int64_t ms)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&w->guard);
    const int64_t until = clock_mono_ms() + ms;

    while (!w->kicked && !w->stopping && thread_wait_until(&w->wake, &w->guard, until))
        ;
    w->kicked = false;
    return !w->stopping;
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    int64_t ms = 0;

    while (wait_for_round(w, ms))
        ms = w->round(w->arg);
    return NULL;
}

void worker_init(struct worker *w, int64_t (*round)(void *arg), void *arg)
{
    *w = (struct worker){ .round = round, .arg = arg };
    (void)pthread_mutex_init(&w->guard, NULL);
    thread_cond_init(&w->wake);
}

int worker_start(struct worker *w, struct err *e)
{
    int rc = thread_start(&w->thread, false, worker_main, w);

    if (rc)
        return err_sys(e, rc, "start background thread");
    w->started = true;
    return 0;
}

static void set(struct worker *w, bool *flag)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&w->guard);

    *flag = true;
    (void)pthread_cond_signal(&w->wake);
}

void worker_kick(struct worker *w)
{
    set(w, &w->kicked);
}

void worker_stop(struct worker *w)
{
    set(w, &w->stopping);
    if (w->started)
        (void)pthread_join(w->thread, NULL);
    w->started = false;
}
