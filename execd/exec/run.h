/* Running commands: a process group each, its output as events of a response stream or into a
 * spool (contract/execd.md 5 and 6.1). Knows processes, pipes and streams; knows nothing of
 * requests. For the loop's thread. */
#pragma once
#include "common/http/http.h"
#include "common/proc/spawn.h"
#include "execd/exec/records.h"

#include <stdbool.h>
#include <stdint.h>

struct err;
struct loop;
struct run;
struct runs;
struct signals;

enum {
    RUNS_MAX = 1024,          /* commands at a time */
    RUN_STREAM_MAX = 1 << 20, /* bytes of events held for a slow client */
    RUN_PING_MS = 3000,
    RUN_TIMEOUT_GRACE_MS = 1000, /* between TERM and KILL */
    RUN_INTERRUPT_GRACE_MS = 3000,
};

struct runs *runs_new(struct loop *l, struct signals *sg, struct err *e);
/* Forgets all runs without touching the processes. Streams are cut. */
void runs_free(struct runs *rs);
/* Before any run is started: where streams belong to. */
void runs_set_server(struct runs *rs, struct http_server *server);
struct records *runs_records(struct runs *rs);
unsigned runs_active(const struct runs *rs);

struct run_req {
    struct spawn_req spawn; /* its descriptors are set by run_start */
    const char *content;    /* the command as text, for its status */
    int64_t timeout_ms;     /* 0: none */
    bool background;
    bool strip;         /* line ends (units.h) */
    const char *tmpdir; /* for the output of a background command; may be NULL */
};

/* Starts the command.
 * 0: *rec is its record (valid until the next run is started) and, unless it is a background
 * command, *stream the body of the response.
 * -1: it could not be started. When *rec is set all the same, a background command is on record
 * as failed. */
int run_start(struct runs *rs, const struct run_req *rq, struct record **rec,
              struct http_stream **stream, struct err *e);

/* Puts a background command on record whose program was not even found. NULL: out of memory. */
struct record *run_failed(struct runs *rs, const char *content, const struct err *why);

/* Someone who wants to know when the run's processes are gone; embedded. */
struct run_waiter {
    void (*on_gone)(struct run_waiter *w);
    struct run_waiter *next;
};

/* TERM to the group, KILL after the grace period; w->on_gone follows. A run whose leader has
 * ended already cannot be interrupted: -1. */
int run_interrupt(struct run *r, struct run_waiter *w, struct err *e);
