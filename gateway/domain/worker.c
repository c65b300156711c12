#include "gateway/domain/worker.h"

#include "common/base/cleanup.h"
#include "common/base/err.h"

#include <signal.h>
#include <time.h>

/* Waits; false when it is time to stop. */
static bool wait_for_round(struct worker *w, int64_t ms)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&w->guard);
    struct timespec until;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    while (!w->kicked && !w->stopping)
        if (pthread_cond_timedwait(&w->wake, &w->guard, &until) == ETIMEDOUT)
            break;
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
    pthread_condattr_t attr;

    *w = (struct worker){ .round = round, .arg = arg };
    (void)pthread_mutex_init(&w->guard, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&w->wake, &attr);
    (void)pthread_condattr_destroy(&attr);
}

int worker_start(struct worker *w, struct err *e)
{
    sigset_t all;
    sigset_t old;
    int rc;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = pthread_create(&w->thread, NULL, worker_main, w);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
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
