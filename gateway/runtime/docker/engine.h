/* Client of the Docker Engine API on a unix socket. Knows HTTP, the API's version and its error
 * text; knows no operation of the API. Connections are kept alive and shared; safe from any
 * thread. Every call has a deadline, every reply a bound; a stream has none, but can be broken off
 * from any thread. */
#pragma once
#include "common/base/buf.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct engine;
struct err;

enum {
    ENGINE_REPLY_MAX = 16 << 20, /* bytes of a reply unless the call says otherwise */
    ENGINE_API_MIN = 41,         /* 1.41, Docker 20.10 */
    ENGINE_API_MAX = 51,         /* the newest this client was written against */
};

struct engine_call {
    const char *method;
    const char *path;   /* with query, without version: "/containers/json?all=1" */
    const json_t *json; /* body; or: */
    const void *body;   /* borrowed */
    size_t body_len;
    const char *content_type;  /* of body */
    const char *registry_auth; /* value of X-Registry-Auth; NULL: none */
    int timeout_ms;            /* of the whole call; 0: the client's */
    size_t reply_max;          /* 0: ENGINE_REPLY_MAX */
    /* gets the body of a 2xx reply piece by piece instead of reply.body; non-zero aborts */
    int (*sink)(void *arg, const char *data, size_t len);
    void *sink_arg;
    /* A stream: timeout_ms counts until the head of the reply, then it may last for ever. */
    bool endless;
    int silence_ms;            /* of a stream: longest time without a byte; 0: any */
    void (*opened)(void *arg); /* of a stream: the head of a 2xx reply is here; gets sink_arg */
    bool once; /* never sent a second time by itself, as calls are whose kept connection breaks */
    const int *stop_fd; /* breaks the call off at once when it is readable; NULL: nothing does */
};

struct engine_reply {
    int status;
    struct buf body;
};

#define AUTO_REPLY __attribute__((cleanup(engine_reply_free)))

/* The engine need not run yet. NULL: out of memory. */
struct engine *engine_new(const char *socket, int timeout_ms);
void engine_free(struct engine *en); /* takes NULL */

/* 0: the engine answered, with whatever status; the caller frees *r, which must be empty before.
 * -1: it did not: ERRC_BUSY with DOCKER::INITIALIZATION_ERROR when it cannot be reached or the
 * connection broke (the call may have been carried out), ERRC_TIMEOUT at the deadline or after the
 * silence, ERRC_BUSY when stop_fd broke it off, ERRC_BAD_GATEWAY when the reply is too large,
 * ERRC_UNSUPPORTED when the engine is too old. */
int engine_send(struct engine *en, const struct engine_call *c, struct engine_reply *r,
                struct err *e);
void engine_reply_free(struct engine_reply *r);

/* How often a call failed or found a new connection necessary: while it stays the same, the engine
 * is the one that it was. */
unsigned engine_breaks(struct engine *en);

/* Minor of the API version that is spoken, 0 before the first call. */
int engine_version(struct engine *en);
/* Appends the counters of calls.h. */
void engine_metrics(struct engine *en, struct buf *out);

/* Sets e from a reply that means failure: the engine's own text behind `what`; 400 becomes
 * ERRC_INVALID, 404 ERRC_NOT_FOUND, 409 ERRC_CONFLICT, else ERRC_INTERNAL. Returns -1. */
int engine_refused(const struct engine_reply *r, const char *what, struct err *e);
/* The {"message"} of a reply, or what its body begins with; never NULL, "" when empty. */
const char *engine_text(const struct engine_reply *r, char *out, size_t size);

/* engine_send, and any status but 2xx and 304 is a failure; `what` names the operation in the
 * error. *out (may be NULL) is the parsed body, which the caller owns. */
int engine_do(struct engine *en, const struct engine_call *c, const char *what, json_t **out,
              struct err *e);

/* Appends "?key=value" or "&key=value", percent-encoded. */
int engine_query(struct buf *path, const char *key, const char *value);
/* Appends text percent-encoded: one segment of a path, whatever is in it. */
int engine_segment(struct buf *path, const char *text);
