/* Buckets of an object store, mounted on the server's host with the ossfs or ossfs2 program, for one
 * sandbox each: <mount root>/<sandbox id>/<volume>. Never shared, so that nobody gets at a bucket by
 * another one's keys. Nothing is recorded: the mounts themselves say whose they are. The keys are
 * in a file (0600) while the program starts, and nowhere else.
 * Blocks (programs, disks, mounts); safe from any thread; calls about one sandbox one at a time. */
#pragma once
#include "gateway/domain/volume_rules.h"

#include <stdbool.h>
#include <stddef.h>

struct err;

enum { OSSFS_TIMEOUT_MS = 30000 }; /* of one mount */

/* Strings are borrowed. */
struct ossfs {
    const char *root;      /* of this gateway alone; made when it is needed */
    const char *programs;  /* where they are looked for, as PATH has it */
    const char *device;    /* "/dev/fuse" */
    const char *mountinfo; /* "/proc/self/mountinfo" */
    int timeout_ms;
};

/* Whether v could be mounted at all: 0, or VOLUME::UNSUPPORTED_BACKEND naming what is missing. */
int ossfs_check(const struct ossfs *o, const struct volume_req *v, struct err *e);
/* Mounts v, which passed volume_rules_check, for a sandbox; sub as volume_rules_paths has it. *out
 * holds HOST_PATH bytes: where. VOLUME::OSSFS_MOUNT_FAILED, INVALID_OSSFS_MOUNT_ROOT. */
int ossfs_mount(const struct ossfs *o, const char *sandbox_id, const struct volume_req *v,
                const char *sub, char *out, struct err *e);
/* Unmounts all of a sandbox and removes its directory; 0 also when there is none.
 * VOLUME::OSSFS_UNMOUNT_FAILED. */
int ossfs_release(const struct ossfs *o, const char *sandbox_id, struct err *e);
/* The names below the root: sandboxes that have, or had, a mount. An array of strings which the
 * caller owns. */
json_t *ossfs_sandboxes(const struct ossfs *o);
