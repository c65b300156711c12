#include "common/base/thread.h"

#include <errno.h>
#include <signal.h>
#include <time.h>

int thread_start(pthread_t *out, bool detached, void *(*fn)(void *arg), void *arg)
{
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all;
    sigset_t old;
    int rc;

    (void)pthread_attr_init(&attr);
    if (detached)
        (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = pthread_create(out ? out : &thread, &attr, fn, arg);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    (void)pthread_attr_destroy(&attr);
    return rc;
}

void thread_cond_init(pthread_cond_t *c)
{
    pthread_condattr_t attr;

    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(c, &attr);
    (void)pthread_condattr_destroy(&attr);
}

bool thread_wait_until(pthread_cond_t *c, pthread_mutex_t *held, int64_t until_mono_ms)
{
    const struct timespec at = { until_mono_ms / 1000, until_mono_ms % 1000 * 1000000 };

    return pthread_cond_timedwait(c, held, &at) != ETIMEDOUT;
}
