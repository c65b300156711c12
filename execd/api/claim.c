/* POST /internal/claim: a held agent becomes somebody's sandbox (common/agent/wire.h). */
#include "common/agent/wire.h"
#include "common/base/cleanup.h"
#include "common/base/rand.h"
#include "common/json/jx.h"
#include "execd/api/api.h"
#include "execd/app.h"
#include "execd/exec/supervise.h"

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
    json_t *env;
    json_t *entrypoint;
    bool closed_ports;
};

static const struct jx_field fields[] = {
    { "secret", JX_STR, offsetof(struct claim, secret), JX_REQUIRED | JX_NONEMPTY, 0, 0, 4096 },
    { "token", JX_STR, offsetof(struct claim, token), JX_REQUIRED | JX_NONEMPTY, 0, 0,
      APP_TOKEN_MAX },
    { "env", JX_STR_MAP, offsetof(struct claim, env), JX_NULLABLE, 0, CLAIM_ENV_MAX, 0 },
    { "entrypoint", JX_STR_LIST, offsetof(struct claim, entrypoint), JX_NULLABLE, 0, CLAIM_ARGS_MAX,
      0 },
    { "closedPorts", JX_BOOL, offsetof(struct claim, closed_ports), JX_NULLABLE, 0, 0, 0 },
    { "lineEndings", JX_STR, offsetof(struct claim, line_endings), JX_NULLABLE, 0, 0, 16 },
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

static int start_entrypoint(struct app *app, const struct claim *c, struct err *e)
{
    size_t n = json_array_size(c->entrypoint);
    AUTO_FREE const char **argv = calloc(n + 1, sizeof(*argv));
    json_t *item;
    size_t i;

    if (!argv)
        return err_nomem(e);
    if (!n)
        return 0;
    json_array_foreach(c->entrypoint, i, item)
        argv[i] = json_string_value(item);
    if (!*argv[0])
        return err_set(e, ERRC_INVALID, "entrypoint.0: must not be empty");
    return app_start_entrypoint(app, argv, n, e);
}

static int carry_out(struct app *app, json_t *body, struct err *e)
{
    struct claim c = { 0 };

    if (jx_decode(body, "", fields, ARRAY_LEN(fields), false, &c, e) < 0 ||
        take_env(app, &c, e) < 0 || start_entrypoint(app, &c, e) < 0)
        return -1;
    memcpy(app->token, c.token, strlen(c.token) + 1);
    app->closed_ports = c.closed_ports;
    app->state = APP_OPEN;
    return 0;
}

int claim_post(void *arg, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct app *app = arg;
    json_t *body;
    json_t *reply;
    int rc;

    if (!app->opt.held)
        return err_set(e, ERRC_NOT_FOUND, "this agent was not started held");
    if (app->state != APP_HELD)
        return err_set(e, ERRC_CONFLICT, "this sandbox is claimed already");
    body = jx_parse(rq->body ? rq->body : "", rq->body_len, false, e);
    if (!body || !knows_secret(app, body)) {
        json_decref(body);
        return refuse(app, e);
    }
    rc = carry_out(app, body, e);
    json_decref(body);
    if (rc < 0) {
        e->code = ERRC_INVALID; /* 400, whatever the reason: the claim cannot be carried out */
        log_error("the claim cannot be carried out", LOG_S("error", e->msg));
        app_leave(app, EXIT_NOT_STARTED);
        return -1;
    }
    reply =
        json_pack("{s:s, s:i}", "status", "claimed", "pid", (int)supervisor_pid(app->supervisor));
    rc = http_resp_json(rs, 200, reply ? jx_dump(reply, true) : NULL, e);
    json_decref(reply);
    return rc;
}
