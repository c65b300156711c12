#include "execd/fs/mount.h"

#include "common/base/cleanup.h"
#include "common/base/err.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

static bool same(const char *text, uint64_t n)
{
    char own[MOUNT_NUMBER_MAX + 1];

    (void)snprintf(own, sizeof(own), "%" PRIu64, n);
    return strcmp(text, own) == 0;
}

int mount_check(const char *path, const char *dev, const char *ino, struct err *e)
{
    struct stat st;

    if (*path != '/' || strlen(path) > MOUNT_PATH_MAX)
        return err_set(e, ERRC_INVALID,
                       "the path of a volume must be absolute, of at most %d bytes",
                       MOUNT_PATH_MAX);
    AUTO_FD int fd = open(path, O_PATH | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(e, errno, "the volume at %.200s cannot be checked", path);
    if (!same(dev, st.st_dev) || !same(ino, st.st_ino))
        return err_set(e, ERRC_INVALID,
                       "the volume at %.200s is not the directory that was checked", path);
    return 0;
}
