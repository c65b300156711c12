/* POST /internal/claim: a held agent becomes somebody's sandbox (common/agent/wire.h). */
#include "common/agent/wire.h"
#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/rand.h"
#include "common/json/jx.h"
#include "execd/api/api.h"
#include "execd/app.h"
#include "execd/exec/lifecycle.h"
#include "execd/exec/supervise.h"
#include "execd/fs/ca.h"
#include "execd/fs/mount.h"
#include "execd/fs/pem.h"

#include <string.h>

enum {
    CLAIM_ENV_MAX = 4096,
    CLAIM_ARGS_MAX = 4096,
    EXIT_NOT_STARTED = 127, /* as a shell has it for "command not found" */
};

struct claim {
    const char *secret;
    const char *token;
    const char *line_endings;
    const char *ca;
    json_t *env;
    json_t *entrypoint;
    json_t *mounts;
    json_t *lifecycle;
    bool closed_ports;
    struct deadline deadline;
};

/* A claim on its way: until its answer, which waits for preStart. */
struct claiming {
    struct start start;
    struct http_req *rq;
    struct http_resp *rs;
    json_t *body;      /* what argv and c point into */
    const char **argv; /* of the entrypoint */
    struct claim c;
};

static const struct jx_field fields[] = {
    { "secret", JX_STR, offsetof(struct claim, secret), JX_REQUIRED | JX_NONEMPTY, 0, 0, 4096 },
    { "token", JX_STR, offsetof(struct claim, token), JX_REQUIRED | JX_NONEMPTY, 0, 0,
      APP_TOKEN_MAX },
    { "env", JX_STR_MAP, offsetof(struct claim, env), JX_NULLABLE, 0, CLAIM_ENV_MAX, 0 },
    { "entrypoint", JX_STR_LIST, offsetof(struct claim, entrypoint), JX_NULLABLE, 0, CLAIM_ARGS_MAX,
      0 },
    { "mounts", JX_LIST, offsetof(struct claim, mounts), JX_NULLABLE, 0, MOUNTS_MAX, 0 },
    { "lifecycle", JX_OBJ, offsetof(struct claim, lifecycle), JX_NULLABLE, 0, 0, 0 },
    { "closedPorts", JX_BOOL, offsetof(struct claim, closed_ports), JX_NULLABLE, 0, 0, 0 },
    { "lineEndings", JX_STR, offsetof(struct claim, line_endings), JX_NULLABLE, 0, 0, 16 },
    { "ca", JX_STR, offsetof(struct claim, ca), JX_NULLABLE, 0, 0, PEM_TEXT_MAX },
    { "deadline", JX_I64, offsetof(struct claim, deadline.at_ms), JX_NULLABLE, 0, DEADLINE_MAX, 0 },
    { "now", JX_I64, offsetof(struct claim, deadline.now_ms), JX_NULLABLE, 0, DEADLINE_MAX, 0 },
};

const struct api_table claim_table = { fields, ARRAY_LEN(fields) };

/* Somebody who does not know the secret reached a held agent: it must not be used any more. */
static int refuse(struct app *app, struct err *e)
{
    log_error("security: a claim with a wrong secret was refused", LOG_S("id", app->opt.id));
    app_leave(app, AGENT_EXIT_REFUSED);
    return err_set(e, ERRC_FORBIDDEN, "the claim's secret is wrong; this sandbox is given up");
}

static bool knows_secret(const struct app *app, json_t *body)
{
    const char *secret = json_string_value(json_object_get(body, "secret"));
    char hash[RAND_SECRET_TEXT];

    if (!secret)
        return false;
    sha256_hex(secret, strlen(secret), hash);
    return secret_equal(app->opt.claim_sha256, hash);
}

/* The claim's variables over the container's own. */
static int take_env(struct app *app, const struct claim *c, struct err *e)
{
    const char *name;
    const char *mode;
    json_t *value;

    json_object_foreach(c->env, name, value) {
        if (!env_name_ok(name))
            return err_set(e, ERRC_INVALID, "env: a name is empty or contains '='");
        if (env_set(&app->base, name, json_string_value(value)) < 0)
            return err_set(e, ERRC_INVALID, "env: more than %d variables", ENV_VARS_MAX);
    }
    if (app_take_jupyter(app, e) < 0)
        return -1;
    if (env_set(&app->base, "OPENSANDBOX_ID", app->opt.id) < 0)
        return err_nomem(e);
    if (c->line_endings && lines_parse(c->line_endings, &app->lines) < 0)
        return err_set(e, ERRC_INVALID, "lineEndings: must be auto, keep or strip");
    mode = env_get(&app->base, "OPENSANDBOX_LINE_ENDINGS"); /* the sandbox's own wish wins */
    if (mode && lines_parse(mode, &app->lines) < 0)
        return err_set(e, ERRC_INVALID,
                       "env.OPENSANDBOX_LINE_ENDINGS: must be auto, keep or strip");
    return 0;
}

struct mount {
    const char *path;
    const char *dev;
    const char *ino;
};

static const struct jx_field mount_fields[] = {
    { "path", JX_STR, offsetof(struct mount, path), JX_REQUIRED | JX_NONEMPTY, 0, 0,
      MOUNT_PATH_MAX },
    { "dev", JX_STR, offsetof(struct mount, dev), JX_REQUIRED | JX_NONEMPTY, 0, 0,
      MOUNT_NUMBER_MAX },
    { "ino", JX_STR, offsetof(struct mount, ino), JX_REQUIRED | JX_NONEMPTY, 0, 0,
      MOUNT_NUMBER_MAX },
};

const struct api_table mount_table = { mount_fields, ARRAY_LEN(mount_fields) };

static int check_mounts(const struct claim *c, struct err *e)
{
    char where[sizeof("mounts.") + 20];
    json_t *item;
    size_t i;

    json_array_foreach(c->mounts, i, item) {
        struct mount m = { 0 };

        (void)snprintf(where, sizeof(where), "mounts.%zu", i);
        if (jx_decode(item, where, mount_fields, ARRAY_LEN(mount_fields), false, &m, e) < 0)
            return -1;
        if (mount_check(m.path, m.dev, m.ino, e) < 0) {
            e->api_code = AGENT_MOUNT_REFUSED;
            return -1;
        }
    }
    return 0;
}

/* After the environment: what the user has set stays. */
static int take_ca(struct app *app, const struct claim *c, struct err *e)
{
    static const struct ca_paths where = { "", AGENT_HOME };
    AUTO_BUF struct buf pem = BUF_INIT(2 * PEM_TEXT_MAX);

    if (!c->ca) {
        ca_forget(&where);
        return 0;
    }
    if (pem_certificates(c->ca, &pem, e) > 0 && ca_install(&where, pem.data, &app->base, e) == 0)
        return 0;
    e->api_code = AGENT_CA_REFUSED;
    return err_wrap(e, "ca");
}

static int take_entrypoint(struct claiming *cl, struct err *e)
{
    size_t n = json_array_size(cl->c.entrypoint);
    json_t *item;
    size_t i;

    cl->argv = calloc(n + 1, sizeof(*cl->argv));
    if (!cl->argv)
        return err_nomem(e);
    json_array_foreach(cl->c.entrypoint, i, item)
        cl->argv[i] = json_string_value(item);
    if (n && !*cl->argv[0])
        return err_set(e, ERRC_INVALID, "entrypoint.0: must not be empty");
    cl->start.argv = cl->argv;
    cl->start.n = n;
    return 0;
}

static void claiming_free(struct claiming *cl)
{
    if (!cl)
        return;
    json_decref(cl->body);
    free(cl->argv);
    free(cl);
}

static int reply(const struct app *app, struct http_resp *rs, struct err *e)
{
    json_t *v =
        json_pack("{s:s, s:i}", "status", "claimed", "pid", (int)supervisor_pid(app->supervisor));
    int rc = http_resp_json(rs, 200, v ? jx_dump(v, true) : NULL, e);

    json_decref(v);
    return rc;
}

/* 400, whatever the reason: the claim cannot be carried out. */
static int refuse_to_start(const struct err *why, struct err *e)
{
    if (e != why)
        *e = *why;
    e->code = ERRC_INVALID;
    return -1;
}

/* preStart is over, and with it the wait for the answer. */
static void on_started(struct start *s, const struct err *why)
{
    struct claiming *cl = CONTAINER_OF(s, struct claiming, start);
    struct err e = { 0 };
    int rc = why ? refuse_to_start(why, &e) : reply(s->app, cl->rs, &e);

    http_complete(cl->rq, rc < 0 ? &e : NULL);
    claiming_free(cl);
}

static int take_lifecycle(struct app *app, const struct claim *c, struct lifecycle *out,
                          struct err *e)
{
    if (lifecycle_decode(c->lifecycle, "lifecycle", env_get(&app->base, "TZ"), out, e) == 0)
        return 0;
    e->api_code = AGENT_LIFECYCLE_INVALID;
    return -1;
}

/* Decodes and checks everything, then starts. As start_run: 1 means that on_started will come. */
static int carry_out(struct app *app, struct claiming *cl, struct err *e)
{
    struct lifecycle lc = { 0 };

    if (jx_decode(cl->body, "", fields, ARRAY_LEN(fields), false, &cl->c, e) < 0 ||
        check_mounts(&cl->c, e) < 0 || take_env(app, &cl->c, e) < 0 ||
        take_ca(app, &cl->c, e) < 0 || take_entrypoint(cl, e) < 0 ||
        take_lifecycle(app, &cl->c, &lc, e) < 0) {
        log_error("the claim cannot be carried out", LOG_S("error", e->msg));
        supervisor_end(app->supervisor, EXIT_NOT_STARTED);
        return -1;
    }
    memcpy(app->token, cl->c.token, strlen(cl->c.token) + 1);
    app->closed_ports = cl->c.closed_ports;
    app->has_deadline = cl->c.deadline.at_ms != 0;
    app->deadline_left_ms = deadline_left_ms(&cl->c.deadline);
    cl->start.app = app;
    cl->start.done = on_started;
    return start_run(&cl->start, &lc, e);
}

int claim_post(void *arg, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct app *app = arg;
    struct claiming *cl;
    int rc;

    if (!app->opt.held)
        return err_set(e, ERRC_NOT_FOUND, "this agent was not started held");
    if (app->state != APP_HELD)
        return err_set(e, ERRC_CONFLICT, "this sandbox is claimed already");
    cl = calloc(1, sizeof(*cl));
    if (!cl)
        return err_nomem(e);
    cl->rq = rq;
    cl->rs = rs;
    cl->body = jx_parse(rq->body ? rq->body : "", rq->body_len, false, e);
    if (!cl->body || !knows_secret(app, cl->body)) {
        claiming_free(cl);
        return refuse(app, e);
    }
    rc = carry_out(app, cl, e);
    if (rc > 0) {
        http_defer(rq);
        return 0;
    }
    claiming_free(cl);
    return rc < 0 ? refuse_to_start(e, e) : reply(app, rs, e);
}
