/* From a claimed (or classic) agent to a running sandbox: preStart, the scheduler of periodic
 * hooks, the entrypoint, in this order (contract/newest.md 3.5). For the loop's thread. */
#pragma once
#include <stddef.h>

struct app;
struct err;
struct lifecycle;

/* Lives, with argv, until start_run has returned 0 or -1, or until done was called. */
struct start {
    struct app *app;
    const char *const *argv; /* the entrypoint; n 0: none */
    size_t n;
    /* The end of a start that start_run has left open: e is NULL when the sandbox runs, else says
     * why not. The agent's end is under way then. */
    void (*done)(struct start *s, const struct err *e);
};

/* Takes over *lc. The agent is APP_STARTING until this is over, then APP_OPEN.
 * 0: everything runs; 1: preStart runs, done will come; -1: err set, the agent is ending. Whoever
 * asked for the start may go away meanwhile: it goes on, and nobody but a gateway that knows the
 * token (which also removes what it cannot confirm) can use the sandbox. */
int start_run(struct start *s, struct lifecycle *lc, struct err *e);
