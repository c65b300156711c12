#include "execd/fs/path.h"

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "execd/fs/env.h"
#include "execd/fs/expand.h"

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

enum { LINKS_MAX = 40, PATH_BYTES_MAX = 4 * PATH_MAX };

int path_fail(struct err *e, int errnum, const char *doing, const char *path)
{
    (void)err_sys(e, errnum, "cannot %s %.300s", doing, path);
    if (errnum == ENOENT || errnum == ENOTDIR) {
        e->code = ERRC_NOT_FOUND;
        e->api_code = "FILE_NOT_FOUND";
    }
    return -1;
}

void path_clean(char *path)
{
    char *w = path; /* end of what is clean; never behind r */
    const char *r = path;
    size_t len;

    while (*r) {
        r += strspn(r, "/");
        len = strcspn(r, "/");
        if (len == 2 && memcmp(r, "..", 2) == 0) {
            while (w > path && *--w != '/')
                ;
        } else if (len && !(len == 1 && *r == '.')) {
            *w++ = '/';
            memmove(w, r, len);
            w += len;
        }
        r += len;
    }
    if (w == path)
        *w++ = '/';
    *w = '\0';
}

/* An absolute path from one that may be relative. */
static int absolute(const char *path, const struct path_from *from, char **out, struct err *e)
{
    AUTO_BUF struct buf b = BUF_INIT(PATH_BYTES_MAX);
    bool relative = path[0] != '/';
    AUTO_FREE char *here = relative && !from->cwd ? getcwd(NULL, 0) : NULL;
    const char *cwd = from->cwd ? from->cwd : here;

    if (relative && !cwd)
        return err_sys(e, errno, "find the working directory");
    if ((relative && (buf_puts(&b, cwd) < 0 || buf_puts(&b, "/") < 0)) || buf_puts(&b, path) < 0)
        return err_set(e, ERRC_INTERNAL, "the path is too long");
    path_clean(b.data);
    *out = buf_take(&b);
    return *out ? 0 : err_nomem(e);
}

int path_resolve(const char *arg, const struct path_from *from, char **out, struct err *e)
{
    AUTO_FREE char *plain = NULL;
    AUTO_FREE char *literal = NULL;
    struct stat st;

    if (!*arg)
        return err_set(e, ERRC_INVALID, "path: must not be empty");
    if (expand_path(arg, from->vars, &plain, e) == 0)
        return absolute(plain, from, out, e);
    e->code = ERRC_INTERNAL; /* contract/execd.md 3: 500 on files */
    if (absolute(arg, from, &literal, NULL) < 0 || lstat(literal, &st) < 0)
        return -1;
    *out = TAKE_PTR(literal);
    return 0;
}

char *path_parent(const char *path)
{
    const char *slash = strrchr(path, '/');

    if (!slash || slash == path)
        return strdup("/");
    return strndup(path, (size_t)(slash - path));
}

int path_final(const char *path, char **out, struct err *e)
{
    AUTO_FREE char *now = strdup(path);
    char target[PATH_MAX];
    ssize_t n;
    int i;

    for (i = 0; now && i < LINKS_MAX; i++) {
        n = readlink(now, target, sizeof(target) - 1);
        if (n < 0) {
            *out = TAKE_PTR(now);
            return 0;
        }
        target[n] = '\0';
        AUTO_FREE char *dir = path_parent(now);
        char *next = NULL;

        if (!dir)
            break;
        if (target[0] == '/')
            next = strdup(target);
        else if (asprintf(&next, "%s/%s", dir, target) < 0)
            next = NULL;
        free(now);
        now = next;
    }
    return now ? path_fail(e, ELOOP, "follow", path) : err_nomem(e);
}

int path_make(const char *dir, mode_t mode, struct err *e)
{
    AUTO_FREE char *path = strdup(dir);
    struct stat st;
    char *p;

    if (!path)
        return err_nomem(e);
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return 0;
    for (p = path + 1; *p; p++) {
        if (*p != '/')
            continue;
        *p = '\0';
        if (mkdir(path, mode) < 0 && errno != EEXIST)
            return err_sys(e, errno, "cannot create directory %.300s", path);
        *p = '/';
    }
    if (mkdir(path, mode) < 0 && (errno != EEXIST || stat(path, &st) < 0 || !S_ISDIR(st.st_mode)))
        return err_sys(e, errno == EEXIST ? ENOTDIR : errno, "cannot create directory %.300s",
                       path);
    return 0;
}

static int refuse_type(const char *path, const struct stat *st, struct err *e)
{
    return err_set(e, ERRC_INTERNAL, "%.300s is %s", path,
                   S_ISDIR(st->st_mode) ? "a directory" : "not a regular file");
}

/* Opening a FIFO or a device would block or do something: looked at before, and again after. */
int path_open_regular(const char *path, const char *doing, struct stat *st, struct err *e)
{
    AUTO_FD int fd = -1;

    if (stat(path, st) < 0)
        return path_fail(e, errno, doing, path);
    if (!S_ISREG(st->st_mode))
        return refuse_type(path, st, e);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, st) < 0)
        return path_fail(e, errno, doing, path);
    return S_ISREG(st->st_mode) ? TAKE_FD(fd) : refuse_type(path, st, e);
}
