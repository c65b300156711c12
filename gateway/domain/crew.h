/* Threads that work on sandboxes by their ids: an id is in the hands of one thread at a time, one
 * that is wanted again meanwhile is looked at once more, and what could not be done comes again
 * after a while. A thread that hangs holds up its own id only, as long as not all of them hang:
 * there is always one that waits for work until the maximum is reached. Safe from any thread. */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct crew;
struct err;

enum { CREW_DONE = -1 };

/* Works on id; tries counts how often it came back since it was wanted. Returns CREW_DONE, or after
 * how many milliseconds to come again. */
typedef int64_t (*crew_fn)(void *arg, const char *id, unsigned tries);

/* ids_max: that are wanted at one time. NULL: err set. */
struct crew *crew_new(unsigned threads_max, size_t ids_max, crew_fn fn, void *arg, struct err *e);
/* In delay_ms, or when it is due already if it waits. -1: ERRC_BUSY when there are too many. */
int crew_want(struct crew *c, const char *id, int64_t delay_ms, struct err *e);
/* What waits to come again does so now. */
void crew_hurry(struct crew *c);
/* Begins nothing more, waits for what runs, frees; takes NULL. */
void crew_free(struct crew *c);
