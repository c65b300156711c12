/* Snapshots as images SNAPSHOT_REPO:<snapshot id>: verbs of runtime.h. */
#pragma once
#include "gateway/runtime/runtime.h"

/* While it is being made there is also an image with a tag <snapshot id>-part-<chance>, another one
 * for each attempt; a crash, or a commit that outlives its time, leaves it behind. Making the same
 * one again finishes: one that is complete is kept as it is, the leftovers go, and the sandbox is not
 * needed for that. remove takes the leftovers with it.
 * Errors: ERRC_NOT_FOUND when the sandbox is gone, ERRC_TIMEOUT after timeout_ms,
 * SNAPSHOT::RUNTIME_CREATE_FAILED with the engine's words, SNAPSHOT::RUNTIME_CREATE_CONFLICT when
 * the sandbox is being removed. */
int docker_snapshot_make(struct runtime *rt, const char *sandbox_id, const char *snapshot_id,
                         int timeout_ms, int64_t *size_bytes, struct err *e);
int docker_snapshot_get(struct runtime *rt, const char *snapshot_id, struct err *e);
int docker_snapshot_remove(struct runtime *rt, const char *snapshot_id, struct err *e);
