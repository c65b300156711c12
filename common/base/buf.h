/* Growable byte buffer with a maximum that is fixed at init: what a client can make us hold is
 * bounded by construction. Not thread-safe. data is always NUL-terminated once allocated, and
 * may itself hold NUL bytes; len does not count the terminator. */
#pragma once
#include <stdarg.h>
#include <stddef.h>

struct buf {
    char *data;
    size_t len;
    size_t cap;
    size_t max; /* bytes of content; an append beyond it fails and leaves the content as it was */
};

#define BUF_INIT(max_bytes) ((struct buf){ .max = (max_bytes) })
#define AUTO_BUF __attribute__((cleanup(buf_free)))

/* 0, or -1 when max would be exceeded or memory is out (content unchanged). */
int buf_append(struct buf *b, const void *data, size_t len);
int buf_puts(struct buf *b, const char *s);
int buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Makes room for len more bytes and returns where to write them; the caller adds to b->len. */
char *buf_reserve(struct buf *b, size_t len);
/* Drops the first len bytes. */
void buf_consume(struct buf *b, size_t len);
void buf_clear(struct buf *b);
void buf_free(struct buf *b);
/* Hands the (NUL-terminated) content to the caller; the buffer is empty afterwards.
 * NULL only when memory is out. */
char *buf_take(struct buf *b);
