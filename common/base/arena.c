#include "common/base/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA_BLOCK = 4096 - 32, ARENA_ALIGN = 16 };

struct arena_block {
    struct arena_block *next;
    size_t len;
    size_t used;
    _Alignas(ARENA_ALIGN) char data[];
};

void *arena_alloc(struct arena *a, size_t len)
{
    struct arena_block *b = a->head;
    size_t need;
    size_t size;
    void *out;

    if (len > a->max)
        return NULL;
    need = (len + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1);
    if (!b || b->len - b->used < need) {
        size = need > ARENA_BLOCK ? need : ARENA_BLOCK;
        if (size > a->max - a->used)
            size = need;
        if (size > a->max - a->used)
            return NULL;
        b = calloc(1, sizeof(*b) + size);
        if (!b)
            return NULL;
        b->len = size;
        b->next = a->head;
        a->head = b;
        a->used += size;
    }
    out = b->data + b->used;
    b->used += need;
    return out;
}

char *arena_strndup(struct arena *a, const char *s, size_t len)
{
    char *out = len < a->max ? arena_alloc(a, len + 1) : NULL;

    if (out)
        memcpy(out, s, len);
    return out;
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
    va_list ap;
    int n;
    char *out;

    va_start(ap, fmt);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0)
        return NULL;
    out = arena_alloc(a, (size_t)n + 1);
    if (!out)
        return NULL;
    va_start(ap, fmt);
    (void)vsnprintf(out, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return out;
}

void arena_free(struct arena *a)
{
    struct arena_block *b = a->head;
    struct arena_block *next;

    for (; b; b = next) {
        next = b->next;
        free(b);
    }
    *a = (struct arena){ .max = a->max };
}
