/* Isolated sessions (contract/execd.md 13, newest.md 3.3): a shell in a cage, with what it needs and what it
 * runs. Foreground runs queue; background runs are jobs of the same shell. A session whose shell ended is
 * dead: it can be looked at until it is deleted. For the loop's thread, but for isolated_view. */
#pragma once
#include "execd/fs/accounts.h"
#include "execd/isolated/background.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct embedded;
struct err;
struct http_stream;
struct isolated;
struct isolated_session;
struct jobs;
struct loop;
struct plan;
struct runs;

enum {
    ISOLATED_MAX = 64,                /* sessions */
    ISOLATED_QUEUE_MAX = 64,          /* runs of one that wait */
    ISOLATED_TIMEOUT_MAX = 24 * 3600, /* seconds */
};

struct isolated_home {
    struct loop *loop;
    struct jobs *jobs;
    struct runs *runs;
    struct embedded *kernels;
};

/* home is copied, what it names outlives the set. NULL: err set. */
struct isolated *isolated_new(const struct isolated_home *home, struct err *e);
/* Ends all sessions without waiting, and removes their files. Jobs have ended. Takes NULL. */
void isolated_free(struct isolated *is);

/* e NULL: it is done. */
typedef void (*isolated_fn)(void *arg, const struct err *e);

struct isolated_req {
    struct plan *plan;    /* its content is taken over, also after a failure */
    json_t *echo;         /* the create fields as a client gets them back; a reference is taken */
    int64_t idle_s;       /* 0: lives until it is deleted */
    isolated_fn on_ready; /* once, later; with an error there is no session any more */
    void *arg;
};

/* NULL: ERRC_BUSY (ISOLATED_MAX, or no place for its files), or memory is out; on_ready does not come. */
struct isolated_session *isolated_add(struct isolated *is, const struct isolated_req *rq,
                                      struct err *e);
struct isolated_session *isolated_find(const struct isolated *is, const char *id);
/* All that are ready, oldest first: begin with NULL. */
struct isolated_session *isolated_next(const struct isolated *is, const struct isolated_session *s);

struct isolated_info {
    const char *id; /* UUID */
    bool dead;
    int64_t created_ms; /* wall */
    int64_t last_run_ms;
    int64_t idle_left_s; /* -1: no timeout, or nothing counts down now */
    json_t *echo;        /* borrowed */
};

void isolated_look(const struct isolated_session *s, struct isolated_info *out);
/* Not found from here on; fn when its processes are gone and its files removed. */
void isolated_delete(struct isolated_session *s, isolated_fn fn, void *arg);

struct isolated_run {
    const char *code;
    const char *const *envs; /* n_envs pairs */
    size_t n_envs;
    int64_t timeout_s; /* 0: none */
};

/* *stream is the body of the response. -1: ERRC_INVALID, ERRC_BUSY (ISOLATED_QUEUE_MAX), memory. */
int isolated_run(struct isolated_session *s, const struct isolated_run *rq,
                 struct http_stream **stream, struct err *e);
/* NULL: ERRC_INVALID (the session's first mount keeps nothing, it is dead), ERRC_BUSY. */
const struct background *isolated_start(struct isolated_session *s, const struct isolated_run *rq,
                                        struct err *e);
const struct background *isolated_background(const struct isolated_session *s, const char *id);

/* How a thread sees a session's files. */
struct isolated_view {
    int ns;      /* its mount namespace; the caller's to close */
    bool has_id; /* it works as: */
    struct identity id;
};

/* Any thread. -1: ERRC_NOT_FOUND with the contract's code. */
int isolated_view(struct isolated *is, const char *id, struct isolated_view *out, struct err *e);
