/* Execution contexts (contract/execd.md 8.1): a kernel each, code runs one after another, what waits is
 * bounded and goes in order. One context per language is the default, made when it is first used.
 *
 * A kernel that dies is told once, as an error event "KernelDied": in the streams of what ran and waited,
 * else in that of the next run. The context stays; the run after that starts a new kernel, without the
 * variables. Knows nothing of requests. For the loop's thread. */
#pragma once
#include "execd/code/kernel.h"

struct context;
struct contexts;
struct http_stream;
struct loop;
struct runs;

enum {
    CONTEXTS_MAX = 64,
    CONTEXT_QUEUE_MAX = 32,         /* executions that wait for one context */
    CONTEXTS_QUEUED_MAX = 16 << 20, /* bytes of code that wait, in all */
};

struct contexts_req {
    struct loop *loop;
    struct runs *runs; /* makes the feeds */
    const struct kernel_ops *ops;
    void *provider;
};

/* NULL: out of memory. */
struct contexts *contexts_new(const struct contexts_req *rq, struct err *e);
/* Destroys the kernels; streams are cut, waiters are told. Before runs and provider are freed. */
void contexts_free(struct contexts *cs);

/* Someone who waits for a context to start; embedded. */
struct context_waiter {
    void (*on_done)(struct context_waiter *w, struct context *c, const struct err *e);
    struct context_waiter *next;
};

/* A context of its own; w->on_done follows, never from inside this call. cwd: absolute, exists; NULL:
 * the agent's. -1: there is none, err says why (ERRC_INVALID: no such language, ERRC_LIMIT). */
int contexts_create(struct contexts *cs, const char *language, const char *cwd,
                    struct context_waiter *w, struct err *e);
/* The default one. 1: *out is it; 0: it starts, w->on_done follows; -1: as contexts_create. */
int contexts_default(struct contexts *cs, const char *language, struct context_waiter *w,
                     struct context **out, struct err *e);
struct context *contexts_find(const struct contexts *cs, const char *id);
/* The oldest one that has started (after NULL), then the next; NULL: no more. */
struct context *contexts_next(const struct contexts *cs, const struct context *after);

const char *context_id(const struct context *c);
const char *context_language(const struct context *c);
const char *context_cwd(const struct context *c); /* NULL: the agent's */

/* Runs code, or puts it behind what runs. *stream is the body of the response. A client that leaves
 * does not stop what runs; what still waits is dropped with it. -1: ERRC_BUSY, out of memory. */
int context_run(struct context *c, const char *code, struct http_stream **stream, struct err *e);
/* What runs now, or is the first to wait for the kernel's start; nothing happens when there is none. */
int context_interrupt(struct context *c, struct err *e);
/* Ends its kernel. Its streams end with the error "ContextDeleted". */
void context_delete(struct context *c);
/* All of a language, starting ones and the default one as well. */
void contexts_delete_language(struct contexts *cs, const char *language);
