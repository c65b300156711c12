/* /pty: create, list, look, end, connect (contract/execd.md 9). */
#include "execd/pty/pty.h"
#include "common/base/err.h"
#include "common/base/macros.h"
#include "common/base/num.h"
#include "common/json/jx.h"
#include "common/ws/handshake.h"
#include "execd/api/api.h"
#include "execd/app.h"

#include <string.h>
#include <strings.h>

enum { COMMAND_MAX = 128 << 10 /* one argument of a program */, ENVS_MAX = 1024 };

struct pty_body {
    const char *command;
    const char *cwd;
    json_t *envs;
    int64_t uid; /* -1: absent */
    int64_t gid;
};

static const struct jx_field fields[] = {
    { "command", JX_STR, offsetof(struct pty_body, command), JX_NULLABLE, 0, 0, COMMAND_MAX - 1 },
    { "cwd", JX_STR, offsetof(struct pty_body, cwd), JX_NULLABLE, 0, 0, 4096 },
    { "uid", JX_I64, offsetof(struct pty_body, uid), JX_NULLABLE, 0, UINT32_MAX - 1, 0 },
    { "gid", JX_I64, offsetof(struct pty_body, gid), JX_NULLABLE, 0, UINT32_MAX - 1, 0 },
    { "envs", JX_STR_MAP, offsetof(struct pty_body, envs), JX_NULLABLE, 0, ENVS_MAX, 0 },
};

const struct api_table pty_table = { fields, ARRAY_LEN(fields) };

static int reply(struct http_resp *rs, int status, json_t *v, struct err *e)
{
    int rc = http_resp_json(rs, status, v ? jx_dump(v, false) : NULL, e);

    json_decref(v);
    return rc;
}

/* ---- create ---- */

static int create(struct app *app, struct http_req *rq, const struct pty_body *b,
                  struct http_resp *rs, struct err *e)
{
    const char **envs =
        arena_alloc(&rq->arena, (2 * json_object_size(b->envs) + 1) * sizeof(*envs));
    struct pty_req make = {
        .command = b->command && *b->command ? b->command : NULL,
        .launch = { .cwd = b->cwd,
                    .has_uid = b->uid >= 0,
                    .has_gid = b->gid >= 0,
                    .uid = (uid_t)b->uid,
                    .gid = (gid_t)b->gid,
                    .envs = envs,
                    .n_envs = json_object_size(b->envs) },
    };
    struct pty_state st;
    struct pty *p;
    const char *name;
    json_t *value;
    size_t i = 0;

    if (!envs)
        return err_nomem(e);
    json_object_foreach(b->envs, name, value) {
        envs[i++] = name;
        envs[i++] = json_string_value(value);
    }
    p = pty_new(app->ptys, &make, e);
    if (!p) {
        if (e->code == ERRC_NOT_FOUND) /* of the directory, not of the route */
            e->code = ERRC_SYS;
        return -1;
    }
    pty_state(p, &st);
    return reply(rs, 201, json_pack("{s:s}", "session_id", st.id), e);
}

int pty_post(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct pty_body b = { .uid = -1, .gid = -1 };
    json_t *body = rq->body_len ? jx_parse(rq->body, rq->body_len, false, e) : json_object();
    int rc = -1;

    if (body && jx_decode(body, "", fields, ARRAY_LEN(fields), false, &b, e) == 0)
        rc = create(app, rq, &b, rs, e);
    if (rc < 0 && e->code == ERRC_INVALID)
        (void)err_wrap(e, "error parsing request");
    json_decref(body);
    return rc;
}

/* ---- look ---- */

static json_t *state_of(const struct pty *p)
{
    struct pty_state st;

    pty_state(p, &st);
    return json_pack("{s:s, s:b, s:I, s:b, s:b, s:b, s:i}", "session_id", st.id, "running",
                     st.running, "output_offset", (json_int_t)st.output_offset, "launch_attempted",
                     st.launch_attempted, "launch_failed", st.launch_failed, "connected", st.held,
                     "viewers", (int)st.viewers);
}

static struct pty *find(struct app *app, const struct http_req *rq, struct err *e)
{
    struct pty *p = pty_find(app->ptys, rq->params[0]);

    if (!p)
        (void)err_api(e, ERRC_NOT_FOUND, "CONTEXT_NOT_FOUND", "there is no PTY session %s",
                      rq->params[0]);
    return p;
}

int pty_list(void *arg, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct app *app = arg;
    json_t *list = json_array();
    struct pty *p = NULL;

    (void)rq;
    while ((p = pty_next(app->ptys, p)))
        (void)json_array_append_new(list, state_of(p));
    return reply(rs, 200, json_pack("{s:o*}", "sessions", list), e);
}

int pty_get(void *arg, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct pty *p = find(arg, rq, e);

    return p ? reply(rs, 200, state_of(p), e) : -1;
}

int pty_end(void *arg, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct pty *p = find(arg, rq, e);

    (void)rs;
    if (!p)
        return -1;
    pty_delete(p);
    return 0;
}

/* ---- connect ---- */

/* A page of another site can open a WebSocket to an agent that wants no token: design decision 20. */
static int check_origin(const struct app *app, const struct http_req *rq, struct err *e)
{
    const char *origin = http_req_header(rq, "Origin");
    const char *host = origin ? strstr(origin, "://") : NULL;
    const char *ours = http_req_header(rq, "Host");
    const char *outer = http_req_header(rq, "X-Forwarded-Host");

    if (!origin || app->token[0])
        return 0;
    if (host &&
        ((ours && strcasecmp(host + 3, ours) == 0) || (outer && strcasecmp(host + 3, outer) == 0)))
        return 0;
    return err_set(e, ERRC_FORBIDDEN, "a page of another site may not connect to this agent");
}

/* 0 or 1 for "0" and "1"; otherwise what it was. */
static int read_flag(struct http_req *rq, const char *name, bool *out, struct err *e)
{
    const char *text = NULL;

    if (http_req_query(rq, name, 0, &text, e) < 0)
        return -1;
    if (text && strcmp(text, "1") == 0)
        *out = true;
    else if (text && strcmp(text, "0") == 0)
        *out = false;
    return 0;
}

static int read_entry(struct http_req *rq, struct pty_entry *out, struct err *e)
{
    const char *mode = NULL;
    const char *since = NULL;
    bool tty = true;
    int64_t at = 0;

    if (read_flag(rq, "pty", &tty, e) < 0 || read_flag(rq, "takeover", &out->takeover, e) < 0 ||
        http_req_query(rq, "mode", 0, &mode, e) < 0 ||
        http_req_query(rq, "since", 0, &since, e) < 0)
        return -1;
    out->pipe = !tty;
    out->viewer = mode && strcmp(mode, "viewer") == 0;
    if (mode && *mode && !out->viewer && strcmp(mode, "holder") != 0)
        return err_set(e, ERRC_INVALID, "mode: viewer or holder");
    if (since && num_parse_i64(since, 0, INT64_MAX, &at) == 0)
        out->since = (uint64_t)at; /* what is no number counts as none */
    return 0;
}

int pty_ws(void *arg, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct app *app = arg;
    struct pty *p = find(app, rq, e);
    struct pty_entry how = { 0 };
    struct http_resp answer = *rs;

    if (!p || check_origin(app, rq, e) < 0 || read_entry(rq, &how, e) < 0)
        return -1;
    if (ws_accept(rq, &answer, e) < 0) {
        *rs = answer; /* with the headers that say what is wanted */
        return -1;
    }
    answer.upgrade_owner = pty_enter(p, &how, e);
    if (!answer.upgrade_owner)
        return -1;
    answer.upgrade = &pty_upgrade_ops;
    *rs = answer;
    return 0;
}
