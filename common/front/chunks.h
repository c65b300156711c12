/* Follows the boundaries of a chunked body, trailers included, without changing or keeping a byte:
 * who relays it relays what came in. Pure and strict: one reading of the bytes or none. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    CHUNKS_DIGITS_MAX = 15,       /* hexadecimal digits of a chunk size, zeros included */
    CHUNKS_EXT_MAX = 4096,        /* bytes of one chunk's extensions */
    CHUNKS_TRAILER_MAX = 8 * 1024 /* bytes of the trailer section */
};

struct chunks {
    uint64_t left;  /* data bytes of the chunk under way */
    uint32_t count; /* digits, or bytes of extensions or trailers so far */
    uint8_t state;  /* private */
};

/* A zeroed struct is ready for a body. */
/* How many of the len bytes belong to the body: less than len only when its end is among them.
 * -1: the bytes are not a chunked body; nothing can be said about what follows. */
ssize_t chunks_feed(struct chunks *c, const char *data, size_t len);
bool chunks_done(const struct chunks *c);
/* How many of the len bytes that come next are data; 0: what comes next is framing, to be fed byte by byte.
 * For who wants the data by itself. */
size_t chunks_data(const struct chunks *c, size_t len);
