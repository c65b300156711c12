#include "execd/api/scope.h"

#include "common/base/cleanup.h"
#include "common/base/num.h"
#include "common/http/http.h"
#include "common/json/jx.h"
#include "execd/app.h"
#include "execd/fs/accounts.h"
#include "execd/isolated/isolated.h"
#include "execd/isolated/probe.h"

#include <string.h>

static int id_param(const struct http_req *rq, unsigned i, const char *name, int64_t *out,
                    struct err *e)
{
    if (num_parse_i64(rq->params[i], 0, UINT32_MAX - 1, out) < 0)
        return err_set(e, ERRC_INVALID, "%s: must be an integer of 0 to %u", name, UINT32_MAX - 1);
    return 0;
}

/* Nothing of the agent's environment is visible to an account: paths have its home only. */
static int as_account(struct scope *s, const struct http_req *rq, struct err *e)
{
    const char *home;
    int64_t uid;
    int64_t gid;

    if (id_param(rq, 0, "uid", &uid, e) < 0 || id_param(rq, 1, "gid", &gid, e) < 0)
        return -1;
    s->id = calloc(1, sizeof(*s->id));
    if (!s->id)
        return err_nomem(e);
    if (identity_look_up((uid_t)uid, true, (gid_t)gid, s->id, e) < 0) {
        e->code = ERRC_SYS;
        return -1;
    }
    home = s->id->account.home;
    if (env_set(&s->vars, "HOME", *home ? home : "/") < 0)
        return err_nomem(e);
    s->from = (struct path_from){ &s->vars, "/" };
    s->tmpdir = NULL;
    return 0;
}

static int as_session(struct scope *s, struct app *app, const struct http_req *rq, struct err *e)
{
    struct isolated_view view;

    if (cages_gate(e) < 0 || isolated_view(app->isolated, rq->params[0], &view, e) < 0)
        return -1;
    s->ns = view.ns;
    s->tmpdir = NULL;
    s->from.cwd = "/";
    if (!view.has_id)
        return 0;
    s->id = malloc(sizeof(*s->id));
    if (!s->id)
        return err_nomem(e);
    *s->id = view.id;
    return 0;
}

static bool below(const struct http_req *rq, const char *prefix)
{
    return strncmp(rq->route->pattern, prefix, strlen(prefix)) == 0;
}

static bool gone(const void *rq)
{
    return http_req_gone(rq);
}

int scope_open(struct scope *s, struct app *app, struct http_req *rq, struct err *e)
{
    *s = (struct scope){
        .from = { &app->base, NULL },
        .tmpdir = env_get(&app->base, "TMPDIR"),
        .umask = (mode_t)app->umask,
        .watch = { gone, rq },
    };
    if (below(rq, SCOPE_SESSION)) {
        if (as_session(s, app, rq, e) == 0)
            return 0;
    } else if (!below(rq, SCOPE_PREFIX) || as_account(s, rq, e) == 0) {
        return 0;
    }
    scope_close(s);
    return -1;
}

void scope_close(struct scope *s)
{
    env_free(&s->vars);
    free(TAKE_PTR(s->id));
    if (s->ns > 0)
        (void)close(s->ns);
    s->ns = 0;
}

int scope_enter(struct scope *s, struct err *e)
{
    if (s->ns > 0 && visit_begin(&s->visit, s->ns, e) < 0)
        return -1;
    if (!s->id || persona_enter(&s->old, s->id, e) == 0)
        return 0;
    visit_end(&s->visit);
    return -1;
}

/* contract/execd.md 10.5: clients look for the word. EPERM's own text lacks it. */
int scope_leave(struct scope *s, int rc, struct err *e)
{
    persona_leave(&s->old);
    visit_end(&s->visit);
    if (s->id && rc < 0 && e->sys == EPERM) {
        (void)err_wrap(e, "permission denied");
        e->sys = 0;
    }
    return rc;
}

int scope_run(void *app, scope_fn fn, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct scope s;
    int rc;

    if (scope_open(&s, app, rq, e) < 0)
        return -1;
    rc = scope_enter(&s, e);
    if (rc == 0)
        rc = scope_leave(&s, fn(&s, rq, rs, e), e);
    scope_close(&s);
    return rc;
}

int scope_path(const struct scope *s, struct http_req *rq, char **out, struct err *e)
{
    const char *arg;
    int rc = http_req_query(rq, "path", 0, &arg, e);

    if (rc < 0)
        return -1;
    if (!rc || !*arg)
        return err_api(e, ERRC_INVALID, "MISSING_QUERY", "query parameter path is missing");
    return path_resolve(arg, &s->from, out, e);
}

int scope_each_path(const struct scope *s, struct http_req *rq,
                    int (*fn)(const char *path, struct err *e), struct err *e)
{
    const char *asked;
    unsigned i;
    int rc = 1;

    for (i = 0; rc == 1; i++) {
        AUTO_FREE char *path = NULL;

        rc = http_req_query(rq, "path", i, &asked, e);
        if (rc == 1 && (path_resolve(asked, &s->from, &path, e) < 0 || fn(path, e) < 0))
            rc = -1;
    }
    return rc;
}

json_t *scope_path_map(const struct http_req *rq, struct err *e)
{
    json_t *body = jx_parse(rq->body ? rq->body : "", rq->body_len, false, e);

    if (!body || json_is_object(body))
        return body;
    if (json_is_null(body)) {
        json_decref(body);
        body = json_object();
        if (!body)
            (void)err_nomem(e);
        return body;
    }
    json_decref(body);
    (void)err_set(e, ERRC_INVALID, "body: must be an object of paths");
    return NULL;
}
