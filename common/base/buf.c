#include "common/base/buf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUF_FIRST = 256 };

char *buf_reserve(struct buf *b, size_t len)
{
    size_t need;
    size_t cap;
    char *grown;

    if (len > b->max - b->len)
        return NULL;
    need = b->len + len + 1;
    if (need > b->cap) {
        cap = b->cap ? b->cap : BUF_FIRST;
        while (cap < need)
            cap *= 2;
        grown = realloc(b->data, cap);
        if (!grown)
            return NULL;
        b->data = grown;
        b->cap = cap;
        b->data[b->len] = '\0';
    }
    return b->data + b->len;
}

int buf_append(struct buf *b, const void *data, size_t len)
{
    char *at = buf_reserve(b, len);

    if (!at)
        return -1;
    if (len)
        memcpy(at, data, len);
    b->len += len;
    b->data[b->len] = '\0';
    return 0;
}

int buf_puts(struct buf *b, const char *s)
{
    return buf_append(b, s, strlen(s));
}

int buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap;
    int n;
    char *at;

    va_start(ap, fmt);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0)
        return -1;
    at = buf_reserve(b, (size_t)n);
    if (!at)
        return -1;
    va_start(ap, fmt);
    (void)vsnprintf(at, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->len += (size_t)n;
    return 0;
}

void buf_consume(struct buf *b, size_t len)
{
    if (len >= b->len) {
        buf_clear(b);
        return;
    }
    memmove(b->data, b->data + len, b->len - len);
    b->len -= len;
    b->data[b->len] = '\0';
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    if (b->data)
        b->data[0] = '\0';
}

void buf_free(struct buf *b)
{
    free(b->data);
    *b = (struct buf){ .max = b->max };
}

char *buf_take(struct buf *b)
{
    char *out;

    if (!b->data && !buf_reserve(b, 0))
        return NULL;
    out = b->data;
    *b = (struct buf){ .max = b->max };
    return out;
}
