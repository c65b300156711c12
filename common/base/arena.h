/* Bump allocator for what lives exactly as long as one request. Not thread-safe; a request is
 * worked on by one thread at a time. Bounded: allocations beyond max fail. */
#pragma once
#include <stddef.h>

struct arena_block;

struct arena {
    struct arena_block *head;
    size_t used; /* bytes handed out or held by blocks */
    size_t max;
};

#define ARENA_INIT(max_bytes) ((struct arena){ .max = (max_bytes) })

/* Aligned for any object, zeroed; NULL when max is reached or memory is out. */
void *arena_alloc(struct arena *a, size_t len);
char *arena_strndup(struct arena *a, const char *s, size_t len);
char *arena_printf(struct arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void arena_free(struct arena *a);
