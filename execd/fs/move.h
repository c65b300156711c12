/* Moving files and directories (contract/execd.md 10). Across file systems all is copied beside the
 * destination and gets its name when it is complete; mode, owner (where the rights allow it) and
 * times are kept, hard links and extended attributes are not. Blocks on disks. */
#pragma once

struct err;
struct watch;

/* Both absolute and cleaned. A destination that exists is an error, its missing parents are made
 * (0755). A missing source is ERRC_NOT_FOUND. watch is looked at for each file that is copied. */
int move_path(const char *src, const char *dest, const struct watch *watch, struct err *e);
