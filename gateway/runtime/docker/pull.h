/* Image pulls, each in a thread and with a time budget of its own: a pull goes on when nobody waits
 * for it. Whoever wants the same image, for the same platform with the same credentials, shares
 * one. Safe from any thread. */
#pragma once
#include "gateway/runtime/runtime.h"

struct buf;
struct engine;
struct pulls;

enum {
    PULLS_MAX = 16, /* running at once; a registry or a disk serves more only slower */
    /* How long a failure that nobody has heard of yet is kept for those who were waiting: they ask
     * again and again, and it may happen in between. Whoever comes later starts a new pull. */
    PULL_KEPT_MS = 3000,
};

/* The engine must outlive it. NULL: out of memory. */
struct pulls *pulls_new(struct engine *en, int timeout_ms);
/* Breaks off what still runs. No call may run any more; takes NULL. */
void pulls_free(struct pulls *ps);

/* The pull verb of runtime.h. */
int pulls_get(struct pulls *ps, const struct runtime_image *image, int wait_ms,
              char progress[RUNTIME_TEXT], struct err *e);
unsigned pulls_running(struct pulls *ps);
