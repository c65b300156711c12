#include "execd/exec/spool.h"

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "execd/fs/tmpfile.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

enum { SPOOL_STEP = 1 << 20 }; /* old output is dropped in pieces of this */

struct spool {
    struct spools *set;
    int fd;
    unsigned refs;
    uint64_t size;  /* end of the output */
    uint64_t start; /* what lies before was dropped */
    uint64_t max;
    bool failed; /* a write failed: everything since is missing */
};

struct spool *spool_new(struct spools *set, const char *tmpdir, struct err *e)
{
    struct spool *s = calloc(1, sizeof(*s));

    if (!s) {
        (void)err_nomem(e);
        return NULL;
    }
    s->refs = 1;
    s->max = SPOOL_DISK_MAX;
    s->fd = tmpfile_open(tmpdir);
    if (s->fd < 0) {
        s->max = SPOOL_MEMORY_MAX;
        s->fd = memfd_create("output", MFD_CLOEXEC);
    }
    if (s->fd < 0) {
        (void)err_sys(e, errno, "make a file for the output");
        free(s);
        return NULL;
    }
    s->set = set;
    set->n++;
    return s;
}

struct spool *spool_ref(struct spool *s)
{
    s->refs++;
    return s;
}

void spool_unref(struct spool *s)
{
    if (!s || --s->refs)
        return;
    (void)close(s->fd);
    s->set->n--;
    s->set->bytes -= s->size - s->start;
    free(s);
}

/* Gives the oldest output back to the file system; the offsets stay. */
static void drop_oldest(struct spool *s)
{
    uint64_t share = s->set->bytes > SPOOLS_MAX ? SPOOLS_MAX / s->set->n : s->max;
    uint64_t max = share < SPOOL_SHARE_MIN ? SPOOL_SHARE_MIN : share < s->max ? share : s->max;
    uint64_t keep = max - SPOOL_STEP;
    uint64_t to = s->size > keep ? (s->size - keep) & ~(uint64_t)4095 : 0;

    if (s->size - s->start <= max || to <= s->start)
        return;
    if (fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)s->start,
                  (off_t)(to - s->start)) < 0) {
        s->failed = true; /* no holes on this file system: stop instead of growing */
    } else {
        s->set->bytes -= to - s->start;
        s->start = to;
    }
}

void spool_append(struct spool *s, const char *data, size_t len)
{
    ssize_t n;

    while (len && !s->failed) {
        n = pwrite(s->fd, data, len, (off_t)s->size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            s->failed = true;
            break;
        }
        data += n;
        len -= (size_t)n;
        s->size += (uint64_t)n;
        s->set->bytes += (uint64_t)n;
        drop_oldest(s);
    }
}

uint64_t spool_size(const struct spool *s)
{
    return s->size;
}

/* Says where output is missing; nothing when none is. */
static int mark(const struct spool *s, uint64_t from, char *out, size_t max)
{
    if (from < s->start)
        return snprintf(out, max, "[output truncated: %" PRIu64 " bytes dropped here]\n",
                        s->start - from);
    return 0;
}

char *spool_read(struct spool *s, uint64_t from, size_t *len, uint64_t *next, struct err *e)
{
    char note[96];
    uint64_t at = from > s->size ? s->size : from;
    int noted = mark(s, at, note, sizeof(note));
    size_t want;
    AUTO_FREE char *out = NULL;
    ssize_t n = 0;

    if (at < s->start)
        at = s->start;
    want = s->size - at > SPOOL_READ_MAX ? SPOOL_READ_MAX : (size_t)(s->size - at);
    out = malloc(want + (size_t)noted + 1);
    if (!out) {
        (void)err_nomem(e);
        return NULL;
    }
    memcpy(out, note, (size_t)noted);
    if (want)
        n = pread(s->fd, out + noted, want, (off_t)at);
    if (n < 0) {
        (void)err_sys(e, errno, "read the output");
        return NULL;
    }
    *len = (size_t)noted + (size_t)n;
    *next = at + (uint64_t)n;
    out[*len] = '\0';
    return TAKE_PTR(out);
}
