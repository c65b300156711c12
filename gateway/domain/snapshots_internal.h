/* Shared by the files of the snapshots' state machine: snapshots.c (what clients ask for),
 * snapshot_work.c (threads: captures and the pass). */
#pragma once
#include "gateway/domain/snapshots.h"
#include "gateway/domain/worker.h"

#include <jansson.h>

struct jobs;

struct snapshots {
    struct lifecycle *lc;
    struct snapshots_config cfg;
    struct jobs *jobs;
    struct worker worker;
    json_t
        *marked; /* source id → true: an earlier process began its capture; of new and the pass */
    int64_t started_mono_ms;
    bool failing;          /* of the pass: a failure is logged once; the pass's thread alone */
    pthread_mutex_t guard; /* guards the two below */
    pthread_cond_t changed;
    json_t *under_way; /* id → true: waits for a thread of jobs or is being captured */
    bool stopping;
};

/* Takes one of SNAPSHOTS_WAITING_MAX places for id. ERRC_BUSY when there is none, ERRC_CONFLICT when
 * id has one. */
int snapshots_reserve(struct snapshots *s, const char *id, struct err *e);
void snapshots_release(struct snapshots *s, const char *id);
/* Hands id, which has a place, to a thread. Never fails: what cannot be handed over is left to the
 * pass. again: an earlier capture of it was cut off. */
void snapshots_post(struct snapshots *s, const char *id, bool again);

/* What the pass does with a row in SNAPSHOT_DELETING. */
int snapshots_finish_delete(struct snapshots *s, const char *id, struct err *e);
