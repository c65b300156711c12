/* Writing a file as a whole: readers see the old content or the new one, never a part. The bytes
 * go to a file beside the target, which takes its name at the end. Where that cannot be (a single
 * mounted file, a directory that is not writable), they go to an unlinked file first and are then
 * copied in place. There is no fsync: a sandbox's disk does not outlive a crash of its host.
 * Blocks on disks. */
#pragma once
#include "execd/fs/perms.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct err;

struct put {
    char *target; /* links followed */
    char *temp;   /* beside it; NULL: copied in place at the end */
    int fd;       /* -1: closed */
    bool exists;  /* the target does; it keeps owner and mode unless told otherwise */
    mode_t mode;
    uid_t uid;
    gid_t gid;
};

#define PUT_INIT ((struct put){ .fd = -1 })

/* Makes parent directories. tmpdir: for the copy in place; may be NULL. */
int put_open(struct put *p, const char *path, const char *tmpdir, struct err *e);
int put_write(struct put *p, const char *data, size_t len, struct err *e);
/* All bytes are there: sets mode and owner. new_mode: of a file that did not exist, when none is
 * asked for. */
int put_seal(struct put *p, const struct perms *perms, mode_t new_mode, struct err *e);
/* The target is the new file. */
int put_commit(struct put *p, const struct perms *perms, struct err *e);
/* Frees; what was not committed is removed. */
void put_free(struct put *p);

/* Appends all of from (from its beginning) to the file behind to. */
int put_copy(int from, int to, struct err *e);
