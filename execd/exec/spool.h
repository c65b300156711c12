/* The output of a background command, kept for GET /command/{id}/logs: an unlinked file on disk,
 * or memory of the kernel when no directory can be written. Offsets count every byte there ever
 * was; of more than the limit the oldest are given back to the disk and a marker stands in their
 * place. For the loop's thread. */
#pragma once
#include <stdint.h>
#include <sys/types.h>

#include <stdbool.h>

struct err;
struct spool;

enum {
    SPOOL_DISK_MAX = 64 << 20, /* bytes kept of one command */
    SPOOL_MEMORY_MAX = 4 << 20,
    SPOOL_SHARE_MIN = 2 << 20, /* what each may keep however many there are */
    SPOOLS_MAX =
        1 << 30, /* bytes kept of all; more than SPOOLS_MAX / SPOOL_SHARE_MIN share it out */
    SPOOL_READ_MAX = 16 << 20, /* bytes of one answer */
};

/* What all of them take. Zero-initialise it. */
struct spools {
    uint64_t bytes;
    unsigned n;
};

/* With one reference. set outlives it. */
struct spool *spool_new(struct spools *set, const char *tmpdir, struct err *e);
struct spool *spool_ref(struct spool *s);
void spool_unref(struct spool *s); /* takes NULL */
/* Never fails towards the writer: what cannot be stored is counted as lost. */
void spool_append(struct spool *s, const char *data, size_t len);
uint64_t spool_size(const struct spool *s); /* bytes there ever were: the next cursor */
/* From offset from (clamped to the size) on: a fresh string of *len bytes the caller frees, and
 * where the next read goes on. NULL: err set. */
char *spool_read(struct spool *s, uint64_t from, size_t *len, uint64_t *next, struct err *e);
