/* What the fuzz targets share. A property that does not hold ends the process, as a sanitizer's
 * finding does. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MUST(cond)                                                                                 \
    do {                                                                                           \
        if (!(cond))                                                                               \
            abort();                                                                               \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A NUL-terminated copy, so that a read past the end shows. */
static inline char *fuzz_text(const uint8_t *data, size_t size)
{
    char *s = malloc(size + 1);

    MUST(s);
    if (size)
        memcpy(s, data, size);
    s[size] = '\0';
    return s;
}

/* Feeds data in pieces whose sizes are derived from its own bytes: parsers of streams must not care
 * where a read ends. */
static inline size_t fuzz_piece(const uint8_t *data, size_t size, size_t at)
{
    size_t n = 1 + (size_t)(data[at] * 7 + at) % 29;

    return n < size - at ? n : size - at;
}
