#include "execd/fs/tree.h"

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* ---- the names of one directory ---- */

struct list {
    struct buf text; /* the names, each with its NUL */
    char **names;    /* into text, once all are there */
    size_t n;
};

static void list_free(struct list *l)
{
    buf_free(&l->text);
    free(l->names);
}

/* An errno value; ENOSPC: the names are more than the walk may hold. */
static int list_read(struct list *l, const char *dir)
{
    DIR *d = opendir(dir);
    struct dirent *de;
    int failed = d ? 0 : errno;

    while (!failed && (errno = 0, de = readdir(d))) {
        if (is_dots(de->d_name))
            continue;
        if (buf_append(&l->text, de->d_name, strlen(de->d_name) + 1) < 0)
            failed = ENOSPC;
        l->n++;
    }
    failed = failed ? failed : d ? errno : 0;
    if (d)
        (void)closedir(d);
    return failed;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int list_sort(struct list *l)
{
    char *p = l->text.data;
    size_t i;

    l->names = malloc((l->n + 1) * sizeof(*l->names));
    if (!l->names)
        return ENOMEM;
    for (i = 0; i < l->n; i++, p += strlen(p) + 1)
        l->names[i] = p;
    qsort(l->names, l->n, sizeof(*l->names), by_bytes);
    return 0;
}

/* ---- walk ---- */

struct walk {
    const struct tree_visit *visit;
    struct buf path; /* where it is */
    size_t held;     /* bytes of names, of all directories above */
    struct err *e;
};

static int walk_dir(struct walk *w, unsigned depth);

/* Visits the entry that w->path names, and what is in it. */
static int walk_entry(struct walk *w, unsigned depth)
{
    struct stat st;

    if (watch_look(&w->visit->watch, w->e) < 0)
        return -1;
    if (lstat(w->path.data, &st) < 0)
        return errno == ENOENT ? 0 : err_sys(w->e, errno, "cannot look at %.300s", w->path.data);
    if (w->visit->entry(w->visit->arg, w->path.data, &st, w->e) < 0)
        return -1;
    return S_ISDIR(st.st_mode) && depth > 1 ? walk_dir(w, depth - 1) : 0;
}

static int walk_names(struct walk *w, const struct list *l, unsigned depth)
{
    size_t len = w->path.len;
    size_t i;
    int rc = 0;

    for (i = 0; i < l->n && rc == 0; i++) {
        if ((len > 1 && buf_puts(&w->path, "/") < 0) || buf_puts(&w->path, l->names[i]) < 0)
            return err_sys(w->e, ENAMETOOLONG, "cannot look below %.300s", w->path.data);
        rc = walk_entry(w, depth);
        w->path.data[len] = '\0';
        w->path.len = len;
    }
    return rc;
}

/* The depth is bounded by the length of a path. */
static int walk_dir(struct walk *w, unsigned depth)
{
    struct list l = { .text = BUF_INIT(TREE_NAMES_MAX - w->held) };
    int failed = list_read(&l, w->path.data);
    bool top = w->held == 0;
    int rc = 0;

    if (!failed)
        failed = list_sort(&l);
    if (failed && failed != ENOENT && (top || failed != EACCES || !w->visit->skip_closed))
        rc = failed == ENOSPC
                 ? err_set(w->e, ERRC_INTERNAL, "%.300s has too many names", w->path.data)
                 : err_sys(w->e, failed, "cannot list %.300s", w->path.data);
    w->held += l.text.len + 1;
    if (!failed)
        rc = walk_names(w, &l, depth);
    w->held -= l.text.len + 1;
    list_free(&l);
    return rc;
}

int tree_walk(const char *dir, unsigned depth, const struct tree_visit *visit, struct err *e)
{
    struct walk w = { .visit = visit, .path = BUF_INIT(PATH_MAX - 1), .e = e };
    int rc;

    if (!depth)
        return 0;
    rc = buf_puts(&w.path, dir) < 0 ? err_sys(e, ENAMETOOLONG, "cannot list %.300s", dir)
                                    : walk_dir(&w, depth);
    buf_free(&w.path);
    return rc;
}

/* ---- remove: a descriptor or two at any depth. Functions return -1 with errno. ---- */

/* A directory that is being emptied, above the current one. */
struct level {
    dev_t dev;
    ino_t ino;
    char child[NAME_MAX + 1]; /* the one below, to be removed after its content */
};

struct removal {
    struct level *levels;
    size_t n;
    size_t cap;
};

static int go_down(struct removal *r, int fd, const char *child)
{
    size_t cap = r->cap ? 2 * r->cap : 16;
    struct level *grown;
    struct stat st;

    if (r->n == TREE_LEVELS_MAX || strlen(child) > NAME_MAX) {
        errno = ENAMETOOLONG;
        return -1;
    }
    if (fstat(fd, &st) < 0)
        return -1;
    if (r->n == r->cap) {
        grown = realloc(r->levels, cap * sizeof(*grown));
        if (!grown)
            return -1;
        r->levels = grown;
        r->cap = cap;
    }
    r->levels[r->n] = (struct level){ .dev = st.st_dev, .ino = st.st_ino };
    memcpy(r->levels[r->n++].child, child, strlen(child) + 1);
    return openat(fd, child, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* The directory above, which must be the one that was come from. */
static int go_up(struct removal *r, int fd)
{
    const struct level *l = &r->levels[--r->n];
    AUTO_FD int up = openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat st;

    if (up < 0 || fstat(up, &st) < 0)
        return -1;
    if (st.st_dev != l->dev || st.st_ino != l->ino) {
        errno = ENOENT; /* it was moved meanwhile */
        return -1;
    }
    if (unlinkat(up, l->child, AT_REMOVEDIR) < 0 && errno != ENOENT)
        return -1;
    return TAKE_FD(up);
}

/* 1: it is gone; 0: it is a directory with content. */
static int remove_entry(int fd, const char *name)
{
    if (unlinkat(fd, name, 0) == 0 || errno == ENOENT)
        return 1;
    if (errno != EISDIR && errno != EPERM) /* POSIX has EPERM for a directory */
        return -1;
    if (unlinkat(fd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return 1;
    if (errno == ENOTEMPTY || errno == EEXIST)
        return 0;
    errno = errno == ENOTDIR ? EPERM : errno; /* it was no directory, but may not be removed */
    return -1;
}

/* Removes what lies in fd until there is a directory to go down to: its descriptor. -2: fd is
 * empty. */
static int sweep(struct removal *r, int fd)
{
    int again = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = again < 0 ? NULL : fdopendir(again);
    struct dirent *de = NULL;
    int gone = 1;
    int below = -2;
    int failed;

    if (!dir) {
        failed = errno;
        if (again >= 0)
            (void)close(again);
        errno = failed;
        return -1;
    }
    while (gone == 1 && (errno = 0, de = readdir(dir)))
        if (!is_dots(de->d_name))
            gone = remove_entry(fd, de->d_name);
    if (gone == 0)
        below = go_down(r, fd, de->d_name);
    else if (gone < 0 || errno)
        below = -1;
    failed = errno;
    (void)closedir(dir);
    errno = failed;
    return below;
}

/* Takes over fd. */
static int empty(struct removal *r, int fd)
{
    for (;;) {
        AUTO_FD int now = fd;
        int next = sweep(r, now);

        if (next == -2 && !r->n)
            return 0;
        fd = next == -2 ? go_up(r, now) : next;
        if (fd < 0)
            return -1;
    }
}

int tree_remove(const char *dir, struct err *e)
{
    struct removal r = { 0 };
    int gone = remove_entry(AT_FDCWD, dir);
    int fd;
    int failed;

    if (gone == 0) {
        fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        gone = fd >= 0 && empty(&r, fd) == 0 && rmdir(dir) == 0 ? 1 : -1;
        failed = errno;
        free(r.levels);
        errno = failed;
    }
    if (gone == 1 || errno == ENOENT)
        return 0;
    return err_sys(e, errno, "cannot remove %.300s", dir);
}
