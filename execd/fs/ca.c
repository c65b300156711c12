#include "execd/fs/ca.h"

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "execd/fs/env.h"
#include "execd/fs/put.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_NAME "opensandbox-ca.crt"
#define MERGED_NAME "merged-ca-certificates.pem"
#define SECTION_BEGIN "# OpenSandbox: begin of this sandbox's own\n"
#define SECTION_END "# OpenSandbox: end of this sandbox's own\n"

/* Bundles: Debian, Alpine; RHEL; Alpine's and BSD's name; SUSE. Links among them are followed. */
static const char *const bundles[] = {
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
    "/etc/ssl/ca-bundle.pem",
};

/* Where the distribution's tool looks for more, and what must be there already. */
static const struct {
    const char *dir;
    const char *needs;
} anchors[] = {
    { "/usr/local/share/ca-certificates", "/usr/local/share" }, /* update-ca-certificates */
    { "/etc/pki/ca-trust/source/anchors",
      "/etc/pki/ca-trust/source/anchors" }, /* update-ca-trust */
};

static const char *const pythons[] = { "/usr/local/lib", "/usr/lib" };
static const char *const packages[] = { "site-packages", "dist-packages" };

/* Of our own files, when home cannot be written. */
static const char *const spares[] = { "/tmp", "/var/tmp", "/run", "/dev/shm" };

/* ---- files ---- */

static int join(char out[PATH_MAX], const char *a, const char *b, const char *c)
{
    int n = snprintf(out, PATH_MAX, "%s%s%s", a, b, c);

    return n > 0 && n < PATH_MAX ? 0 : -1;
}

/* A regular file of at most CA_BUNDLE_MAX bytes. */
static int read_bundle(const char *path, struct buf *out)
{
    AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st;
    char *to;
    ssize_t n;

    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > CA_BUNDLE_MAX)
        return -1;
    buf_clear(out);
    do {
        to = buf_reserve(out, (size_t)st.st_size + 1);
        n = to ? read(fd, to, (size_t)st.st_size + 1) : -1;
        if (n < 0)
            return -1;
        out->len += (size_t)n;
    } while (n > 0);
    return buf_append(out, "", 0);
}

/* Readable for all. */
static int write_file(const char *path, const char *data, size_t len, struct err *e)
{
    static const struct perms keep = { 0 };
    struct put p = PUT_INIT;
    int rc = put_open(&p, path, NULL, e);

    if (rc == 0)
        rc = put_write(&p, data, len, e) < 0 || put_seal(&p, &keep, 0644, e) < 0 ||
                     put_commit(&p, &keep, e) < 0
                 ? -1
                 : 0;
    put_free(&p);
    return rc;
}

/* Is path, links followed, on the very file system that the root is? What is mounted there belongs to
 * others: to a host, or to more sandboxes. */
static bool is_of_image(const char *root, const char *path)
{
    struct statx top;
    struct statx file;

    return statx(AT_FDCWD, *root ? root : "/", 0, STATX_MNT_ID, &top) == 0 &&
           statx(AT_FDCWD, path, 0, STATX_MNT_ID, &file) == 0 &&
           (top.stx_mask & file.stx_mask & STATX_MNT_ID) && top.stx_mnt_id == file.stx_mnt_id;
}

/* ---- the image's bundles ---- */

/* Without the section that was added before. */
static int cut_section(struct buf *b)
{
    char *from = strstr(b->data, SECTION_BEGIN);
    char *to = from ? strstr(from, SECTION_END) : NULL;

    if (!to)
        return 0;
    to += sizeof(SECTION_END) - 1;
    memmove(from, to, (size_t)(b->data + b->len - to) + 1);
    b->len -= (size_t)(to - from);
    return 1;
}

static int add_section(struct buf *b, const char *pem)
{
    if (b->len && b->data[b->len - 1] != '\n' && buf_puts(b, "\n") < 0)
        return -1;
    return buf_puts(b, SECTION_BEGIN) < 0 || buf_puts(b, pem) < 0 ? -1 : buf_puts(b, SECTION_END);
}

/* Puts pem into the bundle, or with NULL takes out what is there of ours. */
static int change_bundle(const struct ca_paths *where, const char *path, const char *pem)
{
    AUTO_BUF struct buf b = BUF_INIT(CA_BUNDLE_MAX + (1 << 20));
    struct err e = { 0 };
    int had;

    if (!is_of_image(where->root, path) || read_bundle(path, &b) < 0)
        return -1;
    had = cut_section(&b);
    if (!pem && !had)
        return 0;
    if (pem && add_section(&b, pem) < 0)
        return -1;
    if (write_file(path, b.data, b.len, &e) == 0)
        return 0;
    log_info("a bundle of certificates stays as it is", LOG_S("path", path), LOG_S("error", e.msg));
    return -1;
}

/* The first bundle that was changed goes to first. */
static void change_bundles(const struct ca_paths *where, const char *pem, char first[PATH_MAX])
{
    char path[PATH_MAX];
    size_t i;

    for (i = 0; i < sizeof(bundles) / sizeof(bundles[0]); i++)
        if (join(path, where->root, bundles[i], "") == 0 && change_bundle(where, path, pem) == 0 &&
            !*first)
            memcpy(first, path, sizeof(path));
}

static void write_anchors(const struct ca_paths *where, const char *pem)
{
    char path[PATH_MAX];
    char needs[PATH_MAX];
    struct err ignored = { 0 };
    size_t i;

    for (i = 0; i < sizeof(anchors) / sizeof(anchors[0]); i++)
        if (join(needs, where->root, anchors[i].needs, "") == 0 &&
            is_of_image(where->root, needs) &&
            join(path, where->root, anchors[i].dir, "/" FILE_NAME) == 0)
            (void)write_file(path, pem, strlen(pem), &ignored);
}

/* ---- our own copies ---- */

static int try_dir(const char *dir, const char *pem, char out[PATH_MAX], struct err *e)
{
    if (join(out, dir, "/" FILE_NAME, "") < 0)
        return err_set(e, ERRC_INVALID, "the path of %.100s is too long", dir);
    return write_file(out, pem, strlen(pem), e);
}

/* pem in a file: at home, else in a directory that only we can have made. */
static int write_own(const struct ca_paths *where, const char *pem, char dir[PATH_MAX],
                     char file[PATH_MAX], struct err *e)
{
    struct err why = { 0 };
    size_t i;

    if (join(dir, where->root, where->home, "") == 0 && try_dir(dir, pem, file, &why) == 0)
        return 0;
    for (i = 0; i < sizeof(spares) / sizeof(spares[0]); i++)
        if (join(dir, where->root, spares[i], "/opensandbox-ca.XXXXXX") == 0 && mkdtemp(dir)) {
            if (chmod(dir, 0755) == 0 && try_dir(dir, pem, file, &why) == 0)
                return 0;
            (void)rmdir(dir);
        }
    return err_set(e, ERRC_INVALID,
                   "there is no place for it: none of %s, /tmp, /var/tmp, /run and /dev/shm can be "
                   "written (%.200s)",
                   where->home, why.msg);
}

/* The bundle that Python's certifi carries, the first that is found. */
static int read_certifi(const char *root, struct buf *out)
{
    char path[PATH_MAX];
    size_t i;
    size_t k;

    for (i = 0; i < sizeof(pythons) / sizeof(pythons[0]); i++) {
        struct dirent *d;
        DIR *dir = join(path, root, pythons[i], "") == 0 ? opendir(path) : NULL;
        int rc = -1;

        while (dir && rc < 0 && (d = readdir(dir)))
            for (k = 0; k < 2 && rc < 0 && strncmp(d->d_name, "python3", 7) == 0; k++)
                if (snprintf(path, sizeof(path), "%s%s/%s/%s/certifi/cacert.pem", root, pythons[i],
                             d->d_name, packages[k]) < PATH_MAX)
                    rc = read_bundle(path, out);
        if (dir)
            (void)closedir(dir);
        if (rc == 0)
            return 0;
    }
    return -1;
}

/* What the image trusts, and pem. */
static int write_merged(const struct ca_paths *where, const char *pem, const char *dir,
                        char file[PATH_MAX])
{
    AUTO_BUF struct buf b = BUF_INIT(CA_BUNDLE_MAX + (1 << 20));
    struct err ignored = { 0 };
    char path[PATH_MAX];
    int rc = -1;
    size_t i;

    for (i = 0; i < sizeof(bundles) / sizeof(bundles[0]) && rc < 0; i++)
        if (join(path, where->root, bundles[i], "") == 0)
            rc = read_bundle(path, &b);
    if (rc < 0 && read_certifi(where->root, &b) < 0)
        return -1;
    (void)cut_section(&b);
    if (add_section(&b, pem) < 0 || join(file, dir, "/" MERGED_NAME, "") < 0)
        return -1;
    return write_file(file, b.data, b.len, &ignored);
}

static int lead(struct env *env, const char *name, const char *path)
{
    return env_get(env, name) ? 0 : env_set(env, name, path);
}

int ca_install(const struct ca_paths *where, const char *pem, struct env *env, struct err *e)
{
    char dir[PATH_MAX];
    char own[PATH_MAX];
    char bundle[PATH_MAX] = "";

    if (write_own(where, pem, dir, own, e) < 0)
        return -1;
    write_anchors(where, pem);
    change_bundles(where, pem, bundle);
    if (!*bundle && write_merged(where, pem, dir, bundle) < 0)
        memcpy(bundle, own, sizeof(bundle));
    if (lead(env, "SSL_CERT_FILE", bundle) < 0 || lead(env, "REQUESTS_CA_BUNDLE", bundle) < 0 ||
        lead(env, "CURL_CA_BUNDLE", bundle) < 0 || lead(env, "GIT_SSL_CAINFO", bundle) < 0 ||
        lead(env, "NODE_EXTRA_CA_CERTS", own) < 0)
        return err_set(e, ERRC_INVALID, "more than %d variables", ENV_VARS_MAX);
    return 0;
}

void ca_forget(const struct ca_paths *where)
{
    char none[PATH_MAX] = "x";
    char path[PATH_MAX];
    bool found = false;
    size_t i;

    for (i = 0; i < sizeof(anchors) / sizeof(anchors[0]); i++)
        if (join(path, where->root, anchors[i].dir, "/" FILE_NAME) == 0 &&
            is_of_image(where->root, path) && unlink(path) == 0)
            found = true;
    if (found)
        change_bundles(where, NULL, none);
}
