/* Runs a sandbox's hooks (contract/newest.md 3.5): preStart before the entrypoint, periodic ones by
 * their schedules from then on. For the loop's thread.
 *
 * Output: preStart's goes through the agent to the log, its end is kept for the error; a program
 * that preStart leaves behind may go on writing. Periodic hooks have the log's own descriptors.
 * Time: `@every` follows the monotonic clock, cron fields the wall clock. What was due while the
 * sandbox was frozen, or was jumped over by the clock, runs once; a clock that is set back by more
 * than a minute starts the reckoning anew. */
#pragma once
#include "execd/exec/lifecycle.h"

struct env;
struct err;
struct hooks;
struct loop;
struct signals;

enum {
    HOOKS_TEXT = 448, /* of a failure, with the end of the output */
    HOOKS_SET_BACK_MS = 60000,
    HOOKS_STATUS_NOT_STARTED = 127,
    HOOKS_STATUS_STOPPED = 143, /* as of a program that TERM ended */
};

/* The end of preStart. */
struct hooks_result {
    int status; /* 0: it did its work; else what the sandbox ends with */
    char text[HOOKS_TEXT];
};

typedef void (*hooks_done)(void *arg, const struct hooks_result *result);

/* base must outlive the hooks. NULL: err set. */
struct hooks *hooks_new(struct loop *l, struct signals *sg, const struct env *base, struct err *e);
/* Takes over *lc, which is empty afterwards. Once, before the two below. */
void hooks_set(struct hooks *hs, struct lifecycle *lc);
/* 0: there is none; 1: it runs, done is called once, from the loop or from hooks_free; -1: it could
 * not be started, err set. */
int hooks_pre_start(struct hooks *hs, hooks_done done, void *arg, struct err *e);
/* From now on periodic hooks run when they are due. */
int hooks_schedule(struct hooks *hs, struct err *e);
/* Nothing new is begun, and what runs is left to who ends all processes. */
void hooks_stop(struct hooks *hs);
void hooks_free(struct hooks *hs);
