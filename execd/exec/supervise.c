#include "execd/exec/supervise.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/loop.h"
#include "common/proc/signals.h"
#include "execd/exec/descend.h"

#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>

enum phase { PHASE_UP, PHASE_TERM, PHASE_KILL, PHASE_OVER };

struct supervisor {
    struct loop *loop;
    struct signals *signals;
    struct child entrypoint;
    struct loop_timer timer;
    struct loop_hook hook;
    enum phase phase;
    bool running;
    int status; /* what the agent ends with */
    const struct supervise_ops *ops;
    void *arg;
};

static void over(struct supervisor *s)
{
    if (s->phase == PHASE_OVER)
        return;
    s->phase = PHASE_OVER;
    loop_timer_clear(s->loop, &s->timer);
    s->ops->on_end(s->arg, s->status);
}

static void on_timer(struct loop_timer *t)
{
    struct supervisor *s = CONTAINER_OF(t, struct supervisor, timer);

    if (s->phase != PHASE_TERM) {
        over(s);
        return;
    }
    s->phase = PHASE_KILL;
    descend_signal(SIGKILL);
    (void)loop_timer_set(s->loop, &s->timer, clock_mono_ms() + SUPERVISE_KILL_MS);
}

/* Before every wait: each child's end wakes the loop, and the last one's is the end. */
static int look(void *arg)
{
    struct supervisor *s = arg;

    if ((s->phase != PHASE_TERM && s->phase != PHASE_KILL) || !descend_none_left())
        return -1;
    over(s);
    return 0;
}

static void stop(struct supervisor *s)
{
    if (s->phase != PHASE_UP)
        return;
    s->phase = PHASE_TERM;
    s->ops->on_stop(s->arg);
    if (s->running)
        (void)kill(-s->entrypoint.pid, SIGCONT);
    descend_signal(SIGTERM);
    if (loop_timer_set(s->loop, &s->timer, clock_mono_ms() + SUPERVISE_TERM_MS) < 0)
        on_timer(&s->timer); /* out of memory: no grace */
}

static void on_exit_of_entrypoint(struct child *c, int status)
{
    struct supervisor *s = CONTAINER_OF(c, struct supervisor, entrypoint);

    s->running = false;
    s->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    stop(s);
}

struct supervisor *supervisor_new(struct loop *l, struct signals *sg,
                                  const struct supervise_ops *ops, void *arg, struct err *e)
{
    struct supervisor *s = calloc(1, sizeof(*s));

    if (!s) {
        (void)err_nomem(e);
        return NULL;
    }
    s->loop = l;
    s->signals = sg;
    s->ops = ops;
    s->arg = arg;
    s->entrypoint.on_exit = on_exit_of_entrypoint;
    s->timer.on_fire = on_timer;
    s->hook = (struct loop_hook){ .before_wait = look, .arg = s };
    loop_hook_add(l, &s->hook);
    return s;
}

void supervisor_free(struct supervisor *s)
{
    if (!s)
        return;
    if (s->running)
        signals_unwatch_child(s->signals, &s->entrypoint);
    loop_timer_clear(s->loop, &s->timer);
    loop_hook_del(s->loop, &s->hook);
    free(s);
}

int supervisor_start(struct supervisor *s, const struct spawn_req *rq, struct err *e)
{
    if (spawn(rq, &s->entrypoint.pid, e) < 0)
        return -1;
    signals_watch_child(s->signals, &s->entrypoint);
    s->running = true;
    return 0;
}

void supervisor_end(struct supervisor *s, int status)
{
    s->status = status;
    stop(s);
}

pid_t supervisor_pid(const struct supervisor *s)
{
    return s->running ? s->entrypoint.pid : 0;
}

void supervisor_signal(struct supervisor *s, int sig)
{
    if (sig == SIGTERM || sig == SIGINT || sig == SIGQUIT || sig == SUPERVISE_HALT)
        stop(s);
    else if (s->running)
        (void)kill(-s->entrypoint.pid, sig);
}
