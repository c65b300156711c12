/* The file system of a cage: the sandbox's own root, read-only, with /proc, /dev, /run and the temporary
 * directory of its own, and the mounts that were asked for. Everything is opened before anything is
 * covered, and by descriptor, so that no name is looked up twice. */
#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "execd/fs/path.h"
#include "execd/isolated/cage.h"
#include "execd/isolated/internal.h"
#include "execd/isolated/store.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

/* sys/mount.h and linux/mount.h do not go together. */
int mount(const char *source, const char *target, const char *type, unsigned long flags,
          const void *data);
int umount2(const char *target, int flags);

enum { OVERLAY_MAGIC = 0x794c7630, DETACH = 2 };

struct builder {
    const struct cage *c;
    int root;                     /* descriptor of the new root */
    int sources[CAGE_MOUNTS_MAX]; /* by mount */
    int tmp;
    int io;
};

#define FD_PATH "/proc/self/fd/%d"
enum { FD_PATH_MAX = 32, SUB_MAX = PATH_MAX + 32 };

static void fd_path(char out[FD_PATH_MAX], int fd)
{
    (void)snprintf(out, FD_PATH_MAX, FD_PATH, fd);
}

static int open2(int dir, const char *path, uint64_t resolve, uint64_t flags)
{
    struct open_how how = { .flags = flags | O_PATH | O_CLOEXEC, .resolve = resolve };

    return (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));
}

/* The directory of that name below the new root, made when it is missing. */
static int open_or_make(const struct builder *b, const char *path, struct err *e)
{
    AUTO_FREE char *parent = path_parent(path);
    AUTO_FD int dir = -1;
    int fd = open2(b->root, path, RESOLVE_IN_ROOT, 0);

    if (fd >= 0 || errno != ENOENT)
        return fd < 0 ? err_sys(e, errno, "mount point %.200s", path) : fd;
    dir = parent ? open2(b->root, parent, RESOLVE_IN_ROOT, 0) : -1;
    if (dir < 0 || mkdirat(dir, strrchr(path, '/') + 1, 0755) < 0)
        return err_sys(e, errno, "make mount point %.200s", path);
    fd = openat(dir, strrchr(path, '/') + 1, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? err_sys(e, errno, "mount point %.200s", path) : fd;
}

/* path below the new root, links followed inside it. Directories that are missing where the cage has a
 * file system of its own are made. */
static int open_target(const struct builder *b, const char *path, struct err *e)
{
    char part[PATH_MAX];
    const char *p = path;
    int fd = open2(b->root, path, RESOLVE_IN_ROOT, 0);

    if (fd >= 0 || errno != ENOENT)
        return fd < 0 ? err_sys(e, errno, "mount point %.200s", path) : fd;
    if (strlen(path) >= sizeof(part))
        return err_sys(e, ENAMETOOLONG, "mount point %.200s", path);
    while ((p = strchr(p + 1, '/'))) {
        (void)snprintf(part, sizeof(part), "%.*s", (int)(p - path), path);
        fd = open_or_make(b, part, e);
        if (fd < 0)
            return -1;
        (void)close(fd);
    }
    return open_or_make(b, path, e);
}

static int bind_fd(const struct builder *b, int source, const char *dest, struct err *e)
{
    AUTO_FD int target = open_target(b, dest, e);
    char from[FD_PATH_MAX];
    char to[FD_PATH_MAX];

    if (target < 0)
        return -1;
    fd_path(from, source);
    fd_path(to, target);
    if (mount(from, to, NULL, MS_BIND | MS_REC, NULL) < 0)
        return err_sys(e, errno, "bind %.200s", dest);
    return 0;
}

static int set_attr(int fd, const char *path, uint64_t set, struct err *e)
{
    struct mount_attr attr = { .attr_set = set };

    if (syscall(SYS_mount_setattr, fd, path, AT_RECURSIVE | (*path ? 0 : AT_EMPTY_PATH), &attr,
                sizeof(attr)) < 0)
        return err_sys(e, errno, "make %.200s read-only", *path ? path : "the root");
    return 0;
}

static int read_only(const struct builder *b, const char *dest, struct err *e)
{
    AUTO_FD int fd = open2(b->root, dest, RESOLVE_IN_ROOT, 0);

    return fd < 0 ? err_sys(e, errno, "look at %.200s", dest)
                  : set_attr(fd, "", MOUNT_ATTR_RDONLY, e);
}

static int tmpfs_at(const struct builder *b, const char *dest, const char *options, struct err *e)
{
    AUTO_FD int target = open_target(b, dest, e);
    char to[FD_PATH_MAX];

    if (target < 0)
        return -1;
    fd_path(to, target);
    if (mount("tmpfs", to, "tmpfs", MS_NOSUID | MS_NODEV, options) < 0)
        return err_sys(e, errno, "mount a tmpfs on %.200s", dest);
    return 0;
}

/* ---- the parts every cage has ---- */

static int make_proc(const struct builder *b, struct err *e)
{
    static const char *const fixed[] = { "/proc/sys", "/proc/sysrq-trigger", "/proc/irq",
                                         "/proc/bus", "/proc/fs" };
    static const char *const hidden[] = { "/proc/kcore",       "/proc/keys", "/proc/timer_list",
                                          "/proc/sched_debug", "/proc/acpi", "/proc/scsi",
                                          "/sys/firmware" };
    AUTO_FD int null = open2(b->root, "/dev/null", RESOLVE_IN_ROOT, 0);
    AUTO_FD int target = open_target(b, "/proc", e);
    char to[FD_PATH_MAX];
    size_t i;

    if (target < 0)
        return -1;
    fd_path(to, target);
    if (mount("proc", to, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        return err_sys(e, errno, "mount /proc");
    for (i = 0; i < ARRAY_LEN(fixed); i++) {
        AUTO_FD int fd = open2(b->root, fixed[i], RESOLVE_IN_ROOT, 0);

        if (fd >= 0 && (bind_fd(b, fd, fixed[i], e) < 0 || read_only(b, fixed[i], e) < 0))
            return -1;
    }
    for (i = 0; i < ARRAY_LEN(hidden); i++) {
        AUTO_FD int fd = open2(b->root, hidden[i], RESOLVE_IN_ROOT, 0);
        struct stat st;

        if (fd < 0 || fstat(fd, &st) < 0)
            continue;
        if (S_ISDIR(st.st_mode) ? tmpfs_at(b, hidden[i], "size=4k,mode=555", e) < 0
                                : bind_fd(b, null, hidden[i], e) < 0)
            return -1;
    }
    return 0;
}

static const char *const devices[] = { "null", "zero", "full", "random", "urandom", "tty" };

/* The devices of the old /dev, which is still to be seen below "/" of this process. */
static int make_devices(const struct builder *b, struct err *e)
{
    char path[64];
    size_t i;

    for (i = 0; i < ARRAY_LEN(devices); i++) {
        AUTO_FD int source = -1;
        AUTO_FD int made = -1;

        (void)snprintf(path, sizeof(path), "/dev/%s", devices[i]);
        source = open(path, O_PATH | O_CLOEXEC);
        if (source < 0)
            continue;
        made = openat(b->root, path + 1, O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
        if (made < 0)
            return err_sys(e, errno, "make %s", path);
        if (bind_fd(b, source, path, e) < 0)
            return -1;
    }
    return 0;
}

static int make_dev(const struct builder *b, struct err *e)
{
    static const char *const links[][2] = { { "/proc/self/fd", "dev/fd" },
                                            { "/proc/self/fd/0", "dev/stdin" },
                                            { "/proc/self/fd/1", "dev/stdout" },
                                            { "/proc/self/fd/2", "dev/stderr" },
                                            { "pts/ptmx", "dev/ptmx" } };
    char to[FD_PATH_MAX];
    size_t i;

    if (tmpfs_at(b, "/dev", "size=64k,mode=755", e) < 0)
        return -1;
    if (make_devices(b, e) < 0)
        return -1;
    for (i = 0; i < ARRAY_LEN(links); i++)
        if (symlinkat(links[i][0], b->root, links[i][1]) < 0)
            return err_sys(e, errno, "make /%s", links[i][1]);
    if (tmpfs_at(b, "/dev/shm", "size=64m,mode=1777", e) < 0)
        return -1;

    AUTO_FD int pts = open_target(b, "/dev/pts", e);

    if (pts < 0)
        return -1;
    fd_path(to, pts);
    if (mount("devpts", to, "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620") <
        0)
        return err_sys(e, errno, "mount /dev/pts");
    return 0;
}

static int make_run(const struct builder *b, struct err *e)
{
    if (tmpfs_at(b, "/run", "size=16m,mode=755", e) < 0 ||
        bind_fd(b, b->io, STORE_IO_INSIDE, e) < 0 || read_only(b, STORE_IO_INSIDE, e) < 0)
        return -1;
    return 0;
}

/* What other sessions wrote is not to be seen. */
static int hide_store(const struct builder *b, struct err *e)
{
    AUTO_FREE char *root = strdup(b->c->dir);
    char *slash = root ? strrchr(root, '/') : NULL;

    if (!slash || slash == root)
        return err_nomem(e);
    *slash = '\0';
    return tmpfs_at(b, root, "size=4k,mode=555", e);
}

static int make_tmp(const struct builder *b, struct err *e)
{
    if (b->c->private_tmp)
        return tmpfs_at(b, "/tmp", "size=50%,mode=1777", e);
    return b->tmp < 0 ? 0 : bind_fd(b, b->tmp, "/tmp", e);
}

/* ---- what was asked for ---- */

/* The upper layer's own directories, below dir; the merged view begins with the lower one's rights. */
static int make_layers(const char *dir, int lower, struct err *e)
{
    char path[SUB_MAX + 8];
    struct stat st;

    (void)snprintf(path, sizeof(path), "%s/work", dir);
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return err_sys(e, errno, "make %.200s", path);
    (void)snprintf(path, sizeof(path), "%s/upper", dir);
    if (mkdir(path, 0755) < 0 && errno != EEXIST)
        return err_sys(e, errno, "make %.200s", path);
    if (fstat(lower, &st) < 0 || chown(path, st.st_uid, st.st_gid) < 0 ||
        chmod(path, st.st_mode & 07777) < 0)
        return err_sys(e, errno, "give %.200s the rights of the lower layer", path);
    return 0;
}

/* An overlay cannot have its upper layer on another overlay, which a container's root is. */
static bool needs_memory(const struct builder *b, const struct cage_mount *m)
{
    struct statfs fs;

    return m->mode == CAGE_SCRATCH ||
           (statfs(b->c->dir, &fs) == 0 && (unsigned)fs.f_type == OVERLAY_MAGIC);
}

static int overlay(const struct builder *b, size_t i, struct err *e)
{
    const struct cage_mount *m = &b->c->mounts[i];
    AUTO_BUF struct buf options = BUF_INIT(3 * PATH_MAX);
    AUTO_FD int target = open_target(b, m->dest, e);
    char dir[SUB_MAX];
    char size[32];
    char to[FD_PATH_MAX];

    if (target < 0)
        return -1;
    (void)snprintf(dir, sizeof(dir), "%s/%zu", b->c->dir, i);
    if (mkdir(dir, 0700) < 0 && errno != EEXIST)
        return err_sys(e, errno, "make %.200s", dir);
    (void)snprintf(size, sizeof(size), "size=%dm,mode=700", CAGE_SCRATCH_MIB);
    if (needs_memory(b, m) && mount("tmpfs", dir, "tmpfs", MS_NOSUID | MS_NODEV, size) < 0)
        return err_sys(e, errno, "mount a tmpfs for the upper layer");
    if (make_layers(dir, b->sources[i], e) < 0)
        return -1;
    if (buf_printf(&options, "lowerdir=" FD_PATH ",upperdir=%s/upper,workdir=%s/work",
                   b->sources[i], dir, dir) < 0)
        return err_nomem(e);
    fd_path(to, target);
    if (mount("overlay", to, "overlay", MS_NOSUID | MS_NODEV, options.data) < 0)
        return err_sys(e, errno, "mount an overlay on %.200s", m->dest);
    return 0;
}

static int make_mount(const struct builder *b, size_t i, struct err *e)
{
    const struct cage_mount *m = &b->c->mounts[i];

    if (m->mode == CAGE_OVERLAY || m->mode == CAGE_SCRATCH)
        return overlay(b, i, e);
    if (bind_fd(b, b->sources[i], m->dest, e) < 0)
        return -1;
    return m->mode == CAGE_RO ? read_only(b, m->dest, e) : 0;
}

/* ---- the whole ---- */

static int open_sources(struct builder *b, struct err *e)
{
    char path[SUB_MAX];
    size_t i;

    for (i = 0; i < b->c->n_mounts; i++) {
        b->sources[i] = open2(AT_FDCWD, b->c->mounts[i].source, RESOLVE_NO_SYMLINKS, 0);
        if (b->sources[i] < 0)
            return err_sys(e, errno, "open %.200s", b->c->mounts[i].source);
    }
    b->tmp = open("/tmp", O_PATH | O_CLOEXEC);
    (void)snprintf(path, sizeof(path), "%s/" STORE_IO, b->c->dir);
    b->io = open(path, O_PATH | O_CLOEXEC);
    return b->io < 0 ? err_sys(e, errno, "open %.200s", path) : 0;
}

/* A copy of the root, read-only all over. */
static int copy_root(struct builder *b, struct err *e)
{
    static const char *const points[] = { "/proc", "/dev", "/run", "/tmp" };
    char path[SUB_MAX];
    size_t i;

    for (i = 0; i < ARRAY_LEN(points); i++)
        (void)mkdir(points[i], 0755); /* small images lack some; a missing one is noticed later */
    (void)snprintf(path, sizeof(path), "%s/" STORE_ROOT, b->c->dir);
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return err_sys(e, errno, "keep mounts to the cage");
    if (mount("/", path, NULL, MS_BIND | MS_REC, NULL) < 0)
        return err_sys(e, errno, "bind the root");
    b->root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (b->root < 0)
        return err_sys(e, errno, "open the new root");
    return set_attr(b->root, "", MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID, e);
}

/* Some engines' filters refuse pivot_root: moving the mount over the old root does as well. */
static int enter_root(const struct builder *b, struct err *e)
{
    if (fchdir(b->root) < 0)
        return err_sys(e, errno, "enter the new root");
    if (syscall(SYS_pivot_root, ".", ".") == 0)
        return umount2(".", DETACH) < 0 || chdir("/") < 0 ? err_sys(e, errno, "leave the old root")
                                                          : 0;
    if (mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 || chdir("/") < 0)
        return err_sys(e, errno, "make it the root");
    return 0;
}

int cage_build(const struct cage *c, struct err *e)
{
    struct builder b = { .c = c, .root = -1 };
    size_t i;

    (void)umask(022);
    if (open_sources(&b, e) < 0 || copy_root(&b, e) < 0 || make_tmp(&b, e) < 0 ||
        hide_store(&b, e) < 0 || make_dev(&b, e) < 0 || make_run(&b, e) < 0)
        return -1;
    for (i = 0; i < c->n_mounts; i++)
        if (make_mount(&b, i, e) < 0)
            return -1;
    if (make_proc(&b, e) < 0 || enter_root(&b, e) < 0)
        return -1;
    if (chdir(c->cwd) < 0)
        return err_sys(e, errno, "enter %.200s", c->cwd);
    return 0; /* descriptors are close-on-exec */
}
