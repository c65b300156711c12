#include "execd/exec/hookrun.h"

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/macros.h"
#include "execd/exec/launch.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

static bool group_gone(const struct hookrun *r)
{
    return kill(-r->child.pid, 0) < 0 && errno == ESRCH;
}

static void describe(const struct hookrun *r, struct hookrun_end *end)
{
    const char *name;

    if (r->phase != HOOKRUN_UP) {
        end->status = HOOKRUN_STATUS_TIMEOUT;
        (void)snprintf(end->text, sizeof(end->text), "timed out after %" PRId64 " s%s",
                       r->timeout_ms / 1000, end->stuck ? " and cannot be killed" : "");
    } else if (WIFEXITED(r->status)) {
        end->status = WEXITSTATUS(r->status);
        (void)snprintf(end->text, sizeof(end->text), "exit status %d", end->status);
    } else {
        name = sigabbrev_np(WTERMSIG(r->status));
        end->status = 128 + WTERMSIG(r->status);
        (void)snprintf(end->text, sizeof(end->text), "killed by signal %s", name ? name : "?");
    }
}

static void finish(struct hookrun *r, bool stuck)
{
    struct hookrun_end end = { .stuck = stuck };

    loop_timer_clear(r->loop, &r->timer);
    if (!r->exited)
        signals_unwatch_child(r->signals, &r->child);
    describe(r, &end);
    r->phase = HOOKRUN_IDLE;
    r->on_end(r, &end);
}

static void on_time(struct loop_timer *t)
{
    struct hookrun *r = CONTAINER_OF(t, struct hookrun, timer);

    if (r->phase == HOOKRUN_UP) {
        r->phase = HOOKRUN_TERM;
        (void)kill(-r->child.pid, SIGTERM);
        (void)kill(-r->child.pid, SIGCONT); /* a stopped process would not notice */
        if (loop_timer_set(r->loop, t, clock_mono_ms() + r->grace_ms) == 0)
            return;
    }
    if (r->phase == HOOKRUN_TERM) {
        r->phase = HOOKRUN_KILL;
        (void)kill(-r->child.pid, SIGKILL);
        if (loop_timer_set(r->loop, t, clock_mono_ms() + HOOKRUN_GONE_MS) == 0)
            return;
    }
    finish(r, true);
}

static void on_exit_of_leader(struct child *c, int status)
{
    struct hookrun *r = CONTAINER_OF(c, struct hookrun, child);

    r->status = status;
    r->exited = true;
    if (r->phase == HOOKRUN_UP || group_gone(r))
        finish(r, false);
}

/* The group's number cannot be another's while a member is left, and is not given away between the
 * last one's end, which woke the loop, and this look. */
int hookrun_check(struct hookrun *r)
{
    if (r->phase <= HOOKRUN_UP || !r->exited || !group_gone(r))
        return 0;
    finish(r, false);
    return 1;
}

int hookrun_start(struct hookrun *r, const struct hookrun_req *rq, struct err *e)
{
    struct launch_req lr = { .argv = (const char *const *)rq->argv, .n_argv = rq->n_argv };
    AUTO_LAUNCH struct launch l = { 0 };
    struct spawn_req sp;

    if (launch_prepare(&l, &lr, rq->base, e) < 0 || launch_find(&l, &lr, rq->base, e) < 0)
        return -1;
    sp = launch_spawn(&l);
    sp.out = rq->out;
    sp.err = rq->err;
    r->timer.on_fire = on_time;
    if (loop_timer_set(r->loop, &r->timer, clock_mono_ms() + rq->timeout_ms) < 0)
        return err_nomem(e);
    if (spawn(&sp, &r->child.pid, e) < 0) {
        loop_timer_clear(r->loop, &r->timer);
        launch_explain(&l, e);
        return -1;
    }
    r->child.on_exit = on_exit_of_leader;
    signals_watch_child(r->signals, &r->child);
    r->phase = HOOKRUN_UP;
    r->exited = false;
    r->timeout_ms = rq->timeout_ms;
    r->grace_ms = rq->grace_ms ? rq->grace_ms : HOOKRUN_GRACE_MS;
    return 0;
}

void hookrun_leave_to_others(struct hookrun *r)
{
    loop_timer_clear(r->loop, &r->timer);
}

void hookrun_forget(struct hookrun *r)
{
    if (r->phase == HOOKRUN_IDLE)
        return;
    loop_timer_clear(r->loop, &r->timer);
    if (!r->exited)
        signals_unwatch_child(r->signals, &r->child);
    r->phase = HOOKRUN_IDLE;
}
