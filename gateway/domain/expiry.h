/* Removes sandboxes when their time has come. One thread watches a heap of all expiry times, which
 * follows the store (lifecycle_load_places at start, then every change); what is due goes to a crew
 * of its own, so that nobody waits for a removal that hangs. The time is read again from the store
 * before anything is done: a time in the heap that is too early costs a look, one that is missing or
 * too late is made good by the sweep (reconcile.h). What could not be removed is tried again, at
 * last every 30 s. Any thread. */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct err;
struct expiry;
struct lifecycle;

/* NULL: err set. Starts no watching yet, so that lifecycle can be told about it first. */
struct expiry *expiry_new(struct lifecycle *lc, struct err *e);
int expiry_start(struct expiry *x, struct err *e);

/* The time of id as the store had it a moment ago. An earlier time that is known stays: two who tell
 * at once may come in either order. */
void expiry_hint(struct expiry *x, const char *id, int64_t at_ms);
void expiry_drop(struct expiry *x, const char *id); /* it is gone */
size_t expiry_len(struct expiry *x);                /* how many times are known */
/* Its time has come, or its removal was begun and has to be finished: hands it to the crew. */
void expiry_remove(struct expiry *x, const char *id);
/* Looks at the time again, now. */
void expiry_kick(struct expiry *x);
/* The engine answers again: what waits to be tried again is tried now. */
void expiry_hurry(struct expiry *x);
void expiry_free(struct expiry *x); /* waits for what is being removed; takes NULL */
