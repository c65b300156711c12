#include "execd/fs/slice.h"

#include "common/base/cleanup.h"
#include "common/base/err.h"

#include <string.h>

enum { SLICE_BLOCK = 64 * 1024 };

/* What the scan knows at one position. */
struct scan {
    uint64_t line; /* the line this byte belongs to */
    uint64_t first;
    uint64_t last;   /* of the slice; UINT64_MAX: none */
    char before;     /* the byte before */
    uint64_t crlfs;  /* within the slice, the last line's included */
    bool found;      /* the slice has begun */
    bool ended_crlf; /* its last line so far ends with "\r\n" */
    bool ended_lf;
};

/* Takes the line break at pos. true: it is the slice's last. */
static bool take_break(struct scan *s, uint64_t pos, struct slice *out)
{
    if (s->line >= s->first) {
        s->ended_crlf = s->before == '\r' && pos > out->off;
        s->ended_lf = true;
        s->crlfs += s->ended_crlf;
        out->len = pos + 1 - out->off;
    }
    s->line++;
    if (s->line == s->first) {
        out->off = pos + 1;
        s->found = true;
    }
    return s->line > s->last;
}

static bool take_block(struct scan *s, const char *data, size_t n, uint64_t at, struct slice *out)
{
    const char *p = data;
    const char *lf;

    while ((lf = memchr(p, '\n', n - (size_t)(p - data)))) {
        if (lf > data)
            s->before = lf[-1];
        if (take_break(s, at + (uint64_t)(lf - data), out))
            return true;
        p = lf + 1;
    }
    if (n)
        s->before = data[n - 1];
    if (p < data + n && s->line >= s->first) {
        s->ended_lf = false;
        out->len = at + n - out->off;
    }
    return false;
}

int slice_find(int fd, uint64_t first, uint64_t limit, struct slice *out, struct err *e)
{
    AUTO_FREE char *data = malloc(SLICE_BLOCK);
    struct scan s = { .line = 1, .first = first, .found = first == 1 };
    uint64_t at = 0;
    ssize_t n;

    if (!data)
        return err_nomem(e);
    s.last = limit && limit - 1 <= UINT64_MAX - first ? first + limit - 1 : UINT64_MAX;
    *out = (struct slice){ 0 };
    for (;;) {
        n = pread(fd, data, SLICE_BLOCK, (off_t)at);
        if (n < 0)
            return err_sys(e, errno, "cannot read the file");
        if (n == 0 || take_block(&s, data, (size_t)n, at, out))
            break;
        at += (uint64_t)n;
    }
    if (!s.found)
        out->len = 0;
    if (out->len && !s.ended_lf && s.before == '\r')
        out->len--;
    if (out->len && s.ended_lf) {
        out->len -= 1 + (uint64_t)s.ended_crlf;
        s.crlfs -= s.ended_crlf;
    }
    out->crlf = s.crlfs > 0;
    return 0;
}

static int write_all(int to, const char *data, size_t len, struct err *e)
{
    ssize_t n;

    for (; len; data += n, len -= (size_t)n) {
        n = write(to, data, len);
        if (n < 0)
            return err_sys(e, errno, "cannot write a temporary file");
    }
    return 0;
}

int slice_copy(int fd, const struct slice *s, int to, uint64_t *len, struct err *e)
{
    AUTO_FREE char *data = malloc(SLICE_BLOCK + 1);
    uint64_t done = 0;
    size_t want;
    size_t i;
    size_t w;
    ssize_t n;

    if (!data)
        return err_nomem(e);
    for (*len = 0; done < s->len; done += (uint64_t)n) {
        want = s->len - done < SLICE_BLOCK ? (size_t)(s->len - done) : SLICE_BLOCK;
        n = pread(fd, data, want, (off_t)(s->off + done));
        if (n <= 0)
            return err_sys(e, n < 0 ? errno : EIO, "cannot read the file");
        if (n > 1 && data[n - 1] == '\r') /* its "\n" must be seen with it */
            n--;
        for (i = w = 0; i < (size_t)n; i++) {
            bool drop = data[i] == '\r' && i + 1 < (size_t)n && data[i + 1] == '\n';

            if (!drop)
                data[w++] = data[i];
        }
        if (write_all(to, data, w, e) < 0)
            return -1;
        *len += w;
    }
    return 0;
}
