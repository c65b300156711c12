#include "gateway/domain/creates.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/thread.h"
#include "gateway/sandbox.h"

#include <string.h>

struct creation {
    struct creates *all;
    struct creation *next;
    char id[RUNTIME_ID];
    unsigned refs;
    bool done;
    bool cuttable;
    struct err why; /* of one that is done; ERRC_NONE: usable */
    void (*fn)(void *arg);
    void *arg;
};

struct creates {
    pthread_mutex_t guard; /* guards all below and every creation */
    pthread_cond_t changed;
    struct creation *head; /* those that are not done */
    unsigned background;
    unsigned waiting;
    unsigned max_waiting;
    bool stopping;
};

struct creates *creates_new(unsigned max_waiting)
{
    struct creates *cs = calloc(1, sizeof(*cs));

    if (!cs)
        return NULL;
    cs->max_waiting = max_waiting;
    (void)pthread_mutex_init(&cs->guard, NULL);
    thread_cond_init(&cs->changed);
    return cs;
}

void creates_free(struct creates *cs)
{
    if (!cs)
        return;
    /* the last thread may be about to leave the mutex */
    (void)pthread_mutex_lock(&cs->guard);
    (void)pthread_mutex_unlock(&cs->guard);
    (void)pthread_cond_destroy(&cs->changed);
    (void)pthread_mutex_destroy(&cs->guard);
    free(cs);
}

/* ---- the caller holds guard ---- */

static void unref(struct creation *c)
{
    if (--c->refs == 0)
        free(c);
}

static void unlink_one(struct creates *cs, struct creation *c)
{
    struct creation **at;

    for (at = &cs->head; *at != c; at = &(*at)->next)
        continue;
    *at = c->next;
}

/* ---- one create ---- */

struct creation *creates_begin(struct creates *cs, const char *id)
{
    struct creation *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->all = cs;
    c->refs = 1;
    (void)snprintf(c->id, sizeof(c->id), "%s", id);

    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&cs->guard);
    c->next = cs->head;
    cs->head = c;
    return c;
}

static int may_go_on(struct creates *cs, struct err *e)
{
    if (!cs->stopping && cs->background < CREATES_BACKGROUND_MAX)
        return 0;
    if (cs->stopping)
        (void)err_set(e, ERRC_BUSY, "the server is stopping; try again shortly");
    else
        (void)err_set(e, ERRC_BUSY,
                      "%d sandboxes wait for an image or a hook already; try again shortly",
                      CREATES_BACKGROUND_MAX);
    if (e)
        e->retry_after_s = CREATES_RETRY_S;
    return -1;
}

int creates_may_go_on(struct creates *cs, struct err *e)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&cs->guard);

    return may_go_on(cs, e);
}

static void *thread_main(void *arg)
{
    struct creation *c = arg;
    struct creates *cs = c->all;

    c->fn(c->arg); /* c is gone after it */

    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&cs->guard);
    cs->background--;
    (void)pthread_cond_broadcast(&cs->changed);
    return NULL;
}

int creates_go_on(struct creates *cs, struct creation *c, void (*fn)(void *arg), void *arg,
                  struct err *e)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&cs->guard);
    int rc;

    if (may_go_on(cs, e) < 0)
        return -1;
    c->fn = fn;
    c->arg = arg;
    rc = thread_start(NULL, true, thread_main, c);
    if (rc)
        return err_sys(e, rc, "start a thread for a create");
    cs->background++;
    return 0;
}

void creates_end(struct creates *cs, struct creation *c, const struct err *why)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&cs->guard);

    c->done = true;
    if (why)
        c->why = *why;
    unlink_one(cs, c);
    unref(c);
    (void)pthread_cond_broadcast(&cs->changed);
}

/* ---- waiting ---- */

static struct creation *find(struct creates *cs, const char *id)
{
    struct creation *c = cs->head;

    while (c && strcmp(c->id, id) != 0)
        c = c->next;
    return c;
}

bool creates_has(struct creates *cs, const char *id)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&cs->guard);

    return find(cs, id) != NULL;
}

struct creation *creates_find(struct creates *cs, const char *id)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&cs->guard);
    struct creation *c = find(cs, id);

    if (c)
        c->refs++;
    return c;
}

struct creation *creates_ref(struct creates *cs, struct creation *c)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&cs->guard);

    c->refs++;
    return c;
}

void creates_unref(struct creates *cs, struct creation *c)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&cs->guard);

    unref(c);
}

static void wait_until_done(struct creates *cs, struct creation *c, int ms)
{
    const int64_t until = clock_mono_ms() + ms;

    cs->waiting++;
    while (!c->done && thread_wait_until(&cs->changed, &cs->guard, until))
        ;
    cs->waiting--;
}

int creates_wait(struct creates *cs, struct creation *c, int ms, struct err *e)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&cs->guard);

    if (!c->done && ms > 0 && cs->waiting < cs->max_waiting)
        wait_until_done(cs, c, ms);
    if (!c->done)
        return 0;
    if (c->why.code == ERRC_NONE)
        return 1;
    if (e)
        *e = c->why;
    return -1;
}

/* ---- the end of the server ---- */

bool creates_may_take_long(struct creates *cs, struct creation *c)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&cs->guard);

    c->cuttable = true;
    return !cs->stopping;
}

bool creates_stopping(struct creates *cs)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&cs->guard);

    return cs->stopping;
}

/* Takes the mark off the next one that may be cut off; false: none is left. */
static bool next_cut(struct creates *cs, char id[RUNTIME_ID])
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&cs->guard);
    struct creation *c = cs->head;

    cs->stopping = true;
    while (c && !c->cuttable)
        c = c->next;
    if (!c)
        return false;
    c->cuttable = false;
    memcpy(id, c->id, RUNTIME_ID);
    return true;
}

void creates_stop(struct creates *cs, void (*cut)(void *arg, const char *id), void *arg)
{
    char id[RUNTIME_ID];

    while (next_cut(cs, id))
        cut(arg, id);

    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&cs->guard);
    while (cs->background)
        (void)pthread_cond_wait(&cs->changed, &cs->guard);
}
