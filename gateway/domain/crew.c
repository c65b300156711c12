#include "gateway/domain/crew.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/thread.h"
#include "gateway/domain/deadlines.h"

#include <search.h>
#include <stdbool.h>
#include <string.h>

/* An id that is wanted: it waits, or a thread has it. */
struct task {
    char id[RUNTIME_ID]; /* first: tasks compare as their ids */
    unsigned tries;
    bool running;
    bool again; /* wanted while it ran */
};

struct crew {
    crew_fn fn;
    void *arg;
    size_t ids_max;
    unsigned threads_max;
    pthread_mutex_t guard; /* guards all below */
    pthread_cond_t wake;
    struct deadlines *waiting; /* monotonic times */
    void *root;                /* tsearch(3) tree of struct task */
    size_t tasks;
    unsigned started;
    unsigned idle;
    bool timed; /* one of the idle threads watches the time for all */
    bool stopping;
    pthread_t threads[];
};

static int by_id(const void *a, const void *b)
{
    return strcmp(a, b);
}

static struct task *find(struct crew *c, const char *id)
{
    struct task **found = tfind(id, &c->root, by_id);

    return found ? *found : NULL;
}

static void forget(struct crew *c, struct task *t)
{
    (void)tdelete(t->id, &c->root, by_id);
    c->tasks--;
    free(t);
}

/* Out of memory: the task is lost; whoever wanted it looks again (the sweep). */
static void wait_again(struct crew *c, struct task *t, int64_t delay_ms)
{
    if (deadlines_put(c->waiting, t->id, clock_mono_ms() + delay_ms, NULL) < 0)
        forget(c, t);
}

/* ---- threads ---- */

static void wait_for_work(struct crew *c)
{
    int64_t at;
    bool timed = !c->timed && deadlines_next(c->waiting, &at);

    c->idle++;
    if (timed) {
        c->timed = true;
        (void)thread_wait_until(&c->wake, &c->guard, at);
        c->timed = false;
    } else {
        (void)pthread_cond_wait(&c->wake, &c->guard);
    }
    c->idle--;
}

static void *worker(void *arg);

/* Somebody has to wait for what is left. All look up: who watches the time may watch a later one. */
static int ensure_waiter(struct crew *c)
{
    int rc;

    if (c->idle) {
        (void)pthread_cond_broadcast(&c->wake);
        return 0;
    }
    if (c->started == c->threads_max || c->stopping)
        return 0;
    rc = thread_start(&c->threads[c->started], false, worker, c);
    if (rc == 0)
        c->started++;
    return rc;
}

static struct task *take(struct crew *c)
{
    char id[RUNTIME_ID];
    struct task *t;

    while (!c->stopping) {
        if (deadlines_take(c->waiting, clock_mono_ms(), id)) {
            t = find(c, id);
            t->running = true;
            if (deadlines_len(c->waiting))
                (void)ensure_waiter(c);
            return t;
        }
        wait_for_work(c);
    }
    return NULL;
}

static void give_back(struct crew *c, struct task *t, int64_t delay_ms)
{
    t->running = false;
    if (t->again) {
        t->again = false;
        t->tries = 0;
        wait_again(c, t, 0);
    } else if (delay_ms >= 0) {
        t->tries++;
        wait_again(c, t, delay_ms);
    } else {
        forget(c, t);
    }
}

static void *worker(void *arg)
{
    struct crew *c = arg;
    struct task *t;
    int64_t delay_ms;

    (void)pthread_mutex_lock(&c->guard);
    while ((t = take(c))) {
        (void)pthread_mutex_unlock(&c->guard);
        delay_ms = c->fn(c->arg, t->id, t->tries);
        (void)pthread_mutex_lock(&c->guard);
        give_back(c, t, delay_ms);
    }
    (void)pthread_mutex_unlock(&c->guard);
    return NULL;
}

/* ---- what callers do ---- */

struct crew *crew_new(unsigned threads_max, size_t ids_max, crew_fn fn, void *arg, struct err *e)
{
    struct crew *c = calloc(1, sizeof(*c) + threads_max * sizeof(c->threads[0]));
    int rc;

    if (!c) {
        (void)err_nomem(e);
        return NULL;
    }
    c->fn = fn;
    c->arg = arg;
    c->ids_max = ids_max;
    c->threads_max = threads_max;
    (void)pthread_mutex_init(&c->guard, NULL);
    thread_cond_init(&c->wake);
    c->waiting = deadlines_new();
    rc = ENOMEM;
    if (c->waiting) {
        AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&c->guard);
        rc = ensure_waiter(c);
    }
    if (rc) {
        (void)err_sys(e, rc, "start background threads");
        crew_free(c);
        return NULL;
    }
    return c;
}

static int add(struct crew *c, const char *id, int64_t delay_ms, struct err *e)
{
    struct task *t;

    if (c->tasks >= c->ids_max || c->stopping)
        return err_set(e, ERRC_BUSY, "too many sandboxes change at once");
    t = calloc(1, sizeof(*t));
    if (!t)
        return err_nomem(e);
    (void)snprintf(t->id, sizeof(t->id), "%s", id);
    if (deadlines_put(c->waiting, t->id, clock_mono_ms() + delay_ms, e) < 0) {
        free(t);
        return -1;
    }
    if (!tsearch(t, &c->root, by_id)) {
        deadlines_drop(c->waiting, t->id);
        free(t);
        return err_nomem(e);
    }
    c->tasks++;
    (void)ensure_waiter(c); /* one runs always */
    return 0;
}

int crew_want(struct crew *c, const char *id, int64_t delay_ms, struct err *e)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&c->guard);
    struct task *t = find(c, id);

    if (!t)
        return add(c, id, delay_ms, e);
    if (t->running)
        t->again = true;
    return 0;
}

void crew_hurry(struct crew *c)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&c->guard);

    deadlines_all_at(c->waiting, clock_mono_ms());
    if (deadlines_len(c->waiting))
        (void)ensure_waiter(c);
}

void crew_free(struct crew *c)
{
    unsigned i;

    if (!c)
        return;
    (void)pthread_mutex_lock(&c->guard);
    c->stopping = true;
    (void)pthread_cond_broadcast(&c->wake);
    (void)pthread_mutex_unlock(&c->guard);
    for (i = 0; i < c->started; i++)
        (void)pthread_join(c->threads[i], NULL);
    tdestroy(c->root, free);
    deadlines_free(c->waiting);
    (void)pthread_cond_destroy(&c->wake);
    (void)pthread_mutex_destroy(&c->guard);
    free(c);
}
