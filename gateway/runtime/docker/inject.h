/* Brings the agent into the engine once per version (design decision 4): as an image imported
 * from a tar in memory, and from it, through a container that is made and never started, into a
 * named volume that every sandbox mounts read-only. Image and volume are shared by all gateways
 * on the engine and named after the SHA-256 of their content. */
#pragma once
#include "gateway/runtime/runtime.h"

struct engine;

/* Makes sure that the volume exists and holds exactly the agent. Idempotent, repairable after a
 * crash at any step; several gateways may do it at once. Serialised by the caller within one.
 * 0: volume is its name. */
int inject_prepare(const struct runtime_config *cfg, struct engine *en, char *volume, size_t size,
                   struct err *e);
