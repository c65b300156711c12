/* The cage of an isolated session (contract/execd.md 13): namespaces and mounts of its own around one
 * program. It is a verb of the agent's own binary, so that the agent, which has threads, need not fork.
 * Three processes:
 *
 *   keeper  child of the agent, outside: ends the cage on TERM, and when the agent dies it ends the cage
 *           and removes its directory
 *   init    PID 1 inside: builds the mounts, collects orphans; SIGINT goes on to the program's group
 *   program PID 2, a session of its own, with what is left of rights (floor)
 *
 * Nothing here is the boundary against a root of the container who is outside of the cage. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct err;

#define CAGE_VERB "isolated-cage"

enum {
    CAGE_MOUNTS_MAX = 64,
    CAGE_GROUPS_MAX = 256,
    CAGE_FAILED = 125, /* exit status: it could not be built, the reason is on stderr */
    CAGE_SCRATCH_MIB = 512,
};

enum cage_mode {
    CAGE_RW, /* source as it is, with the rights its mount has */
    CAGE_RO,
    CAGE_OVERLAY, /* source is the lower layer, the upper one lies in the cage's directory */
    CAGE_SCRATCH, /* the same, in memory */
    CAGE_MODE_MAX_,
};

struct cage_mount {
    enum cage_mode mode;
    const char *source; /* absolute, without links; seen from outside */
    const char *dest;   /* absolute; inside */
};

struct cage {
    const char *dir; /* of this cage alone; with directories root and io in it (store.h) */
    const char *cwd; /* inside */
    struct cage_mount mounts[CAGE_MOUNTS_MAX];
    size_t n_mounts; /* in this order: parents first */
    bool private_tmp;
    bool own_net;
    bool userns; /* uid and gid are names for the agent's own */
    uid_t uid;
    gid_t gid;
    gid_t groups[CAGE_GROUPS_MAX];
    size_t n_groups;
    int report;           /* descriptor of a file that gets struct cage_report; 0: none */
    pid_t parent;         /* the agent */
    char *const *program; /* path, then arguments; NULL-terminated */
};

struct cage_report {
    pid_t init; /* as seen by the agent; 0: not yet */
};

/* The argument list of the verb with everything but program: NULL-terminated, one allocation that the
 * caller frees; *n strings. NULL: out of memory. */
char **cage_argv(const struct cage *c, const char *self, size_t *n);
/* The reverse. Strings point into argv. -1: err set. */
int cage_parse(char *const *argv, struct cage *out, struct err *e);
/* The verb: never returns before the cage has ended; its exit status. */
int cage_main(char *const *argv);
