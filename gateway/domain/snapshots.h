/* The state machine of snapshots over store and runtime (contract/lifecycle.md 6). Knows no HTTP,
 * no SQL, no engine.
 *
 * The row is the intent: it is written before the image is made and goes after the image, so there
 * is no image of ours without a row, whatever dies in between. Captures run in threads of their
 * own, a bounded number of them waiting or running; a background pass, at start and whenever
 * something was left undone, finishes what an earlier process or a failure of the engine cut off.
 * While a sandbox is captured it is marked in lc->captures: its pause, resume and delete wait, its
 * expiry comes right after.
 * All functions block and are safe from any thread. Errors carry the contract's codes (1.6). */
#pragma once
#include "gateway/snapshot.h"

#include <stdbool.h>

struct err;
struct lifecycle;
struct snapshots;

enum { SNAPSHOTS_WAITING_MAX = 64 }; /* captures that wait or run; one more is ERRC_BUSY */

struct snapshots_config {
    unsigned workers;    /* captures at a time */
    int timeout_ms;      /* for one capture */
    int64_t max;         /* snapshots kept, in whatever state; one more is ERRC_LIMIT */
    bool allow_paused;   /* also of a paused sandbox */
    const char *refusal; /* why this runtime cannot capture files; NULL: it can. Static */
};

/* lc has captures. Before anything else looks at sandboxes: those whose capture was cut off are marked.
 * NULL: err set. */
struct snapshots *snapshots_new(struct lifecycle *lc, const struct snapshots_config *cfg,
                                struct err *e);
/* Starts the background pass. */
int snapshots_start(struct snapshots *s, struct err *e);
/* Waits for captures that run; what only waits is left to the next start. Takes NULL. */
void snapshots_free(struct snapshots *s);

/* Accepts: the row is on disk, the capture follows. name NULL: none. SNAPSHOT::INVALID_SOURCE_STATE,
 * SNAPSHOT::UNSUPPORTED_RUNTIME, SNAPSHOT::NOT_IMPLEMENTED, ERRC_BUSY, ERRC_LIMIT, or as
 * lifecycle_get. */
int snapshots_create(struct snapshots *s, const char *sandbox_id, const char *name,
                     struct snapshot *out, struct err *e);
/* SNAPSHOT::NOT_FOUND. */
int snapshots_get(struct snapshots *s, const char *id, struct snapshot *out, struct err *e);
int snapshots_list(struct snapshots *s, const struct snapshot_query *q, struct snapshot_page *out,
                   struct err *e);
/* 0: image and row are gone. SNAPSHOT::INVALID_STATE while it is being created;
 * SNAPSHOT::DELETE_CONFLICT while sandboxes that exist were made from it, or another container uses
 * the image: it stays what it was. Another failure of the engine leaves it Deleting, to be retried
 * in the background. */
int snapshots_delete(struct snapshots *s, const char *id, struct err *e);

/* One pass, by the calling thread; what the background thread does. The number of snapshots that
 * are left unfinished and are not under way; -1 when the store failed. */
int snapshots_pass(struct snapshots *s, struct err *e);
/* Waits until no capture waits or runs, up to ms of real time. */
bool snapshots_wait_idle(struct snapshots *s, int ms);

/* ---- for create.c ---- */

/* May a sandbox for this platform (NULL: any) be made from it now? The insert of its record checks
 * the state once more, in one transaction. SNAPSHOT::NOT_FOUND, SNAPSHOT::NOT_READY,
 * SNAPSHOT::INVALID_RESTORE_CONFIG. */
int snapshots_check_restore(struct lifecycle *lc, const char *id, const char *platform_os,
                            const char *platform_arch, struct err *e);
/* A restore failed: when the image is gone the snapshot is Failed from now on. */
void snapshots_restore_failed(struct lifecycle *lc, const char *id);
