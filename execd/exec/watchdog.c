#include "execd/exec/watchdog.h"

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/loop.h"

#include <sys/timerfd.h>
#include <time.h>

struct watchdog {
    struct loop *loop;
    struct loop_fd timer;
    int64_t grace_ms;
    int64_t due_ms; /* of CLOCK_BOOTTIME; 0: none */
    void (*on_late)(void *arg);
    void *arg;
};

static int64_t boot_ms(void)
{
    struct timespec t = { 0 };

    (void)clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void arm(struct watchdog *w, int64_t due_ms)
{
    struct itimerspec at = { .it_value = { due_ms / 1000, due_ms % 1000 * 1000000 } };

    w->due_ms = due_ms;
    (void)timerfd_settime(w->timer.fd, TFD_TIMER_ABSTIME, &at, NULL);
}

static void on_time(struct loop_fd *f, uint32_t events)
{
    struct watchdog *w = CONTAINER_OF(f, struct watchdog, timer);
    int64_t now = boot_ms();
    uint64_t times;

    (void)events;
    if (read(f->fd, &times, sizeof(times)) < 0 || !w->due_ms)
        return; /* set anew meanwhile */
    if (now < w->due_ms) {
        arm(w, w->due_ms);
    } else if (now - w->due_ms > w->grace_ms / WATCHDOG_LATE_PART) {
        arm(w, now + w->grace_ms);
    } else {
        watchdog_clear(w);
        w->on_late(w->arg);
    }
}

struct watchdog *watchdog_new(struct loop *l, int64_t grace_ms, void (*on_late)(void *arg),
                              void *arg, struct err *e)
{
    struct watchdog *w = calloc(1, sizeof(*w));

    if (!w) {
        (void)err_nomem(e);
        return NULL;
    }
    w->loop = l;
    w->grace_ms = grace_ms;
    w->on_late = on_late;
    w->arg = arg;
    w->timer.fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    w->timer.on_event = on_time;
    if (w->timer.fd < 0)
        (void)err_sys(e, errno, "cannot make a timer");
    else if (loop_add(l, &w->timer, EPOLLIN, e) == 0)
        return w;
    watchdog_free(w);
    return NULL;
}

void watchdog_free(struct watchdog *w)
{
    if (!w)
        return;
    loop_del(w->loop, &w->timer);
    if (w->timer.fd >= 0)
        (void)close(w->timer.fd);
    free(w);
}

void watchdog_set(struct watchdog *w, int64_t left_ms)
{
    if (left_ms < -w->grace_ms)
        left_ms = 0;
    arm(w, boot_ms() + w->grace_ms + left_ms);
}

void watchdog_clear(struct watchdog *w)
{
    struct itimerspec never = { 0 };

    w->due_ms = 0;
    (void)timerfd_settime(w->timer.fd, 0, &never, NULL);
}
