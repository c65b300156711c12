/* Parser of the engine's event stream: JSON objects one after the other, with or without line
 * feeds between them. Pure and incremental: pieces may be cut anywhere. What is not about a sandbox
 * of this instance, and what nobody asks for, is passed over. */
#pragma once
#include "common/base/buf.h"
#include "gateway/runtime/runtime.h"

enum { EVENT_FEED_OBJECT_MAX = 1 << 20 }; /* an event carries all labels of its container */

struct event_feed {
    const char *instance; /* borrowed */
    struct buf object;    /* as far as it is here */
    unsigned depth;       /* of braces and brackets; 0: between objects */
    bool text;            /* within a string */
    bool escaped;         /* behind a backslash in it */
    bool too_long;
};

/* One event and its time in nanoseconds of the engine's clock. An object that cannot be read comes
 * as RUNTIME_EVENT_SYNC at time 0: something was missed. */
typedef void (*event_feed_fn)(void *arg, const struct runtime_event *ev, int64_t at_ns);

void event_feed_init(struct event_feed *f, const char *instance);
void event_feed_free(struct event_feed *f);
void event_feed_put(struct event_feed *f, const char *data, size_t len, event_feed_fn fn,
                    void *arg);
/* Forgets the object that the stream broke in. */
void event_feed_reset(struct event_feed *f);
