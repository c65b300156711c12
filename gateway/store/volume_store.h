/* The table of named volumes that creates made and that have to go: with their sandbox, or (keep)
 * only if its create fails. A row is written before its volume is made. As sandbox_store.h in
 * threads and errors. */
#pragma once
#include "gateway/sandbox.h"

#include <stdbool.h>
#include <stddef.h>

struct db;
struct db_conn;
struct err;

struct volume_row {
    char name[RUNTIME_VOLUME];
    char sandbox_id[RUNTIME_ID];
    bool keep;
};

struct volume_rows {
    struct volume_row *items; /* the caller frees */
    size_t len;
};

/* Replaces a row of the same name: the caller saw that there is no such volume, so the earlier row
 * stands for nothing. */
int volume_store_put(struct db *db, const struct volume_row *row, struct err *e);
/* 0 also when there is none. */
int volume_store_drop(struct db *db, const char *name, const char *sandbox_id, struct err *e);
/* Those of one sandbox. */
int volume_store_of(struct db *db, const char *sandbox_id, struct volume_rows *out, struct err *e);
/* Those whose sandbox does not exist any more. */
int volume_store_left(struct db *db, struct volume_rows *out, struct err *e);

/* Within a db_fn: the create has succeeded, what it made and is to be kept is nobody's concern
 * any more. Part of the same commit: a crash between the two would take a volume that holds data. */
int volume_keep(struct db_conn *c, const char *sandbox_id, struct err *e);
