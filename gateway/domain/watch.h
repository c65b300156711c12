/* The runtime's news: each is recorded as an event of its sandbox, and the record is settled when
 * the news does not fit it. Works in a crew of its own, so that the runtime's thread never waits;
 * news of one sandbox are taken together and in order. What does not fit into the queue is made good
 * by a sweep. A runtime without news is served by the sweep alone. */
#pragma once

struct err;
struct lifecycle;
struct reconcile;
struct watch;

/* r: swept when news may have been missed; NULL in tests without one. NULL: err set. */
struct watch *watch_new(struct lifecycle *lc, struct reconcile *r, struct err *e);
int watch_start(struct watch *w, struct err *e);
/* Waits for what is being settled. Before reconcile_free and expiry_free; takes NULL. */
void watch_free(struct watch *w);
