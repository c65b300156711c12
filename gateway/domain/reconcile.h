/* The sweep: compares records with what the runtime has, at start, again until the engine
 * answers, and then periodically or when it is kicked: one call that lists all, then calls about
 * those that differ only, side by side. Sees to overdue sandboxes on its own, whatever became of
 * the thread that should have (expiry.h). Finishes or undoes half-made changes of the own instance; what
 * carries our label but has no record is frozen and reported, and removed only after a while
 * (design decision 5). */
#pragma once
#include <stdint.h>

struct err;
struct lifecycle;
struct reconcile;

struct reconcile_config {
    int64_t interval_ms;
    int64_t quarantine_ms; /* how long a container without a record is kept frozen */
    int64_t ended_keep_ms; /* how long ends are remembered */
};

struct reconcile *reconcile_new(struct lifecycle *lc, const struct reconcile_config *cfg,
                                struct err *e);
int reconcile_start(struct reconcile *r, struct err *e);
void reconcile_kick(struct reconcile *r); /* sweep now; any thread */
void reconcile_free(struct reconcile *r); /* takes NULL */

/* One sweep, by the calling thread; what the background thread does. Without reconcile_start it does
 * all of it itself. */
int reconcile_once(struct reconcile *r, struct err *e);
