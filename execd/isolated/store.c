#include "execd/isolated/store.h"

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "execd/fs/path.h"
#include "execd/fs/tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

static int lock(const char *path, struct err *e)
{
    AUTO_FD int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
        return err_sys(e, errno, "hold %s", path);
    return TAKE_FD(fd);
}

int store_add(const char *name, char path[STORE_PATH_MAX], struct err *e)
{
    char sub[STORE_PATH_MAX + 8];
    int fd;

    (void)snprintf(path, STORE_PATH_MAX, STORE_DIR "/%s", name);
    if (path_make(STORE_DIR, 0755, e) < 0)
        return -1;
    if (mkdir(path, 0700) < 0)
        return err_sys(e, errno, "make %s", path);
    fd = lock(path, e);
    if (fd < 0)
        return -1;
    (void)snprintf(sub, sizeof(sub), "%s/" STORE_ROOT, path);
    if (mkdir(sub, 0755) == 0) {
        (void)snprintf(sub, sizeof(sub), "%s/" STORE_IO, path);
        if (mkdir(sub, 0755) == 0 && chmod(sub, 0755) == 0)
            return fd;
    }
    (void)err_sys(e, errno, "make %s", sub);
    (void)store_remove(path, NULL);
    (void)close(fd);
    return -1;
}

int store_remove(const char *path, struct err *e)
{
    return tree_remove(path, e);
}

void store_sweep(void)
{
    DIR *dir = opendir(STORE_DIR);
    char path[STORE_PATH_MAX];
    struct dirent *entry;

    if (!dir)
        return;
    while ((entry = readdir(dir))) {
        AUTO_FD int fd = -1;

        if (entry->d_name[0] == '.' ||
            snprintf(path, sizeof(path), STORE_DIR "/%s", entry->d_name) >= (int)sizeof(path))
            continue;
        fd = lock(path, NULL);
        if (fd >= 0)
            (void)store_remove(path, NULL);
    }
    (void)closedir(dir);
}
