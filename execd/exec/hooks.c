#include "execd/exec/hooks.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "execd/exec/hookrun.h"
#include "execd/exec/logpipe.h"

#include <string.h>
#include <sys/timerfd.h>

struct pre_start {
    struct hookrun run;
    struct logpipe out;
    struct logpipe err;
    struct logtail tail;
    hooks_done done;
    void *arg;
};

struct periodic {
    struct hooks *set;
    struct lifecycle_hook *def; /* of set->lifecycle */
    struct hookrun run;
    struct loop_timer every;
    int64_t due;      /* monotonic ms for @every, else Unix seconds; -1: never again */
    unsigned skipped; /* due times in the current run */
    bool disabled;
};

struct hooks {
    struct loop *loop;
    struct signals *signals;
    const struct env *base;
    struct lifecycle lifecycle;
    struct pre_start *pre; /* NULL: has not run */
    struct periodic *periodic;
    size_t n_periodic;
    struct loop_fd clock; /* a timerfd of the wall clock */
    int64_t wall_minus_mono_ms;
    struct loop_hook look;
    bool stopping;
};

static int before_wait(void *arg)
{
    struct hooks *hs = arg;
    int again = hs->pre ? hookrun_check(&hs->pre->run) : 0;
    size_t i;

    for (i = 0; i < hs->n_periodic; i++)
        again |= hookrun_check(&hs->periodic[i].run);
    return again ? 0 : -1;
}

struct hooks *hooks_new(struct loop *l, struct signals *sg, const struct env *base, struct err *e)
{
    struct hooks *hs = calloc(1, sizeof(*hs));

    if (!hs) {
        (void)err_nomem(e);
        return NULL;
    }
    hs->loop = l;
    hs->signals = sg;
    hs->base = base;
    hs->clock.fd = -1;
    hs->look = (struct loop_hook){ .before_wait = before_wait, .arg = hs };
    loop_hook_add(l, &hs->look);
    return hs;
}

/* The zones' buffers lie in the array of periodic hooks, or in nothing that is used. */
void hooks_set(struct hooks *hs, struct lifecycle *lc)
{
    hs->lifecycle = *lc;
    *lc = (struct lifecycle){ 0 };
}

/* ---- preStart ---- */

static void tell(struct pre_start *ps, const struct hooks_result *result)
{
    hooks_done done = TAKE_PTR(ps->done);

    if (done)
        done(ps->arg, result);
}

static void on_pre_start_end(struct hookrun *r, const struct hookrun_end *end)
{
    struct pre_start *ps = CONTAINER_OF(r, struct pre_start, run);
    struct hooks_result result = { .status = end->status };
    char tail[LOGTAIL_MAX + 1];

    logpipe_drain(&ps->out);
    logpipe_drain(&ps->err);
    ps->out.tail = ps->err.tail = NULL;
    logtail_text(&ps->tail, tail);
    (void)snprintf(result.text, sizeof(result.text), "%s; %s%s", end->text,
                   *tail ? "its last output: " : "it wrote nothing", tail);
    tell(ps, &result);
}

static struct pre_start *pre_start_new(struct hooks *hs, hooks_done done, void *arg)
{
    struct pre_start *ps = calloc(1, sizeof(*ps));

    if (!ps)
        return NULL;
    ps->run = (struct hookrun){ .loop = hs->loop, .signals = hs->signals };
    ps->run.on_end = on_pre_start_end;
    ps->done = done;
    ps->arg = arg;
    return ps;
}

static void pre_start_free(struct pre_start *ps)
{
    if (!ps)
        return;
    hookrun_forget(&ps->run);
    logpipe_close(&ps->out);
    logpipe_close(&ps->err);
    free(ps);
}

int hooks_pre_start(struct hooks *hs, hooks_done done, void *arg, struct err *e)
{
    const struct lifecycle_hook *def = &hs->lifecycle.pre_start;
    struct hookrun_req rq = { .argv = def->argv, .n_argv = def->n_argv, .base = hs->base };
    struct pre_start *ps;

    if (!hs->lifecycle.has_pre_start)
        return 0;
    ps = hs->pre = pre_start_new(hs, done, arg);
    if (!ps)
        return err_nomem(e);
    AUTO_FD int out = logpipe_open(&ps->out, hs->loop, STDOUT_FILENO, &ps->tail, e);
    AUTO_FD int err = out < 0 ? -1 : logpipe_open(&ps->err, hs->loop, STDERR_FILENO, &ps->tail, e);

    rq.out = out;
    rq.err = err;
    rq.timeout_ms = def->timeout_s * 1000;
    if (err >= 0 && hookrun_start(&ps->run, &rq, e) == 0)
        return 1;
    pre_start_free(TAKE_PTR(hs->pre));
    return err_wrap(e, "lifecycle.preStart");
}

/* ---- periodic hooks ---- */

static void on_periodic_end(struct hookrun *r, const struct hookrun_end *end)
{
    struct periodic *p = CONTAINER_OF(r, struct periodic, run);

    if (p->skipped > 1)
        log_warn("a periodic hook missed its times while it ran", LOG_S("hook", p->def->name),
                 LOG_N("missed", p->skipped));
    if (end->stuck) {
        p->disabled = true;
        log_error("a periodic hook is disabled", LOG_S("hook", p->def->name),
                  LOG_S("error", end->text));
    } else if (end->status != 0 && !p->set->stopping) {
        log_warn("a periodic hook failed", LOG_S("hook", p->def->name), LOG_S("error", end->text));
    }
}

static void run_periodic(struct periodic *p)
{
    struct hookrun_req rq = { .argv = p->def->argv,
                              .n_argv = p->def->n_argv,
                              .base = p->set->base,
                              .timeout_ms = p->def->timeout_s * 1000,
                              .out = STDOUT_FILENO,
                              .err = STDERR_FILENO };
    struct err e;

    if (hookrun_active(&p->run)) {
        if (p->skipped++ == 0)
            log_warn("a periodic hook is due while it still runs, and is skipped",
                     LOG_S("hook", p->def->name));
        return;
    }
    p->skipped = 0;
    if (hookrun_start(&p->run, &rq, &e) < 0)
        log_warn("a periodic hook cannot be started", LOG_S("hook", p->def->name),
                 LOG_S("error", e.msg));
}

static void on_every(struct loop_timer *t)
{
    struct periodic *p = CONTAINER_OF(t, struct periodic, every);
    int64_t step = p->def->cron.every_s * 1000;
    int64_t now = clock_mono_ms();

    p->due += step;
    if (p->due <= now) /* the loop stood still: once is enough */
        p->due = now + step;
    if (p->disabled)
        return;
    if (loop_timer_set(p->set->loop, t, p->due) < 0)
        log_error("out of memory: a periodic hook is run for the last time",
                  LOG_S("hook", p->def->name));
    run_periodic(p);
}

/* Sets the clock to the first due time. A clock that is set wakes it, too. */
static void arm_clock(struct hooks *hs)
{
    struct itimerspec at = { 0 };
    size_t i;

    for (i = 0; i < hs->n_periodic; i++) {
        const struct periodic *p = &hs->periodic[i];

        if (p->def->cron.every_s || p->disabled || p->due < 0)
            continue;
        if (!at.it_value.tv_sec || p->due < at.it_value.tv_sec)
            at.it_value.tv_sec = p->due;
    }
    (void)timerfd_settime(hs->clock.fd, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &at, NULL);
}

static void on_clock(struct loop_fd *w, uint32_t events)
{
    struct hooks *hs = CONTAINER_OF(w, struct hooks, clock);
    int64_t apart = clock_wall_ms() - clock_mono_ms();
    bool set_back = apart < hs->wall_minus_mono_ms - HOOKS_SET_BACK_MS;
    int64_t now = clock_wall_ms() / 1000;
    uint64_t count;
    size_t i;

    (void)events;
    (void)!read(w->fd, &count, sizeof(count)); /* ECANCELED when the clock was set */
    hs->wall_minus_mono_ms = apart;
    for (i = 0; i < hs->n_periodic && !hs->stopping; i++) {
        struct periodic *p = &hs->periodic[i];

        if (!p->def->cron.every_s && !p->disabled &&
            cron_is_due(&p->def->cron, &p->due, now, set_back, zone_offset, &p->def->zone))
            run_periodic(p);
    }
    if (!hs->stopping)
        arm_clock(hs);
}

static int open_clock(struct hooks *hs, struct err *e)
{
    hs->clock.on_event = on_clock;
    hs->clock.fd = timerfd_create(CLOCK_REALTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (hs->clock.fd < 0)
        return err_sys(e, errno, "make a timer for the periodic hooks");
    hs->wall_minus_mono_ms = clock_wall_ms() - clock_mono_ms();
    arm_clock(hs);
    return loop_add(hs->loop, &hs->clock, EPOLLIN, e);
}

int hooks_schedule(struct hooks *hs, struct err *e)
{
    size_t n = hs->lifecycle.n_periodic;
    int64_t now_s = clock_wall_ms() / 1000;
    bool by_wall = false;
    size_t i;

    if (!n || hs->stopping)
        return 0;
    hs->periodic = calloc(n, sizeof(*hs->periodic));
    if (!hs->periodic)
        return err_nomem(e);
    hs->n_periodic = n;
    for (i = 0; i < n; i++) {
        struct periodic *p = &hs->periodic[i];

        p->set = hs;
        p->def = &hs->lifecycle.periodic[i];
        p->run = (struct hookrun){ .loop = hs->loop, .signals = hs->signals };
        p->run.on_end = on_periodic_end;
        p->every.on_fire = on_every;
        if (!p->def->cron.every_s) {
            p->due = cron_next(&p->def->cron, now_s, zone_offset, &p->def->zone);
            by_wall = true;
            continue;
        }
        p->due = clock_mono_ms() + p->def->cron.every_s * 1000;
        if (loop_timer_set(hs->loop, &p->every, p->due) < 0)
            return err_nomem(e);
    }
    return by_wall ? open_clock(hs, e) : 0;
}

/* ---- the end ---- */

static void close_clocks(struct hooks *hs)
{
    size_t i;

    for (i = 0; i < hs->n_periodic; i++)
        loop_timer_clear(hs->loop, &hs->periodic[i].every);
    if (hs->clock.fd < 0)
        return;
    loop_del(hs->loop, &hs->clock);
    (void)close(TAKE_FD(hs->clock.fd));
}

void hooks_stop(struct hooks *hs)
{
    size_t i;

    hs->stopping = true;
    close_clocks(hs);
    if (hs->pre)
        hookrun_leave_to_others(&hs->pre->run);
    for (i = 0; i < hs->n_periodic; i++)
        hookrun_leave_to_others(&hs->periodic[i].run);
}

void hooks_free(struct hooks *hs)
{
    struct hooks_result stopped = { .status = HOOKS_STATUS_STOPPED,
                                    .text = "the agent ended before it did" };
    size_t i;

    if (!hs)
        return;
    close_clocks(hs);
    if (hs->pre)
        tell(hs->pre, &stopped);
    pre_start_free(hs->pre);
    for (i = 0; i < hs->n_periodic; i++)
        hookrun_forget(&hs->periodic[i].run);
    free(hs->periodic);
    lifecycle_free(&hs->lifecycle);
    loop_hook_del(hs->loop, &hs->look);
    free(hs);
}
