#include "execd/fs/put.h"

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/rand.h"
#include "execd/fs/path.h"
#include "execd/fs/tmpfile.h"

#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

enum { COPY_STEP = 1 << 20 };

/* What is there already, if anything: only a regular file may be replaced. */
static int look_at_target(struct put *p, struct err *e)
{
    struct stat st;

    if (lstat(p->target, &st) < 0)
        return errno == ENOENT || errno == ENOTDIR
                   ? 0
                   : err_sys(e, errno, "cannot write %.300s", p->target);
    if (S_ISDIR(st.st_mode))
        return err_sys(e, EISDIR, "cannot write %.300s", p->target);
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERRC_INTERNAL, "%.300s is not a regular file", p->target);
    p->exists = true;
    p->mode = st.st_mode & 07777;
    p->uid = st.st_uid;
    p->gid = st.st_gid;
    return 0;
}

static int open_beside(struct put *p, const char *dir)
{
    char hex[17];

    rand_hex(hex, 8);
    if (asprintf(&p->temp, "%s/.upload-%s", dir, hex) < 0) {
        p->temp = NULL;
        errno = ENOMEM;
        return -1;
    }
    p->fd = open(p->temp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (p->fd < 0) {
        int failed = errno;

        free(TAKE_PTR(p->temp));
        errno = failed;
    }
    return p->fd < 0 ? -1 : 0;
}

int put_open(struct put *p, const char *path, const char *tmpdir, struct err *e)
{
    AUTO_FREE char *dir = NULL;
    int failed;

    if (path_final(path, &p->target, e) < 0 || look_at_target(p, e) < 0)
        return -1;
    dir = path_parent(p->target);
    if (!dir)
        return err_nomem(e);
    if (path_make(dir, e) < 0) {
        e->code = ERRC_SYS;
        return -1;
    }
    if (open_beside(p, dir) == 0)
        return 0;
    failed = errno;
    if (p->exists && access(p->target, W_OK) == 0)
        p->fd = tmpfile_open(tmpdir);
    if (p->fd >= 0)
        return 0;
    (void)err_sys(e, failed, "cannot write %.300s", p->target);
    e->code = ERRC_SYS;
    return -1;
}

int put_write(struct put *p, const char *data, size_t len, struct err *e)
{
    ssize_t n;

    while (len) {
        n = write(p->fd, data, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(e, errno, "cannot write %.300s", p->target);
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

int put_copy(int from, int to, struct err *e)
{
    off_t at = 0;
    ssize_t n;

    for (;;) {
        n = sendfile(to, from, &at, COPY_STEP);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(e, errno, "cannot copy");
        if (n == 0)
            return 0;
    }
}

/* Only the super-user may give a file away: keeping the owner is tried, a change that was asked
 * for must work. */
int put_seal(struct put *p, const struct perms *perms, mode_t new_mode, struct err *e)
{
    struct perms all = *perms;

    if (!p->temp)
        return 0;
    if (p->exists)
        (void)!fchown(p->fd, p->uid, p->gid);
    if (!all.has_mode) {
        all.has_mode = true;
        all.mode = p->exists ? p->mode : new_mode;
    }
    if (perms_apply_fd(p->fd, &all, e) < 0)
        return err_wrap(e, "%.300s", p->target);
    if (close(TAKE_FD(p->fd)) < 0) /* some file systems report a full disk only here */
        return err_sys(e, errno, "cannot write %.300s", p->target);
    return 0;
}

static int copy_in_place(struct put *p, const struct perms *perms, struct err *e)
{
    AUTO_FD int from = p->temp ? open(p->temp, O_RDONLY | O_CLOEXEC) : TAKE_FD(p->fd);
    AUTO_FD int to = open(p->target, O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

    if (from < 0 || to < 0)
        return err_sys(e, errno, "cannot write %.300s", p->target);
    if (put_copy(from, to, e) < 0 || perms_apply_fd(to, perms, e) < 0)
        return err_wrap(e, "%.300s", p->target);
    return 0;
}

int put_commit(struct put *p, const struct perms *perms, struct err *e)
{
    if (p->temp && rename(p->temp, p->target) == 0) {
        free(TAKE_PTR(p->temp));
        return 0;
    }
    if (p->temp && errno != EBUSY) /* EBUSY: the target is a mount of its own */
        return err_sys(e, errno, "cannot write %.300s", p->target);
    return copy_in_place(p, perms, e);
}

void put_free(struct put *p)
{
    if (p->fd >= 0)
        (void)close(p->fd);
    if (p->temp)
        (void)unlink(p->temp);
    free(p->temp);
    free(p->target);
    *p = PUT_INIT;
}
