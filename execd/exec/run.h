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
struct feed;
struct feed_ops;
struct loop;
struct run;
struct runs;
struct signals;

enum {
    RUNS_MAX = 1024,             /* commands at a time */
    RUN_TIMEOUT_GRACE_MS = 1000, /* between TERM and KILL */
    RUN_INTERRUPT_GRACE_MS = 3000,
};

struct runs *runs_new(struct loop *l, struct signals *sg, struct err *e);
/* Forgets all runs without touching the processes. Streams are cut. */
void runs_free(struct runs *rs);
/* Before any run is started: where streams belong to. */
void runs_set_server(struct runs *rs, struct http_server *server);
/* A feed for what is no process of ours, with neither numbers nor a record. */
struct feed *runs_feed(struct runs *rs, const char *init, const struct feed_ops *ops, void *owner,
                       struct http_stream **stream, struct err *e);
struct records *runs_records(struct runs *rs);
unsigned runs_active(const struct runs *rs);

/* How a run ended. */
struct run_end {
    int code;      /* exit status; -1: by a signal or its timeout. on_end may change it. */
    char text[64]; /* "exit status 3", "signal: killed" */
    char why[128]; /* what ended it, when it was not the program itself; else "" */
    int64_t took_ms;
};

struct run_req {
    struct spawn_req spawn; /* its descriptors 0, 1, 2 are set by run_start */
    const char *content;    /* the command as text, for its status */
    const char *init;   /* text of the init event instead of the record's id: no record is made, the
                             * events have no numbers */
    int64_t timeout_ms; /* 0: none */
    bool background;
    bool merged;        /* stderr is written into stdout's events */
    bool strip;         /* line ends (units.h) */
    bool drop_blank;    /* as strip, and empty lines are no events */
    bool tied;          /* ended when its client leaves */
    const char *tmpdir; /* for output that is kept; may be NULL */
    /* Its processes are gone and all output is out; comes before the terminal event. NULL: nobody asks */
    void (*on_end)(void *owner, struct run_end *end);
    void *owner;
};

struct run_started {
    struct record *rec;         /* valid until the next run is started; NULL with init */
    struct run *run;            /* valid until on_end */
    struct http_stream *stream; /* the body of the response; NULL: a background command */
};

/* Starts the command. 0, or -1: it could not be started. When out->rec is set all the same, a background
 * command is on record as failed. */
int run_start(struct runs *rs, const struct run_req *rq, struct run_started *out, struct err *e);

/* Puts a background command on record whose program was not even found. NULL: out of memory. */
struct record *run_failed(struct runs *rs, const char *content, const struct err *why);

/* Someone who wants to know when the run's processes are gone; embedded. */
struct run_waiter {
    void (*on_gone)(struct run_waiter *w);
    struct run_waiter *next;
};

/* TERM to the group, KILL after the grace period; w->on_gone follows (w may be NULL). A run whose
 * leader has ended already cannot be interrupted: -1. */
int run_interrupt(struct run *r, struct run_waiter *w, struct err *e);
/* KILL to the group at once. */
void run_kill(struct run *r);
