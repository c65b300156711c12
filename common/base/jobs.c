#include "common/base/jobs.h"

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/thread.h"

#include <stdbool.h>

struct job {
    job_fn fn;
    void *arg;
};

struct jobs {
    pthread_mutex_t guard; /* guards all below but threads */
    pthread_cond_t some;
    struct job *ring;
    size_t cap;
    size_t head;
    size_t count;
    bool stopping;
    unsigned started;
    pthread_t threads[];
};

static bool take(struct jobs *j, struct job *out)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&j->guard);

    while (!j->count && !j->stopping)
        (void)pthread_cond_wait(&j->some, &j->guard);
    if (!j->count)
        return false;
    *out = j->ring[j->head];
    j->head = (j->head + 1) % j->cap;
    j->count--;
    return true;
}

static void *worker(void *arg)
{
    struct jobs *j = arg;
    struct job job;

    while (take(j, &job))
        job.fn(job.arg);
    return NULL;
}

static int start_threads(struct jobs *j, unsigned threads)
{
    int rc = 0;

    while (j->started < threads && rc == 0) {
        rc = thread_start(&j->threads[j->started], false, worker, j);
        if (rc == 0)
            j->started++;
    }
    return rc;
}

struct jobs *jobs_new(unsigned threads, size_t queue_max, struct err *e)
{
    struct jobs *j = calloc(1, sizeof(*j) + threads * sizeof(j->threads[0]));
    int rc;

    if (!j) {
        (void)err_nomem(e);
        return NULL;
    }
    (void)pthread_mutex_init(&j->guard, NULL);
    (void)pthread_cond_init(&j->some, NULL);
    j->cap = queue_max;
    j->ring = calloc(queue_max, sizeof(*j->ring));
    rc = j->ring ? start_threads(j, threads) : ENOMEM;
    if (rc) {
        (void)err_sys(e, rc, "start job pool");
        jobs_free(j);
        return NULL;
    }
    return j;
}

int jobs_post(struct jobs *j, job_fn fn, void *arg, struct err *e)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&j->guard);

    if (j->stopping || j->count == j->cap) {
        (void)err_set(e, ERRC_BUSY, "the server is busy; try again shortly");
        if (e)
            e->retry_after_s = 1;
        return -1;
    }
    j->ring[(j->head + j->count) % j->cap] = (struct job){ fn, arg };
    j->count++;
    (void)pthread_cond_signal(&j->some);
    return 0;
}

void jobs_stop(struct jobs *j)
{
    if (!j)
        return;
    (void)pthread_mutex_lock(&j->guard);
    j->stopping = true;
    (void)pthread_cond_broadcast(&j->some);
    (void)pthread_mutex_unlock(&j->guard);
    while (j->started)
        (void)pthread_join(j->threads[--j->started], NULL);
}

void jobs_free(struct jobs *j)
{
    if (!j)
        return;
    jobs_stop(j);
    (void)pthread_cond_destroy(&j->some);
    (void)pthread_mutex_destroy(&j->guard);
    free(j->ring);
    free(j);
}
