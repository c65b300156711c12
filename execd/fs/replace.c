#include "execd/fs/replace.h"

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "execd/fs/put.h"

#include <string.h>

enum { REPLACE_BLOCK = 256 * 1024 };

/* Bytes of the file from `at` on. */
struct window {
    int fd;
    char *data;
    size_t len;
    size_t cap;
    uint64_t end; /* where in the file the window ends */
    bool last;    /* and the file, too */
};

static int window_fill(struct window *w, struct err *e)
{
    ssize_t n;

    while (!w->last && w->len < w->cap) {
        n = pread(w->fd, w->data + w->len, w->cap - w->len, (off_t)w->end);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(e, errno, "cannot read the file");
        w->last = n == 0;
        w->len += (size_t)n;
        w->end += (uint64_t)n;
    }
    return 0;
}

/* Drops what is in front of p. */
static void window_move(struct window *w, const char *p)
{
    w->len -= (size_t)(p - w->data);
    memmove(w->data, p, w->len);
}

/* Small writes collected. out NULL: nothing is written. */
struct sink {
    struct put *out;
    char *data;
    size_t len;
};

static int sink_flush(struct sink *s, struct err *e)
{
    size_t len = s->len;

    s->len = 0;
    return len ? put_write(s->out, s->data, len, e) : 0;
}

static int sink_put(struct sink *s, const char *data, size_t len, struct err *e)
{
    if (s->len + len > REPLACE_BLOCK && sink_flush(s, e) < 0)
        return -1;
    if (len > REPLACE_BLOCK)
        return put_write(s->out, data, len, e);
    memcpy(s->data + s->len, data, len);
    s->len += len;
    return 0;
}

/* How much of len bytes without a match can hold no beginning of one. */
static size_t settled(const struct window *w, const struct replace *r, size_t len)
{
    if (w->last)
        return len;
    return len >= r->old_len ? len - r->old_len + 1 : 0;
}

static int has_any(struct window *w, const struct replace *r, bool *any, struct err *e)
{
    do {
        if (watch_look(&r->watch, e) < 0 || window_fill(w, e) < 0)
            return -1;
        *any = memmem(w->data, w->len, r->old, r->old_len);
        window_move(w, w->data + settled(w, r, w->len));
    } while (!*any && !w->last);
    return 0;
}

static int copy(struct window *w, const struct replace *r, struct sink *to, uint64_t *count,
                struct err *e)
{
    const char *p;
    const char *hit;
    size_t left;

    do {
        if (watch_look(&r->watch, e) < 0 || window_fill(w, e) < 0)
            return -1;
        p = w->data;
        left = w->len;
        while ((hit = memmem(p, left, r->old, r->old_len))) {
            if (sink_put(to, p, (size_t)(hit - p), e) < 0 ||
                sink_put(to, r->new, r->new_len, e) < 0)
                return -1;
            p = hit + r->old_len;
            left = w->len - (size_t)(p - w->data);
            ++*count;
        }
        left = settled(w, r, left);
        if (sink_put(to, p, left, e) < 0)
            return -1;
        window_move(w, p + left);
    } while (!w->last);
    return sink_flush(to, e);
}

int replace_copy(int fd, const struct replace *r, const char *path, const char *tmpdir,
                 struct put *out, uint64_t *count, struct err *e)
{
    struct window w = { .fd = fd, .cap = r->old_len + REPLACE_BLOCK };
    AUTO_FREE char *data = malloc(w.cap);
    AUTO_FREE char *block = malloc(REPLACE_BLOCK);
    struct sink to = { .out = out, .data = block };
    bool any = false;

    if (!data || !block)
        return err_nomem(e);
    w.data = data;
    *count = 0;
    if (has_any(&w, r, &any, e) < 0 || (any && put_open(out, path, tmpdir, e) < 0))
        return -1;
    if (!any)
        return 0;
    w = (struct window){ .fd = fd, .data = data, .cap = w.cap };
    return copy(&w, r, &to, count, e);
}
