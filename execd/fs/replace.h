/* Replacing bytes in a file, in constant memory (contract/execd.md 10). Blocks on disks. */
#pragma once
#include "execd/fs/watch.h"

#include <stddef.h>
#include <stdint.h>

struct err;
struct put;

struct replace {
    const char *old; /* at least one byte */
    size_t old_len;
    const char *new;
    size_t new_len;
    struct watch watch; /* looked at for each block */
};

/* Copies the file behind fd into out with every old as new, from the left and without overlaps;
 * *count is how many. Without any, out is not written to and stays unopened. */
int replace_copy(int fd, const struct replace *r, const char *path, const char *tmpdir,
                 struct put *out, uint64_t *count, struct err *e);
