/* The directories of isolated sessions: one each, with the upper layers of its overlays, the mount point
 * of its root and the pipes of its background runs. Whose agent died is removed by its keeper (cage.h),
 * else by the next agent: each directory is locked by the agent it belongs to. */
#pragma once
#include "common/agent/wire.h"

#include <stddef.h>

struct err;

#define STORE_DIR AGENT_ISOLATION_DIR
#define STORE_ROOT "root"
#define STORE_IO "io"
#define STORE_IO_INSIDE "/run/execd" /* where STORE_IO is seen inside, read-only */

enum { STORE_PATH_MAX = 128 };

/* The directory of that name, made and locked. The descriptor of the lock, to be closed by the caller
 * after store_remove; -1: err set (a read-only file system, for one). */
int store_add(const char *name, char path[STORE_PATH_MAX], struct err *e);
/* With all in it. Blocks on disks. */
int store_remove(const char *path, struct err *e);
/* Removes what no agent holds any more. Blocks on disks. */
void store_sweep(void);
