/* A text that may become long, such as the list of a tree: in memory while it is short, in a file
 * without a name from then on. One thread at a time. Blocks on disks. */
#pragma once
#include "common/base/buf.h"

#include <stdint.h>

struct err;

enum { SPILL_MEMORY = 256 * 1024, SPILL_MAX = 256 << 20 };

struct spill {
    struct buf mem;
    const char *tmpdir; /* borrowed; may be NULL */
    int fd;             /* -1: all is in mem */
    uint64_t len;       /* of what is in the file */
};

#define SPILL_INIT(dir) ((struct spill){ .mem = BUF_INIT(SPILL_MEMORY), .tmpdir = (dir), .fd = -1 })
#define AUTO_SPILL __attribute__((cleanup(spill_free)))

/* -1: longer than SPILL_MAX, or no room anywhere; err set. */
int spill_puts(struct spill *s, const char *text, struct err *e);
/* When there is a file, all goes to it. */
int spill_end(struct spill *s, struct err *e);
void spill_free(struct spill *s);
