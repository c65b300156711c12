/* Creates that carried an Idempotency-Key, in SQLite: one key names one sandbox. Safe from any
 * thread; calls block (see db.h). The key of a create that failed goes with the record of its end
 * (sandbox_store_end). */
#pragma once
#include "gateway/sandbox.h"

struct db;
struct db_conn;
struct err;

enum { IDEMPOTENCY_SHA256 = 65 }; /* hex digits of the body's hash */

struct idempotency {
    char sandbox_id[RUNTIME_ID];
    char body_sha256[IDEMPOTENCY_SHA256];
};

/* 1: *out filled; 0: the key is free. */
int idempotency_store_get(struct db *db, const char *key, struct idempotency *out, struct err *e);
/* Inserts the sandbox and its key in one transaction. 0: done; 1: the key is taken, *out says by
 * whom, and nothing was written. */
int idempotency_store_insert(struct db *db, const char *key, const char *body_sha256,
                             const struct sandbox *sb, struct idempotency *out, struct err *e);
/* Frees the key of a sandbox, if it has one. */
int idempotency_store_release(struct db *db, const char *sandbox_id, struct err *e);
/* Removes keys that are older. */
int idempotency_store_forget(struct db *db, int64_t before_ms, struct err *e);

/* Within a db_fn: as idempotency_store_release. */
int idempotency_release(struct db_conn *c, const char *sandbox_id, struct err *e);
