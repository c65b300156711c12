/* ustar archives (POSIX.1-1988) in memory: what the engine takes and gives for files. Modification
 * times and owners are zero, so equal content gives equal bytes. Pure. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct buf;

/* Each appends one entry; path is relative, without a trailing slash. 0, or -1 when the archive
 * is full, the path does not fit (100 bytes, or 155/100 split at a slash) or memory is out. */
int tar_add_dir(struct buf *out, const char *path, unsigned mode);
int tar_add_file(struct buf *out, const char *path, unsigned mode, const void *data, size_t len);
int tar_finish(struct buf *out);

enum { TAR_NAME = 257 };

struct tar_entry {
    char name[TAR_NAME];
    char type;        /* '0' regular file, '5' directory, ... */
    const char *data; /* within the archive */
    size_t len;
};

/* Reads the entry at *pos and moves on. 1: *out is filled; 0: the end; -1: not a tar archive or
 * cut. Extended headers are passed over: names beyond ustar come out shortened. */
int tar_next(const char *archive, size_t len, size_t *pos, struct tar_entry *out);
