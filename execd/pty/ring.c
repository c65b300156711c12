#include "execd/pty/ring.h"

#include <stdlib.h>
#include <string.h>

enum { RING_FIRST = 4096 };

void ring_free(struct ring *r)
{
    free(r->data);
    *r = (struct ring){ 0 };
}

uint64_t ring_start(const struct ring *r)
{
    uint64_t start = r->total < r->cap ? 0 : r->total - r->cap;

    return start > r->lost ? start : r->lost;
}

const char *ring_peek(const struct ring *r, uint64_t at, size_t max, size_t *len)
{
    size_t from = r->cap ? (size_t)(at & (r->cap - 1)) : 0;
    size_t n = (size_t)(r->total - at);

    if (n > max)
        n = max;
    if (n > r->cap - from)
        n = r->cap - from;
    *len = n;
    return r->data + from;
}

void ring_copy(const struct ring *r, uint64_t at, char *out, size_t len)
{
    while (len) {
        size_t n;
        const char *from = ring_peek(r, at, len, &n);

        memcpy(out, from, n);
        out += n;
        at += n;
        len -= n;
    }
}

/* A byte lies at its offset modulo the capacity, so memory can grow only until that has mattered; what could not
 * grow stays as small as it is. */
static void grow(struct ring *r, size_t len)
{
    size_t want = r->cap ? r->cap : r->total ? RING_SIZE : RING_FIRST;
    char *data;

    if (r->cap && r->total > r->cap)
        return;
    while (want < RING_SIZE && r->total + len > want)
        want *= 2;
    data = want == r->cap ? NULL : realloc(r->data, want);
    if (!data)
        return;
    r->data = data;
    r->cap = want;
}

void ring_write(struct ring *r, const char *data, size_t len)
{
    grow(r, len);
    if (!r->cap) {
        r->total += len;
        r->lost = r->total;
        return;
    }
    while (len) {
        size_t from = (size_t)(r->total & (r->cap - 1));
        size_t n = len < r->cap - from ? len : r->cap - from;

        memcpy(r->data + from, data, n);
        r->total += n;
        data += n;
        len -= n;
    }
}
