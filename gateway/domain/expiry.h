/* One thread that removes sandboxes when their time has come. The store's index over expiry times
 * is the queue, so nothing is lost in a restart or an engine outage: what could not be removed
 * stays due. */
#pragma once

struct err;
struct expiry;
struct lifecycle;

/* NULL: err set. Starts nothing yet, so that lifecycle can be told about it first. */
struct expiry *expiry_new(struct lifecycle *lc, struct err *e);
int expiry_start(struct expiry *x, struct err *e);
/* An expiry was set that may be earlier than the one waited for. Any thread. */
void expiry_kick(struct expiry *x);
void expiry_free(struct expiry *x); /* waits for what is being removed; takes NULL */
