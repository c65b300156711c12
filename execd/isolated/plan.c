#include "execd/isolated/plan.h"

#include "common/agent/wire.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "execd/exec/launch.h"
#include "execd/fs/path.h"
#include "execd/isolated/store.h"

#include <limits.h>
#include <string.h>
#include <sys/stat.h>

enum { ARENA_MAX = 1 << 20 };

/* contract/execd.md 13: where binds may come from */
static const char *const allowed[] = { "/workspace", "/mnt", "/media", "/data" };

/* What a cage has of its own, and what of the agent's is nobody's to cover. */
static const char *const reserved[] = { "/proc",   "/sys",     "/dev",        STORE_IO_INSIDE,
                                        STORE_DIR, AGENT_HOME, "/run/secrets" };

/* contract/execd.md 13, the strict profile */
static const char *const secrets[] = { "*_API_KEY", "*_TOKEN",  "*_SECRET", "*_PASSWORD", "AWS_*",
                                       "ALI_*",     "ALIYUN_*", "K8S_*",    "KUBE_*" };

/* With an allow-list, programs still find their programs and their home. */
static const char *const basics[] = { "PATH", "HOME",   "USER", "LOGNAME", "SHELL",
                                      "LANG", "LC_ALL", "TERM", "TZ" };

static int refuse(struct err *e, const char *what, const char *path, const char *why)
{
    return err_api(e, ERRC_INVALID, "RUNTIME_ERROR", "%s %.200s: %s", what, path, why);
}

static int unseen(struct err *e, const char *what, const char *path)
{
    (void)err_sys(e, errno, "%s %.200s", what, path);
    e->code = ERRC_INVALID;
    e->api_code = "RUNTIME_ERROR";
    return -1;
}

void plan_free(struct plan *p)
{
    arena_free(&p->arena);
    env_free(&p->env);
    *p = (struct plan){ 0 };
}

/* ---- paths ---- */

static bool below(const char *path, const char *dir)
{
    size_t len = strlen(dir);

    return strncmp(path, dir, len) == 0 && (path[len] == '\0' || path[len] == '/');
}

bool plan_path_clean(const char *path)
{
    char copy[PATH_MAX];

    if (path[0] != '/' || strlen(path) >= sizeof(copy))
        return false;
    (void)snprintf(copy, sizeof(copy), "%s", path);
    path_clean(copy);
    return strcmp(copy, path) == 0;
}

/* path is what it is about, at where it leads. */
static int check_place(const char *what, const char *path, const char *at, struct err *e)
{
    size_t i;

    if (strcmp(at, "/") == 0 || strcmp(at, "/run") == 0)
        return refuse(e, what, path, "cannot be a mount of a session");
    for (i = 0; i < ARRAY_LEN(reserved); i++)
        if (below(at, reserved[i]) || below(reserved[i], at))
            return refuse(e, what, path, "the session has its own, or it is the agent's");
    return 0;
}

static int check_dest(const struct cage *c, const char *what, const char *path, struct err *e)
{
    size_t i;

    if (!plan_path_clean(path))
        return refuse(e, what, path,
                      "must be absolute, without \".\", \"..\" or a slash at the end");
    if (check_place(what, path, path, e) < 0)
        return -1;
    for (i = 0; i < c->n_mounts; i++)
        if (strcmp(c->mounts[i].dest, path) == 0)
            return refuse(e, what, path, "is mounted twice");
    return 0;
}

static int add_mount(struct plan *p, enum cage_mode mode, const char *source, const char *dest,
                     struct err *e)
{
    struct cage *c = &p->cage;
    char *from = arena_strndup(&p->arena, source, strlen(source));
    char *to = arena_strndup(&p->arena, dest, strlen(dest));

    if (!from || !to)
        return err_nomem(e);
    c->mounts[c->n_mounts++] = (struct cage_mount){ mode, from, to };
    return 0;
}

/* A workspace that is missing is made, for who will use it. */
static int make_workspace(const struct plan *p, const char *path, struct err *e)
{
    struct stat st;

    if (stat(path, &st) == 0)
        return S_ISDIR(st.st_mode) ? 0 : refuse(e, "path", path, "is not a directory");
    if (path_make(path, 0755, e) < 0) {
        e->code = ERRC_INVALID;
        e->api_code = "RUNTIME_ERROR";
        return err_wrap(e, "make %.200s", path);
    }
    if (p->has_id && chown(path, p->id.uid, p->id.gid) < 0)
        return err_sys(e, errno, "give %.200s to uid %u", path, p->id.uid);
    return 0;
}

static int take_mounts(struct plan *p, const struct plan_req *rq, struct err *e)
{
    char source[PATH_MAX];
    size_t i;

    if (!rq->n_mounts)
        return err_api(e, ERRC_INVALID, "RUNTIME_ERROR", "one of workspace and overlays is needed");
    for (i = 0; i < rq->n_mounts; i++) {
        const struct plan_mount *m = &rq->mounts[i];

        if (check_dest(&p->cage, "path", m->path, e) < 0 || make_workspace(p, m->path, e) < 0)
            return -1;
        if (!realpath(m->path, source)) /* what another session put there may be a link */
            return unseen(e, "path", m->path);
        if (check_place("path", m->path, source, e) < 0 ||
            add_mount(p, m->mode, source, m->path, e) < 0)
            return -1;
    }
    p->cage.cwd = p->cage.mounts[0].dest;
    p->background = rq->mounts[0].mode == CAGE_RW || rq->mounts[0].mode == CAGE_OVERLAY;
    return 0;
}

/* The real path of a source, which must lie where binds are allowed. */
static int resolve_source(const char *what, const char *path, char out[PATH_MAX], struct err *e)
{
    size_t i;

    if (!plan_path_clean(path))
        return refuse(e, what, path,
                      "must be absolute, without \".\", \"..\" or a slash at the end");
    if (!realpath(path, out))
        return unseen(e, what, path);
    for (i = 0; i < ARRAY_LEN(allowed); i++)
        if (below(out, allowed[i]))
            return 0;
    return refuse(e, what, path,
                  "must lie below /workspace, /mnt, /media or /data, links followed");
}

static int take_bind(struct plan *p, const char *what, const struct plan_bind *bind, struct err *e)
{
    char source[PATH_MAX];
    struct stat from;
    struct stat to;

    if (resolve_source(what, bind->source, source, e) < 0 ||
        check_dest(&p->cage, what, bind->dest, e) < 0)
        return -1;
    if (stat(source, &from) < 0 || stat(bind->dest, &to) < 0)
        return unseen(e, what, bind->dest);
    if (S_ISDIR(from.st_mode) != S_ISDIR(to.st_mode))
        return refuse(e, what, bind->dest,
                      "source and dest must both be directories, or both files");
    return add_mount(p, bind->read_only ? CAGE_RO : CAGE_RW, source, bind->dest, e);
}

static unsigned depth(const char *path)
{
    unsigned n = 0;

    for (; *path; path++)
        n += *path == '/';
    return n;
}

static int by_depth(const void *a, const void *b)
{
    const char *x = ((const struct cage_mount *)a)->dest;
    const char *y = ((const struct cage_mount *)b)->dest;
    unsigned i = depth(x);
    unsigned k = depth(y);

    return i != k ? (i < k ? -1 : 1) : strcmp(x, y);
}

static int take_paths(struct plan *p, const struct plan_req *rq, struct err *e)
{
    size_t i;

    if (take_mounts(p, rq, e) < 0)
        return -1;
    for (i = 0; i < rq->n_extra; i++) {
        const struct plan_bind bind = { rq->extra_writable[i], rq->extra_writable[i], false };

        if (take_bind(p, "extra_writable", &bind, e) < 0)
            return -1;
    }
    for (i = 0; i < rq->n_binds; i++)
        if (take_bind(p, "binds", &rq->binds[i], e) < 0)
            return -1;
    qsort(p->cage.mounts, p->cage.n_mounts, sizeof(p->cage.mounts[0]), by_depth);
    return 0;
}

/* ---- environment ---- */

bool plan_key_matches(const char *pattern, const char *name)
{
    size_t len = strlen(pattern);
    size_t have = strlen(name);

    if (len && pattern[0] == '*')
        return have >= len - 1 && strcmp(name + have - (len - 1), pattern + 1) == 0;
    if (len && pattern[len - 1] == '*')
        return strncmp(name, pattern, len - 1) == 0;
    return strcmp(name, pattern) == 0;
}

static bool listed(const char *const *patterns, size_t n, const char *name)
{
    size_t i;

    for (i = 0; i < n; i++)
        if (plan_key_matches(patterns[i], name))
            return true;
    return false;
}

static bool passes(const struct plan_req *rq, const char *name)
{
    bool named = listed(rq->keys, rq->n_keys, name);

    if (strcmp(name, "EXECD_ENVS") == 0)
        return false;
    if (rq->keys_allow)
        return named || listed(basics, ARRAY_LEN(basics), name);
    return !named && (rq->balanced || !listed(secrets, ARRAY_LEN(secrets), name));
}

static int take_env(struct plan *p, const struct plan_req *rq, const struct env *all, struct err *e)
{
    size_t i;

    for (i = 0; i < all->n; i++) {
        size_t len = strcspn(all->vars[i], "=");
        AUTO_FREE char *name = strndup(all->vars[i], len);

        if (!name || (passes(rq, name) && env_put(&p->env, all->vars[i]) < 0))
            return err_nomem(e);
    }
    return env_set(&p->env, "PWD", p->cage.cwd) < 0 ? err_nomem(e) : 0;
}

/* ---- identity ---- */

/* In a user namespace the names are free; what is written outside is the agent's. */
static void take_identity(struct plan *p, const struct plan_req *rq, const struct identity *id)
{
    struct cage *c = &p->cage;

    c->uid = rq->has_uid ? rq->uid : geteuid();
    c->gid = rq->has_gid ? rq->gid : rq->has_uid && rq->userns ? (gid_t)rq->uid : getegid();
    if (rq->userns || !rq->has_uid)
        return;
    p->id = *id;
    p->has_id = true;
    c->gid = id->gid;
    c->n_groups = id->n_groups;
    memcpy(c->groups, id->groups, id->n_groups * sizeof(id->groups[0]));
}

static int make(struct plan *p, const struct plan_req *rq, const struct env *base, struct err *e)
{
    AUTO_LAUNCH struct launch l = { 0 };
    const struct launch_req lrq = { .has_uid = rq->has_uid && !rq->userns,
                                    .has_gid = rq->has_uid && !rq->userns && rq->has_gid,
                                    .uid = rq->uid,
                                    .gid = rq->gid };

    if (rq->has_gid && !rq->has_uid)
        return err_set(e, ERRC_INVALID, "gid: needs uid");
    if (launch_prepare(&l, &lrq, base, e) < 0)
        return -1;
    take_identity(p, rq, &l.id);
    p->cage.own_net = rq->own_net;
    p->cage.userns = rq->userns;
    p->cage.private_tmp = !rq->balanced;
    return take_paths(p, rq, e) < 0 ? -1 : take_env(p, rq, &l.env, e);
}

int plan_make(const struct plan_req *rq, const struct env *base, struct plan *out, struct err *e)
{
    *out = (struct plan){ .arena = ARENA_INIT(ARENA_MAX) };
    if (make(out, rq, base, e) == 0)
        return 0;
    plan_free(out);
    return -1;
}
