#include "execd/code/jupyter.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "common/base/loop.h"
#include "common/base/rand.h"
#include "common/json/utf8.h"
#include "common/ws/ws.h"
#include "execd/code/jupyter_channel.h"

#include <string.h>

enum { PIECE = 64 * 1024 - 1, LAST_STEP_MS = 20 };

struct jupyter {
    struct jupyter_server server;
    struct ws_set set;
    struct err bad; /* what is wrong with the configuration */
    unsigned n;     /* kernels */
};

enum phase { PHASE_STARTING, PHASE_IDLE, PHASE_BUSY, PHASE_OVER };

/* Code that waits for the connection or runs. */
struct run {
    char id[RAND_UUID_TEXT]; /* of its message; "": there is none */
    char *code;              /* until it is sent */
    bool sent;
    bool busy;        /* the kernel has it */
    bool begun;       /* the code itself: before that some kernels lose an interrupt */
    bool interrupt;   /* wanted once it has */
    bool interrupted; /* was wanted */
    bool idle;        /* its output is over */
    bool replied;
    bool told; /* an error */
    int64_t count;
    struct jupyter_msg failure; /* a reply that is no success */
};

struct kernel {
    struct jupyter *home;
    const struct kernel_events *ev; /* NULL: nobody listens */
    void *owner;
    char language[KERNEL_LANGUAGE_MAX];
    char *cwd;
    enum phase phase;
    struct errand *errand;  /* the start */
    struct jupyter_ids ids; /* session "": there is none */
    struct channel *channel;
    bool attached;                 /* the channel is open */
    char process[JUPYTER_ID_TEXT]; /* session of the kernel's process */
    struct run run;
    bool abandoned;         /* an earlier execution may still be running there */
    struct jupyter_msg cur; /* what is being handed on */
    size_t at;              /* of its text */
    bool has_cur;
    bool held;
    bool lost; /* the connection; why in lost_why */
    struct err lost_why;
    const char *verdict; /* ename of an error that ends the execution; NULL: none */
    struct err verdict_why;
    struct rest_call *check;
    int64_t check_until_mono_ms;
    struct rest_call *interrupt;
    struct loop_timer start; /* the deadline */
    struct loop_timer soon;  /* pump */
    struct loop_timer retry; /* of the check */
    struct loop_timer quiet;
    struct loop_timer watch; /* while code runs */
    unsigned refs;           /* the owner, and calls under way */
};

/* ---- life and death ---- */

static void run_clear(struct kernel *k)
{
    free(k->run.code);
    jupyter_msg_free(&k->run.failure);
    k->run = (struct run){ 0 };
    k->verdict = NULL;
    loop_timer_clear(k->home->server.rest.loop, &k->quiet);
    loop_timer_clear(k->home->server.rest.loop, &k->watch);
}

static void cur_clear(struct kernel *k)
{
    jupyter_msg_free(&k->cur);
    k->has_cur = false;
    k->at = 0;
}

static void unref(struct kernel *k)
{
    if (--k->refs)
        return;
    k->home->n--;
    free(k->cwd);
    free(k);
}

static void detach(struct kernel *k)
{
    channel_close(TAKE_PTR(k->channel));
    k->attached = false;
}

/* Everything but the memory and the session on the server. */
static void let_go(struct kernel *k)
{
    struct loop *l = k->home->server.rest.loop;

    jupyter_abandon(TAKE_PTR(k->errand));
    detach(k);
    rest_cancel(TAKE_PTR(k->check));
    rest_cancel(TAKE_PTR(k->interrupt));
    run_clear(k);
    cur_clear(k);
    loop_timer_clear(l, &k->start);
    loop_timer_clear(l, &k->soon);
    loop_timer_clear(l, &k->retry);
    k->phase = PHASE_OVER;
}

static void destroy(struct kernel *k)
{
    if (!k)
        return;
    k->ev = NULL;
    let_go(k);
    if (k->ids.session[0])
        jupyter_remove(&k->home->server, k->ids.session);
    unref(k);
}

/* on_ready with a reason, or on_dead. */
static void tell_end(struct kernel *k, const struct err *why)
{
    const struct kernel_events *ev = TAKE_PTR(k->ev);
    bool starting = k->phase == PHASE_STARTING;
    struct err e = *why;

    let_go(k);
    if (!ev)
        return;
    if (starting)
        ev->on_ready(k->owner, NULL, &e);
    else
        ev->on_dead(k->owner, &e);
}

static void tell_death(struct kernel *k, const char *why)
{
    struct err e = { 0 };

    if (k->phase == PHASE_STARTING)
        (void)err_set(&e, ERRC_INTERNAL, "the %s kernel did not start: %s", k->language, why);
    else
        (void)err_set(&e, ERRC_INTERNAL, "%s", why);
    tell_end(k, &e);
}

static void pump_soon(struct kernel *k)
{
    (void)loop_timer_set(k->home->server.rest.loop, &k->soon, clock_mono_ms());
}

/* The execution ends with an error of ours, as soon as the owner takes it. */
static void judge(struct kernel *k, const char *ename, const struct err *why)
{
    k->verdict = ename;
    k->verdict_why = *why;
    pump_soon(k);
}

/* ---- the connection ---- */

static const struct channel_ops channel_ops;

static int attach(struct kernel *k, struct err *e)
{
    k->lost = false;
    k->channel = channel_open(&k->home->server, &k->home->set, k->ids.kernel, &channel_ops, k, e);
    return k->channel ? 0 : -1;
}

static void arm_quiet(struct kernel *k)
{
    int ms = k->run.idle && k->run.interrupted ? JUPYTER_CUT_MS : JUPYTER_QUIET_MS;

    (void)loop_timer_set(k->home->server.rest.loop, &k->quiet, clock_mono_ms() + ms);
}

static void arm_watch(struct kernel *k, int ms)
{
    (void)loop_timer_set(k->home->server.rest.loop, &k->watch, clock_mono_ms() + ms);
}

static void send_run(struct kernel *k)
{
    struct err e = { 0 };

    if (channel_execute(k->channel, k->run.id, k->run.code, k->phase == PHASE_STARTING, &e) < 0) {
        judge(k, "KernelError", &e);
        return;
    }
    free(TAKE_PTR(k->run.code));
    k->run.sent = true;
    arm_watch(k, JUPYTER_BEGIN_MS);
}

static void run_new(struct kernel *k, char *code)
{
    rand_uuid4(k->run.id);
    k->run.code = code;
}

static void tell_ready(struct kernel *k)
{
    loop_timer_clear(k->home->server.rest.loop, &k->start);
    k->phase = PHASE_IDLE;
    k->ev->on_ready(k->owner, k->ids.session, NULL);
}

/* The kernel is there: the working directory first, if it has one. */
static void first_open(struct kernel *k)
{
    char *code = NULL;
    struct err e = { 0 };

    if (k->cwd && jupyter_msg_chdir(k->language, k->cwd, &code) < 0) {
        (void)err_nomem(&e);
        tell_end(k, &e);
    } else if (code) {
        run_new(k, code);
        send_run(k);
    } else {
        tell_ready(k);
    }
}

static void on_open(void *owner, const char *session)
{
    struct kernel *k = owner;
    bool changed = *session && k->process[0] && strcmp(session, k->process) != 0;

    k->refs++;
    k->attached = true;
    if (*session)
        (void)snprintf(k->process, sizeof(k->process), "%s", session);
    if (changed)
        tell_death(k, "it was restarted while nothing was connected to it");
    else if (k->phase == PHASE_STARTING)
        first_open(k);
    else if (k->run.code)
        send_run(k);
    unref(k);
}

/* ---- is it still alive? ---- */

static void check_now(struct kernel *k);

static void on_retry(struct loop_timer *t)
{
    check_now(CONTAINER_OF(t, struct kernel, retry));
}

/* The kernel lives: connect for what waits, or say that what ran is out of sight. With a connection nobody asked but
 * the watch. */
static void on_alive(struct kernel *k)
{
    struct err e = { 0 };

    if (k->lost) {
        k->lost = false;
        (void)err_set(&e, ERRC_BAD_GATEWAY, "the connection to the kernel was lost: %.200s; %s",
                      k->lost_why.msg,
                      k->run.sent ? "what the code did after that is not known, the kernel keeps "
                                    "its state"
                                  : "the code was not run");
        judge(k, "ConnectionLost", &e);
    } else if (!k->channel && attach(k, &e) < 0) {
        judge(k, "ConnectionLost", &e);
    }
}

/* Nobody can say; passes: it may be another one in a while. */
static void on_unknown(struct kernel *k, bool passes, const struct err *e)
{
    int64_t now = clock_mono_ms();

    if (k->channel) /* which has pings of its own */
        return;
    if (passes && now < k->check_until_mono_ms &&
        loop_timer_set(k->home->server.rest.loop, &k->retry, now + JUPYTER_RETRY_MS) == 0)
        return;
    k->lost = false;
    judge(k, "ConnectionLost", e);
}

static void on_check(void *owner, const struct rest_answer *a, const struct err *e)
{
    struct kernel *k = owner;
    enum jupyter_state state = JUPYTER_STATE_OTHER;
    struct err why = { 0 };

    k->check = NULL;
    k->refs++;
    if (a && a->status == 200)
        state = jupyter_read_kernel(a->body, a->len);
    else if (a && a->status != 404)
        (void)jupyter_refused(&k->home->server, a, &why);
    if (!a || why.code)
        on_unknown(k, !a, a ? &why : e);
    else if (a->status == 404)
        tell_death(k, "the Jupyter server does not know it any more; the server was restarted, or "
                      "the kernel was shut down");
    else if (state != JUPYTER_STATE_OTHER)
        tell_death(k, "its process ended");
    else
        on_alive(k);
    unref(k);
}

static void check_now(struct kernel *k)
{
    char path[sizeof("/api/kernels/") + JUPYTER_ID_TEXT];
    struct err e = { 0 };

    (void)snprintf(path, sizeof(path), "/api/kernels/%s", k->ids.kernel);
    k->check =
        rest_call(&k->home->server.rest, "GET", path, NULL, JUPYTER_LOST_MS, on_check, k, &e);
    if (!k->check && !k->channel)
        judge(k, "ConnectionLost", &e);
}

static void check_begin(struct kernel *k)
{
    if (k->check || k->retry.at_mono_ms)
        return;
    k->check_until_mono_ms = clock_mono_ms() + JUPYTER_LOST_MS;
    check_now(k);
}

/* ---- what the kernel says ---- */

/* The next piece of a stream's text. True: that was all. */
static bool put_text(struct kernel *k)
{
    const char *text = k->cur.text + k->at;
    size_t left = k->cur.text_len - k->at;
    size_t n = left;

    if (n > PIECE)
        n = PIECE - utf8_incomplete_tail(text, PIECE);
    k->at += n;
    if (n)
        k->ev->on_text(k->owner, k->cur.is_stderr, text, n);
    return n == left;
}

static void put_error(struct kernel *k, const struct jupyter_msg *m)
{
    json_t *none = m->traceback ? NULL : json_array();

    k->run.told = true;
    k->ev->on_error(k->owner, m->ename, m->evalue, m->traceback ? m->traceback : none);
    json_decref(none);
}

/* The reply's own word, when no error message came. */
static void put_failure(struct kernel *k)
{
    struct jupyter_msg m = k->run.failure;

    if (m.outcome == JUPYTER_OK || k->run.told)
        return;
    if (m.outcome == JUPYTER_ABORTED) {
        m.ename = "ExecutionAborted";
        m.evalue = "the kernel did not run the code";
    }
    put_error(k, &m);
}

static void place_done(struct kernel *k)
{
    const struct jupyter_msg *m = &k->run.failure;
    struct err e = { 0 };

    if (m->outcome == JUPYTER_OK) {
        run_clear(k);
        tell_ready(k);
        return;
    }
    (void)err_set(&e, ERRC_INVALID, "cwd: the kernel cannot use it: %.80s: %.200s", m->ename,
                  m->evalue);
    tell_end(k, &e);
}

static void run_done(struct kernel *k)
{
    int64_t count = k->run.count;

    if (k->phase == PHASE_STARTING) {
        place_done(k);
        return;
    }
    put_failure(k);
    run_clear(k);
    k->phase = PHASE_IDLE;
    k->ev->on_idle(k->owner, count);
}

static void post_interrupt(struct kernel *k);

static void on_begun(struct kernel *k)
{
    k->run.begun = true;
    if (k->run.interrupt)
        post_interrupt(k);
    k->run.interrupt = false;
}

/* A message about the execution. True: it is dealt with. */
static bool take_own(struct kernel *k)
{
    const struct jupyter_msg *m = &k->cur;
    bool shown = k->phase == PHASE_BUSY;

    if (m->count)
        k->run.count = m->count;
    switch (m->type) {
    case JUPYTER_STREAM:
        on_begun(k);
        return !shown || put_text(k);
    case JUPYTER_RESULT:
    case JUPYTER_DISPLAY:
        on_begun(k);
        if (shown)
            k->ev->on_result(k->owner, m->type == JUPYTER_RESULT ? m->count : 0, m->data);
        break;
    case JUPYTER_ERROR:
        if (shown && !k->run.told)
            put_error(k, m);
        break;
    case JUPYTER_INPUT:
        on_begun(k);
        break;
    case JUPYTER_STATUS:
        k->run.busy = k->run.busy || m->state == JUPYTER_STATE_BUSY;
        k->abandoned = k->abandoned && !k->run.busy;
        k->run.idle = k->run.idle || m->state == JUPYTER_STATE_IDLE;
        break;
    case JUPYTER_REPLY:
        k->run.replied = true;
        if (m->outcome != JUPYTER_OK) { /* its error message may come later */
            jupyter_msg_free(&k->run.failure);
            k->run.failure = k->cur;
            k->cur = (struct jupyter_msg){ 0 };
        }
        break;
    default:
        break;
    }
    return true;
}

static bool is_death(const struct jupyter_msg *m)
{
    return m->type == JUPYTER_STATUS &&
           (m->state == JUPYTER_STATE_RESTARTING || m->state == JUPYTER_STATE_DEAD);
}

/* As much of the current message as the owner takes. */
static void take_cur(struct kernel *k)
{
    if (is_death(&k->cur)) {
        tell_death(k, k->cur.state == JUPYTER_STATE_DEAD
                          ? "its process ended, and the Jupyter server could not start it again"
                          : "its process ended; the Jupyter server says that it restarts");
        return;
    }
    if (!k->run.sent || strcmp(k->cur.parent, k->run.id) != 0) {
        cur_clear(k);
        return;
    }
    if (!take_own(k) || !k->ev)
        return;
    cur_clear(k);
    if (k->run.idle && k->run.replied)
        run_done(k);
    else if (k->run.idle || k->run.replied)
        arm_quiet(k);
}

static void put_verdict(struct kernel *k)
{
    const char *ename = TAKE_PTR(k->verdict);
    json_t *traceback;
    struct err why = k->verdict_why;

    if (k->phase == PHASE_STARTING) {
        tell_end(k, &why);
        return;
    }
    if (k->phase != PHASE_BUSY)
        return;
    k->abandoned = k->abandoned || k->run.sent;
    traceback = json_pack("[s]", why.msg);
    if (!k->run.told)
        k->ev->on_error(k->owner, ename, why.msg, traceback);
    json_decref(traceback);
    run_clear(k);
    k->phase = PHASE_IDLE;
    k->ev->on_idle(k->owner, 0);
}

/* Hands on what is there until the owner holds. */
static void pump(struct kernel *k)
{
    k->refs++;
    while (k->ev && !k->held) {
        if (k->has_cur)
            take_cur(k);
        else if (k->verdict)
            put_verdict(k);
        else
            break;
    }
    if (k->ev && !k->held && k->lost && k->phase == PHASE_BUSY)
        check_begin(k);
    if (k->ev && !k->held && k->channel)
        channel_hold(k->channel, false);
    unref(k);
}

static void on_message(void *owner, struct jupyter_msg *m)
{
    struct kernel *k = owner;

    k->cur = *m;
    k->at = 0;
    k->has_cur = true;
    pump(k);
}

static void on_bad(void *owner, const struct err *e)
{
    struct kernel *k = owner;
    char text[256];
    int n =
        snprintf(text, sizeof(text), "[a message of the kernel was left out: %.180s]\n", e->msg);

    if (k->phase == PHASE_BUSY)
        k->ev->on_text(k->owner, true, text, (size_t)n);
}

static void on_lost(void *owner, const struct err *why)
{
    struct kernel *k = owner;
    struct err e = *why;

    k->refs++;
    detach(k);
    if (k->phase == PHASE_STARTING) {
        (void)err_wrap(&e, "the %s kernel did not start", k->language);
        tell_end(k, &e);
    } else if (k->phase == PHASE_BUSY && why->code == ERRC_TOO_LARGE) {
        (void)err_set(&e, ERRC_TOO_LARGE,
                      "%s; the execution is given up, the kernel keeps its state; write less at "
                      "once",
                      why->msg);
        judge(k, "OutputTooLarge", &e);
    } else if (k->phase == PHASE_BUSY) {
        k->lost = true;
        k->lost_why = e;
        pump(k);
    }
    unref(k);
}

static const struct channel_ops channel_ops = { on_open, on_message, on_bad, on_lost };

/* ---- timers ---- */

static void on_soon(struct loop_timer *t)
{
    pump(CONTAINER_OF(t, struct kernel, soon));
}

static void on_start_time(struct loop_timer *t)
{
    struct kernel *k = CONTAINER_OF(t, struct kernel, start);
    struct err e = { 0 };

    (void)err_set(&e, ERRC_TIMEOUT, "the %s kernel was not ready within %d s", k->language,
                  JUPYTER_START_MS / 1000);
    k->refs++;
    tell_end(k, &e);
    unref(k);
}

/* One of the two ends of the execution is missing. Its output is over with the idle status; without that some may be
 * on its way. Without the reply nobody knows how it ended: an interrupt may hit a kernel outside of the code. */
static void on_quiet(struct loop_timer *t)
{
    struct kernel *k = CONTAINER_OF(t, struct kernel, quiet);
    struct err e = { 0 };

    if (k->held) {
        arm_quiet(k);
        return;
    }
    k->refs++;
    if (k->run.idle && k->run.told) {
        run_done(k);
    } else if (k->run.idle) {
        (void)err_set(&e, ERRC_BAD_GATEWAY, "the kernel did not say how the execution ended");
        judge(k, k->run.interrupted ? "KeyboardInterrupt" : "KernelError", &e);
    } else {
        (void)err_set(&e, ERRC_BAD_GATEWAY,
                      "the kernel did not say where its output ends; some may be missing");
        judge(k, "KernelError", &e);
    }
    unref(k);
}

/* A server tells when it restarts a kernel, not when somebody shuts one down: it is asked. */
static void on_watch(struct loop_timer *t)
{
    struct kernel *k = CONTAINER_OF(t, struct kernel, watch);

    arm_watch(k, JUPYTER_WATCH_MS);
    if (k->run.interrupt && k->run.busy) /* a kernel that does not say when code begins */
        on_begun(k);
    if (!k->held && !k->lost)
        check_begin(k);
}

/* ---- verbs ---- */

static int execute(struct kernel *k, const char *code, struct err *e)
{
    char *copy;

    if (k->phase == PHASE_BUSY || k->phase == PHASE_STARTING)
        return err_set(e, ERRC_BUSY, "the kernel runs other code");
    if (k->phase != PHASE_IDLE)
        return err_set(e, ERRC_INTERNAL, "the kernel is gone");
    copy = strdup(code);
    if (!copy)
        return err_nomem(e);
    k->phase = PHASE_BUSY;
    run_new(k, copy);
    if (k->attached)
        send_run(k);
    else if (!k->channel)
        check_begin(k);
    return 0;
}

static void on_interrupted(void *owner, const struct rest_answer *a, const struct err *e)
{
    struct kernel *k = owner;
    struct err why = { 0 };
    char text[256];
    int n;

    k->interrupt = NULL;
    if (a && a->status >= 200 && a->status <= 299)
        return;
    if (a)
        (void)jupyter_refused(&k->home->server, a, &why);
    n = snprintf(text, sizeof(text), "[the interrupt failed: %.200s]\n", a ? why.msg : e->msg);
    if (k->phase == PHASE_BUSY && !k->held)
        k->ev->on_text(k->owner, true, text, (size_t)n);
    else
        log_info("an interrupt of a kernel failed", LOG_S("reason", a ? why.msg : e->msg));
}

static void post_interrupt(struct kernel *k)
{
    char path[sizeof("/api/kernels//interrupt") + JUPYTER_ID_TEXT];

    if (k->interrupt)
        return;
    (void)snprintf(path, sizeof(path), "/api/kernels/%s/interrupt", k->ids.kernel);
    k->interrupt = rest_call(&k->home->server.rest, "POST", path, NULL, JUPYTER_LOST_MS,
                             on_interrupted, k, NULL);
}

static int interrupt(struct kernel *k, struct err *e)
{
    struct err why = { 0 };

    (void)e;
    if (k->phase != PHASE_BUSY)
        return 0;
    if (!k->run.sent) {
        free(TAKE_PTR(k->run.code));
        (void)err_set(&why, ERRC_INTERNAL, "interrupted before it began");
        judge(k, "KeyboardInterrupt", &why);
    }
    if (k->run.begun || k->abandoned) /* what still runs there is in its way */
        post_interrupt(k);
    k->run.interrupt = !k->run.begun;
    k->run.interrupted = true;
    return 0;
}

static void hold(struct kernel *k, bool on)
{
    if (k->held == on || k->phase == PHASE_OVER)
        return;
    k->held = on;
    if (!on)
        pump_soon(k);
    else if (k->channel)
        channel_hold(k->channel, true);
}

/* ---- the start ---- */

static void on_begun_session(void *owner, const struct jupyter_ids *ids, const struct err *e)
{
    struct kernel *k = owner;
    struct err why = { 0 };

    k->errand = NULL;
    k->refs++;
    if (ids)
        k->ids = *ids;
    if (!ids)
        tell_end(k, e);
    else if (loop_timer_set(k->home->server.rest.loop, &k->start,
                            clock_mono_ms() + JUPYTER_START_MS) < 0 ||
             attach(k, &why) < 0)
        tell_end(k, &why);
    unref(k);
}

static struct kernel *make_kernel(struct jupyter *j, const struct kernel_req *rq)
{
    struct kernel *k = calloc(1, sizeof(*k));

    if (!k || (rq->cwd && !(k->cwd = strdup(rq->cwd)))) {
        free(k);
        return NULL;
    }
    k->home = j;
    k->ev = rq->events;
    k->owner = rq->owner;
    k->refs = 1;
    k->start.on_fire = on_start_time;
    k->soon.on_fire = on_soon;
    k->retry.on_fire = on_retry;
    k->quiet.on_fire = on_quiet;
    k->watch.on_fire = on_watch;
    (void)snprintf(k->language, sizeof(k->language), "%s", rq->language);
    j->n++;
    return k;
}

static struct kernel *create(void *provider, const struct kernel_req *rq, struct err *e)
{
    struct jupyter *j = provider;
    struct kernel *k;

    if (j->bad.code) {
        *e = j->bad;
        return NULL;
    }
    if (j->n + j->server.n >= JUPYTER_KERNELS_MAX) {
        (void)err_set(e, ERRC_BUSY, "too many kernels are being removed; try again");
        return NULL;
    }
    k = make_kernel(j, rq);
    if (!k) {
        (void)err_nomem(e);
        return NULL;
    }
    k->errand = jupyter_begin(&j->server, k->language, k->cwd, on_begun_session, k, e);
    if (!k->errand) {
        destroy(k);
        return NULL;
    }
    return k;
}

const struct kernel_ops jupyter_ops = { create, execute, interrupt, hold, destroy };

/* ---- the set ---- */

struct jupyter *jupyter_new(struct loop *l, const char *host, const char *token, struct err *e)
{
    struct jupyter *j = calloc(1, sizeof(*j));

    if (!j) {
        (void)err_nomem(e);
        return NULL;
    }
    j->set.loop = l;
    if (rest_init(&j->server.rest, l, host, token, &j->bad) < 0)
        log_warn("code cannot be run", LOG_S("reason", j->bad.msg));
    return j;
}

bool jupyter_is_local(const struct jupyter *j, uint16_t port)
{
    const struct rest *r = &j->server.rest;

    return r->port == port && strcmp(r->host, "127.0.0.1") == 0;
}

void jupyter_free(struct jupyter *j)
{
    int64_t until = clock_mono_ms() + JUPYTER_LAST_MS;

    if (!j)
        return;
    while (j->server.n && clock_mono_ms() < until)
        if (loop_step(j->set.loop, LAST_STEP_MS, NULL) < 0)
            break;
    jupyter_server_close(&j->server);
    ws_set_free(&j->set);
    explicit_bzero(j, sizeof(*j));
    free(j);
}
