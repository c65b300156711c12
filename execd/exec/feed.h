/* The events of one execution on their way to a client (contract/execd.md 5): init, a ping at once and
 * every 3 s, output, exactly one terminal event, then the end of the body. Commands, sessions, code and
 * isolated runs share it. Knows nothing of processes. For the loop's thread.
 *
 * Back-pressure: a put that is refused changes nothing; on_room follows. A client that left is told once
 * (on_gone); puts are then swallowed, and still numbered and kept when the feed has a log. A feed that is
 * freed without its terminal event cuts the connection, so that a gap never looks like success. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct eventlog;
struct feed;
struct http_server;
struct http_stream;
struct loop;

enum {
    FEED_HELD_MAX = 1 << 20, /* bytes of events held for a slow client */
    FEED_PING_MS = 3000,
};

struct feed_ops {
    void (*on_room)(void *owner);
    void (*on_gone)(void *owner);
};

struct feed_req {
    struct loop *loop;
    struct http_server *server;
    const char *init; /* text of the init event; NULL: neither init nor pings (isolated runs) */
    const struct feed_ops *ops;
    void *owner;
    struct eventlog
        *log; /* output and terminal events get an eid and are kept here; NULL: neither */
};

/* init and the first ping are in the stream when it returns. NULL: out of memory, err set. */
struct feed *feed_new(const struct feed_req *rq, struct err *e);
/* For http_resp.stream, right after feed_new. */
struct http_stream *feed_stream(const struct feed *f);
bool feed_wanted(const struct feed *f); /* a client reads it, or its events are kept */

/* 0, or -1: full, nothing was taken. type: "stdout" or "stderr"; any bytes. */
int feed_text(struct feed *f, const char *type, const char *text, size_t len);
/* mime: type to value; what is no string goes out as its JSON text; text/plain goes out as text, too. */
int feed_result(struct feed *f, const json_t *mime);
int feed_count(struct feed *f, int64_t execution_count);
/* The terminal event, which is never refused, and the end of the body. Once; afterwards only feed_free. */
void feed_complete(struct feed *f, int64_t took_ms);
/* traceback: n lines, may be none. */
void feed_error(struct feed *f, const char *ename, const char *evalue, const char *const *traceback,
                size_t n);
/* No call of ops comes after it. NULL is fine. */
void feed_free(struct feed *f);
