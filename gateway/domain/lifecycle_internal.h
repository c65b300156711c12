/* Shared by the files of the state machine: lifecycle.c (reading, the store and the places in step),
 * create.c, removal.c, change.c, settle.c. */
#pragma once
#include "gateway/domain/lifecycle.h"

#define LIFECYCLE_NOT_FOUND "DOCKER::SANDBOX_NOT_FOUND"
#define LIFECYCLE_VANISHED "CONTAINER_REMOVED" /* reason of an end that was none of our doing */
#define LIFECYCLE_NEWS_OOM "oom" /* type of a runtime event (watch.c): out of memory */

/* -1 with LIFECYCLE_NOT_FOUND, saying when and why it ended where that is known. */
int lifecycle_not_found(struct lifecycle *lc, const char *id, struct err *e);

/* Takes the id's lock for a change that must not happen while the sandbox's files are captured; waits
 * for the end of a capture up to wait_ms of real time, without the lock. NULL with ERRC_BUSY, or
 * when memory is out. */
struct keyed_lock *lifecycle_take(struct lifecycle *lc, const char *id, int wait_ms, struct err *e);
/* Does not wait: NULL when somebody is changing it or its files are captured. */
struct keyed_lock *lifecycle_try(struct lifecycle *lc, const char *id);

/* Tells the places and the expiry. Out of memory leaves the place unknown: requests to it fail,
 * nothing else. */
void lifecycle_show(struct lifecycle *lc, const struct sandbox *sb);
/* The record leaves state `from`: store, then places. */
int lifecycle_transition(struct lifecycle *lc, const struct sandbox *sb, enum sandbox_state from,
                         struct err *e);
/* The sandbox is gone: its record becomes the record of its end. */
int lifecycle_bury(struct lifecycle *lc, const char *id, const struct sandbox_end *end,
                   struct err *e);

/* Pause and resume: the same steps with other words. */
struct freeze {
    enum sandbox_state from;
    enum sandbox_state to;
    int (*act)(struct runtime *rt, const char *id, struct err *e);
    const char *wrong_state;
    const char *failed;
    const char *reason;
    const char *message;
};
extern const struct freeze lifecycle_pausing;
extern const struct freeze lifecycle_resuming;

/* The words of an end that the runtime reports: state, reason, message, exit code and time. */
void lifecycle_own_end(struct lifecycle *lc, const struct runtime_status *st, struct sandbox *sb);
/* Begins the record of the end of sb, which says `reason` and `message`, and what ended it before,
 * if something did. */
void lifecycle_begin_end(struct lifecycle *lc, const struct sandbox *sb, const char *reason,
                         const char *message, struct sandbox_end *end);

/* Steps 2 and 3 of a removal whose intent (SANDBOX_STOPPING) is in the store. Caller holds the id's
 * lock. */
int lifecycle_finish_removal(struct lifecycle *lc, const struct sandbox *sb, struct err *e);
