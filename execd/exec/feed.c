#include "execd/exec/feed.h"

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/loop.h"
#include "common/http/http.h"
#include "execd/exec/eventlog.h"
#include "execd/exec/events.h"

#include <string.h>

enum { CHUNK = 64 * 1024, FIRST_EVENTS_MAX = 1024 };

/* One client. The live one is what the producer waits for; others read what is over. */
struct reader {
    struct feed *feed;
    struct http_stream *stream;
    uint64_t pos;
    bool full;
    bool pings;
    struct loop_timer ping;
    struct reader *prev;
    struct reader *next;
};

struct feed {
    struct loop *loop;
    struct http_server *server;
    struct eventlog *log;
    const struct feed_ops *ops;
    void *owner; /* NULL: the producer is gone */
    struct reader *readers;
    struct reader *live;
    uint64_t eid;
    unsigned refs; /* producer, keepers, readers */
    bool numbered;
    bool refused; /* a put was: on_room is owed */
    bool ended;
};

struct feed *feed_ref(struct feed *f)
{
    f->refs++;
    return f;
}

void feed_unref(struct feed *f)
{
    if (!f || --f->refs)
        return;
    eventlog_free(f->log);
    free(f);
}

/* ---- readers ---- */

static void pin(struct feed *f)
{
    const struct reader *r = f->readers;
    uint64_t pos = UINT64_MAX;

    for (; r; r = r->next)
        pos = r->pos < pos ? r->pos : pos;
    eventlog_pin(f->log, pos);
}

/* The stream has been ended, aborted or closed. */
static void reader_free(struct reader *r)
{
    struct feed *f = r->feed;

    loop_timer_clear(f->loop, &r->ping);
    http_stream_release(r->stream);
    *(r->prev ? &r->prev->next : &f->readers) = r->next;
    if (r->next)
        r->next->prev = r->prev;
    if (f->live == r)
        f->live = NULL;
    free(r);
    pin(f);
    feed_unref(f);
}

/* What could not be read back or held: a gap must not look like success. */
static void cut(struct reader *r)
{
    struct feed *f = r->feed;
    bool told = f->live == r && f->owner && !f->ended;

    http_stream_abort(r->stream);
    (void)feed_ref(f);
    reader_free(r);
    if (told)
        f->ops->on_gone(f->owner);
    feed_unref(f);
}

/* Hands on what the stream takes, and ends it after the last event. r may be gone afterwards. */
static void pump(struct reader *r)
{
    struct feed *f = r->feed;
    const char *data;
    ssize_t n;

    while (!r->full && r->pos < eventlog_size(f->log)) {
        n = eventlog_read(f->log, r->pos, CHUNK, &data);
        if (n <= 0) {
            cut(r);
            return;
        }
        if (http_stream_write(r->stream, data, (size_t)n) < 0)
            r->full = true;
        else
            r->pos += (uint64_t)n;
    }
    if (f->ended && r->pos == eventlog_size(f->log)) {
        http_stream_end(r->stream);
        reader_free(r);
    }
}

static void tell_room(struct feed *f)
{
    if (!f->refused || !f->owner || f->ended)
        return;
    f->refused = false;
    f->ops->on_room(f->owner);
}

static void on_drain(void *owner)
{
    struct reader *r = owner;
    struct feed *f = feed_ref(r->feed);

    r->full = false;
    pump(r);
    pin(f);
    tell_room(f);
    feed_unref(f);
}

static void on_close(void *owner)
{
    struct reader *r = owner;
    struct feed *f = feed_ref(r->feed);
    bool was_live = f->live == r;

    reader_free(r);
    if (was_live && f->owner && !f->ended) {
        f->refused = false; /* on_gone says that everything goes on */
        f->ops->on_gone(f->owner);
    }
    feed_unref(f);
}

static const struct http_stream_ops stream_ops = { on_drain, on_close };

static void on_ping(struct loop_timer *t)
{
    struct reader *r = CONTAINER_OF(t, struct reader, ping);
    AUTO_BUF struct buf b = BUF_INIT(FIRST_EVENTS_MAX);

    (void)loop_timer_set(r->feed->loop, t, clock_mono_ms() + FEED_PING_MS);
    /* one that is behind has enough to read, and may be in the middle of an event */
    if (r->pos == eventlog_size(r->feed->log) &&
        event_text(&b, "ping", "pong", 4, (struct event_stamp){ clock_wall_ms(), 0 }) == 0)
        (void)http_stream_write(r->stream, b.data, b.len);
}

static struct reader *reader_new(struct feed *f, uint64_t pos, struct err *e)
{
    struct reader *r = calloc(1, sizeof(*r));

    if (r)
        r->stream = http_stream_new(f->server, FEED_HELD_MAX, &stream_ops, r);
    if (!r || !r->stream) {
        free(r);
        (void)err_nomem(e);
        return NULL;
    }
    r->feed = feed_ref(f);
    r->pos = pos;
    r->ping.on_fire = on_ping;
    r->next = f->readers;
    if (r->next)
        r->next->prev = r;
    f->readers = r;
    pin(f);
    return r;
}

/* ---- the producer ---- */

static int greet(struct reader *r, const char *init, struct err *e)
{
    AUTO_BUF struct buf b = BUF_INIT(FIRST_EVENTS_MAX);
    struct event_stamp at = { clock_wall_ms(), 0 };

    if (event_text(&b, "init", init, strlen(init), at) < 0 ||
        event_text(&b, "ping", "pong", 4, at) < 0)
        return err_nomem(e);
    (void)http_stream_write(r->stream, b.data, b.len);
    (void)loop_timer_set(r->feed->loop, &r->ping, clock_mono_ms() + FEED_PING_MS);
    return 0;
}

struct feed *feed_new(const struct feed_req *rq, struct http_stream **stream, struct err *e)
{
    struct feed *f = calloc(1, sizeof(*f));

    if (f)
        f->log = eventlog_new(rq->logs);
    if (!f || !f->log) {
        free(f);
        (void)err_nomem(e);
        return NULL;
    }
    f->refs = 1;
    f->loop = rq->loop;
    f->server = rq->server;
    f->ops = rq->ops;
    f->owner = rq->owner;
    f->numbered = rq->numbered;
    f->live = reader_new(f, 0, e);
    if (!f->live || (rq->init && greet(f->live, rq->init, e) < 0)) {
        if (f->live)
            reader_free(f->live);
        feed_unref(f);
        return NULL;
    }
    *stream = f->live->stream;
    return f;
}

bool feed_wanted(const struct feed *f)
{
    return f->live || f->numbered;
}

/* A place for an event of at most len bytes. NULL: refused. */
static struct buf *begin(struct feed *f, size_t len)
{
    if (!f->live || eventlog_room(f->log, f->live->pos) >= len)
        return eventlog_begin(f->log);
    f->refused = true;
    return NULL;
}

static struct event_stamp stamp(const struct feed *f)
{
    return (struct event_stamp){ clock_wall_ms(), f->numbered ? f->eid + 1 : 0 };
}

/* rc < 0: the event could not be written, for want of memory. */
static void commit(struct feed *f, struct buf *b, size_t before, int rc)
{
    if (rc < 0) {
        if (b->data)
            b->data[b->len = before] = '\0';
        if (f->live)
            cut(f->live);
        return;
    }
    eventlog_commit(f->log, f->numbered ? ++f->eid : 0);
    if (b->len >= CHUNK)
        feed_flush(f);
}

int feed_text(struct feed *f, const char *type, const char *text, size_t len)
{
    struct buf *b;
    size_t before;

    if (!feed_wanted(f))
        return 0;
    b = begin(f, 6 * len + EVENT_FRAME);
    if (!b)
        return -1;
    before = b->len;
    commit(f, b, before, event_text(b, type, text, len, stamp(f)));
    return 0;
}

int feed_result(struct feed *f, const json_t *mime)
{
    static const char note[] = "[a result of more than 3 MiB was left out]\n";
    size_t len = json_dumpb(mime, NULL, 0, JSON_COMPACT | JSON_ENSURE_ASCII);
    struct buf *b;
    size_t before;

    if (!feed_wanted(f))
        return 0;
    if (len > FEED_RESULT_MAX)
        return feed_text(f, "stderr", note, sizeof(note) - 1);
    b = begin(f, 2 * len + EVENT_FRAME);
    if (!b)
        return -1;
    before = b->len;
    commit(f, b, before, event_result(b, mime, stamp(f)));
    return 0;
}

int feed_count(struct feed *f, int64_t execution_count)
{
    struct buf *b = feed_wanted(f) ? begin(f, EVENT_FRAME) : NULL;
    size_t before;

    if (!b)
        return feed_wanted(f) ? -1 : 0;
    before = b->len;
    commit(f, b, before, event_count(b, execution_count, stamp(f)));
    return 0;
}

void feed_flush(struct feed *f)
{
    if (f->live)
        pump(f->live);
    if (!f->ended) {
        pin(f);
        eventlog_spill(f->log);
    }
}

static void end(struct feed *f)
{
    struct reader *r = f->readers;
    struct reader *next;

    f->ended = true;
    (void)feed_ref(f);
    for (; r; r = next) {
        next = r->next;
        pump(r);
    }
    eventlog_spill(f->log);
    eventlog_end(f->log);
    feed_unref(f);
}

void feed_complete(struct feed *f, int64_t took_ms)
{
    struct buf *b = eventlog_begin(f->log);
    size_t before = b->len;

    if (feed_wanted(f))
        commit(f, b, before, event_complete(b, took_ms, stamp(f)));
    end(f);
}

void feed_error(struct feed *f, const char *ename, const char *evalue, const char *const *traceback,
                size_t n)
{
    static const char *const left_out[] = { "[the traceback is too long and was left out]" };
    struct buf *b = eventlog_begin(f->log);
    size_t before = b->len;
    size_t len = 0;
    size_t i;

    for (i = 0; i < n; i++)
        len += strlen(traceback[i]);
    if (feed_wanted(f) && len > FEED_TRACEBACK_MAX)
        commit(f, b, before, event_error(b, ename, evalue, left_out, 1, stamp(f)));
    else if (feed_wanted(f))
        commit(f, b, before, event_error(b, ename, evalue, traceback, n, stamp(f)));
    end(f);
}

void feed_free(struct feed *f)
{
    if (!f)
        return;
    f->owner = NULL;
    while (!f->ended && f->readers)
        cut(f->readers);
    if (!f->ended) { /* without its end it is of no use to anyone */
        f->ended = true;
        f->numbered = false;
    }
    feed_unref(f);
}

/* ---- another client ---- */

struct http_stream *feed_resume(struct feed *f, uint64_t after_eid, struct err *e)
{
    struct http_stream *stream;
    struct reader *r;
    uint64_t pos;

    if (!f->numbered || eventlog_dropped(f->log)) {
        (void)err_set(e, ERRC_NOT_FOUND, "the events of this command are not kept any longer");
        return NULL;
    }
    if (f->live && !f->ended) {
        (void)err_set(e, ERRC_CONFLICT, "the primary stream of this command is still active");
        return NULL;
    }
    if (eventlog_find(f->log, after_eid, &pos, e) < 0)
        return NULL;
    r = reader_new(f, pos, e);
    if (!r)
        return NULL;
    stream = r->stream;
    if (!f->ended)
        f->live = r;
    pump(r);
    return stream;
}
