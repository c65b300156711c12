/* Walking and removing directories. Links are never followed. Blocks on disks. */
#pragma once

struct err;
struct stat;

enum { TREE_DEPTH_MAX = 512 };

/* Calls entry for all below dir (absolute) down to depth levels: each directory's names in order
 * of their bytes, its content directly after it. entry returns 0, or -1 with err set to end the
 * walk. What vanishes meanwhile is left out. */
int tree_walk(const char *dir, unsigned depth,
              int (*entry)(void *arg, const char *path, const struct stat *st, struct err *e),
              void *arg, struct err *e);
/* Removes a directory with all its content. */
int tree_remove(const char *dir, struct err *e);
