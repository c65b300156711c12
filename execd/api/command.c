/* /command: start, interrupt, status, logs (contract/execd.md 6). */
#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/num.h"
#include "common/base/rand.h"
#include "common/json/jx.h"
#include "execd/api/api.h"
#include "execd/app.h"
#include "execd/exec/events.h"
#include "execd/exec/feed.h"
#include "execd/exec/launch.h"
#include "execd/exec/run.h"
#include "execd/exec/session.h"
#include "execd/exec/spool.h"

#include <inttypes.h>
#include <string.h>

enum {
    COMMAND_ARGS_MAX = 65536,
    COMMAND_ENVS_MAX = ENV_VARS_MAX,
};

struct command {
    const char *command;
    const char *cwd;
    json_t *argv;
    json_t *envs;
    bool background;
    int64_t timeout;
    int64_t uid; /* -1: absent */
    int64_t gid;
};

static const struct jx_field fields[] = {
    { "command", JX_STR, offsetof(struct command, command), JX_NULLABLE, 0, 0, 4 << 20 },
    { "argv", JX_STR_LIST, offsetof(struct command, argv), JX_NULLABLE, 1, COMMAND_ARGS_MAX,
      4 << 20 },
    { "cwd", JX_STR, offsetof(struct command, cwd), JX_NULLABLE, 0, 0, 4096 },
    { "background", JX_BOOL, offsetof(struct command, background), JX_NULLABLE, 0, 0, 0 },
    { "timeout", JX_I64, offsetof(struct command, timeout), JX_NULLABLE, 0,
      INT32_MAX *INT64_C(1000), 0 },
    { "uid", JX_I64, offsetof(struct command, uid), JX_NULLABLE, 0, UINT32_MAX - 1, 0 },
    { "gid", JX_I64, offsetof(struct command, gid), JX_NULLABLE, 0, UINT32_MAX - 1, 0 },
    { "envs", JX_STR_MAP, offsetof(struct command, envs), JX_NULLABLE, 0, COMMAND_ENVS_MAX,
      4 << 20 },
};

const struct api_table command_table = { fields, ARRAY_LEN(fields) };

static int check(const struct command *c, struct err *e)
{
    if (!!c->command == !!c->argv)
        return err_set(e, ERRC_INVALID, "exactly one of command and argv must be given");
    if (c->command ? !*c->command : !*json_string_value(json_array_get(c->argv, 0)))
        return err_set(e, ERRC_INVALID, "command: must not be empty");
    return 0;
}

/* The request's lists as plain strings; they live in its arena and in the JSON value. */
static int to_launch(struct http_req *rq, const struct command *c, struct launch_req *out,
                     struct err *e)
{
    size_t n_argv = json_array_size(c->argv);
    size_t n_envs = json_object_size(c->envs);
    const char **argv = arena_alloc(&rq->arena, (n_argv + 1) * sizeof(*argv));
    const char **envs = arena_alloc(&rq->arena, (2 * n_envs + 1) * sizeof(*envs));
    const char *name;
    json_t *value;
    size_t i;

    if (!argv || !envs)
        return err_nomem(e);
    json_array_foreach(c->argv, i, value)
        argv[i] = json_string_value(value);
    i = 0;
    json_object_foreach(c->envs, name, value) {
        envs[i++] = name;
        envs[i++] = json_string_value(value);
    }
    *out = (struct launch_req){
        .command = c->command,
        .argv = argv,
        .n_argv = n_argv,
        .cwd = c->cwd,
        .has_uid = c->uid >= 0,
        .has_gid = c->gid >= 0,
        .uid = (uid_t)c->uid,
        .gid = (gid_t)c->gid,
        .envs = envs,
        .n_envs = n_envs,
    };
    return 0;
}

/* The command could not be started: the stream says so (contract/execd.md 6.1, 5.7). */
static int not_started(const struct record *rec, const struct err *why, struct http_resp *rs,
                       struct err *e)
{
    char id[RECORD_ID_TEXT];

    if (why->code == ERRC_BUSY) {
        *e = *why;
        return -1;
    }
    rand_hex(id, (RECORD_ID_TEXT - 1) / 2);
    return stream_short(rec ? rec->id : id, why->msg, rs, e);
}

static int start(struct app *app, struct http_req *rq, const struct command *c,
                 const struct launch_req *lrq, struct http_resp *rs, struct err *e)
{
    AUTO_LAUNCH struct launch l = { 0 };
    AUTO_FREE char *shown = c->command ? strdup(c->command) : jx_dump(c->argv, false);
    struct run_req run = { .content = shown,
                           .timeout_ms = c->timeout,
                           .background = c->background };
    struct run_started started;
    struct err why = { 0 };

    if (!shown)
        return err_nomem(e);
    if (launch_prepare(&l, lrq, &app->base, e) < 0)
        return -1;
    if (launch_find(&l, lrq, &app->base, &why) < 0)
        return not_started(c->background ? run_failed(app->runs, shown, &why) : NULL, &why, rs, e);
    run.spawn = launch_spawn(&l);
    run.strip = lines_strip(app->lines, http_req_header(rq, "User-Agent"));
    run.tmpdir = env_get(&app->base, "TMPDIR");
    if (run_start(app->runs, &run, &started, &why) < 0) {
        launch_explain(&l, &why);
        return not_started(started.rec, &why, rs, e);
    }
    if (c->background)
        return stream_short(started.rec->id, NULL, rs, e);
    stream_begin(rs, started.stream);
    return 0;
}

int command_post(void *arg, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct command c = { .uid = -1, .gid = -1 };
    struct launch_req lrq;
    json_t *body = jx_parse(rq->body ? rq->body : "", rq->body_len, false, e);
    int rc = -1;

    if (body && jx_decode(body, "", fields, ARRAY_LEN(fields), false, &c, e) == 0 &&
        check(&c, e) == 0 && to_launch(rq, &c, &lrq, e) == 0)
        rc = start(arg, rq, &c, &lrq, rs, e);
    if (rc < 0 && e->code == ERRC_INVALID)
        (void)err_wrap(e, "error parsing request");
    json_decref(body);
    return rc;
}

int command_text(struct app *app, struct http_req *rq, const char *text, bool background,
                 struct http_resp *rs, struct err *e)
{
    const struct command c = { .command = text, .background = background, .uid = -1, .gid = -1 };
    struct launch_req lrq;

    return to_launch(rq, &c, &lrq, e) < 0 ? -1 : start(app, rq, &c, &lrq, rs, e);
}

/* ---- interrupt ---- */

struct interrupt {
    struct run_waiter waiter;
    struct http_req *rq;
};

static void on_gone(struct run_waiter *w)
{
    http_complete(CONTAINER_OF(w, struct interrupt, waiter)->rq, NULL);
}

int command_delete(void *arg, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct app *app = arg;
    struct interrupt *in = arena_alloc(&rq->arena, sizeof(*in));
    struct session *session;
    struct record *rec;
    const char *id;
    bool is_context;
    int rc = http_req_query(rq, "id", 0, &id, e);

    (void)rs;
    if (rc < 0)
        return -1;
    if (!rc || !*id)
        return err_api(e, ERRC_INVALID, "MISSING_QUERY", "query parameter id is missing");
    rc = code_interrupt(app, id, &is_context, e);
    if (is_context)
        return rc;
    rec = records_find(runs_records(app->runs), id);
    session = rec ? NULL : sessions_find(app->sessions, id);
    if (session) {
        session_delete(session);
        return 0;
    }
    if (!rec)
        return err_set(e, ERRC_INTERNAL, "error interrupting command: %.64s: no such session", id);
    if (!rec->run)
        return err_set(e, ERRC_INTERNAL, "command session %s is not running", rec->id);
    if (!in)
        return err_nomem(e);
    in->waiter.on_gone = on_gone;
    in->rq = rq;
    if (run_interrupt(rec->run, &in->waiter, e) < 0)
        return -1;
    http_defer(rq);
    return 0;
}

/* ---- status and logs ---- */

static json_t *status_of(const struct record *rec)
{
    char text[CLOCK_TEXT];
    json_t *out = json_object();

    (void)json_object_set_new(out, "id", json_string(rec->id));
    (void)json_object_set_new(out, "content", jx_bytes(rec->content, strlen(rec->content)));
    (void)json_object_set_new(out, "running", json_boolean(rec->running));
    if (!rec->running)
        (void)json_object_set_new(out, "exit_code", json_integer(rec->exit_code));
    if (rec->error[0])
        (void)json_object_set_new(out, "error", jx_bytes(rec->error, strlen(rec->error)));
    clock_format_ms(rec->started_ms, text);
    (void)json_object_set_new(out, "started_at", json_string(text));
    if (!rec->running) {
        clock_format_ms(rec->finished_ms, text);
        (void)json_object_set_new(out, "finished_at", json_string(text));
    }
    return out;
}

int command_status(void *arg, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct app *app = arg;
    struct record *rec = records_find(runs_records(app->runs), rq->params[0]);
    json_t *out;
    int rc;

    if (!rec)
        return err_api(e, ERRC_NOT_FOUND, "INVALID_REQUEST_BODY", "command not found: %s",
                       rq->params[0]);
    out = status_of(rec);
    rc = http_resp_json(rs, 200, out ? jx_dump(out, false) : NULL, e);
    json_decref(out);
    return rc;
}

int command_logs(void *arg, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct app *app = arg;
    struct record *rec = records_find(runs_records(app->runs), rq->params[0]);
    const char *text = NULL;
    int64_t cursor = 0;
    uint64_t next;

    if (!rec || !rec->spool)
        return err_set(e, ERRC_INVALID, "no background command %s", rq->params[0]);
    if (http_req_query(rq, "cursor", 0, &text, e) < 0)
        return -1;
    if (text && num_parse_i64(text, INT64_MIN, INT64_MAX, &cursor) < 0)
        cursor = 0; /* as upstream: what is no number counts as none */
    if (cursor < 0)
        return err_set(e, ERRC_INVALID, "cursor: must not be negative");
    rs->body = spool_read(rec->spool, (uint64_t)cursor, &rs->body_len, &next, e);
    if (!rs->body)
        return -1;
    rs->content_type = "text/plain; charset=utf-8";
    http_resp_header(rs, "EXECD-COMMANDS-TAIL-CURSOR", arena_printf(&rq->arena, "%" PRIu64, next));
    return 0;
}

/* ---- resume ---- */

int command_resume(void *arg, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct app *app = arg;
    struct record *rec = records_find(runs_records(app->runs), rq->params[0]);
    struct http_stream *stream = NULL;
    const char *text = NULL;
    int64_t after = 0;
    int rc = -1;

    if (!rec || !rec->feed)
        (void)err_set(e, ERRC_NOT_FOUND, "no command with a stream to resume: %s", rq->params[0]);
    else if (http_req_query(rq, "after_eid", 0, &text, e) >= 0) {
        if (text && num_parse_i64(text, 0, INT64_MAX, &after) < 0)
            after = 0; /* contract/newest.md 3.1: what is no number counts as none */
        stream = feed_resume(rec->feed, (uint64_t)after, e);
        rc = stream ? 0 : -1;
    }
    if (rc == 0)
        stream_begin(rs, stream);
    else if (e->code == ERRC_NOT_FOUND || e->code == ERRC_CONFLICT)
        e->api_code = "INVALID_REQUEST_BODY";
    return rc;
}
