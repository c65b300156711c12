/* Design decision 19: a mount is the directory that was checked on the host, or nothing is run. */
#pragma once

struct err;

enum {
    MOUNT_PATH_MAX = 4095 /* PATH_MAX without its NUL */,
    MOUNTS_MAX = 64,
    MOUNT_NUMBER_MAX = 20 /* digits of 64 bits */
};

/* stat(2) of path, through links as the engine followed them, must give this device and inode
 * (decimal texts). The object is opened without access to it, so a device or FIFO does no harm.
 * -1: err names path. */
int mount_check(const char *path, const char *dev, const char *ino, struct err *e);
