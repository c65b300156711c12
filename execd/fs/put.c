#include "execd/fs/put.h"

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/rand.h"
#include "execd/fs/path.h"
#include "execd/fs/tmpfile.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
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

static int cannot(const struct put *p, int errnum, struct err *e)
{
    (void)err_sys(e, errnum, "cannot write %.300s", p->target);
    e->code = errnum == ENOMEM ? ERRC_NOMEM : ERRC_SYS;
    return -1;
}

/* A name beside the target that is nobody's. */
static char *hidden_name(const struct put *p)
{
    AUTO_FREE char *dir = path_parent(p->target);
    char hex[17];
    char *name = NULL;

    rand_hex(hex, 8);
    if (!dir || asprintf(&name, "%s/.upload-%s", strcmp(dir, "/") == 0 ? "" : dir, hex) < 0)
        return NULL;
    return name;
}

static int open_beside(struct put *p)
{
    int failed;

    p->temp = hidden_name(p);
    if (!p->temp)
        return ENOMEM;
    p->fd = open(p->temp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (p->fd >= 0)
        return 0;
    failed = errno;
    free(TAKE_PTR(p->temp));
    return failed;
}

/* 0 or an errno value. */
static int open_new(struct put *p, const char *dir)
{
    p->fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (p->fd >= 0)
        return 0;
    if (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL || errno == ENOENT)
        return open_beside(p); /* the kernel or the file system does not know such files */
    return errno;
}

int put_open(struct put *p, const char *path, const char *tmpdir, struct err *e)
{
    AUTO_FREE char *dir = NULL;
    int failed;

    if (path_final(path, &p->target, e) < 0 || look_at_target(p, e) < 0)
        return -1;
    if (p->exists && faccessat(AT_FDCWD, p->target, W_OK, AT_EACCESS) < 0 && errno != ETXTBSY)
        return cannot(p, errno, e);
    dir = path_parent(p->target);
    if (!dir)
        return err_nomem(e);
    if (path_make(dir, 0777, e) < 0) {
        e->code = ERRC_SYS;
        return -1;
    }
    failed = open_new(p, dir);
    if (failed && p->exists) {
        p->fd = tmpfile_open(tmpdir);
        p->in_place = true;
    }
    return p->fd >= 0 ? 0 : cannot(p, failed, e);
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

/* Only the super-user may give a file away. */
static bool keeps_owner(const struct put *p)
{
    struct stat st;

    return fchown(p->fd, p->uid, p->gid) == 0 ||
           (fstat(p->fd, &st) == 0 && st.st_uid == p->uid && st.st_gid == p->gid);
}

int put_seal(struct put *p, const struct perms *perms, mode_t new_mode, struct err *e)
{
    struct perms all = *perms;

    p->in_place = p->in_place || (p->exists && !keeps_owner(p));
    if (p->in_place)
        return 0;
    if (!all.has_mode) {
        all.has_mode = true;
        all.mode = p->exists ? p->mode : new_mode;
    }
    if (perms_apply_fd(p->fd, &all, e) < 0)
        return err_wrap(e, "%.300s", p->target);
    return 0;
}

/* Some file systems report a full disk only here. */
static int close_bytes(struct put *p, struct err *e)
{
    return p->fd >= 0 && close(TAKE_FD(p->fd)) < 0 ? cannot(p, errno, e) : 0;
}

/* Gives the bytes a name of this path; 0 or an errno value. */
static int link_bytes(const struct put *p, const char *path)
{
    char self[32];

    (void)snprintf(self, sizeof(self), "/proc/self/fd/%d", p->fd);
    if (linkat(AT_FDCWD, self, AT_FDCWD, path, AT_SYMLINK_FOLLOW) == 0)
        return 0;
    if (errno == ENOENT && linkat(p->fd, "", AT_FDCWD, path, AT_EMPTY_PATH) == 0)
        return 0; /* without /proc, for who may */
    return errno;
}

static int need_name(struct put *p)
{
    int failed;

    if (p->temp)
        return 0;
    p->temp = hidden_name(p);
    failed = p->temp ? link_bytes(p, p->temp) : ENOMEM;
    if (failed)
        free(TAKE_PTR(p->temp));
    return failed;
}

int put_park(struct put *p, struct err *e)
{
    int failed = p->in_place ? 0 : need_name(p);

    if (failed)
        return cannot(p, failed, e);
    return p->in_place ? 0 : close_bytes(p, e);
}

static int copy_in_place(struct put *p, const struct perms *perms, struct err *e)
{
    AUTO_FD int from = p->fd < 0 ? open(p->temp, O_RDONLY | O_CLOEXEC) : TAKE_FD(p->fd);
    AUTO_FD int to = open(p->target, O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

    if (from < 0 || to < 0)
        return cannot(p, errno, e);
    if (put_copy(from, to, e) < 0 || perms_apply_fd(to, perms, e) < 0)
        return err_wrap(e, "%.300s", p->target);
    return 0;
}

int put_commit(struct put *p, const struct perms *perms, struct err *e)
{
    int failed;

    if (p->in_place)
        return copy_in_place(p, perms, e);
    if (!p->exists && !p->temp) {
        failed = link_bytes(p, p->target);
        if (failed != EEXIST)
            return failed ? cannot(p, failed, e) : close_bytes(p, e);
    }
    failed = need_name(p);
    if (!failed && close_bytes(p, e) < 0)
        return -1;
    if (!failed && rename(p->temp, p->target) == 0) {
        free(TAKE_PTR(p->temp));
        return 0;
    }
    failed = failed ? failed : errno;
    if (failed == EBUSY) /* the target is a mount of its own */
        return copy_in_place(p, perms, e);
    return cannot(p, failed, e);
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
