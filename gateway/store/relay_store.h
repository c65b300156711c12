/* The table of relays: which port of ours leads where. As sandbox_store.h in threads and errors.
 * Rows go with their sandbox. */
#pragma once
#include "gateway/sandbox.h"

#include <stddef.h>
#include <stdint.h>

struct db;
struct err;

enum { RELAYS_PER_SANDBOX = 64 };

struct relay_row {
    char id[RUNTIME_ID];
    uint16_t port;
    uint16_t listen_port;
};

struct relay_rows {
    struct relay_row *items; /* the caller frees */
    size_t len;
};

/* 0: *listen_port is the one on record, which is the row's own when there was none before.
 * ERRC_NOT_FOUND when the sandbox is gone, ERRC_LIMIT when it has RELAYS_PER_SANDBOX others. */
int relay_store_claim(struct db *db, const struct relay_row *row, uint16_t *listen_port,
                      struct err *e);
/* ERRC_NOT_FOUND when there is no such row. */
int relay_store_get(struct db *db, const char *id, uint16_t port, uint16_t *listen_port,
                    struct err *e);
int relay_store_forget(struct db *db, const struct relay_row *row, struct err *e);
int relay_store_all(struct db *db, struct relay_rows *out, struct err *e);
