#include "gateway/domain/pins.h"

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "gateway/domain/host_path.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

enum { ROOT_MODE = 0700, STACKED_MAX = 64 };

/* An empty directory or file, as what will be mounted over it. */
static int make_place(const char *path, int fd, struct err *e)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return err_sys(e, errno, "look at what is pinned");
    if (S_ISDIR(st.st_mode)) {
        if (mkdir(path, ROOT_MODE) < 0)
            return err_sys(e, errno, "make %s", path);
        return 0;
    }
    AUTO_FD int made = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

    return made < 0 ? err_sys(e, errno, "make %s", path) : 0;
}

/* With what is mounted below, as the engine would have it; private, so that taking it away takes
 * nothing away where it came from. */
static int bind_to(const char *path, int fd)
{
    char from[64];

    (void)snprintf(from, sizeof(from), "/proc/self/fd/%d", fd);
    if (mount(from, path, NULL, MS_BIND | MS_REC, NULL) < 0)
        return -1;
    return mount(NULL, path, NULL, MS_PRIVATE | MS_REC, NULL);
}

static int make_dir(const char *path)
{
    return mkdir(path, ROOT_MODE) < 0 && errno != EEXIST ? -1 : 0;
}

/* The parent of root, root, and the directory of one sandbox. */
static int make_dirs(const char *root, const char *own)
{
    char parent[HOST_PATH];
    const char *slash = strrchr(root, '/');

    if (!slash || (size_t)snprintf(parent, sizeof(parent), "%.*s", (int)(slash - root), root) >=
                      sizeof(parent))
        return -1;
    return make_dir(parent) < 0 || make_dir(root) < 0 ? -1 : make_dir(own);
}

static bool may_not(int error)
{
    return error == EPERM || error == EACCES || error == EROFS;
}

int pins_add(const char *root, const char *sandbox_id, size_t n, int fd, char *out, struct err *e)
{
    char path[HOST_PATH];
    char own[HOST_PATH];
    int len = snprintf(path, sizeof(path), "%s/%s/%zu", root, sandbox_id, n);

    (void)snprintf(own, sizeof(own), "%s/%s", root, sandbox_id);
    if (len < 0 || (size_t)len >= sizeof(path))
        return err_set(e, ERRC_INVALID, "the path below %s is too long", root);
    if (make_dirs(root, own) < 0)
        return may_not(errno) ? 0 : err_sys(e, errno, "make %s", own);
    if (make_place(path, fd, e) < 0)
        return -1;
    if (bind_to(path, fd) < 0) {
        if (may_not(errno))
            return 0;
        return err_sys(e, errno, "mount at %s", path);
    }
    memcpy(out, path, (size_t)len + 1);
    return 1;
}

/* ---- removing ---- */

static void unmount(const char *path)
{
    int i;

    /* a kill may have come before it was private */
    for (i = 0; i < STACKED_MAX; i++) {
        (void)mount(NULL, path, NULL, MS_PRIVATE | MS_REC, NULL);
        if (umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) < 0)
            return;
    }
}

/* Only empty places: what is still mounted makes both fail. */
static bool remove_place(const char *path)
{
    struct stat st;

    if (lstat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 0)
        return unlink(path) == 0;
    return rmdir(path) == 0;
}

static void drop_each(const char *dir, void (*fn)(const char *dir, const char *name))
{
    DIR *d = opendir(dir);
    struct dirent *entry;

    while (d && (entry = readdir(d)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            fn(dir, entry->d_name);
    if (d)
        (void)closedir(d);
}

static void drop_one(const char *dir, const char *name)
{
    char path[HOST_PATH];

    if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, name) >= sizeof(path))
        return;
    unmount(path);
    if (!remove_place(path))
        log_warn("a mount that was handed to the engine is not removed yet", LOG_S("path", path),
                 LOG_S("error", strerrordesc_np(errno)));
}

void pins_drop(const char *root, const char *sandbox_id)
{
    char own[HOST_PATH];

    if ((size_t)snprintf(own, sizeof(own), "%s/%s", root, sandbox_id) >= sizeof(own))
        return;
    drop_each(own, drop_one);
    (void)rmdir(own);
}

void pins_clear(const char *root)
{
    drop_each(root, pins_drop);
}
