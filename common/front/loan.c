/* Bodies that their reader takes from the client's socket by itself. */
#include "common/front/internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RELAYED_MAX = 64 * 1024 }; /* shorter bodies are not worth it, bytes */

struct front_loan {
    int fd; /* a duplicate: the client's may be closed while a thread reads */
    unsigned refs;
    struct body body;
    size_t off; /* of early */
    size_t len;
    char *rest; /* what came behind the end of the body */
    size_t rest_len;
    char early[]; /* came with the head */
};

struct front_loan *front_lend(struct front_req *rq)
{
    struct caller *c = CONTAINER_OF(rq, struct caller, rq);
    const struct body *b = &c->request;
    struct front_loan *l;
    const char *early;
    size_t len;

    if (c->expects || b->done || (b->kind == BODY_LENGTH && b->left <= RELAYED_MAX))
        return NULL;
    early = caller_rest(c, &len);
    l = malloc(sizeof(*l) + len);
    if (!l)
        return NULL;
    *l = (struct front_loan){ .refs = 2, .body = *b, .len = len };
    memcpy(l->early, early, len);
    l->fd = fcntl(c->watch.fd, F_DUPFD_CLOEXEC, 0);
    if (l->fd < 0) {
        free(l);
        return NULL;
    }
    c->loan = l;
    return l;
}

void front_unlend(struct front_req *rq)
{
    struct caller *c = CONTAINER_OF(rq, struct caller, rq);

    front_loan_close(c->loan);
    c->loan = NULL;
}

int front_loan_fd(const struct front_loan *l)
{
    return l->fd;
}

void front_loan_close(struct front_loan *l)
{
    if (!l || --l->refs)
        return;
    (void)close(l->fd);
    free(l->rest);
    free(l);
}

void loan_return(struct caller *c)
{
    struct front_loan *l = c->loan;

    if (!l)
        return;
    c->loan = NULL;
    if (!l->body.done)
        c->keep = false; /* the rest is not taken */
    else if (c->state != CALLER_DEAD && l->rest_len && stash_add(&c->in, l->rest, l->rest_len) < 0)
        c->keep = false;
    else
        c->early = false;
    front_loan_close(l);
}

/* ---- reading: in the reader's thread ---- */

static ssize_t take_early(struct front_loan *l, char *out, size_t cap)
{
    size_t n = l->len - l->off;

    if (n > cap)
        n = cap;
    if (l->body.kind == BODY_LENGTH && n > l->body.left)
        n = (size_t)l->body.left;
    memcpy(out, l->early + l->off, n);
    l->off += n;
    return (ssize_t)n;
}

static ssize_t take(struct front_loan *l, char *out, size_t cap)
{
    if (l->off < l->len)
        return take_early(l, out, cap);
    if (l->body.kind == BODY_LENGTH && cap > l->body.left)
        cap = (size_t)l->body.left;
    return sock_recv(l->fd, out, cap);
}

static int keep_rest(struct front_loan *l, const char *data, size_t len)
{
    size_t early = l->len - l->off;

    if (!len && !early)
        return 0;
    l->rest = malloc(len + early);
    if (!l->rest)
        return -1;
    memcpy(l->rest, data, len);
    memcpy(l->rest + len, l->early + l->off, early);
    l->rest_len = len + early;
    return 0;
}

/* Takes the framing out; -1: broken. */
static ssize_t strip(struct chunks *k, char *data, size_t len, size_t *used)
{
    size_t at = 0;
    size_t to = 0;
    size_t n;

    while (at < len && !chunks_done(k)) {
        n = chunks_data(k, len - at);
        if (chunks_feed(k, data + at, n ? n : 1) < 0)
            return -1;
        if (n && to != at)
            memmove(data + to, data + at, n);
        to += n;
        at += n ? n : 1;
    }
    *used = at;
    return (ssize_t)to;
}

ssize_t front_loan_read(struct front_loan *l, char *out, size_t cap)
{
    struct body *b = &l->body;
    size_t used;
    ssize_t got;
    ssize_t n = 0;

    while (!b->done && n == 0) {
        got = take(l, out, cap);
        if (got <= 0)
            return got == -2 ? -2 : -1;
        if (b->kind == BODY_CHUNKED) {
            n = strip(&b->chunks, out, (size_t)got, &used);
            if (n < 0)
                return -1;
            b->done = chunks_done(&b->chunks);
        } else {
            n = body_take(b, out, (size_t)got);
            used = (size_t)n;
        }
        if (b->done && keep_rest(l, out + used, (size_t)got - used) < 0)
            return -1;
    }
    return n;
}
