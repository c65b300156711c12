#include "execd/fs/tree.h"

#include "common/base/cleanup.h"
#include "common/base/err.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

/* ---- walk ---- */

struct walk {
    int (*entry)(void *arg, const char *path, const struct stat *st, struct err *e);
    void *arg;
    struct err *e;
};

static int not_dots(const struct dirent *de)
{
    return strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0;
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int walk_dir(const struct walk *w, const char *dir, unsigned depth);

static int walk_entry(const struct walk *w, const char *dir, const char *name, unsigned depth)
{
    AUTO_FREE char *path = NULL;
    struct stat st;

    if (asprintf(&path, "%s/%s", strcmp(dir, "/") == 0 ? "" : dir, name) < 0) {
        path = NULL;
        return err_nomem(w->e);
    }
    if (lstat(path, &st) < 0)
        return errno == ENOENT ? 0 : err_sys(w->e, errno, "cannot look at %.300s", path);
    if (w->entry(w->arg, path, &st, w->e) < 0)
        return -1;
    return S_ISDIR(st.st_mode) && depth > 1 ? walk_dir(w, path, depth - 1) : 0;
}

static int walk_dir(const struct walk *w, const char *dir, unsigned depth)
{
    struct dirent **names;
    int n = scandir(dir, &names, not_dots, by_bytes);
    int rc = 0;
    int i;

    if (n < 0)
        return errno == ENOENT ? 0 : err_sys(w->e, errno, "cannot list %.300s", dir);
    for (i = 0; i < n; i++) {
        if (rc == 0)
            rc = walk_entry(w, dir, names[i]->d_name, depth);
        free(names[i]);
    }
    free(names);
    return rc;
}

int tree_walk(const char *dir, unsigned depth,
              int (*entry)(void *arg, const char *path, const struct stat *st, struct err *e),
              void *arg, struct err *e)
{
    const struct walk w = { entry, arg, e };

    if (!depth)
        return 0;
    return walk_dir(&w, dir, depth < TREE_DEPTH_MAX ? depth : TREE_DEPTH_MAX);
}

/* ---- remove ---- */

static int remove_at(int parent, const char *name, unsigned depth);

/* Takes over fd. */
static int empty_dir(int fd, unsigned depth)
{
    DIR *dir = fdopendir(fd);
    struct dirent *de;
    int rc = 0;

    if (!dir) {
        (void)close(fd);
        return -1;
    }
    while (rc == 0 && (errno = 0, de = readdir(dir)))
        if (not_dots(de))
            rc = remove_at(dirfd(dir), de->d_name, depth);
    if (rc == 0 && errno)
        rc = -1;
    int failed = errno;

    (void)closedir(dir);
    errno = failed;
    return rc;
}

static int remove_at(int parent, const char *name, unsigned depth)
{
    int fd;

    if (unlinkat(parent, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM) /* POSIX has EPERM for a directory */
        return -1;
    if (!depth) {
        errno = ELOOP;
        return -1;
    }
    fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || empty_dir(fd, depth - 1) < 0)
        return -1;
    return unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT ? 0 : -1;
}

int tree_remove(const char *dir, struct err *e)
{
    if (remove_at(AT_FDCWD, dir, TREE_DEPTH_MAX) == 0)
        return 0;
    return err_sys(e, errno, "cannot remove %.300s", dir);
}
