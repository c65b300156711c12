/* Sandbox records in SQLite. Knows SQL; knows nothing of HTTP or of the runtime. Safe from any
 * thread; every call blocks (see db.h), every change is on disk when it returns.
 * Filled records own strings: sandbox_done. */
#pragma once
#include "gateway/sandbox.h"

#include <stdbool.h>
#include <stddef.h>

struct db;
struct err;

/* ERRC_CONFLICT when the id exists. */
int sandbox_store_insert(struct db *db, const struct sandbox *sb, struct err *e);
/* ERRC_NOT_FOUND when there is no such row; *out untouched then. */
int sandbox_store_get(struct db *db, const char *id, struct sandbox *out, struct err *e);
/* Writes state, reason, message and transition time, but only while the row is in state `from`:
 * ERRC_CONFLICT when it is in another, ERRC_NOT_FOUND when it is gone. */
int sandbox_store_transition(struct db *db, const struct sandbox *sb, enum sandbox_state from,
                             struct err *e);
/* As transition from SANDBOX_PENDING, and stores the place. */
int sandbox_store_started(struct db *db, const struct sandbox *sb, struct err *e);
int sandbox_store_set_expiry(struct db *db, const char *id, int64_t expires_ms, struct err *e);
int sandbox_store_set_metadata(struct db *db, const char *id, const char *json, struct err *e);
/* Removes the row and, unless end is NULL, remembers how it ended; one transaction. 0 also when
 * there is no row. */
int sandbox_store_remove(struct db *db, const char *id, const struct sandbox_end *end,
                         struct err *e);
/* ERRC_NOT_FOUND when nothing is known. */
int sandbox_store_ended(struct db *db, const char *id, struct sandbox_end *out, struct err *e);
int sandbox_store_forget_ended(struct db *db, int64_t before_ms, struct err *e);

/* Newest first. states and metadata are JSON texts (array of names, compared without case; object
 * of strings, all must match exactly) or NULL. */
int sandbox_store_list(struct db *db, const char *states, const char *metadata, int64_t offset,
                       int64_t limit, struct sandbox_page *out, struct err *e);

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
