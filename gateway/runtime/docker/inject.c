#include "gateway/runtime/docker/inject.h"

#include "common/agent/wire.h"
#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "common/base/macros.h"
#include "common/base/rand.h"
#include "gateway/runtime/docker/container.h"
#include "gateway/runtime/docker/docker.h"
#include "gateway/runtime/docker/engine.h"
#include "gateway/runtime/docker/names.h"
#include "gateway/runtime/docker/progress.h"
#include "gateway/runtime/docker/tar.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum {
    FILES_MAX = 64,
    AGENT_MAX = 256 << 20, /* bytes of a development agent with its libraries */
    VERSION = 12,          /* digits of the content's hash in names */
    IMPORT_MS = 120000,
    HELPER_MS = 30000,
    HELPER_TRIES = 3,
    SUFFIX_MAX = 9,    /* volumes tried before giving up on them */
    SETTLE_TRIES = 10, /* another gateway may be filling the volume right now */
    SETTLE_MS = 100,
};

/* One file of the agent, as the volume must hold it. */
struct file {
    char name[NAME_MAX + 1];
    size_t len;
    char sha256[RAND_SECRET_TEXT];
};

/* The agent of this gateway, packed. */
struct pack {
    struct buf tar;
    struct file files[FILES_MAX];
    size_t n_files;
    char version[VERSION + 1];
};

static void auto_pack(struct pack **p)
{
    if (*p) {
        buf_free(&(*p)->tar);
        free(*p);
    }
}

/* ---- packing ---- */

static int pack_file(struct pack *p, const char *name, const void *data, size_t len, struct err *e)
{
    struct file *f = &p->files[p->n_files];
    char path[sizeof(AGENT_DIR) + NAME_MAX + 1];

    if (p->n_files == FILES_MAX)
        return err_set(e, ERRC_INVALID, "the agent has more than %d files", FILES_MAX);
    (void)snprintf(path, sizeof(path), "%s/%s", &AGENT_DIR[1], name);
    if (tar_add_file(&p->tar, path, 0755, data, len) < 0)
        return err_set(e, ERRC_INVALID, "the agent's file %.60s cannot be packed", name);
    (void)snprintf(f->name, sizeof(f->name), "%s", name);
    f->len = len;
    sha256_hex(data, len, f->sha256);
    p->n_files++;
    return 0;
}

static int read_file(int dir, const char *name, struct buf *out, struct err *e)
{
    AUTO_FD int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st;
    char *at;
    ssize_t n;

    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(e, errno, "open %.60s", name);
    at = st.st_size <= AGENT_MAX ? buf_reserve(out, (size_t)st.st_size) : NULL;
    if (!at)
        return err_set(e, ERRC_INVALID, "%.60s is too large for an agent", name);
    while (out->len < (size_t)st.st_size) {
        n = read(fd, out->data + out->len, (size_t)st.st_size - out->len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? err_sys(e, errno, "read %.60s", name)
                         : err_set(e, ERRC_INTERNAL, "%.60s shrank while it was read", name);
        out->len += (size_t)n;
    }
    return 0;
}

static int is_regular(const struct dirent *d)
{
    return d->d_type == DT_REG || d->d_type == DT_LNK || d->d_type == DT_UNKNOWN;
}

static int pack_entry(struct pack *p, int dir, const char *name, struct err *e)
{
    AUTO_BUF struct buf content = BUF_INIT(AGENT_MAX);
    struct stat st;

    if (fstatat(dir, name, &st, 0) < 0)
        return err_sys(e, errno, "read %.60s", name);
    if (!S_ISREG(st.st_mode))
        return 0;
    if (read_file(dir, name, &content, e) < 0)
        return -1;
    return pack_file(p, name, content.data, content.len, e);
}

static int pack_dir(struct pack *p, const char *path, struct err *e)
{
    AUTO_FD int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct dirent **list = NULL;
    int rc = 0;
    int n;
    int i;

    if (dir < 0)
        return err_sys(e, errno, "open the agent's directory %.200s", path);
    n = scandirat(dir, ".", &list, is_regular, alphasort);
    if (n < 0)
        return err_sys(e, errno, "list the agent's directory %.200s", path);
    for (i = 0; i < n; i++) {
        if (rc == 0)
            rc = pack_entry(p, dir, list[i]->d_name, e);
        free(list[i]);
    }
    free(list);
    return rc;
}

/* The archive of the agent and what it is named after. */
static struct pack *make_pack(const struct runtime_config *cfg, struct err *e)
{
    static const char *const dirs[] = { "opt", &AGENT_HOME[1], &AGENT_DIR[1] };
    AUTO(auto_pack) struct pack *p = calloc(1, sizeof(*p));
    char hash[RAND_SECRET_TEXT];
    size_t i;
    int rc;

    if (!p) {
        (void)err_nomem(e);
        return NULL;
    }
    p->tar = BUF_INIT(AGENT_MAX);
    for (i = 0; i < ARRAY_LEN(dirs); i++)
        if (tar_add_dir(&p->tar, dirs[i], 0755) < 0) {
            (void)err_nomem(e);
            return NULL;
        }
    rc = cfg->agent_dir && *cfg->agent_dir
             ? pack_dir(p, cfg->agent_dir, e)
             : pack_file(p, strrchr(AGENT_PATH, '/') + 1, cfg->agent, cfg->agent_len, e);
    if (rc == 0 && tar_finish(&p->tar) < 0)
        rc = err_nomem(e);
    if (rc < 0) {
        (void)err_wrap(e, "pack the agent");
        return NULL;
    }
    sha256_hex(p->tar.data, p->tar.len, hash);
    memcpy(p->version, hash, VERSION);
    return TAKE_PTR(p);
}

/* ---- import ---- */

static int on_progress(void *arg, const char *data, size_t len)
{
    progress_feed(arg, data, len);
    return 0;
}

static int import_path(const struct pack *p, struct buf *out)
{
    if (buf_puts(out, "/images/create") < 0 || engine_query(out, "fromSrc", "-") < 0 ||
        engine_query(out, "repo", AGENT_REPO) < 0 || engine_query(out, "tag", p->version) < 0 ||
        engine_query(out, "changes", "LABEL " LABEL_ROLE "=" ROLE_AGENT) < 0)
        return -1;
    return 0;
}

/* The failure comes in the stream, after a 200. */
static int import_image(const struct runtime_config *cfg, struct engine *en, const struct pack *p,
                        struct err *e)
{
    AUTO_BUF struct buf path = BUF_INIT(1024);
    AUTO_REPLY struct engine_reply r = { 0 };
    struct progress progress;
    struct engine_call c = { .method = "POST",
                             .body = p->tar.data,
                             .body_len = p->tar.len,
                             .content_type = "application/x-tar",
                             .timeout_ms = IMPORT_MS,
                             .sink = on_progress,
                             .sink_arg = &progress };
    int rc;

    if (import_path(p, &path) < 0)
        return err_nomem(e);
    c.path = path.data;
    progress_init(&progress);
    rc = engine_send(en, &c, &r, e);
    progress_end(&progress);
    progress_free(&progress);
    if (rc < 0)
        return err_wrap(e, "import the agent");
    if (r.status != 200)
        return engine_refused(&r, "import the agent", e);
    if (progress.error[0])
        return err_set(e, ERRC_INTERNAL, "import the agent: %s", progress.error);
    log_info("agent imported into the engine", LOG_S("version", p->version));
    crash_step(cfg, "inject.imported");
    return 0;
}

/* ---- the helper container: made, read, removed, never started ---- */

static void helper_name(const struct runtime_config *cfg, const struct pack *p, char *out,
                        size_t size)
{
    (void)snprintf(out, size, "sandgate-agent-%s-%.*s", p->version, INSTANCE_SHORT, cfg->instance);
}

/* The engine copies what the image has at the mount point into a volume that is empty. */
static json_t *helper_body(const struct runtime_config *cfg, const struct pack *p,
                           const char *volume)
{
    return json_pack("{s:s+, s:[s], s:{s:s, s:s}, s:{s:s, s:[{s:s, s:s, s:s}]}}", "Image",
                     AGENT_REPO ":", p->version, "Entrypoint", AGENT_PATH, "Labels", LABEL_INSTANCE,
                     cfg->instance, LABEL_ROLE, ROLE_AGENT, "HostConfig", "NetworkMode", "none",
                     "Mounts", "Type", "volume", "Source", volume, "Target", AGENT_DIR);
}

/* One attempt: the status, or -1 when the engine did not answer. */
static int helper_try(struct engine *en, const char *name, const json_t *body,
                      struct engine_reply *r, struct err *e)
{
    char path[DOCKER_PATH];
    const struct engine_call c = { .method = "POST", .path = path, .json = body };

    engine_reply_free(r);
    (void)snprintf(path, sizeof(path), "/containers/create?name=%s", name);
    return engine_send(en, &c, r, e) < 0 ? -1 : r->status;
}

/* Imports the image when the engine has none; removes what a crash left under the name. */
static int helper_make(const struct runtime_config *cfg, struct engine *en, const struct pack *p,
                       const char *name, const char *volume, struct err *e)
{
    AUTO_REPLY struct engine_reply r = { 0 };
    json_auto_t *body = helper_body(cfg, p, volume);
    int status;

    if (!body)
        return err_nomem(e);
    status = helper_try(en, name, body, &r, e);
    if (status == 409) {
        if (container_remove(en, name, HELPER_MS, e) < 0)
            return -1;
        status = helper_try(en, name, body, &r, e);
    }
    if (status == 404) {
        if (import_image(cfg, en, p, e) < 0)
            return -1;
        status = helper_try(en, name, body, &r, e);
    }
    if (status < 0)
        return -1;
    return status == 201 ? 0 : engine_refused(&r, "make the agent's volume", e);
}

/* ---- checking the volume ---- */

static const struct file *find_file(const struct pack *p, const char *path)
{
    const char *slash = strrchr(path, '/'); /* the archive's root is the directory's own name */
    const char *name = slash ? slash + 1 : path;
    size_t i;

    for (i = 0; i < p->n_files; i++)
        if (strcmp(p->files[i].name, name) == 0)
            return &p->files[i];
    return NULL;
}

/* True when the archive holds exactly the agent's files. */
static bool same_files(const struct pack *p, const char *archive, size_t len)
{
    struct tar_entry entry;
    const struct file *f;
    char hash[RAND_SECRET_TEXT];
    size_t pos = 0;
    size_t found = 0;
    int rc;

    while ((rc = tar_next(archive, len, &pos, &entry)) > 0) {
        if (entry.type == '5')
            continue;
        f = entry.type == '0' ? find_file(p, entry.name) : NULL;
        if (!f || f->len != entry.len)
            return false;
        sha256_hex(entry.data, entry.len, hash);
        if (strcmp(hash, f->sha256) != 0)
            return false;
        found++;
    }
    return rc == 0 && found == p->n_files;
}

/* 1: the volume holds the agent; 0: it holds something else. */
static int check(struct engine *en, const struct pack *p, const char *helper, struct err *e)
{
    char path[DOCKER_PATH];
    const struct engine_call c = { .method = "GET", .path = path, .reply_max = 2 * AGENT_MAX };
    AUTO_REPLY struct engine_reply r = { 0 };

    (void)snprintf(path, sizeof(path), "/containers/%s/archive?path=%s", helper, AGENT_DIR);
    if (engine_send(en, &c, &r, e) < 0)
        return -1;
    if (r.status != 200)
        return engine_refused(&r, "read the agent's volume", e);
    return same_files(p, r.body.data ? r.body.data : "", r.body.len);
}

/* Another gateway that fills the same volume at this moment gets the time to finish. */
static int check_settled(struct engine *en, const struct pack *p, const char *helper, struct err *e)
{
    const struct timespec nap = { .tv_nsec = SETTLE_MS * 1000000L };
    int rc = 0;
    int i;

    for (i = 0; i < SETTLE_TRIES && rc == 0; i++) {
        if (i > 0)
            (void)nanosleep(&nap, NULL);
        rc = check(en, p, helper, e);
    }
    return rc;
}

static int volume_make(struct engine *en, const char *name, struct err *e)
{
    struct engine_call c = { .method = "POST", .path = "/volumes/create" };
    json_auto_t *body = json_pack("{s:s, s:{s:s}}", "Name", name, "Labels", LABEL_ROLE, ROLE_AGENT);

    if (!body)
        return err_nomem(e);
    c.json = body;
    return engine_do(en, &c, "make the agent's volume", NULL, e); /* an existing one is kept */
}

/* What stays of it all the same is removed by the next preparation: same name. */
static void helper_drop(struct engine *en, const char *helper)
{
    struct err e = { 0 };
    int i;

    for (i = 0; i < HELPER_TRIES; i++)
        if (container_remove(en, helper, HELPER_MS, &e) == 0)
            return;
    log_warn("a helper container was not removed yet", LOG_S("name", helper),
             LOG_S("error", e.msg));
}

/* 1: the volume is good; 0: it holds something else. */
static int fill(const struct runtime_config *cfg, struct engine *en, const struct pack *p,
                const char *volume, struct err *e)
{
    char helper[96];
    int rc;

    helper_name(cfg, p, helper, sizeof(helper));
    if (volume_make(en, volume, e) < 0)
        return -1;
    crash_step(cfg, "inject.volume");
    if (helper_make(cfg, en, p, helper, volume, e) < 0)
        return -1;
    crash_step(cfg, "inject.filled");
    rc = check_settled(en, p, helper, e);
    helper_drop(en, helper);
    crash_step(cfg, "inject.checked");
    return rc;
}

static void volume_name(const struct pack *p, int n, char out[DOCKER_VOLUME])
{
    (void)snprintf(out, DOCKER_VOLUME, n == 1 ? AGENT_REPO "-%s" : AGENT_REPO "-%s-%d", p->version,
                   n);
}

/* The volumes before the good one are of no use to anybody; the engine keeps those in use. */
static void volume_drop(struct engine *en, const char *name)
{
    char path[DOCKER_PATH];
    const struct engine_call c = { .method = "DELETE", .path = path };

    (void)snprintf(path, sizeof(path), "/volumes/%s", name);
    (void)engine_do(en, &c, "remove a volume", NULL, NULL);
}

/* The number of the first volume that holds the agent, or -1. */
static int find_good(const struct runtime_config *cfg, struct engine *en, const struct pack *p,
                     struct err *e)
{
    char name[DOCKER_VOLUME];
    int rc;
    int n;

    for (n = 1; n <= SUFFIX_MAX; n++) {
        volume_name(p, n, name);
        rc = fill(cfg, en, p, name, e);
        if (rc != 0)
            return rc < 0 ? -1 : n;
        log_warn("a volume does not hold the agent that its name says; another one is used",
                 LOG_S("volume", name));
        if (n == 1 && import_image(cfg, en, p, e) < 0) /* the image may be the wrong one */
            return -1;
    }
    return err_set(e, ERRC_INTERNAL,
                   "no volume of the engine holds the agent; remove the volumes " AGENT_REPO "-%s*",
                   p->version);
}

int inject_prepare(const struct runtime_config *cfg, struct engine *en, char *volume, size_t size,
                   struct err *e)
{
    AUTO(auto_pack) struct pack *p = make_pack(cfg, e);
    char name[DOCKER_VOLUME];
    int good;

    if (!p)
        return -1;
    good = find_good(cfg, en, p, e);
    if (good < 0)
        return err_wrap(e, "bring the agent into the engine");
    volume_name(p, good, name);
    (void)snprintf(volume, size, "%s", name);
    while (--good > 0) {
        volume_name(p, good, name);
        volume_drop(en, name);
    }
    return 0;
}
