#include "common/front/internal.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>

ssize_t sock_send(int fd, const char *data, size_t len)
{
    ssize_t n;

    do
        n = send(fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN)
        return 0;
    return n;
}

ssize_t sock_recv(int fd, char *data, size_t cap)
{
    ssize_t n;

    do
        n = recv(fd, data, cap, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN)
        return -2;
    return n;
}

void sock_options(const struct front *f, int fd)
{
    const int one = 1;
    const int every_s = 15;
    const int count = 4;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (f->opt.keepalive_s < 0)
        return;
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &f->opt.keepalive_s, sizeof(int));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof(every_s));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
}

enum { STASH_FIRST = 2048 };

/* ---- pending ---- */

void pending_free(struct pending *p)
{
    free(p->data);
    *p = (struct pending){ 0 };
}

int pending_add(struct pending *p, const char *data, size_t len)
{
    size_t old = p->len - p->off;
    char *joined;

    if (!len)
        return 0;
    joined = malloc(old + len);
    if (!joined)
        return -1;
    if (old)
        memcpy(joined, p->data + p->off, old);
    memcpy(joined + old, data, len);
    free(p->data);
    *p = (struct pending){ .data = joined, .len = old + len };
    return 0;
}

int pending_flush(struct pending *p, int fd)
{
    ssize_t n;

    if (!pending_any(p))
        return 0;
    n = sock_send(fd, p->data + p->off, p->len - p->off);
    if (n < 0)
        return -1;
    p->off += (size_t)n;
    if (p->off == p->len)
        pending_free(p);
    return 0;
}

int pending_send(struct pending *p, int fd, const char *data, size_t len)
{
    ssize_t n = 0;

    if (!len)
        return 0;
    if (!pending_any(p))
        n = sock_send(fd, data, len);
    if (n < 0)
        return -1;
    return pending_add(p, data + n, len - (size_t)n);
}

/* ---- stash ---- */

int stash_add(struct stash **st, const char *data, size_t len)
{
    size_t have = *st ? (*st)->len - (*st)->off : 0;
    size_t cap = *st ? (*st)->cap : STASH_FIRST;
    struct stash *grown;

    if (*st && (*st)->off) {
        memmove((*st)->data, (*st)->data + (*st)->off, have);
        (*st)->len = have;
        (*st)->off = 0;
    }
    while (cap < have + len)
        cap *= 2;
    if (!*st || cap > (*st)->cap) {
        grown = realloc(*st, sizeof(*grown) + cap);
        if (!grown)
            return -1;
        if (!*st)
            memset(grown, 0, sizeof(*grown));
        grown->cap = cap;
        *st = grown;
    }
    memcpy((*st)->data + have, data, len);
    (*st)->len += len;
    return 0;
}

/* ---- blocks ---- */

struct block *block_get(struct front *f, size_t need)
{
    struct block *b = f->blocks;
    size_t cap = need <= BLOCK_SMALL ? BLOCK_SMALL : need;

    if (b && need <= BLOCK_SMALL) {
        f->blocks = b->next;
        f->n_blocks--;
        return b;
    }
    b = malloc(sizeof(*b) + cap);
    if (b)
        b->cap = cap;
    return b;
}

void block_put(struct front *f, struct block *b)
{
    if (!b)
        return;
    if (b->cap != BLOCK_SMALL || f->n_blocks == BLOCKS_KEPT) {
        free(b);
        return;
    }
    b->next = f->blocks;
    f->blocks = b;
    f->n_blocks++;
}

/* ---- bodies ---- */

void body_init(struct body *b, enum body_kind kind, uint64_t length)
{
    *b = (struct body){ .kind = kind, .left = length };
    if (kind == BODY_LENGTH && !length)
        b->kind = BODY_NONE;
    b->done = b->kind == BODY_NONE;
}

ssize_t body_take(struct body *b, const char *data, size_t len)
{
    ssize_t n;

    if (b->done || !len)
        return 0;
    switch (b->kind) {
    case BODY_LENGTH:
        n = (ssize_t)(len < b->left ? len : b->left);
        b->left -= (uint64_t)n;
        b->done = !b->left;
        return n;
    case BODY_CHUNKED:
        n = chunks_feed(&b->chunks, data, len);
        b->done = chunks_done(&b->chunks);
        return n;
    default:
        return (ssize_t)len;
    }
}
