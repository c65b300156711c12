/* The creates that are under way: who waits for one finds it here, and what outlasts its request
 * gets a thread here. Knows nothing of a sandbox but its id. Safe from any thread; only creates_wait
 * and creates_stop block. */
#pragma once
#include <stdbool.h>

struct creates;
struct creation;
struct err;

enum {
    CREATES_BACKGROUND_MAX = 64, /* creates that pull an image or wait for a hook at one time */
    CREATES_RETRY_S = 5,         /* Retry-After of one too many */
};

/* max_waiting: requests that may wait for a create at one time; each of them holds a thread of the
 * job pool. NULL: out of memory. */
struct creates *creates_new(unsigned max_waiting);
void creates_free(struct creates *cs); /* nothing is under way any more; takes NULL */

/* Registers the create of id. The caller owns the result until creates_end. NULL: out of memory. */
struct creation *creates_begin(struct creates *cs, const char *id);
/* Runs fn(arg), which calls creates_end, in a thread of its own. -1 with ERRC_BUSY when
 * CREATES_BACKGROUND_MAX run already or the server stops; then fn does not run. */
int creates_go_on(struct creates *cs, struct creation *c, void (*fn)(void *arg), void *arg,
                  struct err *e);
/* What creates_go_on would say now. */
int creates_may_go_on(struct creates *cs, struct err *e);
/* It is done: why is NULL when the sandbox is usable. Wakes those who wait, drops the reference. */
void creates_end(struct creates *cs, struct creation *c, const struct err *why);

/* The create of id with a reference of its own; NULL: none is under way. */
struct creation *creates_find(struct creates *cs, const char *id);
bool creates_has(struct creates *cs, const char *id);
struct creation *creates_ref(struct creates *cs, struct creation *c);
void creates_unref(struct creates *cs, struct creation *c);
/* Up to ms, or not at all when max_waiting wait. 1: the sandbox is usable; 0: not done yet; -1: it
 * failed, err says why. */
int creates_wait(struct creates *cs, struct creation *c, int ms, struct err *e);

/* From now on creates_stop may cut this create off. False: the server stops already. */
bool creates_may_take_long(struct creates *cs, struct creation *c);
bool creates_stopping(struct creates *cs);
/* Refuses what wants to go on, calls cut with the id of each that may be cut off, and waits until
 * no thread runs. */
void creates_stop(struct creates *cs, void (*cut)(void *arg, const char *id), void *arg);
