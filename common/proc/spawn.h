/* Starting programs. The child gets exactly the descriptors it is given, a clean signal state, no
 * inheritable capabilities and its own process group. The child is a vfork: only async-signal-safe calls run before exec, and
 * the calling thread stands still until then; other threads go on. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

struct err;

struct spawn_req {
    const char *path;  /* file to execute */
    char *const *argv; /* NULL-terminated */
    char *const *envp; /* NULL-terminated */
    const char *cwd;   /* NULL: the caller's */
    int in;            /* descriptors that become 0, 1, 2; -1: the null device */
    int out;
    int err;
    int keep;         /* one more that the child has under the same number, above 2; 0: none */
    bool inherit;     /* keep the inheritable capabilities, which are otherwise dropped */
    bool new_session; /* setsid instead of setpgid */
    bool tty;         /* in is a terminal: it becomes the session's; needs new_session */
    bool set_ids;     /* switch to uid, gid and groups (skipped when it would change nothing) */
    uid_t uid;
    gid_t gid;
    const gid_t *groups;
    size_t n_groups;
};

/* 0: *pid is the child, leader of its own process group, already past exec.
 * -1: the child could not be set up or exec failed; err holds the errno in e->sys and the step
 * in the message. Blocks until exec (about a millisecond). */
int spawn(const struct spawn_req *rq, pid_t *pid, struct err *e);

/* Finds prog in the absolute entries of path_list (a PATH value) as execvp would.
 * 0: *out is a fresh string the caller frees. -1: ERRC_NOT_FOUND. */
int spawn_which(const char *prog, const char *path_list, char **out, struct err *e);
