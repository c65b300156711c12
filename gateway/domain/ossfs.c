#include "gateway/domain/ossfs.h"

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "common/proc/spawn.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

enum {
    SAID_MAX = 4096, /* kept of a program's words; far more than is shown, see hide */
    SAID_SHOWN = 200,
    MOUNTINFO_MAX = 8 << 20,
    ARGS_MAX = 16 + 2 * OSSFS_OPTIONS_MAX,
    CONF_MAX = 32 << 10,
    LOOK_MS = 25,
    UNMOUNT_MS = 10000,
};

#define MOUNT_FAILED "VOLUME::OSSFS_MOUNT_FAILED"
#define UNMOUNT_FAILED "VOLUME::OSSFS_UNMOUNT_FAILED"

static const char *program_of(const struct volume_req *v)
{
    return strcmp(v->ossfs.version, "1.0") == 0 ? "ossfs" : "ossfs2";
}

/* ---- what is there ---- */

static int find_fusermount(const struct ossfs *o, char **out)
{
    if (spawn_which("fusermount3", o->programs, out, NULL) == 0)
        return 0;
    return spawn_which("fusermount", o->programs, out, NULL);
}

int ossfs_check(const struct ossfs *o, const struct volume_req *v, struct err *e)
{
    AUTO_FREE char *program = NULL;
    AUTO_FREE char *fusermount = NULL;
    const char *missing = NULL;

    if (spawn_which(program_of(v), o->programs, &program, NULL) < 0)
        missing = program_of(v);
    else if (access(o->device, F_OK) < 0)
        missing = o->device;
    else if (find_fusermount(o, &fusermount) < 0)
        missing = "fusermount";
    if (!missing)
        return 0;
    return err_api(e, ERRC_INVALID, "VOLUME::UNSUPPORTED_BACKEND",
                   "volume '%s': ossfs %s volumes need %s on the server's host, which is not there",
                   v->name, v->ossfs.version, missing);
}

/* ---- the table of mounts ---- */

static int read_table(const struct ossfs *o, struct buf *out)
{
    AUTO_FD int fd = open(o->mountinfo, O_RDONLY | O_CLOEXEC);
    char *at;
    ssize_t n;

    if (fd < 0)
        return -1;
    do {
        at = buf_reserve(out, 65536);
        n = at ? read(fd, at, 65536) : -1;
        if (n < 0)
            return -1;
        out->len += (size_t)n;
    } while (n > 0);
    return buf_append(out, "", 1);
}

/* The fifth field of a line: blanks and backslashes are written \040 and so on. */
static void mount_point(const char *line, char out[HOST_PATH])
{
    const char *p = line;
    size_t len = 0;
    int field;

    for (field = 0; field < 4 && *p && *p != '\n'; p++)
        field += *p == ' ';
    for (; *p && *p != ' ' && *p != '\n' && len + 1 < HOST_PATH; p++) {
        if (p[0] == '\\' && strspn(p + 1, "01234567") >= 3) {
            out[len++] = (char)((p[1] - '0') * 64 + (p[2] - '0') * 8 + (p[3] - '0'));
            p += 3;
        } else {
            out[len++] = *p;
        }
    }
    out[len] = '\0';
}

/* The last mount at dir or below it, the first one to unmount. 1: *out filled; 0: none; -1. */
static int last_mount(const struct ossfs *o, const char *dir, char out[HOST_PATH])
{
    AUTO_BUF struct buf table = BUF_INIT(MOUNTINFO_MAX);
    char point[HOST_PATH];
    const char *line;
    int found = 0;

    if (read_table(o, &table) < 0)
        return -1;
    for (line = table.data; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        mount_point(line, point);
        if (!host_path_within(dir, point))
            continue;
        memcpy(out, point, sizeof(point));
        found = 1;
    }
    return found;
}

/* ---- programs ---- */

struct run {
    const struct ossfs *o;
    char *path;
    char *const *argv;
    int timeout_ms;
    struct buf said;
    int status; /* of its exit; -1: unknown, for another part of the process collected it */
};

static void take_words(struct run *r, int *fd)
{
    char piece[1024];
    ssize_t n;

    while ((n = read(*fd, piece, sizeof(piece))) > 0)
        (void)buf_append(&r->said, piece, (size_t)n); /* the beginning is enough */
    if (n == 0)
        *fd = -1;
}

/* True when it ended in time. What it started in the background may keep the pipe open. */
static bool wait_end(struct run *r, int pidfd, int pipe_fd)
{
    int64_t until = clock_mono_ms() + r->timeout_ms;
    struct pollfd p[2] = { { .fd = pidfd, .events = POLLIN }, { .fd = pipe_fd, .events = POLLIN } };
    int64_t left;

    while ((left = until - clock_mono_ms()) > 0) {
        if (poll(p, 2, (int)left) <= 0)
            continue;
        if (p[1].revents)
            take_words(r, &p[1].fd);
        if (p[0].revents || (pidfd < 0 && p[1].fd < 0))
            return true;
    }
    return false;
}

static int run_program(struct run *r, struct err *e)
{
    static char locale[] = "LC_ALL=C";
    char *envp[] = { NULL, locale, NULL };
    struct spawn_req rq = { .path = r->path, .argv = r->argv, .envp = envp, .in = -1, .out = -1 };
    AUTO_BUF struct buf path = BUF_INIT(65536);
    int fds[2];
    int status;
    pid_t pid;
    bool ended;

    if (buf_printf(&path, "PATH=%s", r->o->programs) < 0 || pipe2(fds, O_CLOEXEC) < 0)
        return err_sys(e, errno, "start %s", r->argv[0]);
    AUTO_FD int rd = fds[0];
    AUTO_FD int wr = fds[1];
    envp[0] = path.data;
    rq.err = wr;
    if (fcntl(rd, F_SETFL, O_NONBLOCK) < 0 || spawn(&rq, &pid, e) < 0)
        return err_wrap(e, "start %s", r->argv[0]);
    (void)close(TAKE_FD(wr));
    AUTO_FD int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    /* no descriptor: it has ended and was collected, or the kernel is old and the pipe tells */
    ended = (pidfd < 0 && errno == ESRCH) || wait_end(r, pidfd, rd);
    if (!ended)
        (void)kill(-pid, SIGKILL);
    r->status = -1;
    if (waitpid(pid, &status, ended && pidfd < 0 ? WNOHANG : 0) == pid)
        r->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
    if (!ended)
        return err_set(e, ERRC_TIMEOUT, "%s did not end within %d ms", r->argv[0], r->timeout_ms);
    take_words(r, &(int){ rd });
    return 0;
}

/* ---- keys ---- */

static void hide(struct buf *said, const char *secret)
{
    size_t len = strlen(secret);
    char *at = said->data;

    while (at && (at = memmem(at, said->len - (size_t)(at - said->data), secret, len)))
        memset(at, '*', len);
}

/* What the program said, in a form that may be shown. */
static const char *words(struct run *r, const struct ossfs_req *q, char out[SAID_SHOWN])
{
    size_t i;

    hide(&r->said, q->key_secret);
    hide(&r->said, q->key_id);
    for (i = 0; i < r->said.len && i + 1 < SAID_SHOWN; i++)
        out[i] = r->said.data[i] < ' ' || r->said.data[i] == 0x7f ? ' ' : r->said.data[i];
    out[i] = '\0';
    return i ? out : "it said nothing";
}

static int write_private(const char *path, const struct buf *text, struct err *e)
{
    AUTO_FD int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    size_t done = 0;
    ssize_t n;

    if (fd < 0)
        return err_sys(e, errno, "make %s", path);
    while (done < text->len) {
        n = write(fd, text->data + done, text->len - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(e, errno, "write %s", path);
        done += (size_t)n;
    }
    return 0;
}

static const char *scheme(const struct ossfs_req *q)
{
    return strstr(q->endpoint, "://") ? "" : "https://";
}

/* version 2.0: everything is in the file */
static int conf_text(const struct ossfs_req *q, const char *sub, struct buf *out)
{
    json_t *item;
    size_t i;
    int rc = buf_printf(out,
                        "--oss_endpoint=%s%s\n--oss_bucket=%s\n--oss_access_key_id=%s\n"
                        "--oss_access_key_secret=%s\n",
                        scheme(q), q->endpoint, q->bucket, q->key_id, q->key_secret);

    if (rc == 0 && *sub)
        rc = buf_printf(out, "--oss_bucket_prefix=%s/\n", sub);
    json_array_foreach((json_t *)q->options, i, item) {
        if (rc == 0)
            rc = buf_printf(out, "--%s\n", json_string_value(item));
    }
    return rc;
}

/* ---- mounting ---- */

struct mount {
    const struct ossfs *o;
    const struct volume_req *v;
    const char *sub;
    char dir[HOST_PATH];
    char keys[HOST_PATH]; /* file with the keys */
};

/* Missing directories of the root; later parts of it may be links of the operator's. */
static int make_root(const char *root, struct err *e)
{
    char part[HOST_PATH];
    size_t len = strlen(root);
    size_t i;

    for (i = 1; i <= len && i < sizeof(part); i++) {
        if (root[i] != '/' && root[i] != '\0')
            continue;
        (void)snprintf(part, sizeof(part), "%.*s", (int)i, root);
        if (mkdir(part, 0755) < 0 && errno != EEXIST) {
            (void)err_sys(e, errno, "storage.ossfs_mount_root: make %s", part);
            if (e) {
                e->code = ERRC_INTERNAL;
                e->api_code = "VOLUME::INVALID_OSSFS_MOUNT_ROOT";
            }
            return -1;
        }
    }
    return 0;
}

static int make_dirs(struct mount *m, const char *sandbox_id, struct err *e)
{
    char own[HOST_PATH];
    int n = snprintf(own, sizeof(own), "%s/%s", m->o->root, sandbox_id);
    int k = snprintf(m->dir, sizeof(m->dir), "%s/%s/%s", m->o->root, sandbox_id, m->v->name);
    int f = snprintf(m->keys, sizeof(m->keys), "%s/%s/%s.conf", m->o->root, sandbox_id, m->v->name);

    if (n < 0 || k < 0 || f < 0 || (size_t)f >= sizeof(m->keys))
        return err_api(e, ERRC_INTERNAL, "VOLUME::INVALID_OSSFS_MOUNT_ROOT",
                       "storage.ossfs_mount_root is too long");
    if (make_root(m->o->root, e) < 0)
        return -1;
    if ((mkdir(own, 0700) < 0 && errno != EEXIST) || mkdir(m->dir, 0755) < 0)
        return err_sys(e, errno, "make %s", m->dir);
    return 0;
}

/* The argument vector; strings in text. */
static int arguments(const struct mount *m, struct buf *text, char *argv[ARGS_MAX])
{
    const struct ossfs_req *q = &m->v->ossfs;
    json_t *item;
    size_t i;
    size_t at = 0;
    int n = 0;
    int rc;

    if (strcmp(q->version, "1.0") == 0) {
        rc = buf_printf(text, "ossfs%c%s%s%s%c%s%c-o%curl=%s%s%c-o%cpasswd_file=%s%c", 0, q->bucket,
                        *m->sub ? ":/" : "", m->sub, 0, m->dir, 0, 0, scheme(q), q->endpoint, 0, 0,
                        m->keys, 0);
        json_array_foreach((json_t *)q->options, i, item) {
            if (rc == 0)
                rc = buf_printf(text, "-o%c%s%c", 0, json_string_value(item), 0);
        }
    } else {
        rc = buf_printf(text, "ossfs2%cmount%c%s%c-c%c%s%c", 0, 0, m->dir, 0, 0, m->keys, 0);
    }
    for (; rc == 0 && at < text->len && n + 1 < ARGS_MAX; at += strlen(text->data + at) + 1)
        argv[n++] = text->data + at;
    argv[n] = NULL;
    return rc;
}

static bool is_mounted(const struct ossfs *o, const char *dir)
{
    char point[HOST_PATH];

    return last_mount(o, dir, point) > 0;
}

/* The program may go to the background before the mount is there. */
static bool wait_mounted(const struct mount *m, const struct run *r, int64_t until_mono_ms)
{
    const struct timespec nap = { .tv_nsec = LOOK_MS * 1000000L };

    while (!is_mounted(m->o, m->dir)) {
        if (r->status > 0 || (r->status < 0 && r->said.len) || clock_mono_ms() >= until_mono_ms)
            return false;
        (void)nanosleep(&nap, NULL);
    }
    return true;
}

static int start_program(struct mount *m, struct run *r, struct err *e)
{
    AUTO_BUF struct buf text = BUF_INIT(CONF_MAX);
    char *argv[ARGS_MAX];
    int64_t until = clock_mono_ms() + m->o->timeout_ms;
    char shown[SAID_SHOWN];

    if (arguments(m, &text, argv) < 0)
        return err_nomem(e);
    r->argv = argv;
    r->timeout_ms = m->o->timeout_ms;
    if (run_program(r, e) < 0)
        return -1;
    if (wait_mounted(m, r, until))
        return 0;
    return err_set(e, ERRC_INTERNAL, "%s did not mount the bucket: %s", argv[0],
                   words(r, &m->v->ossfs, shown));
}

static int mount_bucket(struct mount *m, const char *sandbox_id, struct err *e)
{
    AUTO_BUF struct buf keys = BUF_INIT(CONF_MAX);
    AUTO_FREE char *path = NULL;
    struct run r = { .o = m->o, .said = BUF_INIT(SAID_MAX) };
    const struct ossfs_req *q = &m->v->ossfs;
    int rc = strcmp(q->version, "1.0") == 0
                 ? buf_printf(&keys, "%s:%s:%s\n", q->bucket, q->key_id, q->key_secret)
                 : conf_text(q, m->sub, &keys);

    if (rc < 0)
        return err_nomem(e);
    if (make_dirs(m, sandbox_id, e) < 0 ||
        spawn_which(program_of(m->v), m->o->programs, &path, e) < 0)
        return -1;
    r.path = path;
    rc = write_private(m->keys, &keys, e);
    if (rc == 0)
        rc = start_program(m, &r, e);
    if (unlink(m->keys) < 0 && errno != ENOENT)
        log_error("a file with keys could not be removed", LOG_S("path", m->keys));
    explicit_bzero(keys.data, keys.len);
    buf_free(&r.said);
    return rc;
}

int ossfs_mount(const struct ossfs *o, const char *sandbox_id, const struct volume_req *v,
                const char *sub, char *out, struct err *e)
{
    struct mount m = { .o = o, .v = v, .sub = sub };

    if (mount_bucket(&m, sandbox_id, e) < 0) {
        if (e && !e->api_code && e->code != ERRC_NOMEM) {
            e->code = ERRC_INTERNAL;
            e->api_code = MOUNT_FAILED;
        }
        return err_wrap(e, "volume '%s'", v->name);
    }
    memcpy(out, m.dir, sizeof(m.dir));
    return 0;
}

/* ---- unmounting ---- */

static void unmount(const struct ossfs *o, char *point)
{
    static char name[] = "fusermount", flag[] = "-u";
    char *argv[] = { name, flag, point, NULL };
    struct run r = { .o = o, .argv = argv, .timeout_ms = UNMOUNT_MS, .said = BUF_INIT(SAID_MAX) };
    AUTO_FREE char *path = NULL;

    if (find_fusermount(o, &path) == 0) {
        r.path = path;
        (void)run_program(&r, NULL); /* the table tells whether it worked */
        buf_free(&r.said);
    }
    if (is_mounted(o, point)) /* the container is gone: whoever is still in it has no claim */
        (void)umount2(point, MNT_DETACH | UMOUNT_NOFOLLOW);
}

static int unmount_all(const struct ossfs *o, const char *dir, struct err *e)
{
    char point[HOST_PATH];
    int tries;

    for (tries = 0; tries < 2 * VOLUMES_MAX; tries++) {
        switch (last_mount(o, dir, point)) {
        case 0:
            return 0;
        case 1:
            unmount(o, point);
            break;
        default:
            return err_set(e, ERRC_SYS, "read %s", o->mountinfo);
        }
    }
    return err_set(e, ERRC_SYS, "%s is still mounted", point);
}

/* Mount points and a left file with keys; never what lies below a mount. */
static int remove_dir(const char *path, struct err *e)
{
    DIR *dir = opendir(path);
    struct dirent *d;

    if (!dir)
        return errno == ENOENT ? 0 : err_sys(e, errno, "open %s", path);
    while ((d = readdir(dir))) {
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
            continue;
        if (unlinkat(dirfd(dir), d->d_name, 0) < 0)
            (void)unlinkat(dirfd(dir), d->d_name, AT_REMOVEDIR); /* rmdir below tells */
    }
    (void)closedir(dir);
    if (rmdir(path) < 0 && errno != ENOENT)
        return err_sys(e, errno, "remove %s", path);
    return 0;
}

int ossfs_release(const struct ossfs *o, const char *sandbox_id, struct err *e)
{
    char dir[HOST_PATH];
    int n = snprintf(dir, sizeof(dir), "%s/%s", o->root, sandbox_id);

    if (n < 0 || (size_t)n >= sizeof(dir))
        return 0; /* nothing can have been mounted there */
    if (access(dir, F_OK) < 0 && errno == ENOENT)
        return 0;
    if (unmount_all(o, dir, e) < 0 || remove_dir(dir, e) < 0) {
        if (e)
            e->api_code = UNMOUNT_FAILED;
        return -1;
    }
    return 0;
}

json_t *ossfs_sandboxes(const struct ossfs *o)
{
    json_t *names = json_array();
    DIR *dir = opendir(o->root);
    struct dirent *d;

    while (dir && (d = readdir(dir)))
        if (d->d_name[0] != '.')
            (void)json_array_append_new(names, json_string(d->d_name));
    if (dir)
        (void)closedir(dir);
    return names;
}
