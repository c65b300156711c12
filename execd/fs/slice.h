/* Lines of a file as a range of its bytes (contract/execd.md 10.3). Blocks on disks; constant
 * memory. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct err;

struct slice {
    uint64_t off;
    uint64_t len; /* without the last line's terminator */
    bool crlf;    /* "\r\n" lies inside: the bytes are not the answer yet */
};

/* limit lines (0: all) from line first (1 is the first) on; behind the end: an empty slice. */
int slice_find(int fd, uint64_t first, uint64_t limit, struct slice *out, struct err *e);
/* Copies the slice with every "\r\n" as "\n" to `to`; *len is what was written. */
int slice_copy(int fd, const struct slice *s, int to, uint64_t *len, struct err *e);
