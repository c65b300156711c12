/* Walking and removing directories. Links are never followed. Blocks on disks. */
#pragma once
#include "execd/fs/watch.h"

#include <stdbool.h>

struct err;
struct stat;

enum {
    TREE_DEPTH_MAX = 512,      /* of a copy: two descriptors per level */
    TREE_LEVELS_MAX = 16384,   /* of a removal */
    TREE_NAMES_MAX = 32 << 20, /* bytes of names that a walk holds at one time */
};

struct tree_visit {
    /* Returns 0, or -1 with err set to end the walk. */
    int (*entry)(void *arg, const char *path, const struct stat *st, struct err *e);
    void *arg;
    struct watch watch; /* looked at for each name */
    bool skip_closed;   /* a directory below that may not be read is left out, not an error */
};

/* Visits all below dir (absolute) down to depth levels: each directory's names in order of their
 * bytes, its content directly after it. What vanishes meanwhile is left out. */
int tree_walk(const char *dir, unsigned depth, const struct tree_visit *visit, struct err *e);
/* Removes a directory with all its content. */
int tree_remove(const char *dir, struct err *e);
