/* What happened to sandboxes, in SQLite. Safe from any thread; calls block (see db.h). Events go
 * with the row of their sandbox. */
#pragma once
#include "gateway/sandbox.h"

struct db;
struct db_conn;
struct err;

enum { EVENT_TYPE = 32, EVENTS_PER_SANDBOX = 500 }; /* older ones give way */

enum event_source {
    EVENT_LIFECYCLE, /* a decision of this server: a state of the record */
    EVENT_RUNTIME,   /* news of the runtime */
    EVENT_SOURCE_MAX_,
};

struct event {
    int64_t seq;
    int64_t at_ms; /* wall */
    enum event_source source;
    char type[EVENT_TYPE];
    char reason[SANDBOX_REASON];
    char message[SANDBOX_MESSAGE];
};

struct event_list {
    struct event *items;
    size_t len;
};
void event_list_done(struct event_list *l);
#define AUTO_EVENTS __attribute__((cleanup(event_list_done)))

/* Within a db_fn: part of the change that it tells of. */
int event_add(struct db_conn *c, const char *sandbox_id, const struct event *ev, struct err *e);

/* Adds one on its own; 0 also when the sandbox has no row. */
int event_store_add(struct db *db, const char *sandbox_id, const struct event *ev, struct err *e);
/* The newest up to max, oldest of them first; source < 0: any. */
int event_store_list(struct db *db, const char *sandbox_id, int source, size_t max,
                     struct event_list *out, struct err *e);
