/* Writing a file as a whole: readers see the old content or the new one, never a part, and a writer
 * that dies leaves nothing. The bytes go to a file without a name in the target's directory, which
 * gets its name at the end; where the file system has no such files, to a hidden one beside the
 * target. Where neither can be (a single mounted file, a directory that is not writable, an owner
 * that the new file could not have), they are copied in place at the end.
 * A target must be writable: that its directory is would be enough for the kernel. There is no
 * fsync: a sandbox's disk does not outlive a crash of its host. Blocks on disks. */
#pragma once
#include "execd/fs/perms.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct err;

struct put {
    char *target;  /* links followed */
    char *temp;    /* a hidden name of the bytes; NULL: they have none yet */
    int fd;        /* the bytes; -1: closed, they are in temp */
    bool in_place; /* to be copied into the target */
    bool exists;   /* the target does; it keeps owner and mode unless told otherwise */
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
/* For one of many that are sealed: it is kept under a hidden name instead of a descriptor. */
int put_park(struct put *p, struct err *e);
/* The target is the new file. */
int put_commit(struct put *p, const struct perms *perms, struct err *e);
/* Frees; what was not committed is removed. */
void put_free(struct put *p);

/* Appends all of from (from its beginning) to the file behind to. */
int put_copy(int from, int to, struct err *e);
