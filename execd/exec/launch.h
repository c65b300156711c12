/* From what a client asks for to what can be started: environment, working directory, identity,
 * program (contract/execd.md 6.1). Reads the env file and the account files; starts nothing. */
#pragma once
#include "common/proc/spawn.h"
#include "execd/fs/accounts.h"
#include "execd/fs/env.h"

#include <stdbool.h>
#include <stdint.h>

struct err;

#define LAUNCH_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

struct launch_req {
    const char *command;     /* for a shell; NULL when argv is given */
    const char *const *argv; /* n_argv strings */
    size_t n_argv;
    const char *cwd; /* NULL: the agent's */
    bool has_uid;
    bool has_gid;
    uid_t uid;
    gid_t gid;
    const char *const *envs; /* n_envs pairs of name and value */
    size_t n_envs;
};

struct launch {
    struct env env;
    struct identity id;
    char *cwd;
    char *path;
    const char **argv; /* NULL-terminated; its strings belong to the request or to path */
    bool set_ids;
};

#define AUTO_LAUNCH __attribute__((cleanup(launch_free)))

/* The environment, working directory and identity. base: what every command starts from.
 * -1: the request is wrong (ERRC_INVALID), or memory is out. */
int launch_prepare(struct launch *out, const struct launch_req *rq, const struct env *base,
                   struct err *e);
/* The program, after launch_prepare. -1: there is none (no shell, not in PATH). */
int launch_find(struct launch *out, const struct launch_req *rq, const struct env *base,
                struct err *e);
/* Takes dir, as it is, for the working directory. -1: ERRC_INVALID, it cannot be one. */
int launch_enter(struct launch *out, const char *dir, struct err *e);
/* Only the shell's path: bash, else sh. */
int launch_shell(struct launch *out, const struct env *base, struct err *e);
/* What spawn needs; valid as long as *l and the request are. */
struct spawn_req launch_spawn(const struct launch *l);
/* Adds to a failed spawn's error what may be the cause. */
void launch_explain(const struct launch *l, struct err *e);
void launch_free(struct launch *l);
