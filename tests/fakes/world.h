/* What the tests of the domain share: the state machine over a fake runtime and a database in
 * memory, with sandboxes that are there without having been created. */
#pragma once
#include "gateway/domain/lifecycle.h"
#include "gateway/sandbox.h"

struct world {
    struct db *db;
    struct runtime *rt; /* tests/fakes/fake_runtime.h */
    struct keyed_locks *locks;
    struct places *places;
    struct lifecycle lc;
};

void world_open(struct world *w, const struct clock *clock);
void world_close(struct world *w);
/* A sandbox as after its create: in the store, in the runtime, in the places. */
void world_add(struct world *w, const char *id, enum sandbox_state state, int64_t expires_ms);
/* The record with those that ended; the caller frees. */
struct sandbox world_find(struct world *w, const char *id);
enum sandbox_state world_state(struct world *w, const char *id);
bool world_has_ended(struct world *w, const char *id);
/* Until it has ended, or is in that state; false after 10 s. */
bool world_wait_ended(struct world *w, const char *id);
bool world_wait_state(struct world *w, const char *id, enum sandbox_state state);
/* Runtime events on record of this type ("die"). */
int world_events(struct world *w, const char *id, const char *type);
