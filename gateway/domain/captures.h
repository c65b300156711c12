/* Which sandboxes are having their files captured right now. A capture takes as long as the engine
 * needs, so it does not hold the sandbox's keyed lock: it is marked here instead. The mark is set
 * under that lock, so whoever holds the lock and sees no mark has the sandbox for himself.
 * What would disturb a capture (pause, resume, delete, expiry, the sweep) looks here; renewals and
 * metadata do not care. Safe from any thread. */
#pragma once
#include <stdbool.h>

struct captures;

struct captures *captures_new(void);     /* NULL: out of memory */
void captures_free(struct captures *cs); /* takes NULL */

/* Caller holds the id's keyed lock and has seen no mark, or nobody else runs yet. -1: out of memory. */
int captures_begin(struct captures *cs, const char *id);
void captures_end(struct captures *cs, const char *id); /* wakes who waits */
bool captures_has(struct captures *cs, const char *id); /* cs NULL: false */
/* Waits for the end, up to ms of real time; false when it is still going on. Never under a keyed
 * lock. */
bool captures_wait(struct captures *cs, const char *id, int ms);
