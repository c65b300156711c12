#include "gateway/domain/watch.h"

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "gateway/domain/crew.h"
#include "gateway/domain/expiry.h"
#include "gateway/domain/lifecycle_internal.h"
#include "gateway/domain/metrics.h"
#include "gateway/domain/reconcile.h"
#include "gateway/store/event_store.h"
#include "gateway/store/sandbox_store.h"

#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WATCH_THREADS = 8,
    WATCH_QUEUE_MAX = 8192, /* news that wait, of all sandboxes */
    WATCH_BUSY_MS = 50,     /* somebody else is changing the sandbox, maybe for long */
    WATCH_BUSY_MAX_MS = 500,
};

struct news {
    struct news *next;
    struct runtime_event ev;
};

/* A sandbox with news that were not dealt with yet. */
struct subject {
    char id[RUNTIME_ID]; /* first: subjects compare as their ids */
    struct news *first;
    struct news **end;
    unsigned kinds;               /* bits: 1 << kind, of news that were recorded but not settled */
    enum runtime_event_kind last; /* of those */
};

struct watch {
    struct lifecycle *lc;
    struct reconcile *reconcile;
    struct crew *crew;
    bool watching;
    pthread_mutex_t guard; /* guards the three below; taken before the crew's */
    void *root;            /* tsearch(3) tree of struct subject */
    size_t queued;
    bool overflowed; /* said once until there is room again */
};

/* ---- subjects ---- */

static int by_id(const void *a, const void *b)
{
    return strcmp(a, b);
}

static struct subject *find(struct watch *w, const char *id)
{
    struct subject **found = tfind(id, &w->root, by_id);

    return found ? *found : NULL;
}

static void free_news(struct news *n)
{
    struct news *next;

    for (; n; n = next) {
        next = n->next;
        free(n);
    }
}

static void free_subject(void *subject)
{
    free_news(((struct subject *)subject)->first);
    free(subject);
}

static struct subject *find_or_add(struct watch *w, const char *id)
{
    struct subject *s = find(w, id);

    if (s)
        return s;
    s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    (void)snprintf(s->id, sizeof(s->id), "%s", id);
    s->end = &s->first;
    if (tsearch(s, &w->root, by_id))
        return s;
    free(s);
    return NULL;
}

/* False when there is no room. */
static bool keep(struct watch *w, const struct runtime_event *ev)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&w->guard);
    struct news *n = w->queued < WATCH_QUEUE_MAX ? calloc(1, sizeof(*n)) : NULL;
    struct subject *s;

    /* the crew first: it finds nothing if there is no subject, but nobody would find a subject */
    s = n && crew_want(w->crew, ev->id, 0, NULL) == 0 ? find_or_add(w, ev->id) : NULL;
    if (!s) {
        free(n);
        return false;
    }
    n->ev = *ev;
    *s->end = n;
    s->end = &n->next;
    w->queued++;
    w->overflowed = false;
    return true;
}

static struct news *take_news(struct watch *w, const char *id, struct subject *now)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&w->guard);
    struct subject *s = find(w, id);
    struct news *all = s ? s->first : NULL;
    const struct news *n;

    if (!s)
        return NULL;
    for (n = all; n; n = n->next) {
        s->kinds |= 1u << n->ev.kind;
        s->last = n->ev.kind;
        w->queued--;
    }
    s->first = NULL;
    s->end = &s->first;
    *now = *s;
    return all;
}

/* Its news were dealt with; those that came meanwhile have it looked at again. */
static void let_go(struct watch *w, const char *id)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&w->guard);
    struct subject *s = find(w, id);

    if (!s)
        return;
    s->kinds = 0;
    if (s->first)
        return;
    (void)tdelete(id, &w->root, by_id);
    free(s);
}

/* ---- recording ---- */

static const char *type_of(enum runtime_event_kind kind)
{
    static const char *const types[] = {
        [RUNTIME_EVENT_STARTED] = "start",  [RUNTIME_EVENT_PAUSED] = "pause",
        [RUNTIME_EVENT_RESUMED] = "resume", [RUNTIME_EVENT_OOM] = LIFECYCLE_NEWS_OOM,
        [RUNTIME_EVENT_ENDED] = "die",      [RUNTIME_EVENT_REMOVED] = "destroy",
    };

    return types[kind];
}

static void record(struct watch *w, const struct runtime_event *news)
{
    struct event ev = { .at_ms = news->at_ms, .source = EVENT_RUNTIME };
    struct err e = { 0 };

    (void)snprintf(ev.type, sizeof(ev.type), "%s", type_of(news->kind));
    if (news->kind == RUNTIME_EVENT_ENDED)
        (void)snprintf(ev.message, sizeof(ev.message), "exit code %d", news->exit_code);
    if (event_store_add(w->lc->db, news->id, &ev, &e) < 0)
        log_warn("an event could not be recorded", LOG_S("id", news->id), LOG_S("type", ev.type),
                 LOG_S("error", e.msg));
}

/* ---- settling ---- */

static bool has(const struct subject *s, enum runtime_event_kind kind)
{
    return s->kinds & 1u << kind;
}

/* Most news are of our own doing: then the record says the same or is about to (its lock is held),
 * and the engine is not asked. */
static bool is_news(const struct subject *s, enum sandbox_state state)
{
    bool over = state == SANDBOX_TERMINATED || state == SANDBOX_FAILED;

    if (state == SANDBOX_STOPPING)
        return false;
    if (has(s, RUNTIME_EVENT_REMOVED) || (has(s, RUNTIME_EVENT_ENDED) && !over) ||
        (has(s, RUNTIME_EVENT_OOM) && over)) /* then it is the reason of the end */
        return true;
    switch (s->last) {
    case RUNTIME_EVENT_STARTED:
        return over; /* of a live one: its end was news before */
    case RUNTIME_EVENT_PAUSED:
        return state != SANDBOX_PAUSED;
    case RUNTIME_EVENT_RESUMED:
        return state != SANDBOX_RUNNING;
    default:
        return false;
    }
}

/* As lifecycle_try_settle; a record that is still being made is busy. */
static int settle(struct watch *w, const char *id, const struct subject *s, struct err *e)
{
    AUTO_SANDBOX struct sandbox sb = { 0 };

    if (sandbox_store_get(w->lc->db, id, &sb, e) < 0)
        return e->code == ERRC_NOT_FOUND ? 0 : -1;
    if (!is_news(s, sb.state))
        return 0;
    if (sb.state == SANDBOX_PENDING && sb.created_ms >= w->lc->started_ms)
        return 1;
    return lifecycle_try_settle(w->lc, id, e);
}

/* Of the crew. */
static int64_t look_at(void *arg, const char *id, unsigned tries)
{
    struct watch *w = arg;
    struct subject now = { 0 };
    struct news *all = take_news(w, id, &now);
    const struct news *n;
    struct err e = { 0 };
    int rc;

    for (n = all; n; n = n->next)
        record(w, &n->ev);
    free_news(all);
    rc = settle(w, id, &now, &e);
    if (rc > 0)
        return tries < WATCH_BUSY_MAX_MS / WATCH_BUSY_MS ? WATCH_BUSY_MS * (tries + 1)
                                                         : WATCH_BUSY_MAX_MS;
    if (rc < 0)
        log_warn("sandbox could not be settled; the sweep will do it", LOG_S("id", id),
                 LOG_S("error", e.msg));
    let_go(w, id);
    return CREW_DONE;
}

/* ---- the runtime's thread ---- */

static void overflow(struct watch *w)
{
    bool said;

    (void)pthread_mutex_lock(&w->guard);
    said = w->overflowed;
    w->overflowed = true;
    (void)pthread_mutex_unlock(&w->guard);
    if (said)
        return;
    log_warn("too many events of the engine at once: some are dropped, all sandboxes are compared");
    if (w->reconcile)
        reconcile_kick(w->reconcile);
}

static void on_event(void *arg, const struct runtime_event *ev)
{
    struct watch *w = arg;

    switch (ev->kind) {
    case RUNTIME_EVENT_SYNC:
        metrics_stream(w->lc->metrics, true);
        log_debug("the engine's events are being read");
        if (w->reconcile)
            reconcile_kick(w->reconcile);
        if (w->lc->expiry)
            expiry_hurry(w->lc->expiry);
        break;
    case RUNTIME_EVENT_LOST:
        metrics_stream(w->lc->metrics, false);
        log_debug("the engine's events broke off"); /* the runtime says why */
        break;
    default:
        if (!keep(w, ev))
            overflow(w);
    }
}

/* ---- the watch ---- */

struct watch *watch_new(struct lifecycle *lc, struct reconcile *r, struct err *e)
{
    struct watch *w = calloc(1, sizeof(*w));

    if (!w) {
        (void)err_nomem(e);
        return NULL;
    }
    w->lc = lc;
    w->reconcile = r;
    (void)pthread_mutex_init(&w->guard, NULL);
    w->crew = crew_new(WATCH_THREADS, WATCH_QUEUE_MAX, look_at, w, e);
    if (!w->crew) {
        watch_free(w);
        return NULL;
    }
    return w;
}

int watch_start(struct watch *w, struct err *e)
{
    struct err why = { 0 };

    if (runtime_watch(w->lc->rt, on_event, w, &why) == 0) {
        w->watching = true;
        return 0;
    }
    if (why.code != ERRC_UNSUPPORTED) {
        *e = why;
        return -1;
    }
    log_info("no events: sandboxes are compared in intervals", LOG_S("why", why.msg));
    return 0;
}

void watch_free(struct watch *w)
{
    if (!w)
        return;
    if (w->watching)
        runtime_unwatch(w->lc->rt);
    crew_free(w->crew);
    tdestroy(w->root, free_subject);
    (void)pthread_mutex_destroy(&w->guard);
    free(w);
}
