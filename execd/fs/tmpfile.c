#include "execd/fs/tmpfile.h"

#include "common/base/macros.h"

#include <fcntl.h>

int tmpfile_open(const char *tmpdir)
{
    const char *const dirs[] = { tmpdir, "/tmp", "/var/tmp" };
    unsigned i;
    int fd;

    for (i = 0; i < ARRAY_LEN(dirs); i++) {
        if (!dirs[i] || !*dirs[i])
            continue;
        fd = open(dirs[i], O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        if (fd >= 0)
            return fd;
    }
    return -1;
}
