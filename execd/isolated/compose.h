/* The shell code of a run of an isolated session: what the client sent, with its variables, as text for the
 * session's own shell. Works in bash and in any other sh. Pure. */
#pragma once
#include <stddef.h>

struct err;

struct compose_req {
    const char *code;
    const char *const *envs; /* n_envs pairs of name and value */
    size_t n_envs;
    const char *log; /* background: where its output goes, and its exit status; no quotes in them */
    const char *exit; /* NULL: foreground */
};

enum { COMPOSE_MAX = 8 << 20 };

/* With variables, and in the background, the code runs in a subshell. A fresh string the caller frees;
 * NULL: ERRC_INVALID (a name that no shell takes, or too long), or memory is out. */
char *compose(const struct compose_req *rq, struct err *e);
