#include "execd/code/contexts.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/loop.h"
#include "common/base/macros.h"
#include "execd/exec/feed.h"
#include "execd/exec/run.h"

#include <string.h>

enum { TRACEBACK_MAX = 1024 };

/* Code that runs or waits, with the stream it writes to. */
struct execution {
    struct context *context;
    struct feed *feed;
    char *code;
    size_t len;
    int64_t start_mono_ms;
    struct execution *next;
    bool running;
    bool over; /* what is pending is the last */
    bool counted;
    /* what the feed refused */
    bool blocked;
    int64_t count; /* 0: none */
    json_t *mime;
    char *text;
    size_t text_len;
    bool text_stderr;
    bool failed; /* and how; ename NULL: the agent had no memory for it */
    char *ename;
    char *evalue;
    json_t *traceback;
};

enum state { STATE_STARTING, STATE_READY, STATE_DOWN };

struct context {
    struct contexts *set;
    char id[KERNEL_ID_TEXT]; /* "": has never started */
    char language[KERNEL_LANGUAGE_MAX];
    char *cwd;
    bool is_default;
    enum state state;
    struct kernel *kernel;   /* NULL: STATE_DOWN */
    struct execution *first; /* the one that runs, if one does */
    struct execution *last;
    unsigned n;
    struct context_waiter *waiters;
    struct loop_timer
        tidy;    /* a dead kernel is destroyed, what waits goes on: not inside its events */
    bool untold; /* the kernel died, and no stream has said so yet */
    char death[512];
    struct context *prev; /* older */
    struct context *next;
};

struct contexts {
    struct contexts_req rq;
    struct context *oldest;
    struct context *newest;
    unsigned n;
    size_t queued;
};

/* ---- executions ---- */

static void execution_free(struct execution *x)
{
    x->context->set->queued -= x->len;
    feed_free(x->feed);
    free(x->code);
    free(x->text);
    free(x->ename);
    free(x->evalue);
    json_decref(x->mime);
    json_decref(x->traceback);
    free(x);
}

static void unqueue(struct execution *x)
{
    struct context *c = x->context;
    struct execution **at = &c->first;
    struct execution *before = NULL;

    for (; *at != x; at = &(*at)->next)
        before = *at;
    *at = x->next;
    if (c->last == x)
        c->last = before;
    c->n--;
}

static const char **lines_of(const json_t *traceback, size_t *n)
{
    size_t len = json_array_size(traceback);
    const char **out = calloc(len + 1, sizeof(*out));
    size_t i;

    if (len > TRACEBACK_MAX)
        len = TRACEBACK_MAX;
    *n = 0;
    for (i = 0; out && i < len; i++)
        if (json_is_string(json_array_get(traceback, i)))
            out[(*n)++] = json_string_value(json_array_get(traceback, i));
    return out;
}

/* The terminal event. */
static void put_end(struct execution *x)
{
    size_t n;
    const char **lines;

    if (!x->failed) {
        feed_complete(x->feed, x->start_mono_ms ? clock_mono_ms() - x->start_mono_ms : 0);
        return;
    }
    lines = lines_of(x->traceback, &n);
    feed_error(x->feed, x->ename ? x->ename : "MemoryError", x->evalue ? x->evalue : "", lines, n);
    free(lines);
}

/* Ends it with an error of ours. Must not wait for anything else. */
static void fail(struct execution *x, const char *ename, const char *evalue)
{
    unqueue(x);
    x->running = true; /* on_gone has nothing to do any more */
    feed_error(x->feed, ename, evalue, &evalue, 1);
    execution_free(x);
}

static void fail_all(struct context *c, const char *ename, const char *evalue)
{
    while (c->first)
        fail(c->first, ename, evalue);
}

static void run_next(struct context *c);

/* Puts what the feed refused. True: nothing is left. */
static bool put_pending(struct execution *x)
{
    if (x->text &&
        feed_text(x->feed, x->text_stderr ? "stderr" : "stdout", x->text, x->text_len) < 0)
        return false;
    free(TAKE_PTR(x->text));
    if (x->count && feed_count(x->feed, x->count) < 0)
        return false;
    x->count = 0;
    if (x->mime && feed_result(x->feed, x->mime) < 0)
        return false;
    json_decref(x->mime);
    x->mime = NULL;
    return true;
}

/* After every change of what is pending: holds the kernel, lets it go on, or ends the execution. The feed
 * may say in any call here that its client is gone; on_gone then leaves the execution alone. */
static void advance(struct execution *x)
{
    struct context *c = x->context;
    bool before = x->blocked;
    bool blocked;

    x->blocked = false;
    blocked = !put_pending(x);
    feed_flush(x->feed);
    if (blocked && !feed_wanted(x->feed))
        blocked = !put_pending(x);
    if (blocked != before && c->state == STATE_READY)
        c->set->rq.ops->hold(c->kernel, blocked);
    x->blocked = blocked;
    if (blocked || !x->over)
        return;
    unqueue(x);
    put_end(x);
    execution_free(x);
    run_next(c);
}

static void on_room(void *owner)
{
    struct execution *x = owner;

    if (x->blocked)
        advance(x);
}

/* What runs goes on, its output is dropped by the feed; what waits goes with its client. */
static void on_gone(void *owner)
{
    struct execution *x = owner;

    if (x->blocked) {
        advance(x);
    } else if (!x->running) {
        unqueue(x);
        execution_free(x);
    }
}

static const struct feed_ops feed_ops = { on_room, on_gone };

/* ---- what kernels say ---- */

static void tidy_soon(struct context *c)
{
    (void)loop_timer_set(c->set->rq.loop, &c->tidy, clock_mono_ms());
}

static struct execution *running(const struct context *c)
{
    return c->first && c->first->running && !c->first->over ? c->first : NULL;
}

static void tell_waiters(struct context *c, struct context *ready, const struct err *e)
{
    struct context_waiter *w = TAKE_PTR(c->waiters);
    struct context_waiter *next;

    for (; w; w = next) {
        next = w->next;
        w->on_done(w, ready, e);
    }
}

static void on_ready(void *owner, const char *id, const struct err *e)
{
    struct context *c = owner;

    if (e) {
        c->state = STATE_DOWN;
        (void)snprintf(c->death, sizeof(c->death), "%s", e->msg);
        fail_all(c, "KernelError", c->death);
        tell_waiters(c, NULL, e);
        tidy_soon(c);
        return;
    }
    c->state = STATE_READY;
    if (!c->id[0])
        (void)snprintf(c->id, sizeof(c->id), "%s", id);
    tell_waiters(c, c, NULL);
    run_next(c);
}

static void on_text(void *owner, bool is_stderr, const char *text, size_t len)
{
    struct execution *x = running(owner);

    if (!x || !len)
        return;
    if (feed_text(x->feed, is_stderr ? "stderr" : "stdout", text, len) < 0) {
        x->text = malloc(len);
        if (x->text)
            memcpy(x->text, text, len);
        x->text_len = len;
        x->text_stderr = is_stderr;
        if (!x->text) /* a gap must not look like success */
            x->failed = true;
    }
    advance(x);
}

static void on_result(void *owner, int64_t count, const json_t *mime)
{
    struct execution *x = running(owner);

    if (!x)
        return;
    x->count = x->counted ? 0 : count;
    x->counted = x->counted || count > 0;
    x->mime = json_incref((json_t *)mime);
    advance(x);
}

static void on_error(void *owner, const char *ename, const char *evalue, const json_t *traceback)
{
    struct execution *x = running(owner);

    if (!x || x->failed)
        return;
    x->failed = true;
    x->ename = strdup(ename);
    x->evalue = strdup(evalue);
    x->traceback = json_incref((json_t *)traceback);
}

static void on_idle(void *owner, int64_t count)
{
    struct execution *x = running(owner);

    if (!x)
        return;
    x->count = x->counted ? 0 : count;
    x->over = true;
    advance(x);
}

/* Its client still has to take what came before. */
static void die_later(struct execution *x, const char *why)
{
    x->over = true;
    x->failed = true;
    free(x->ename);
    free(x->evalue);
    json_decref(x->traceback);
    x->ename = strdup("KernelDied");
    x->evalue = strdup(why);
    x->traceback = json_pack("[s]", why);
}

static void on_dead(void *owner, const struct err *why)
{
    struct context *c = owner;
    struct execution *x = c->first;

    (void)snprintf(c->death, sizeof(c->death),
                   "the %s kernel died: %.120s; its state is lost, the next run starts a new one",
                   c->language, why->msg);
    c->state = STATE_DOWN;
    c->untold = !x || (x->over && !x->next);
    if (x && x->running && x->blocked) {
        while (x->next)
            fail(x->next, "KernelDied", c->death);
        if (!x->over)
            die_later(x, c->death);
    } else {
        fail_all(c, "KernelDied", c->death);
    }
    tidy_soon(c);
}

static const struct kernel_events kernel_events = { on_ready, on_text, on_result,
                                                    on_error, on_idle, on_dead };

/* ---- contexts ---- */

static int start_kernel(struct context *c, struct err *e)
{
    const struct contexts_req *rq = &c->set->rq;
    const struct kernel_req kr = { c->language, c->cwd, &kernel_events, c, NULL };

    c->kernel = rq->ops->create(rq->provider, &kr, e);
    if (!c->kernel)
        return -1;
    c->state = STATE_STARTING;
    return 0;
}

/* Starts what is next in turn, if nothing runs. */
static void run_next(struct context *c)
{
    struct execution *x = c->first;
    struct err e = { 0 };

    if (!x || x->running || c->tidy.at_mono_ms)
        return;
    if (c->state == STATE_DOWN && start_kernel(c, &e) < 0) {
        fail_all(c, "KernelError", e.msg);
        return;
    }
    if (c->state != STATE_READY)
        return;
    x->running = true;
    x->start_mono_ms = clock_mono_ms();
    if (c->set->rq.ops->execute(c->kernel, x->code, &e) < 0) {
        fail(x, "KernelError", e.msg);
        tidy_soon(c);
        return;
    }
    free(TAKE_PTR(x->code));
    c->set->queued -= x->len;
    x->len = 0;
}

static void context_free(struct context *c)
{
    struct contexts *cs = c->set;

    cs->rq.ops->destroy(TAKE_PTR(c->kernel));
    loop_timer_clear(cs->rq.loop, &c->tidy);
    *(c->prev ? &c->prev->next : &cs->oldest) = c->next;
    *(c->next ? &c->next->prev : &cs->newest) = c->prev;
    cs->n--;
    free(c->cwd);
    free(c);
}

static void on_tidy(struct loop_timer *t)
{
    struct context *c = CONTAINER_OF(t, struct context, tidy);

    if (c->state == STATE_DOWN)
        c->set->rq.ops->destroy(TAKE_PTR(c->kernel));
    if (!c->id[0]) /* it has never started, and its waiters know why */
        context_free(c);
    else
        run_next(c);
}

static struct context *context_new(struct contexts *cs, const char *language, const char *cwd,
                                   struct err *e)
{
    struct context *c;

    if (cs->n >= CONTEXTS_MAX) {
        (void)err_set(e, ERRC_LIMIT, "there are %d contexts already; delete one that is not needed",
                      CONTEXTS_MAX);
        return NULL;
    }
    c = calloc(1, sizeof(*c));
    if (!c || (cwd && !(c->cwd = strdup(cwd)))) {
        free(c);
        (void)err_nomem(e);
        return NULL;
    }
    c->set = cs;
    c->tidy.on_fire = on_tidy;
    (void)snprintf(c->language, sizeof(c->language), "%s", language);
    c->prev = cs->newest;
    *(c->prev ? &c->prev->next : &cs->oldest) = c;
    cs->newest = c;
    cs->n++;
    if (start_kernel(c, e) < 0) {
        context_free(c);
        return NULL;
    }
    return c;
}

struct contexts *contexts_new(const struct contexts_req *rq, struct err *e)
{
    struct contexts *cs = calloc(1, sizeof(*cs));

    if (cs)
        cs->rq = *rq;
    else
        (void)err_nomem(e);
    return cs;
}

void contexts_free(struct contexts *cs)
{
    struct context *c;
    struct err e = { 0 };

    if (!cs)
        return;
    (void)err_set(&e, ERRC_BUSY, "this sandbox is stopping");
    while ((c = cs->oldest)) {
        while (c->first) {
            struct execution *x = c->first;

            unqueue(x);
            execution_free(x); /* without its end: the stream is cut */
        }
        tell_waiters(c, NULL, &e);
        context_free(c);
    }
    free(cs);
}

static void wait_for(struct context *c, struct context_waiter *w)
{
    w->next = c->waiters;
    c->waiters = w;
}

int contexts_create(struct contexts *cs, const char *language, const char *cwd,
                    struct context_waiter *w, struct err *e)
{
    struct context *c = context_new(cs, language, cwd, e);

    if (!c)
        return -1;
    wait_for(c, w);
    return 0;
}

int contexts_default(struct contexts *cs, const char *language, struct context_waiter *w,
                     struct context **out, struct err *e)
{
    struct context *c = cs->oldest;

    while (c && !(c->is_default && strcmp(c->language, language) == 0))
        c = c->next;
    if (c && c->id[0]) {
        *out = c;
        return 1;
    }
    if (!c || c->state == STATE_DOWN) { /* down: it goes at the end of this turn */
        c = context_new(cs, language, NULL, e);
        if (!c)
            return -1;
        c->is_default = true;
    }
    wait_for(c, w);
    return 0;
}

struct context *contexts_find(const struct contexts *cs, const char *id)
{
    struct context *c = *id ? cs->oldest : NULL;

    while (c && strcmp(c->id, id) != 0)
        c = c->next;
    return c;
}

struct context *contexts_next(const struct contexts *cs, const struct context *after)
{
    struct context *c = after ? after->next : cs->oldest;

    while (c && !c->id[0])
        c = c->next;
    return c;
}

const char *context_id(const struct context *c)
{
    return c->id;
}

const char *context_language(const struct context *c)
{
    return c->language;
}

const char *context_cwd(const struct context *c)
{
    return c->cwd;
}

static struct execution *execution_new(struct context *c, const char *code,
                                       struct http_stream **stream, struct err *e)
{
    struct execution *x = calloc(1, sizeof(*x));

    if (x)
        x->code = strdup(code);
    if (!x || !x->code) {
        free(x);
        (void)err_nomem(e);
        return NULL;
    }
    x->context = c;
    x->feed = runs_feed(c->set->rq.runs, c->id, &feed_ops, x, stream, e);
    if (!x->feed) {
        free(x->code);
        free(x);
        return NULL;
    }
    x->len = strlen(code);
    c->set->queued += x->len;
    return x;
}

int context_run(struct context *c, const char *code, struct http_stream **stream, struct err *e)
{
    struct execution *x;

    if (c->n > CONTEXT_QUEUE_MAX)
        return err_set(e, ERRC_BUSY, "%d executions wait for this context already",
                       CONTEXT_QUEUE_MAX);
    if (c->set->queued + strlen(code) > CONTEXTS_QUEUED_MAX)
        return err_set(e, ERRC_BUSY, "%d MiB of code wait for contexts already",
                       CONTEXTS_QUEUED_MAX >> 20);
    x = execution_new(c, code, stream, e);
    if (!x)
        return -1;
    *(c->last ? &c->last->next : &c->first) = x;
    c->last = x;
    c->n++;
    if (c->untold) {
        c->untold = false;
        fail(x, "KernelDied", c->death);
    } else {
        run_next(c);
    }
    return 0;
}

int context_interrupt(struct context *c, struct err *e)
{
    if (running(c))
        return c->set->rq.ops->interrupt(c->kernel, e);
    if (c->first && !c->first->running) /* its kernel still starts */
        fail(c->first, "KeyboardInterrupt", "interrupted before it began");
    return 0;
}

void context_delete(struct context *c)
{
    struct err e = { 0 };

    c->set->rq.ops->destroy(TAKE_PTR(c->kernel));
    fail_all(c, "ContextDeleted", "the context was deleted");
    (void)err_set(&e, ERRC_INTERNAL, "the context was deleted while it started");
    tell_waiters(c, NULL, &e);
    context_free(c);
}

void contexts_delete_language(struct contexts *cs, const char *language)
{
    struct context *c = cs->oldest;
    struct context *next;

    for (; c; c = next) {
        next = c->next;
        if (strcmp(c->language, language) == 0)
            context_delete(c);
    }
}
