/* A file system below SQLite that fails on demand: for tests of what happens when a write does not
 * reach the disk. Becomes the default of the process; passes everything through until told. */
#pragma once
#include <stdbool.h>

int fail_vfs_install(void); /* 0, or -1; once */
/* From now on `after` more writes and syncs succeed, then `times` fail with code (SQLITE_FULL,
 * SQLITE_IOERR_WRITE, ...); times < 0: until fail_vfs_heal. Counts again from zero. */
void fail_vfs_break(int after, int times, int code);
void fail_vfs_heal(void);
/* How many failed since the last fail_vfs_break. */
int fail_vfs_failures(void);
