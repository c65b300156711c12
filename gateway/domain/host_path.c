#include "gateway/domain/host_path.h"

#include "common/base/cleanup.h"
#include "common/base/err.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define NOT_ALLOWED "VOLUME::HOST_PATH_NOT_ALLOWED"
#define NOT_FOUND "VOLUME::HOST_PATH_NOT_FOUND"
#define CREATE_FAILED "VOLUME::HOST_PATH_CREATE_FAILED"
#define SETTING "storage.allowed_host_paths"

enum { DIR_MODE = 0755 };

struct root {
    char *given; /* as configured, cleaned */
    char *real;  /* without links */
};

struct host_roots {
    struct root *items;
    size_t len;
    bool no_openat2;
};

/* One resolution. */
struct walk {
    int root;         /* O_PATH */
    const char *path; /* relative, clean; "": root itself */
    bool no_openat2;
};

void host_place_done(struct host_place *p)
{
    if (p->fd >= 0)
        (void)close(p->fd);
    p->fd = -1;
}

/* ---- text ---- */

bool host_path_within(const char *a, const char *b)
{
    size_t len = strlen(a);

    if (strcmp(a, "/") == 0)
        return true;
    return strncmp(a, b, len) == 0 && (b[len] == '\0' || b[len] == '/');
}

static bool printable(const char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < ' ' || *s == 0x7f)
            return false;
    return true;
}

/* Appends the components of path to out, which holds len bytes, each after a '/'. */
static int add_parts(const char *path, char *out, size_t len)
{
    const char *p = path;
    unsigned parts = 0;
    size_t n;

    if (!printable(path))
        return -1;
    for (; *p; p += n) {
        p += strspn(p, "/");
        n = strcspn(p, "/");
        if (n == 0 || (n == 1 && p[0] == '.'))
            continue;
        if ((n == 2 && p[0] == '.' && p[1] == '.') || n > NAME_MAX || ++parts > HOST_PATH_PARTS ||
            len + n + 2 > HOST_PATH)
            return -1;
        out[len++] = '/';
        memcpy(out + len, p, n);
        len += n;
    }
    out[len] = '\0';
    return 0;
}

int host_path_clean(const char *path, char out[HOST_PATH])
{
    if (path[0] != '/' || add_parts(path, out, 0) < 0)
        return -1;
    if (!out[0])
        memcpy(out, "/", 2);
    return 0;
}

int host_path_clean_relative(const char *path, char out[HOST_PATH])
{
    char parts[HOST_PATH];

    if (path[0] == '/' || add_parts(path, parts, 0) < 0)
        return -1;
    memcpy(out, parts[0] ? parts + 1 : parts, strlen(parts) + !parts[0]);
    return 0;
}

/* ---- resolving ---- */

static int open_at2(int at, const char *path)
{
    struct open_how how = {
        .flags = O_PATH | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
    };

    return (int)syscall(SYS_openat2, at, path, &how, sizeof(how));
}

/* Component by component, no links at all: what a kernel without openat2 lets us do safely. */
static int open_plain(int at, const char *path)
{
    AUTO_FD int fd = openat(at, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    char name[NAME_MAX + 1];
    struct stat st;
    size_t n;
    int next;

    for (; fd >= 0 && *path; path += n + (path[n] == '/')) {
        n = strcspn(path, "/");
        (void)snprintf(name, sizeof(name), "%.*s", (int)n, path);
        next = openat(fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (next < 0)
            return -1;
        (void)close(fd);
        fd = next;
        if (fstat(fd, &st) < 0)
            return -1;
        if (S_ISLNK(st.st_mode)) {
            errno = EXDEV; /* openat2's word for "leaves the root" */
            return -1;
        }
    }
    return TAKE_FD(fd);
}

/* The first len bytes of w->path. */
static int open_part(const struct walk *w, size_t len)
{
    char part[HOST_PATH];
    int fd;
    int tries = 0;

    if (len == 0)
        return fcntl(w->root, F_DUPFD_CLOEXEC, 3);
    (void)snprintf(part, sizeof(part), "%.*s", (int)len, w->path);
    if (w->no_openat2)
        return open_plain(w->root, part);
    do /* EAGAIN: something was renamed meanwhile */
        fd = open_at2(w->root, part);
    while (fd < 0 && errno == EAGAIN && ++tries < 32);
    return fd < 0 && (errno == ENOSYS || errno == EPERM) ? open_plain(w->root, part) : fd;
}

/* The part of path before its last component. */
static size_t parent_len(const char *path, size_t len)
{
    while (len > 0 && path[len - 1] != '/')
        len--;
    return len > 0 ? len - 1 : 0;
}

static int resolve_error(const struct walk *w, struct err *e)
{
    int errnum = errno;

    if (errnum == EXDEV || errnum == ELOOP || errnum == EAGAIN)
        return err_set(e, ERRC_FORBIDDEN, "'%.200s' follows a link that may not be followed",
                       w->path);
    if (errnum == ENOTDIR)
        return err_set(e, ERRC_NOT_FOUND, "'%.200s': something on the way is not a directory",
                       w->path);
    (void)err_sys(e, errnum, "open '%.200s'", w->path);
    if (e && e->code == ERRC_NOT_FOUND) /* it was there a moment ago */
        e->code = ERRC_SYS;
    return -1;
}

/* The longest part of the path that exists; *len is how much of it. */
static int open_existing(const struct walk *w, size_t *len, int *out, struct err *e)
{
    size_t n = strlen(w->path);
    int fd;

    while ((fd = open_part(w, n)) < 0) {
        if (errno != ENOENT || n == 0)
            return resolve_error(w, e);
        n = parent_len(w->path, n);
    }
    *len = n;
    *out = fd;
    return 0;
}

/* Makes one directory in at and opens it; 0755 whatever the umask, owned as its parent. */
static int make_dir(const struct walk *w, int at, const char *name, int *out, struct err *e)
{
    bool made = mkdirat(at, name, DIR_MODE) == 0;
    struct stat parent;

    if (!made && errno != EEXIST)
        return err_sys(e, errno, "make '%s' of '%.200s'", name, w->path);
    AUTO_FD int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && (errno == ELOOP || errno == ENOTDIR))
        return err_set(e, ERRC_NOT_FOUND, "'%s' of '%.200s' is not a directory", name, w->path);
    if (fd < 0)
        return err_sys(e, errno, "open '%s' of '%.200s'", name, w->path);
    if (made) {
        if (fstat(at, &parent) < 0 || fchmod(fd, DIR_MODE) < 0)
            return err_sys(e, errno, "prepare '%s' of '%.200s'", name, w->path);
        /* only root may give a directory away; otherwise it stays the server's own */
        if (fchown(fd, parent.st_uid, parent.st_gid) < 0 && errno != EPERM)
            return err_sys(e, errno, "give away '%s' of '%.200s'", name, w->path);
    }
    *out = TAKE_FD(fd);
    return 0;
}

static int make_rest(const struct walk *w, size_t from, int *at, struct err *e)
{
    const char *p = w->path + from;
    char name[NAME_MAX + 1];
    int next = -1;
    size_t n;

    for (p += *p == '/'; *p; p += n + (p[n] == '/')) {
        n = strcspn(p, "/");
        (void)snprintf(name, sizeof(name), "%.*s", (int)n, p);
        if (make_dir(w, *at, name, &next, e) < 0) {
            if (e && e->code == ERRC_NOT_FOUND && e->sys)
                e->code = ERRC_SYS;
            return -1;
        }
        (void)close(*at);
        *at = next;
    }
    return 0;
}

static int identify(const struct walk *w, int fd, struct host_place *out, struct err *e)
{
    char link[64];
    struct stat st;
    ssize_t n;

    if (fstat(fd, &st) < 0)
        return err_sys(e, errno, "look at '%.200s'", w->path);
    if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
        return err_set(e, ERRC_FORBIDDEN,
                       "'%.200s' is a device, socket or pipe; only directories and files can be "
                       "mounted",
                       w->path);
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, out->path, sizeof(out->path));
    if (n < 0)
        return err_sys(e, errno, "find the name of '%.200s'", w->path);
    if ((size_t)n >= sizeof(out->path) || st.st_nlink == 0)
        return err_set(e, ERRC_SYS, "'%.200s': its name is too long, or it was just removed",
                       w->path);
    out->path[n] = '\0';
    out->dev = st.st_dev;
    out->ino = st.st_ino;
    return 0;
}

static int walk(const struct walk *w, bool make, struct host_place *out, struct err *e)
{
    struct host_place found = { .fd = -1 };
    struct stat st;
    size_t len = 0;
    int at = -1;

    if (open_existing(w, &len, &at, e) < 0)
        return -1;
    AUTO_FD int fd = at;
    if (w->path[len]) {
        if (fstat(fd, &st) < 0 || !S_ISDIR(st.st_mode))
            return err_set(e, ERRC_NOT_FOUND, "'%.200s': something on the way is not a directory",
                           w->path);
        if (!make) {
            *out = found;
            return 0;
        }
        if (make_rest(w, len, &fd, e) < 0)
            return -1;
    }
    if (identify(w, fd, &found, e) < 0)
        return -1;
    found.fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (found.fd < 0)
        return err_sys(e, errno, "keep '%.200s'", w->path);
    *out = found;
    return 0;
}

int host_path_beneath(const char *root, const char *sub, bool make, struct host_place *out,
                      struct err *e)
{
    char clean[HOST_PATH];
    AUTO_FD int fd = open(root, O_PATH | O_CLOEXEC);
    struct walk w = { .root = fd, .path = clean };

    if (fd < 0) {
        (void)err_sys(e, errno, "open %.200s", root);
        if (e)
            e->code = ERRC_UNSUPPORTED;
        return -1;
    }
    if (host_path_clean_relative(sub, clean) < 0)
        return err_set(e, ERRC_FORBIDDEN, "'%.200s' is not a relative path without '..'", sub);
    return walk(&w, make, out, e);
}

/* ---- the allowed ones ---- */

/* Of those that contain path the outermost: what its neighbours may reach, it may reach as well. *rest
 * is what remains of path. */
static const struct root *root_of(const struct host_roots *r, const char *path, const char **rest)
{
    const struct root *best = NULL;
    size_t i;

    for (i = 0; i < r->len; i++) {
        const struct root *root = &r->items[i];
        const char *names[2] = { root->given, root->real };
        int k;

        for (k = 0; k < 2; k++) {
            if (!host_path_within(names[k], path))
                continue;
            if (best && strlen(best->real) <= strlen(root->real))
                continue;
            best = root;
            *rest = path + (strcmp(names[k], "/") == 0 ? 0 : strlen(names[k]));
        }
    }
    return best;
}

/* The walk's words become the client's. */
static int tell(const char *path, struct err *e)
{
    if (!e)
        return -1;
    switch (e->code) {
    case ERRC_FORBIDDEN:
        e->code = ERRC_INVALID;
        e->api_code = NOT_ALLOWED;
        break;
    case ERRC_NOT_FOUND:
        e->code = ERRC_INVALID;
        e->api_code = NOT_FOUND;
        break;
    default:
        e->code = e->code == ERRC_NOMEM ? ERRC_NOMEM : ERRC_INTERNAL;
        e->api_code = CREATE_FAILED;
    }
    return err_wrap(e, "host path %.200s", path);
}

static int open_root(const char *real)
{
    return open(real, O_PATH | O_NOFOLLOW | O_CLOEXEC);
}

int host_roots_open(const struct host_roots *r, const char *path, const char *sub, bool make,
                    struct host_place *out, struct err *e)
{
    struct host_place found = { .fd = -1 };
    char whole[HOST_PATH];
    char clean[HOST_PATH];
    const struct root *root;
    const char *rest = "";
    int n = snprintf(whole, sizeof(whole), "%s/%s", path, sub ? sub : "");

    if (n < 0 || (size_t)n >= sizeof(whole) || host_path_clean(whole, clean) < 0)
        return err_api(e, ERRC_INVALID, "VOLUME::INVALID_HOST_PATH",
                       "host path: must be absolute, at most %d bytes, without '..'",
                       HOST_PATH - 1);
    root = root_of(r, clean, &rest);
    if (!root)
        return err_api(e, ERRC_INVALID, NOT_ALLOWED,
                       "host path %.200s: not below an entry of " SETTING " of this server%s",
                       clean, r->len ? "" : ", which is empty");

    AUTO_FD int fd = open_root(root->real);
    struct walk w = { .root = fd, .path = rest + (*rest == '/'), .no_openat2 = r->no_openat2 };
    if (fd < 0)
        return err_api(e, ERRC_INTERNAL, CREATE_FAILED,
                       "host path %.200s: its entry of " SETTING " cannot be opened any more",
                       clean);
    if (walk(&w, make, &found, e) < 0)
        return tell(clean, e);
    if (found.fd >= 0 && !host_path_within(root->real, found.path)) {
        host_place_done(&found);
        return err_api(e, ERRC_INVALID, NOT_ALLOWED, "host path %.200s: was moved while in use",
                       clean);
    }
    *out = found;
    return 0;
}

/* ---- the setting ---- */

static int bad_entry(struct err *e, const char *entry, const char *what)
{
    return err_set(e, ERRC_INVALID, SETTING ": '%.200s' %s", entry, what);
}

/* mkdir -p. */
static int make_entry(const char *clean, struct err *e)
{
    struct host_place p = { .fd = -1 };

    if (host_path_beneath("/", clean + 1, true, &p, e) < 0 && e->code != ERRC_FORBIDDEN)
        return err_wrap(e, SETTING ": '%.200s' cannot be made", clean);
    host_place_done(&p); /* an absolute link on the way: realpath decides */
    return 0;
}

static int refuse_secrets(const struct root *root, const struct host_secret *s, size_t n,
                          struct err *e)
{
    size_t i;
    int k;

    for (i = 0; i < n; i++) {
        AUTO_FREE char *real = s[i].path ? realpath(s[i].path, NULL) : NULL;
        const char *names[2] = { s[i].path, real };

        for (k = 0; k < 2; k++)
            if (names[k] && names[k][0] == '/' &&
                (host_path_within(root->given, names[k]) || host_path_within(root->real, names[k])))
                return err_set(e, ERRC_INVALID,
                               SETTING ": '%.200s' contains %s (%.200s); sandboxes must not reach "
                                       "it: name directories beside it",
                               root->given, s[i].what, names[k]);
    }
    return 0;
}

static int take_entry(const char *entry, struct root *out, struct err *e)
{
    char clean[HOST_PATH];
    struct stat st;

    if (host_path_clean(entry, clean) < 0)
        return bad_entry(e, entry, "must be an absolute path without '..'");
    if (make_entry(clean, e) < 0)
        return -1;
    out->given = strdup(clean);
    out->real = realpath(clean, NULL);
    if (!out->given)
        return err_nomem(e);
    if (!out->real)
        return err_sys(e, errno, SETTING ": '%.200s' cannot be used", entry);
    if (stat(out->real, &st) < 0 || (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode)))
        return bad_entry(e, entry, "is neither a directory nor a file");
    return 0;
}

int host_roots_new(const char *const *allowed, const struct host_secret *secrets, size_t n_secrets,
                   struct host_roots **out, struct err *e)
{
    struct host_roots *r = calloc(1, sizeof(*r));
    size_t n = 0;

    while (allowed && allowed[n])
        n++;
    if (r)
        r->items = calloc(n + 1, sizeof(*r->items));
    if (!r || !r->items) {
        host_roots_free(r);
        return err_nomem(e);
    }
    for (; r->len < n; r->len++) {
        struct root *root = &r->items[r->len];

        if (take_entry(allowed[r->len], root, e) < 0 ||
            refuse_secrets(root, secrets, n_secrets, e) < 0) {
            r->len++;
            host_roots_free(r);
            return -1;
        }
    }
    *out = r;
    return 0;
}

void host_roots_free(struct host_roots *r)
{
    size_t i;

    if (!r)
        return;
    for (i = 0; r->items && i < r->len; i++) {
        free(r->items[i].given);
        free(r->items[i].real);
    }
    free(r->items);
    free(r);
}

void host_roots_avoid_openat2(struct host_roots *r)
{
    r->no_openat2 = true;
}
