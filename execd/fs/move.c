#include "execd/fs/move.h"

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/rand.h"
#include "execd/fs/path.h"
#include "execd/fs/put.h"
#include "execd/fs/tree.h"
#include "execd/fs/watch.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

/* ---- copying: functions return 0 or -1 with errno ---- */

struct copy {
    dev_t dev; /* the copy itself: it must not be copied into itself */
    ino_t ino;
    const struct watch *watch;
};

/* Who may not give files away keeps them, as mv does; then they must not gain rights. */
static int keep(int fd, const struct stat *st)
{
    const struct timespec times[] = { st->st_atim, st->st_mtim };
    mode_t mode = st->st_mode & 07777;

    if (fchown(fd, st->st_uid, st->st_gid) < 0) {
        if (errno != EPERM)
            return -1;
        mode &= 0777;
    }
    return fchmod(fd, mode) < 0 ? -1 : futimens(fd, times);
}

static int copy_file(int from, int to, const char *name, const char *as, const struct stat *st)
{
    AUTO_FD int in = openat(from, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    AUTO_FD int out = -1;
    struct err e = { 0 };

    if (in < 0)
        return -1;
    out = openat(to, as, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (out < 0)
        return -1;
    if (put_copy(in, out, &e) < 0) {
        errno = e.sys;
        return -1;
    }
    return keep(out, st);
}

static int copy_link(int from, int to, const char *name, const char *as, const struct stat *st)
{
    char target[PATH_MAX];
    ssize_t n = readlinkat(from, name, target, sizeof(target) - 1);

    if (n < 0)
        return -1;
    target[n] = '\0';
    if (symlinkat(target, to, as) < 0)
        return -1;
    (void)!fchownat(to, as, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW); /* tried, as in keep */
    return 0;
}

static int copy_special(int to, const char *as, const struct stat *st)
{
    if (mknodat(to, as, st->st_mode & (S_IFMT | 0777), st->st_rdev) < 0)
        return -1;
    (void)!fchownat(to, as, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW);
    return fchmodat(to, as, st->st_mode & 0777, 0);
}

static int copy_entry(struct copy *c, int from, int to, const char *name, const char *as,
                      unsigned depth);

/* Takes over from. */
static int copy_content(struct copy *c, int from, int to, unsigned depth)
{
    DIR *dir = fdopendir(from);
    struct dirent *de;
    int rc = 0;
    int failed;

    if (!dir) {
        failed = errno;
        (void)close(from);
        errno = failed;
        return -1;
    }
    while (rc == 0 && (errno = 0, de = readdir(dir)))
        if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
            rc = copy_entry(c, dirfd(dir), to, de->d_name, de->d_name, depth);
    if (rc == 0 && errno)
        rc = -1;
    failed = errno;
    (void)closedir(dir);
    errno = failed;
    return rc;
}

static int copy_dir(struct copy *c, int from, int to, const char *name, const char *as,
                    unsigned depth)
{
    AUTO_FD int in = openat(from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    AUTO_FD int out = -1;
    struct stat st;
    struct stat made;

    if (in < 0 || fstat(in, &st) < 0 || mkdirat(to, as, 0700) < 0)
        return -1;
    out = openat(to, as, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (out < 0 || fstat(out, &made) < 0)
        return -1;
    if (!c->ino) {
        c->dev = made.st_dev;
        c->ino = made.st_ino;
    }
    if (copy_content(c, TAKE_FD(in), out, depth) < 0)
        return -1;
    return keep(out, &st);
}

static int copy_entry(struct copy *c, int from, int to, const char *name, const char *as,
                      unsigned depth)
{
    struct stat st;

    if (watch_look(c->watch, NULL) < 0) {
        errno = ECANCELED;
        return -1;
    }
    if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -1;
    if (S_ISLNK(st.st_mode))
        return copy_link(from, to, name, as, &st);
    if (S_ISREG(st.st_mode))
        return copy_file(from, to, name, as, &st);
    if (!S_ISDIR(st.st_mode))
        return copy_special(to, as, &st);
    if (!depth || (c->ino && st.st_ino == c->ino && st.st_dev == c->dev)) {
        errno = depth ? EINVAL : ELOOP;
        return -1;
    }
    return copy_dir(c, from, to, name, as, depth - 1);
}

/* ---- moving ---- */

static int cannot(struct err *e, int errnum, const char *src, const char *dest)
{
    (void)err_sys(e, errnum, "cannot move %.200s to %.200s", src, dest);
    e->code = errnum == ENOMEM ? ERRC_NOMEM : ERRC_SYS;
    return -1;
}

static int occupied(struct err *e, const char *dest)
{
    return err_set(e, ERRC_INTERNAL, "%.300s exists already", dest);
}

/* 0 or an errno value; EEXIST when there is something, also on file systems where the kernel does
 * not look by itself. */
static int rename_new(const char *src, const char *dest)
{
    struct stat st;

    if (renameat2(AT_FDCWD, src, AT_FDCWD, dest, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return errno;
    if (lstat(dest, &st) == 0)
        return EEXIST;
    return rename(src, dest) == 0 ? 0 : errno;
}

/* 0 or an errno value. */
static int remove_any(const char *path, bool is_dir)
{
    struct err e = { 0 };

    if (!is_dir)
        return unlink(path) == 0 ? 0 : errno;
    return tree_remove(path, &e) == 0 ? 0 : e.sys;
}

/* What can be known before anything is copied. */
static int may_remove(const char *src, struct err *e)
{
    AUTO_FREE char *parent = path_parent(src);

    if (!parent)
        return err_nomem(e);
    if (faccessat(AT_FDCWD, parent, W_OK | X_OK, AT_EACCESS) < 0)
        return err_sys(e, errno, "cannot remove %.300s from its directory", src);
    return 0;
}

static int move_across(const char *src, const char *dest, const char *parent, bool is_dir,
                       const struct watch *watch, struct err *e)
{
    AUTO_FREE char *temp = NULL;
    struct copy c = { .watch = watch };
    char hex[17];
    int failed;

    if (may_remove(src, e) < 0)
        return -1;
    rand_hex(hex, 8);
    if (asprintf(&temp, "%s/.move-%s", strcmp(parent, "/") == 0 ? "" : parent, hex) < 0) {
        temp = NULL;
        return err_nomem(e);
    }
    failed = copy_entry(&c, AT_FDCWD, AT_FDCWD, src, temp, TREE_DEPTH_MAX) < 0 ? errno : 0;
    if (!failed)
        failed = rename_new(temp, dest);
    if (failed) {
        (void)remove_any(temp, is_dir); /* what is left of it has a hidden name */
        return failed == EEXIST ? occupied(e, dest) : cannot(e, failed, src, dest);
    }
    failed = remove_any(src, is_dir);
    if (failed)
        return err_sys(e, failed, "%.200s was copied to %.200s, but cannot be removed", src, dest);
    return 0;
}

int move_path(const char *src, const char *dest, const struct watch *watch, struct err *e)
{
    AUTO_FREE char *parent = path_parent(dest);
    struct stat st;
    int failed;

    if (!parent)
        return err_nomem(e);
    if (lstat(src, &st) < 0)
        return path_fail(e, errno, "move", src);
    if (path_make(parent, 0755, e) < 0) {
        e->code = ERRC_SYS;
        return -1;
    }
    failed = rename_new(src, dest);
    if (failed == EEXIST)
        return occupied(e, dest);
    if (failed == EXDEV)
        return move_across(src, dest, parent, S_ISDIR(st.st_mode), watch, e);
    return failed ? cannot(e, failed, src, dest) : 0;
}
