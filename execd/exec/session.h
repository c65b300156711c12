/* Shell sessions (contract/execd.md 7): a record of variables and a working directory. Each run is a fresh
 * shell that starts from it; what the run changed goes into it at the end, so runs at the same time do not
 * undo each other's changes. Sessions never expire: too many are refused. For the loop's thread. */
#pragma once
#include <stdint.h>

struct env;
struct err;
struct http_stream;
struct runs;
struct session;
struct sessions;

enum {
    SESSIONS_MAX = 256,
    SESSION_TIMEOUT_MS = 24 * 3600 * 1000, /* of a run that names none */
};

struct session_req {
    const char *command;
    const char *cwd;    /* NULL: where the last run left it; relative: to that */
    int64_t timeout_ms; /* 0: SESSION_TIMEOUT_MS */
};

/* self: the agent's binary, which the shell can start. NULL: out of memory. runs outlive it. */
struct sessions *sessions_new(struct runs *runs, struct err *e);
void sessions_free(struct sessions *ss); /* after runs_free; takes NULL */

/* base: what every child starts from; its env file is read now. cwd: made when it is missing; NULL: the
 * agent's. NULL: ERRC_INVALID, ERRC_BUSY (SESSIONS_MAX), ERRC_SYS. */
struct session *sessions_add(struct sessions *ss, const struct env *base, const char *cwd,
                             struct err *e);
struct session *sessions_find(const struct sessions *ss, const char *id);
const char *session_id(const struct session *s); /* UUID with dashes */
/* Starts a shell; *stream is the response's body. ERRC_INVALID: the request is wrong; any other: no shell
 * could be started. */
int session_run(struct session *s, const struct session_req *rq, struct http_stream **stream,
                struct err *e);
/* Its runs are killed with their groups, and it is forgotten. */
void session_delete(struct session *s);
