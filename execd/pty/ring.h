/* The last bytes of a stream, by offset since its beginning (contract/execd.md 9). Memory grows with what is
 * written, up to the size. Pure. */
#pragma once
#include <stddef.h>
#include <stdint.h>

enum { RING_SIZE = 1 << 20 };

struct ring {
    char *data;
    size_t cap;     /* a power of two, RING_SIZE at the most */
    uint64_t total; /* bytes ever written */
    uint64_t lost;  /* offset before which nothing is kept: memory was out */
};

/* When memory is out, fewer bytes are kept; all of them count. */
void ring_write(struct ring *r, const char *data, size_t len);
uint64_t ring_start(const struct ring *r); /* offset of the oldest byte that is kept */
/* The bytes from offset at (start <= at <= total): at most max of them, fewer where the memory wraps. */
const char *ring_peek(const struct ring *r, uint64_t at, size_t max, size_t *len);
/* Copies len bytes from offset at; all of them have to be kept. */
void ring_copy(const struct ring *r, uint64_t at, char *out, size_t len);
void ring_free(struct ring *r);
