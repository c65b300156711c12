/* The events of one execution on their way to a client (contract/execd.md 5): init, a ping at once and
 * every 3 s, output, exactly one terminal event, then the end of the body. Commands, sessions, code and
 * isolated runs share it. Knows nothing of processes. For the loop's thread.
 *
 * Events pass through a log (eventlog.h), so that a slow client holds up the producer only when it is
 * megabytes behind, and memory stays bounded. A put that is refused changes nothing; on_room follows.
 * A client that left is told once (on_gone); puts are then swallowed, unless the feed is numbered: its
 * events get an eid and are kept, another client may take over (feed_resume), also after the end. A feed
 * that is freed by its producer without a terminal event cuts its clients' connections, so that a gap
 * never looks like success. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct eventlogs;
struct feed;
struct http_server;
struct http_stream;
struct loop;

enum {
    FEED_HELD_MAX = 128 << 10, /* bytes on their way into a client's connection */
    FEED_PING_MS = 3000,
    FEED_RESULT_MAX =
        3 << 20, /* one result as JSON text; larger ones are refused with a note on stderr */
    FEED_TRACEBACK_MAX = 128 << 10, /* bytes; a longer one is left out, and it is said */
};

struct feed_ops {
    void (*on_room)(void *owner);
    void (*on_gone)(void *owner);
};

struct feed_req {
    struct loop *loop;
    struct http_server *server;
    struct eventlogs *logs;
    const char *init; /* text of the init event; NULL: neither init nor pings (isolated runs) */
    bool numbered;
    const struct feed_ops *ops;
    void *owner;
};

/* *stream is the body of the response; init and the first ping are in it. The producer holds one
 * reference (feed_free). NULL: out of memory, err set. */
struct feed *feed_new(const struct feed_req *rq, struct http_stream **stream, struct err *e);
bool feed_wanted(const struct feed *f); /* a client reads it, or its events are kept */

/* 0, or -1: full, nothing was taken. type: "stdout" or "stderr"; any bytes, at most 1 MiB. */
int feed_text(struct feed *f, const char *type, const char *text, size_t len);
int feed_result(struct feed *f, const json_t *mime); /* as event_result */
int feed_count(struct feed *f, int64_t execution_count);
void feed_flush(struct feed *f); /* what was put is sent by now; after a group of puts */

/* The terminal event, which is never refused, and the end of the body. Once; afterwards only
 * feed_free. */
void feed_complete(struct feed *f, int64_t took_ms);
void feed_error(struct feed *f, const char *ename, const char *evalue, const char *const *traceback,
                size_t n);
/* The producer's end; no call of ops comes after it. NULL is fine. */
void feed_free(struct feed *f);

/* For who keeps the feed for feed_resume. */
struct feed *feed_ref(struct feed *f);
void feed_unref(struct feed *f); /* takes NULL */
/* The events after number after_eid, then live ones until the end; neither init nor pings. NULL: the
 * client before is still there (ERRC_CONFLICT), the events are not kept (ERRC_GONE, ERRC_NOT_FOUND),
 * there was no such event (ERRC_INVALID), out of memory. */
struct http_stream *feed_resume(struct feed *f, uint64_t after_eid, struct err *e);
