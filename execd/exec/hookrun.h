/* One run of a hook: a program in a process group of its own with the environment of a user's
 * command, ended by TERM and then KILL when it takes too long. For the loop's thread. Embedded in
 * its owner, who zeroes it and sets the first three members. */
#pragma once
#include "common/base/loop.h"
#include "common/proc/signals.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct env;
struct err;

enum {
    HOOKRUN_GRACE_MS = 10000, /* between TERM and KILL */
    HOOKRUN_GONE_MS = 5000,   /* after KILL: a process may hang in the kernel */
    HOOKRUN_STATUS_TIMEOUT = 124,
    HOOKRUN_TEXT = 96,
};

struct hookrun_end {
    int status;              /* exit status, 128 + signal, or HOOKRUN_STATUS_TIMEOUT */
    bool stuck;              /* KILL did not end it */
    char text[HOOKRUN_TEXT]; /* "exit status 3" */
};

enum hookrun_phase { HOOKRUN_IDLE, HOOKRUN_UP, HOOKRUN_TERM, HOOKRUN_KILL };

struct hookrun {
    struct loop *loop;
    struct signals *signals;
    /* Once per successful start, from the loop; the run is idle again. */
    void (*on_end)(struct hookrun *r, const struct hookrun_end *end);
    /* private from here on */
    struct child child;
    struct loop_timer timer;
    enum hookrun_phase phase;
    int64_t timeout_ms;
    int64_t grace_ms;
    int status;
    bool exited;
};

struct hookrun_req {
    char *const *argv; /* n_argv strings and a NULL */
    size_t n_argv;
    const struct env *base; /* what every command starts from; the env file is read as well */
    int64_t timeout_ms;
    int64_t grace_ms; /* 0: HOOKRUN_GRACE_MS */
    int out;          /* descriptors of the output, the caller's to close */
    int err;
};

/* -1: nothing runs; err says why. */
int hookrun_start(struct hookrun *r, const struct hookrun_req *rq, struct err *e);
static inline bool hookrun_active(const struct hookrun *r)
{
    return r->phase != HOOKRUN_IDLE;
}
/* Before every wait of the loop: notices that a group which was told to go is gone. 1: on_end was
 * called. */
int hookrun_check(struct hookrun *r);
/* Somebody else ends all processes: no deadline any more. */
void hookrun_leave_to_others(struct hookrun *r);
/* Forgets the run without on_end; its processes go on. */
void hookrun_forget(struct hookrun *r);
