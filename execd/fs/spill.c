#include "execd/fs/spill.h"

#include "common/base/err.h"
#include "execd/fs/tmpfile.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int open_file(struct spill *s, struct err *e)
{
    if (s->fd < 0)
        s->fd = tmpfile_open(s->tmpdir);
    if (s->fd < 0) /* nothing is writable: memory that is none of this process's */
        s->fd = memfd_create("answer", MFD_CLOEXEC);
    return s->fd < 0 ? err_sys(e, errno, "no temporary file can be made") : 0;
}

static int write_out(struct spill *s, const char *data, size_t len, struct err *e)
{
    ssize_t n;

    for (; len; data += n, len -= (size_t)n, s->len += (uint64_t)n) {
        n = write(s->fd, data, len);
        if (n < 0 && errno == EINTR)
            n = 0;
        else if (n < 0)
            return err_sys(e, errno, "cannot write a temporary file");
    }
    return 0;
}

static int flush(struct spill *s, struct err *e)
{
    if (open_file(s, e) < 0 || write_out(s, s->mem.data, s->mem.len, e) < 0)
        return -1;
    buf_clear(&s->mem);
    return 0;
}

int spill_puts(struct spill *s, const char *text, struct err *e)
{
    size_t len = strlen(text);

    if (s->len + s->mem.len + len > SPILL_MAX)
        return err_set(e, ERRC_INTERNAL, "the answer is longer than %d MiB; ask for less",
                       SPILL_MAX >> 20);
    if (s->mem.len + len > SPILL_MEMORY && flush(s, e) < 0)
        return -1;
    if (len > SPILL_MEMORY)
        return write_out(s, text, len, e);
    return buf_append(&s->mem, text, len) < 0 ? err_nomem(e) : 0;
}

int spill_end(struct spill *s, struct err *e)
{
    return s->fd < 0 ? 0 : flush(s, e);
}

void spill_free(struct spill *s)
{
    if (s->fd >= 0)
        (void)close(s->fd);
    buf_free(&s->mem);
    *s = SPILL_INIT(NULL);
}
