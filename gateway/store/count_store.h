/* Numbers about all records, for metrics: cheap however many there are. Safe from any thread; calls
 * block (see db.h). */
#pragma once
#include "gateway/sandbox.h"

struct db;
struct err;

/* Of those that exist, by state; ended: the records kept of others. */
struct sandbox_counts {
    int64_t by_state[SANDBOX_STATE_MAX_];
    int64_t ended;
    int64_t earliest_expiry_ms; /* wall, of those that can be removed; 0: none expires */
};
int count_store_sandboxes(struct db *db, struct sandbox_counts *out, struct err *e);

enum { COUNT_STATES = 8, COUNT_STATE = 16 };

struct snapshot_counts {
    struct {
        char state[COUNT_STATE];
        int64_t n;
    } items[COUNT_STATES];
    size_t len;
};
int count_store_snapshots(struct db *db, struct snapshot_counts *out, struct err *e);
