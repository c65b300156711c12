/* A mount is what was checked, or it is refused. */
#include "tests/unit/test.h"

#include "common/base/err.h"
#include "execd/fs/mount.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static void numbers(const char *path, char dev[24], char ino[24])
{
    struct stat st;

    assert_int_equal(stat(path, &st), 0);
    (void)snprintf(dev, 24, "%" PRIu64, (uint64_t)st.st_dev);
    (void)snprintf(ino, 24, "%" PRIu64, (uint64_t)st.st_ino);
}

static void checked(void **state)
{
    struct err e = { 0 };
    char dev[24];
    char ino[24];
    char other[32];

    (void)state;
    numbers("/usr", dev, ino);
    assert_int_equal(mount_check("/usr", dev, ino, &e), 0);
    assert_int_equal(mount_check("/usr/", dev, ino, &e), 0);
    assert_int_equal(mount_check("/proc", dev, ino, &e), -1);
    assert_string_equal(e.msg, "the volume at /proc is not the directory that was checked");
    assert_int_equal(e.code, ERRC_INVALID);
    (void)snprintf(other, sizeof(other), "%s0", ino);
    assert_int_equal(mount_check("/usr", dev, other, &e), -1);
    (void)snprintf(other, sizeof(other), "0%s", dev);
    assert_int_equal(mount_check("/usr", other, ino, &e), -1);
    assert_int_equal(mount_check("/usr", "", ino, &e), -1);
    assert_int_equal(mount_check("/no/such/place", dev, ino, &e), -1);
    assert_contains(e.msg, "/no/such/place");
    assert_int_equal(mount_check("usr", dev, ino, &e), -1);
    /* through links, as stat(2) has it */
    numbers("/proc/self/root", dev, ino);
    assert_int_equal(mount_check("/", dev, ino, &e), 0);
    assert_int_equal(mount_check("/proc/self/root", dev, ino, &e), 0);
}

static void long_paths(void **state)
{
    static char path[MOUNT_PATH_MAX + 2];
    struct err e = { 0 };
    char dev[24];
    char ino[24];

    (void)state;
    numbers("/", dev, ino);
    memset(path, '/', MOUNT_PATH_MAX - 1); /* the kernel counts the terminator */
    assert_int_equal(mount_check(path, dev, ino, &e), 0);
    path[MOUNT_PATH_MAX - 1] = path[MOUNT_PATH_MAX] = '/';
    assert_int_equal(mount_check(path, dev, ino, &e), -1);
    assert_contains(e.msg, "4095");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checked),
        cmocka_unit_test(long_paths),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
