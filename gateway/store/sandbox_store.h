/* Sandbox records in SQLite. Knows SQL; knows nothing of HTTP or of the runtime. Safe from any
 * thread; every call blocks (see db.h), every change is on disk when it returns.
 * Filled records own strings: sandbox_done. */
#pragma once
#include "gateway/sandbox.h"

#include <stdbool.h>
#include <stddef.h>

struct db;
struct db_conn;
struct err;

/* ERRC_CONFLICT when the id exists. With a snapshot_id only while a sandbox may be made from it, in
 * one transaction: snapshot_store_usable. */
int sandbox_store_insert(struct db *db, const struct sandbox *sb, struct err *e);
/* Of those that exist. ERRC_NOT_FOUND when there is no such row; *out untouched then. */
int sandbox_store_get(struct db *db, const char *id, struct sandbox *out, struct err *e);
/* The same with those that ended. */
int sandbox_store_find(struct db *db, const char *id, struct sandbox *out, struct err *e);
/* Writes state, reason, message, transition time and exit code, and an event; but only while the row is in state `from`:
 * ERRC_CONFLICT when it is in another, ERRC_NOT_FOUND when it is gone. */
int sandbox_store_transition(struct db *db, const struct sandbox *sb, enum sandbox_state from,
                             struct err *e);
/* As transition from SANDBOX_PENDING, and stores the place; volumes it made and is to keep are its
 * own no more (volume_store.h). */
int sandbox_store_started(struct db *db, const struct sandbox *sb, struct err *e);
/* Changes the words of a record that is still SANDBOX_PENDING, without an event; ERRC_NOT_FOUND when
 * it is not. */
int sandbox_store_progress(struct db *db, const char *id, const char *reason, const char *message,
                           struct err *e);
/* A new address of a running sandbox. */
int sandbox_store_moved(struct db *db, const char *id, const struct runtime_place *place,
                        struct err *e);
/* As transition to SANDBOX_STOPPING, and only when its expiry is not later than now_ms: ERRC_CONFLICT
 * when it was renewed meanwhile. */
int sandbox_store_expire(struct db *db, const struct sandbox *sb, enum sandbox_state from,
                         int64_t now_ms, struct err *e);
/* Gives one that expires, and is not being removed, a new expiry; ERRC_NOT_FOUND when there is none
 * such. What is in the store decides between a renewal and an end at the same moment. */
int sandbox_store_renew(struct db *db, const char *id, int64_t expires_ms, struct err *e);
/* The same, but only when its expiry is still `from`: else ERRC_NOT_FOUND, too. */
int sandbox_store_renew_from(struct db *db, const char *id, int64_t from_ms, int64_t expires_ms,
                             struct err *e);
/* Merges a JSON object of strings and nulls (which delete) into the metadata, in one step with what
 * others change; ERRC_INVALID when it would have more than max entries. *out is the record after it. */
int sandbox_store_patch_metadata(struct db *db, const char *id, const char *patch, int max,
                                 struct sandbox *out, struct err *e);
/* Turns the record into that of a sandbox that ended: what is secret in it goes. One transaction,
 * with an event. From SANDBOX_PENDING to SANDBOX_FAILED frees its Idempotency-Key. 0 also when there
 * is no such record. */
int sandbox_store_end(struct db *db, const char *id, const struct sandbox_end *end, struct err *e);
/* Removes the row with all that belongs to it; 0 also when there is none. */
int sandbox_store_remove(struct db *db, const char *id, struct err *e);
/* The last output of a sandbox that ended, "" when there is none; the caller frees. */
int sandbox_store_logs(struct db *db, const char *id, char **out, struct err *e);
/* Removes the rows of those that ended before. */
int sandbox_store_forget_ended(struct db *db, int64_t before_ms, struct err *e);

/* Newest first. */
int sandbox_store_list(struct db *db, const struct sandbox_query *q, struct sandbox_page *out,
                       struct err *e);

/* Ids only, up to max, of rows in the given state or (state < 0) all. The caller frees *ids. */
struct sandbox_ids {
    char (*ids)[RUNTIME_ID];
    size_t len;
};
int sandbox_store_ids(struct db *db, int state, struct sandbox_ids *out, struct err *e);
/* Those whose time has come, oldest first, and the expiry of the next one (0: none). What is still
 * being made is not due: its lock may be held for as long as an image pull. */
int sandbox_store_due(struct db *db, int64_t now_ms, size_t max, struct sandbox_ids *out,
                      int64_t *next_ms, struct err *e);

/* A random secret of this database (64 hex digits), made on first use; name is a static string. */
int sandbox_store_secret(struct db *db, const char *name, char out[SANDBOX_TOKEN], struct err *e);
/* The UUID of this database, made on first use. */
int sandbox_store_instance(struct db *db, char out[RUNTIME_ID], struct err *e);

/* Within a db_fn: as sandbox_store_insert. */
int sandbox_add(struct db_conn *c, const struct sandbox *sb, struct err *e);
