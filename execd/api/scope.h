/* On whose behalf a file route works: the agent's, below /v1/filesystem/{uid}/{gid} that of an
 * account (contract/execd.md 10.5), below /v1/isolated/session/{id} that of a session, with the files
 * that it sees. Every such route has all forms and one handler. Used in the job pool; entering changes
 * the calling thread, so enter and leave go together in one job. */
#pragma once
#include "execd/fs/env.h"
#include "execd/fs/path.h"
#include "execd/fs/persona.h"
#include "execd/fs/watch.h"
#include "execd/isolated/visit.h"

#include <jansson.h>

#define SCOPE_PREFIX "/v1/filesystem/{uid}/{gid}"
#define SCOPE_SESSION "/v1/isolated/session/{id}"

struct app;
struct err;
struct http_req;
struct http_resp;
struct identity;

struct scope {
    struct path_from from;
    const char *tmpdir; /* may be NULL */
    mode_t umask;
    struct identity *id; /* NULL: the agent's own */
    struct env vars;     /* of the account: its home */
    struct persona old;
    int ns; /* the session's mount namespace; 0: the agent's own */
    struct visit visit;
    struct watch watch; /* over when the client has left */
};

/* -1: the ids are none (400), the account files cannot be read, there is no such session (404, 503). */
int scope_open(struct scope *s, struct app *app, struct http_req *rq, struct err *e);
void scope_close(struct scope *s);
int scope_enter(struct scope *s, struct err *e);
/* rc is handed through; when it is an error, e is made to say that rights are missing. */
int scope_leave(struct scope *s, int rc, struct err *e);

typedef int (*scope_fn)(struct scope *s, struct http_req *rq, struct http_resp *rs, struct err *e);
/* fn within the request's scope: what a handler does. */
int scope_run(void *app, scope_fn fn, struct http_req *rq, struct http_resp *rs, struct err *e);

/* The path that a route needs, resolved: a fresh string. Missing: 400 MISSING_QUERY. */
int scope_path(const struct scope *s, struct http_req *rq, char **out, struct err *e);
/* Runs fn on each "path" of the query, resolved, until one fails. */
int scope_each_path(const struct scope *s, struct http_req *rq,
                    int (*fn)(const char *path, struct err *e), struct err *e);
/* A body that is an object of paths; null is an empty one. NULL: err set. The caller owns it. */
json_t *scope_path_map(const struct http_req *rq, struct err *e);
