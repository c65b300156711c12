/* What a sandbox mounts, from the request to its end: directories of the host, named volumes of the
 * runtime, buckets (contract/lifecycle.md 5, design decision 19).
 *
 * Crash safety: that a create makes a named volume is in the store before it is made; a bucket's
 * mount point names its sandbox. What a sandbox leaves behind is removed with it, or by the sweep.
 * A named volume that others use meanwhile outlives its sandbox until they are gone.
 * All functions block and are safe from any thread; calls about one sandbox are serialised by its
 * lock. Errors carry the contract's codes (VOLUME::...). */
#pragma once
#include "gateway/domain/host_path.h"
#include "gateway/domain/ossfs.h"
#include "gateway/domain/volume_rules.h"
#include "gateway/runtime/runtime.h"

struct db;
struct err;
struct volume_plan;
struct volumes;

/* Strings are borrowed and outlive the volumes, but allowed_host_paths and secrets. */
struct volumes_config {
    struct db *db;
    struct runtime *rt;
    const char *const *allowed_host_paths; /* NULL-terminated; NULL: none */
    const struct host_secret *secrets;     /* what no allowed path may contain */
    size_t n_secrets;
    struct ossfs ossfs;
    const char
        *pins; /* directory of this gateway alone, see pins.h; made when it is needed; NULL: none */
};

int volumes_new(const struct volumes_config *cfg, struct volumes **out, struct err *e);
void volumes_free(struct volumes *vs); /* takes NULL */

/* ---- of a create ---- */

/* Checks all that can be checked without changing anything. list is borrowed until bring_up has
 * returned. *plan is NULL when there are no volumes; vs NULL: refused when there are some. */
int volumes_plan(struct volumes *vs, const struct volume_list *list, const char *sandbox_id,
                 struct volume_plan **plan, struct err *e);
/* Makes what is missing; the intent to make the sandbox is in the store, its lock is held. Nothing
 * to do for NULL and after it succeeded. Never ERRC_NOT_FOUND, which a start has for images. */
int volumes_bring_up(struct volume_plan *plan, struct err *e);
/* For runtime_spec, after bring_up; they live as long as the plan. */
size_t volume_plan_mounts(const struct volume_plan *plan, const struct runtime_mount **out);
/* What the agent has to find (common/agent/wire.h: mounts). A fresh array, empty for NULL; NULL when
 * memory is out. */
json_t *volume_plan_identities(const struct volume_plan *plan);
/* When the create has come to its end, well or not. Takes NULL. */
void volume_plan_free(struct volume_plan *plan);
static inline void auto_volume_plan(struct volume_plan **plan)
{
    volume_plan_free(*plan);
}
#define AUTO_VOLUME_PLAN __attribute__((cleanup(auto_volume_plan)))

/* ---- afterwards ---- */

/* The create failed and its container is gone: as release. */
void volumes_undo(struct volumes *vs, struct volume_plan *plan, const char *sandbox_id);
/* The sandbox's container is gone: what goes with it goes. What cannot go yet is left to the sweep.
 * vs NULL: nothing. */
void volumes_release(struct volumes *vs, const char *sandbox_id);
/* What sandboxes left that do not exist any more. */
void volumes_sweep(struct volumes *vs);
