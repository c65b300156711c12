/* What one run of a session leaves to the next: exported variables and working directory. The agent's own
 * binary, called by the shell at its end (session.c), writes them into a file in memory that the shell
 * inherited; the agent reads it once the shell is gone. Nothing of it touches a disk or the output. */
#pragma once
#include "execd/fs/env.h"

#include <stdbool.h>

struct err;

enum {
    SESSION_STATE_MAX = 1 << 20, /* bytes of directory and variables */
    SESSION_STATE_HEAD = 8,
    SESSION_NAME_MAX = 256,
};

#define SESSION_STATE_VERB "session-state"

struct session_state {
    struct env
        env;   /* names [A-Za-z_][A-Za-z0-9_]* without the shell's own (contract/execd.md 7.2) */
    char *cwd; /* absolute; NULL: it could not be told */
};

/* A variable that is kept: "NAME=VALUE" with such a name. */
bool session_state_lasting(const char *assignment);
/* A file of that size for one run, close-on-exec, above the numbers that scripts use. -1: err set. */
int session_state_open(struct err *e);
/* 0, or -1: nothing complete is in it, out is empty. Foreign bytes: anyone in the sandbox may write there. */
int session_state_read(int fd, struct session_state *out, struct err *e);
/* The bytes of a file: len is all there is. */
int session_state_parse(const char *data, size_t len, struct session_state *out, struct err *e);
void session_state_free(struct session_state *st);
/* The verb: this process's environment and directory into the descriptor that arg names. Its exit status;
 * what cannot be kept is said on stdout, the session's only output. */
int session_state_write(const char *arg, char *const *env);
