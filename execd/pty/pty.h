/* PTY sessions: a shell that outlives its clients, what it wrote last, one client that holds it and others that
 * look on (contract/execd.md 9, newest.md 1.2). Knows WebSockets; nothing of requests. For the loop's thread.
 *
 * The holder gets each output as it is read; the shell waits while the holder's queue is full. Viewers get theirs
 * from the ring at their own pace; one that falls more than the ring behind goes on at its start, which the offset
 * in the frame shows. */
#pragma once
#include "common/base/rand.h"
#include "execd/exec/launch.h"

#include <stdbool.h>
#include <stdint.h>

struct err;
struct http_upgrade_ops;
struct loop;
struct pty;
struct pty_client;
struct ptys;
struct signals;

enum {
    PTYS_MAX = 64,         /* sessions; each keeps up to 1 MiB of output */
    PTY_VIEWERS_MAX = 64,  /* of one session */
    PTY_REFUSED_MAX = 5,   /* frames of a viewer that it may not send; then it is closed */
    PTY_EVICT_MS = 200,    /* for the Close of one that is taken over */
    PTY_CODE_TAKEN = 4001, /* close code of it */
};

struct ptys *ptys_new(struct loop *l, struct signals *sg, const struct env *base, struct err *e);
/* Closes all clients and hangs up the terminals: nothing new may be begun. */
void ptys_stop(struct ptys *set);
/* Cuts all connections: before the HTTP server is freed, which may still lose some that are being made. */
void ptys_cut(struct ptys *set);
/* Forgets everything without touching the processes; after the HTTP server is freed. */
void ptys_free(struct ptys *set);

struct pty_req {
    const char *command; /* NULL: an interactive shell */
    /* cwd, identity, environment. All strings are copied. */
    struct launch_req launch;
};

/* Makes a session without a process; cwd is created when it is missing. NULL: err set. */
struct pty *pty_new(struct ptys *set, const struct pty_req *rq, struct err *e);
struct pty *pty_find(struct ptys *set, const char *id); /* NULL: there is none */
struct pty *pty_next(struct ptys *set,
                     const struct pty *p); /* p NULL: the first one, newest first */
/* Kills what runs and forgets the session; its clients get the exit frame. p is no longer valid. */
void pty_delete(struct pty *p);

struct pty_state {
    char id[RAND_UUID_TEXT];
    bool running;
    uint64_t output_offset; /* bytes ever produced */
    bool launch_attempted;
    bool launch_failed; /* the last time */
    bool held;
    unsigned viewers;
};
void pty_state(const struct pty *p, struct pty_state *out);

/* How a client wants to be let in. */
struct pty_entry {
    bool viewer;
    bool pipe; /* when it starts the shell */
    bool takeover;
    uint64_t since; /* output it has seen already */
};

/* The upgrade_owner of a handshake's answer, to be used with pty_upgrade_ops, whose on_open or on_lost must follow.
 * NULL: err set (ERRC_CONFLICT: held, or nothing to look at). */
struct pty_client *pty_enter(struct pty *p, const struct pty_entry *how, struct err *e);
extern const struct http_upgrade_ops pty_upgrade_ops;
