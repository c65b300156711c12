#include "tests/fakes/fail_vfs.h"

#include <sqlite3.h>
#include <stdatomic.h>
#include <string.h>

struct file {
    sqlite3_file base; /* first member */
    sqlite3_file *real;
};

static sqlite3_vfs *real_vfs;
static sqlite3_vfs fail_vfs;
static atomic_int left_good;
static atomic_int left_bad;
static atomic_int error_code;
static atomic_int failures;

static sqlite3_file *real(sqlite3_file *f)
{
    return ((struct file *)f)->real;
}

/* SQLITE_OK, or the code of a failure that is due. */
static int fate(void)
{
    if (!atomic_load(&left_bad))
        return SQLITE_OK;
    if (atomic_load(&left_good) > 0) {
        atomic_fetch_sub(&left_good, 1);
        return SQLITE_OK;
    }
    if (atomic_load(&left_bad) > 0)
        atomic_fetch_sub(&left_bad, 1);
    atomic_fetch_add(&failures, 1);
    return atomic_load(&error_code);
}

static int file_write(sqlite3_file *f, const void *data, int len, sqlite3_int64 at)
{
    int rc = fate();

    return rc ? rc : real(f)->pMethods->xWrite(real(f), data, len, at);
}

static int file_sync(sqlite3_file *f, int flags)
{
    int rc = fate();

    return rc ? SQLITE_IOERR_FSYNC : real(f)->pMethods->xSync(real(f), flags);
}

static int file_truncate(sqlite3_file *f, sqlite3_int64 size)
{
    return real(f)->pMethods->xTruncate(real(f), size);
}

static int file_close(sqlite3_file *f)
{
    return real(f)->pMethods ? real(f)->pMethods->xClose(real(f)) : SQLITE_OK;
}

static int file_read(sqlite3_file *f, void *data, int len, sqlite3_int64 at)
{
    return real(f)->pMethods->xRead(real(f), data, len, at);
}

static int file_size(sqlite3_file *f, sqlite3_int64 *out)
{
    return real(f)->pMethods->xFileSize(real(f), out);
}

static int file_lock(sqlite3_file *f, int level)
{
    return real(f)->pMethods->xLock(real(f), level);
}

static int file_unlock(sqlite3_file *f, int level)
{
    return real(f)->pMethods->xUnlock(real(f), level);
}

static int file_check_lock(sqlite3_file *f, int *out)
{
    return real(f)->pMethods->xCheckReservedLock(real(f), out);
}

static int file_control(sqlite3_file *f, int op, void *arg)
{
    return real(f)->pMethods->xFileControl(real(f), op, arg);
}

static int file_sector(sqlite3_file *f)
{
    return real(f)->pMethods->xSectorSize(real(f));
}

static int file_traits(sqlite3_file *f)
{
    return real(f)->pMethods->xDeviceCharacteristics(real(f));
}

static int file_shm_map(sqlite3_file *f, int page, int size, int extend, void volatile **out)
{
    return real(f)->pMethods->xShmMap(real(f), page, size, extend, out);
}

static int file_shm_lock(sqlite3_file *f, int offset, int n, int flags)
{
    return real(f)->pMethods->xShmLock(real(f), offset, n, flags);
}

static void file_shm_barrier(sqlite3_file *f)
{
    real(f)->pMethods->xShmBarrier(real(f));
}

static int file_shm_unmap(sqlite3_file *f, int remove)
{
    return real(f)->pMethods->xShmUnmap(real(f), remove);
}

static const sqlite3_io_methods methods = {
    .iVersion = 2,
    .xClose = file_close,
    .xRead = file_read,
    .xWrite = file_write,
    .xTruncate = file_truncate,
    .xSync = file_sync,
    .xFileSize = file_size,
    .xLock = file_lock,
    .xUnlock = file_unlock,
    .xCheckReservedLock = file_check_lock,
    .xFileControl = file_control,
    .xSectorSize = file_sector,
    .xDeviceCharacteristics = file_traits,
    .xShmMap = file_shm_map,
    .xShmLock = file_shm_lock,
    .xShmBarrier = file_shm_barrier,
    .xShmUnmap = file_shm_unmap,
};

static int vfs_open(sqlite3_vfs *vfs, sqlite3_filename name, sqlite3_file *f, int flags, int *out)
{
    struct file *file = (struct file *)f;
    int rc;

    (void)vfs;
    file->real = (sqlite3_file *)(file + 1);
    memset(file->real, 0, (size_t)real_vfs->szOsFile);
    rc = real_vfs->xOpen(real_vfs, name, file->real, flags, out);
    file->base.pMethods = rc == SQLITE_OK ? &methods : NULL;
    return rc;
}

int fail_vfs_install(void)
{
    real_vfs = sqlite3_vfs_find(NULL);
    if (!real_vfs)
        return -1;
    fail_vfs = *real_vfs;
    fail_vfs.zName = "fail";
    fail_vfs.szOsFile = (int)sizeof(struct file) + real_vfs->szOsFile;
    fail_vfs.xOpen = vfs_open;
    return sqlite3_vfs_register(&fail_vfs, 1) == SQLITE_OK ? 0 : -1;
}

void fail_vfs_break(int after, int times, int code)
{
    atomic_store(&left_bad, 0);
    atomic_store(&failures, 0);
    atomic_store(&error_code, code);
    atomic_store(&left_good, after);
    atomic_store(&left_bad, times);
}

void fail_vfs_heal(void)
{
    atomic_store(&left_bad, 0);
}

int fail_vfs_failures(void)
{
    return atomic_load(&failures);
}
