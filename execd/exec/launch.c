#include "execd/exec/launch.h"

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "execd/exec/envfile.h"
#include "execd/fs/expand.h"

#include <string.h>
#include <sys/stat.h>

void launch_free(struct launch *l)
{
    env_free(&l->env);
    free(l->cwd);
    free(l->path);
    free(l->argv);
    *l = (struct launch){ 0 };
}

static int too_large(struct err *e)
{
    return err_set(e, ERRC_INVALID, "the environment has more than %d variables, or memory is out",
                   ENV_VARS_MAX);
}

/* The account's own home and name, for a command that runs as another user; everything else in
 * the environment is stronger. */
static int account_env(struct launch *out, const struct launch_req *rq)
{
    const struct account *a = &out->id.account;

    if (!rq->has_uid || !a->name[0] || rq->uid == geteuid())
        return 0;
    if (env_set(&out->env, "HOME", a->home[0] ? a->home : "/") < 0 ||
        env_set(&out->env, "USER", a->name) < 0 || env_set(&out->env, "LOGNAME", a->name) < 0)
        return -1;
    return 0;
}

/* Weakest first: agent and sandbox (base), account, env file, request. */
static int make_env(struct launch *out, const struct launch_req *rq, const struct env *base,
                    struct err *e)
{
    const char *file = env_get(base, "EXECD_ENVS");
    size_t i;

    if (env_put_all(&out->env, base->vars) < 0 || account_env(out, rq) < 0)
        return too_large(e);
    if (file && envfile_load(file, base, &out->env, e) < 0)
        return too_large(e);
    for (i = 0; i < rq->n_envs; i++) {
        if (!env_name_ok(rq->envs[2 * i]))
            return err_set(e, ERRC_INVALID, "envs: a name is empty or contains '='");
        if (env_set(&out->env, rq->envs[2 * i], rq->envs[2 * i + 1]) < 0)
            return too_large(e);
    }
    return 0;
}

int launch_enter(struct launch *out, const char *dir, struct err *e)
{
    char *copy = strdup(dir);
    struct stat st;

    if (!copy)
        return err_nomem(e);
    free(out->cwd);
    out->cwd = copy;
    if (stat(out->cwd, &st) < 0) {
        (void)err_sys(e, errno, "working directory %s", out->cwd);
        e->code = ERRC_INVALID; /* the request's fault, whatever the reason */
        return -1;
    }
    if (!S_ISDIR(st.st_mode))
        return err_set(e, ERRC_INVALID, "working directory %s is not a directory", out->cwd);
    if (access(out->cwd, X_OK) < 0)
        return err_set(e, ERRC_INVALID, "working directory %s is not accessible", out->cwd);
    if (out->cwd[0] == '/' && env_set(&out->env, "PWD", out->cwd) < 0)
        return too_large(e);
    return 0;
}

static int check_cwd(struct launch *out, const char *cwd, struct err *e)
{
    AUTO_FREE char *dir = NULL;

    if (expand_path(cwd, &out->env, &dir, e) < 0)
        return -1;
    return launch_enter(out, dir, e);
}

/* A switch that would change nothing is left out: it works without the capability. */
static bool same_identity(const struct identity *id)
{
    gid_t now[ACCOUNT_GROUPS_MAX];
    int n = getgroups(ACCOUNT_GROUPS_MAX, now);
    size_t i;
    int k;

    if (id->uid != geteuid() || id->gid != getegid())
        return false;
    if (geteuid() != 0)
        return true; /* nobody but root may change the groups */
    for (i = 0; i < id->n_groups; i++) {
        for (k = 0; k < n && now[k] != id->groups[i]; k++)
            ;
        if (k >= n && id->groups[i] != id->gid)
            return false;
    }
    for (k = 0; k < n; k++) {
        for (i = 0; i < id->n_groups && id->groups[i] != now[k]; i++)
            ;
        if (i == id->n_groups && now[k] != id->gid)
            return false;
    }
    return true;
}

int launch_prepare(struct launch *out, const struct launch_req *rq, const struct env *base,
                   struct err *e)
{
    if (rq->has_gid && !rq->has_uid)
        return err_set(e, ERRC_INVALID, "gid: needs uid");
    if (rq->has_uid) {
        if (identity_look_up(rq->uid, rq->has_gid, rq->gid, &out->id, e) < 0)
            return -1;
        out->set_ids = !same_identity(&out->id);
    }
    if (make_env(out, rq, base, e) < 0)
        return -1;
    return rq->cwd && *rq->cwd ? check_cwd(out, rq->cwd, e) : 0;
}

static const char *path_of(const struct env *v)
{
    const char *path = env_get(v, "PATH");

    return path && *path ? path : LAUNCH_PATH;
}

int launch_shell(struct launch *out, const struct env *base, struct err *e)
{
    const char *path = path_of(base);

    if (spawn_which("bash", path, &out->path, e) == 0 || e->code == ERRC_NOMEM)
        return out->path ? 0 : -1;
    if (spawn_which("sh", path, &out->path, e) == 0 || e->code == ERRC_NOMEM)
        return out->path ? 0 : -1;
    return err_set(e, ERRC_NOT_FOUND,
                   "this image has no shell (neither bash nor sh in %.200s); "
                   "send argv to run a program without one",
                   path);
}

static int find_program(struct launch *out, const char *name, struct err *e)
{
    if (!strchr(name, '/'))
        return spawn_which(name, path_of(&out->env), &out->path, e);
    out->path = strdup(name);
    return out->path ? 0 : err_nomem(e);
}

int launch_find(struct launch *out, const struct launch_req *rq, const struct env *base,
                struct err *e)
{
    size_t n = rq->command ? 3 : rq->n_argv;
    size_t i;

    if (rq->command ? launch_shell(out, base, e) < 0 : find_program(out, rq->argv[0], e) < 0)
        return -1;
    out->argv = calloc(n + 1, sizeof(*out->argv));
    if (!out->argv)
        return err_nomem(e);
    if (rq->command) {
        const char *slash = strrchr(out->path, '/');

        out->argv[0] = slash ? slash + 1 : out->path;
        out->argv[1] = "-c";
        out->argv[2] = rq->command;
        return 0;
    }
    for (i = 0; i < n; i++)
        out->argv[i] = rq->argv[i];
    return 0;
}

struct spawn_req launch_spawn(const struct launch *l)
{
    return (struct spawn_req){
        .path = l->path,
        .argv = (char *const *)l->argv,
        .envp = l->env.vars,
        .cwd = l->cwd,
        .in = -1,
        .out = -1,
        .err = -1,
        .set_ids = l->set_ids,
        .uid = l->id.uid,
        .gid = l->id.gid,
        .groups = l->id.groups,
        .n_groups = l->id.n_groups,
    };
}

void launch_explain(const struct launch *l, struct err *e)
{
    const char *hint = NULL;
    size_t used = strlen(e->msg);

    if (e->sys == EPERM && l->set_ids)
        hint = "running as another user needs CAP_SETUID and CAP_SETGID";
    else if (e->sys == ENOENT && l->path && access(l->path, F_OK) == 0)
        hint = "the file is there, its interpreter or loader is not";
    else if (e->sys == EACCES)
        hint = "it is not executable for this user, or lies on a noexec mount";
    else if (e->sys == E2BIG)
        hint = "one argument may have 128 KiB; put a long script into a file";
    if (hint)
        (void)snprintf(e->msg + used, sizeof(e->msg) - used, " (%s)", hint);
}
