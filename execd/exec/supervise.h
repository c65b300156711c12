/* The duties of PID 1 (design decision 2, contract/execd.md 12.4): the user's entrypoint, the
 * signals it gets, and the orderly end of everything. For the loop's thread. */
#pragma once
#include "common/proc/spawn.h"

#include <signal.h>

struct err;
struct loop;
struct signals;
struct supervisor;

enum {
    SUPERVISE_TERM_MS = 10000, /* between TERM and KILL */
    SUPERVISE_KILL_MS = 5000,  /* after KILL: a process may hang in the kernel */
};

struct supervise_ops {
    /* Once, before anything is told to end: nothing new may be begun from here on. */
    void (*on_stop)(void *arg);
    /* Once, when nothing runs any more, with the status the agent ends with: the entrypoint's,
     * 128 + signal, the one given to supervisor_end, or 0 when there was none. */
    void (*on_end)(void *arg, int status);
};

struct supervisor *supervisor_new(struct loop *l, struct signals *sg,
                                  const struct supervise_ops *ops, void *arg, struct err *e);
void supervisor_free(struct supervisor *s);
/* Starts the entrypoint. Its end is the end of everything. */
int supervisor_start(struct supervisor *s, const struct spawn_req *rq, struct err *e);
/* Ends everything with this status; the entrypoint must not have been started. */
void supervisor_end(struct supervisor *s, int status);
pid_t supervisor_pid(const struct supervisor *s); /* 0: none runs */
/* HUP, USR1, USR2 and WINCH go to the entrypoint. TERM ends everything, and so do the others that an
 * image may name as its stop signal: INT, QUIT and what init systems take for a halt. */
#define SUPERVISE_HALT (SIGRTMIN + 3)
void supervisor_signal(struct supervisor *s, int sig);
