#include "gateway/runtime/docker/events.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "common/base/thread.h"
#include "gateway/runtime/docker/docker.h"
#include "gateway/runtime/docker/engine.h"
#include "gateway/runtime/docker/event_feed.h"
#include "gateway/runtime/docker/names.h"

#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>

enum {
    BACKOFF_MIN_MS = 50,
    BACKOFF_MAX_MS = 1000,
    OPEN_MS = 10000, /* the engine sends the head at once */
    /* An engine that hangs or forgot the connection sends nothing either: after so much silence the
     * stream is opened anew, from the last event. */
    SILENCE_MS = 300000,
    NS_PER_S = 1000000000,
};

struct events {
    struct engine *engine;
    const char *instance;
    runtime_event_fn fn;
    void *arg;
    int stop_fd; /* eventfd; readable for ever once it is time to stop */
    pthread_t thread;
    bool started;
    /* the thread's own: */
    struct event_feed feed;
    bool up;                   /* SYNC was told, LOST not yet */
    int64_t opened_mono_ms;    /* of the current stream; 0: not open */
    int64_t seen_ns;           /* time of the last event; 0: none yet */
    struct runtime_event seen; /* that event: the engine repeats it after `since` */
};

/* ---- the stream ---- */

static void tell(struct events *ev, enum runtime_event_kind kind)
{
    const struct runtime_event news = { .kind = kind, .at_ms = clock_wall_ms() };

    ev->up = kind == RUNTIME_EVENT_SYNC;
    ev->fn(ev->arg, &news);
}

static void on_open(void *arg)
{
    struct events *ev = arg;

    ev->opened_mono_ms = clock_mono_ms();
    tell(ev, RUNTIME_EVENT_SYNC);
}

static void on_event(void *arg, const struct runtime_event *news, int64_t at_ns)
{
    struct events *ev = arg;

    if (news->kind == RUNTIME_EVENT_SYNC) {
        log_warn("an event of the container engine could not be read");
        tell(ev, RUNTIME_EVENT_SYNC);
        return;
    }
    if (at_ns == ev->seen_ns && news->kind == ev->seen.kind && strcmp(news->id, ev->seen.id) == 0)
        return;
    if (at_ns >= ev->seen_ns) {
        ev->seen_ns = at_ns;
        ev->seen = *news;
    }
    ev->fn(ev->arg, news);
}

static int on_bytes(void *arg, const char *data, size_t len)
{
    struct events *ev = arg;

    event_feed_put(&ev->feed, data, len, on_event, ev);
    return 0;
}

/* Only what the feed understands: the engine reports every exec and health check, too. */
static json_t *make_filters(const struct events *ev)
{
    return json_pack("{s:[s], s:[s++, s], s:[s, s, s, s, s, s]}", "type", "container", "label",
                     LABEL_INSTANCE, "=", ev->instance, LABEL_ROLE "=" ROLE_SANDBOX, "event",
                     "start", "die", "oom", "pause", "unpause", "destroy");
}

static int make_path(const struct events *ev, struct buf *out)
{
    json_auto_t *v = make_filters(ev);
    AUTO_FREE char *filters = v ? json_dumps(v, JSON_COMPACT) : NULL;

    if (!filters || buf_puts(out, "/events") < 0 || engine_query(out, "filters", filters) < 0)
        return -1;
    if (!ev->seen_ns)
        return 0;
    return buf_printf(out, "&since=%lld.%09lld", (long long)(ev->seen_ns / NS_PER_S),
                      (long long)(ev->seen_ns % NS_PER_S));
}

/* Reads until the stream ends, for whatever reason. Always -1. */
static int read_stream(struct events *ev, struct err *e)
{
    AUTO_BUF struct buf path = BUF_INIT(2048);
    AUTO_REPLY struct engine_reply r = { 0 };
    struct engine_call c = { .method = "GET",
                             .timeout_ms = OPEN_MS,
                             .endless = true,
                             .silence_ms = SILENCE_MS,
                             .opened = on_open,
                             .sink = on_bytes,
                             .sink_arg = ev,
                             .stop_fd = &ev->stop_fd };

    event_feed_reset(&ev->feed);
    ev->opened_mono_ms = 0;
    if (make_path(ev, &path) < 0)
        return err_nomem(e);
    c.path = path.data;
    if (engine_send(ev->engine, &c, &r, e) < 0)
        return -1;
    if (r.status != 200)
        return engine_refused(&r, "open the event stream", e);
    return err_set(e, ERRC_BUSY, "the container engine ended the event stream");
}

/* ---- the thread ---- */

/* True when it is time to stop; waits for that up to timeout_ms. */
static bool stopping(const struct events *ev, int timeout_ms)
{
    struct pollfd p = { .fd = ev->stop_fd, .events = POLLIN };

    return poll(&p, 1, timeout_ms) > 0;
}

static void lose(struct events *ev, const struct err *why)
{
    if (!ev->up)
        return;
    log_warn("the event stream of the container engine broke; it is being opened again",
             LOG_S("reason", why->msg));
    tell(ev, RUNTIME_EVENT_LOST);
}

static void *events_main(void *arg)
{
    struct events *ev = arg;
    struct err why = { 0 };
    int wait_ms = BACKOFF_MIN_MS;

    for (;;) {
        (void)read_stream(ev, &why);
        if (stopping(ev, 0))
            return NULL;
        if (ev->opened_mono_ms && why.code == ERRC_TIMEOUT)
            continue; /* silence */
        if (ev->opened_mono_ms && clock_mono_ms() - ev->opened_mono_ms >= BACKOFF_MAX_MS)
            wait_ms = BACKOFF_MIN_MS;
        lose(ev, &why);
        if (stopping(ev, wait_ms))
            return NULL;
        wait_ms = wait_ms * 2 < BACKOFF_MAX_MS ? wait_ms * 2 : BACKOFF_MAX_MS;
    }
}

static int start_thread(struct events *ev, struct err *e)
{
    int rc = thread_start(&ev->thread, false, events_main, ev);

    if (rc)
        return err_sys(e, rc, "start the thread of the event stream");
    ev->started = true;
    return 0;
}

static void events_free(struct events *ev)
{
    if (!ev)
        return;
    if (ev->started) {
        (void)eventfd_write(ev->stop_fd, 1);
        (void)pthread_join(ev->thread, NULL);
    }
    if (ev->stop_fd >= 0)
        (void)close(ev->stop_fd);
    event_feed_free(&ev->feed);
    free(ev);
}

/* ---- verbs ---- */

int docker_watch(struct runtime *rt, runtime_event_fn fn, void *arg, struct err *e)
{
    struct docker *d = (struct docker *)rt; /* rt is its first member */
    struct events *ev;

    if (d->events)
        return err_set(e, ERRC_CONFLICT, "the runtime is being watched already");
    ev = calloc(1, sizeof(*ev));
    if (!ev)
        return err_nomem(e);
    ev->engine = d->engine;
    ev->instance = d->cfg.instance;
    ev->fn = fn;
    ev->arg = arg;
    event_feed_init(&ev->feed, d->cfg.instance);
    ev->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (ev->stop_fd < 0)
        (void)err_sys(e, errno, "watch the container engine");
    if (ev->stop_fd < 0 || start_thread(ev, e) < 0) {
        events_free(ev);
        return -1;
    }
    d->events = ev;
    return 0;
}

void docker_unwatch(struct runtime *rt)
{
    struct docker *d = (struct docker *)rt;

    events_free(TAKE_PTR(d->events));
}
