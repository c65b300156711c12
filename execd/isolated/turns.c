#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/num.h"
#include "execd/code/embedded.h"
#include "execd/exec/feed.h"
#include "execd/exec/run.h"
#include "execd/isolated/compose.h"
#include "execd/isolated/session_internal.h"

#include <inttypes.h>
#include <string.h>

enum { GRACE_MS = 3000, STATUS_UNKNOWN = 1 };

static void turn_free(struct turn *t)
{
    loop_timer_clear(t->session->set->home.loop, &t->timer);
    feed_free(t->feed);
    units_free(&t->units);
    free(t->code);
    free(t);
}

/* ---- output ---- */

/* Hands complete lines on; those that are refused stay, and the shell waits. */
static void put_units(struct turn *t)
{
    struct units before = t->units;
    struct unit u;

    for (; feed_wanted(t->feed) && units_next(&t->units, &u); before = t->units) {
        if (feed_text(t->feed, "stdout", u.text, u.len) < 0) {
            t->units = before;
            t->blocked = true;
            embedded_ops.hold(t->session->kernel, true);
            break;
        }
    }
    feed_flush(t->feed);
    if (!feed_wanted(t->feed)) {
        units_free(&t->units);
        units_init(&t->units, true);
    }
}

void turns_text(struct isolated_session *s, const char *text, size_t len)
{
    struct turn *t = s->current;
    char *at;

    if (!t || !t->feed || !feed_wanted(t->feed))
        return; /* of no run, or nobody listens */
    at = units_reserve(&t->units, len);
    if (!at) { /* out of memory: a gap must not look like success */
        feed_free(TAKE_PTR(t->feed));
        return;
    }
    memcpy(at, text, len);
    units_commit(&t->units, len);
    put_units(t);
}

/* ---- the end of a run ---- */

static void put_error(struct turn *t, const char *ename, const char *evalue)
{
    if (!t->feed)
        return;
    feed_error(t->feed, ename, evalue, NULL, 0);
    feed_free(TAKE_PTR(t->feed));
}

static void put_timeout(struct turn *t)
{
    char text[64];

    (void)snprintf(text, sizeof(text), "timeout after %" PRId64 " s", t->timeout_ms / 1000);
    put_error(t, "RuntimeError", text);
}

static void put_end(struct turn *t)
{
    char value[16];

    if (!t->feed)
        return;
    if (t->timed_out) {
        put_timeout(t);
        return;
    }
    (void)snprintf(value, sizeof(value), "%d", t->status);
    if (t->status != 0) {
        put_error(t, "ExitError", value);
        return;
    }
    feed_complete(t->feed, clock_mono_ms() - t->start_mono_ms);
    feed_free(TAKE_PTR(t->feed));
}

/* What is left of the output, then the end; later, when the feed is full. */
static void finish(struct isolated_session *s)
{
    struct turn *t = s->current;

    if (t->feed) {
        units_end(&t->units);
        put_units(t);
    }
    if (t->blocked && t->feed && feed_wanted(t->feed))
        return;
    put_end(t);
    s->current = NULL;
    turn_free(t);
    turns_next(s);
}

void turns_error(struct isolated_session *s, const char *evalue)
{
    int64_t status = STATUS_UNKNOWN;

    if (!s->current)
        return;
    (void)num_parse_i64(evalue, 0, 255, &status);
    s->current->status = (int)status;
}

void turns_idle(struct isolated_session *s)
{
    if (!s->current)
        return;
    s->current->over = true;
    loop_timer_clear(s->set->home.loop, &s->current->timer);
    finish(s);
}

void turns_fail(struct isolated_session *s, const char *why)
{
    struct turn *t = TAKE_PTR(s->current);

    if (t) {
        if (t->feed && !t->blocked) {
            units_end(&t->units);
            put_units(t);
        }
        put_error(t, "RuntimeError", why);
        turn_free(t);
    }
    while ((t = s->queue)) {
        s->queue = t->next;
        put_error(t, "RuntimeError", why);
        turn_free(t);
    }
    s->queued = 0;
    backgrounds_fail(&s->backgrounds, "session terminated");
}

/* ---- while it runs ---- */

static void interrupt(struct turn *t)
{
    if (!t->over && t->session->kernel)
        (void)embedded_ops.interrupt(t->session->kernel, NULL);
}

/* SIGINT first. Code that goes on regardless keeps the shell, not its client. */
static void on_timer(struct loop_timer *timer)
{
    struct turn *t = CONTAINER_OF(timer, struct turn, timer);

    if (t->timed_out) {
        put_timeout(t);
        t->blocked = false;
        embedded_ops.hold(t->session->kernel, false);
        return;
    }
    t->timed_out = true;
    interrupt(t);
    (void)loop_timer_set(t->session->set->home.loop, timer, clock_mono_ms() + GRACE_MS);
}

static void release(struct turn *t)
{
    t->blocked = false;
    if (t->session->kernel)
        embedded_ops.hold(t->session->kernel, false);
}

static void on_room(void *owner)
{
    struct turn *t = owner;
    struct isolated_session *s = t->session;

    if (s->current != t || !t->blocked)
        return;
    release(t);
    put_units(t);
    if (!t->blocked && t->over)
        finish(s);
}

/* The client left: its run is interrupted, or never begins. */
static void on_gone(void *owner)
{
    struct turn *t = owner;
    struct isolated_session *s = t->session;
    struct turn **at = &s->queue;

    if (s->current == t) {
        interrupt(t);
        if (t->blocked)
            release(t);
        if (t->over)
            finish(s);
        return;
    }
    while (*at && *at != t)
        at = &(*at)->next;
    if (!*at)
        return;
    *at = t->next;
    s->queued--;
    turn_free(t);
    session_touch(s);
}

static const struct feed_ops feed_ops = { on_room, on_gone };

/* ---- the start ---- */

static int begin(struct isolated_session *s, struct turn *t, struct err *e)
{
    struct loop *l = s->set->home.loop;

    s->current = t;
    s->last_run_ms = clock_wall_ms();
    t->start_mono_ms = clock_mono_ms();
    if (t->timeout_ms && loop_timer_set(l, &t->timer, t->start_mono_ms + t->timeout_ms) < 0)
        return err_nomem(e);
    if (embedded_ops.execute(s->kernel, t->code, e) < 0)
        return -1;
    free(TAKE_PTR(t->code));
    return 0;
}

void turns_next(struct isolated_session *s)
{
    struct turn *t;
    struct err e = { 0 };

    while (!s->current && !s->dead && (t = s->queue)) {
        s->queue = t->next;
        s->queued--;
        if (begin(s, t, &e) == 0)
            break;
        s->current = NULL;
        put_error(t, "RuntimeError", e.msg);
        if (t->background)
            background_fail(t->background, "it could not be started");
        turn_free(t);
    }
    session_touch(s);
}

static struct turn *turn_new(struct isolated_session *s, char *code, struct err *e)
{
    struct turn *t = calloc(1, sizeof(*t));

    if (!t) {
        free(code);
        (void)err_nomem(e);
        return NULL;
    }
    t->session = s;
    t->code = code;
    t->timer.on_fire = on_timer;
    units_init(&t->units, true);
    return t;
}

static void enqueue(struct isolated_session *s, struct turn *t)
{
    struct turn **at = &s->queue;

    while (*at)
        at = &(*at)->next;
    *at = t;
    s->queued++;
    turns_next(s);
}

static int check(const struct isolated_session *s, struct err *e)
{
    if (s->queued < ISOLATED_QUEUE_MAX)
        return 0;
    return err_set(e, ERRC_BUSY, "%d runs of this session wait already", ISOLATED_QUEUE_MAX);
}

int isolated_run(struct isolated_session *s, const struct isolated_run *rq,
                 struct http_stream **stream, struct err *e)
{
    const struct compose_req crq = { .code = rq->code, .envs = rq->envs, .n_envs = rq->n_envs };
    struct turn *t;
    char *code;

    if (check(s, e) < 0)
        return -1;
    code = compose(&crq, e);
    t = code ? turn_new(s, code, e) : NULL;
    if (!t)
        return -1;
    t->timeout_ms = rq->timeout_s * 1000;
    t->feed = runs_feed(s->set->home.runs, NULL, &feed_ops, t, stream, e);
    if (!t->feed) {
        turn_free(t);
        return -1;
    }
    if (!s->dead) {
        enqueue(s, t);
        return 0;
    }
    put_error(t, "RuntimeError", "session process has exited");
    turn_free(t);
    return 0;
}

const struct background *isolated_start(struct isolated_session *s, const struct isolated_run *rq,
                                        struct err *e)
{
    char log[BACKGROUND_PATH_MAX];
    char code_file[BACKGROUND_PATH_MAX];
    struct compose_req crq = { rq->code, rq->envs, rq->n_envs, log, code_file };
    struct background *b;
    struct turn *t = NULL;
    char *code;

    if (s->dead || !s->plan.background) {
        (void)err_api(e, ERRC_INVALID, "RUNTIME_ERROR",
                      s->dead ? "session process has exited"
                              : "background: the session's first mount keeps nothing that is "
                                "written (ro, or persist false); make a session without that");
        return NULL;
    }
    if (check(s, e) < 0 || !(b = background_add(&s->backgrounds, e)))
        return NULL;
    background_paths(b, log, code_file);
    code = compose(&crq, e);
    t = code ? turn_new(s, code, e) : NULL;
    if (!t) {
        background_fail(b, "it could not be started");
        return NULL;
    }
    t->background = b;
    enqueue(s, t);
    return b;
}

const struct background *isolated_background(const struct isolated_session *s, const char *id)
{
    return background_find(&s->backgrounds, id);
}
