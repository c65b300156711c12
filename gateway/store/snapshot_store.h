/* Snapshot records in SQLite. Knows SQL; knows nothing of HTTP or of the runtime. Safe from any
 * thread; every call blocks (see db.h), every change is on disk when it returns. */
#pragma once
#include "gateway/snapshot.h"

struct db;
struct db_conn;
struct err;

/* ERRC_LIMIT when there are max already, in whatever state. */
int snapshot_store_insert(struct db *db, const struct snapshot *s, int64_t max, struct err *e);
/* ERRC_NOT_FOUND when there is no such row; *out untouched then. */
int snapshot_store_get(struct db *db, const char *id, struct snapshot *out, struct err *e);
/* Newest first; of the same millisecond the one that was made last. */
int snapshot_store_list(struct db *db, const struct snapshot_query *q, struct snapshot_page *out,
                        struct err *e);
/* Writes state, reason, message, transition time and size, but only while the row is in state
 * `from`: ERRC_CONFLICT when it is in another, ERRC_NOT_FOUND when it is gone. */
int snapshot_store_transition(struct db *db, const struct snapshot *s, enum snapshot_state from,
                              struct err *e);
/* Turns the row into s, whose state is SNAPSHOT_DELETING, unless it is being created or a sandbox
 * that exists was made from it; one transaction. *before is the row as it was, *users the number of
 * those sandboxes. 1: written. 0: it may not go. ERRC_NOT_FOUND. */
int snapshot_store_begin_delete(struct db *db, const struct snapshot *s, struct snapshot *before,
                                int64_t *users, struct err *e);
/* Removes the row if it is in SNAPSHOT_DELETING; 0 also when there is none. */
int snapshot_store_remove(struct db *db, const char *id, struct err *e);

/* Those in SNAPSHOT_CREATING or SNAPSHOT_DELETING, oldest first. */
struct snapshot_refs {
    struct snapshot_ref {
        char id[RUNTIME_ID];
        enum snapshot_state state;
    } * items; /* the caller frees */
    size_t len;
};
int snapshot_store_unfinished(struct db *db, struct snapshot_refs *out, struct err *e);

/* Within a db_fn: 0 when a sandbox may be made from it, which its row has to become part of in the
 * same transaction: from then on begin_delete sees it. SNAPSHOT::NOT_FOUND, SNAPSHOT::NOT_READY. */
int snapshot_store_usable(struct db_conn *c, const char *id, struct err *e);
