/* /session: shells that keep variables and directory (contract/execd.md 7). */
#include "execd/exec/session.h"
#include "common/base/macros.h"
#include "common/json/jx.h"
#include "execd/api/api.h"
#include "execd/app.h"

struct session_body {
    const char *cwd;
    const char *command;
    int64_t timeout;
};

static const struct jx_field add_fields[] = {
    { "cwd", JX_STR, offsetof(struct session_body, cwd), JX_NULLABLE, 0, 0, 4096 },
};
static const struct jx_field run_fields[] = {
    { "command", JX_STR, offsetof(struct session_body, command), JX_REQUIRED, 0, 0, 4 << 20 },
    { "cwd", JX_STR, offsetof(struct session_body, cwd), JX_NULLABLE, 0, 0, 4096 },
    { "timeout", JX_I64, offsetof(struct session_body, timeout), JX_NULLABLE, 0,
      INT32_MAX *INT64_C(1000), 0 },
};

const struct api_table session_add_table = { add_fields, ARRAY_LEN(add_fields) };
const struct api_table session_run_table = { run_fields, ARRAY_LEN(run_fields) };

int session_post(void *arg, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct app *app = arg;
    struct session_body body = { 0 };
    json_t *v = rq->body_len ? jx_parse(rq->body, rq->body_len, false, e) : json_object();
    struct session *s = NULL;
    json_t *out;
    int rc;

    if (v && jx_decode(v, "", add_fields, ARRAY_LEN(add_fields), false, &body, e) == 0)
        s = sessions_add(app->sessions, &app->base, body.cwd, e);
    json_decref(v);
    if (!s)
        return e->code == ERRC_INVALID ? err_wrap(e, "error parsing request") : -1;
    out = json_pack("{s:s}", "session_id", session_id(s));
    rc = http_resp_json(rs, 200, out ? jx_dump(out, false) : NULL, e);
    json_decref(out);
    return rc;
}

static struct session *find(struct app *app, const struct http_req *rq, struct err *e)
{
    struct session *s = sessions_find(app->sessions, rq->params[0]);

    if (!s)
        (void)err_api(e, ERRC_NOT_FOUND, "CONTEXT_NOT_FOUND",
                      "no session %.64s: it was deleted, or never made here", rq->params[0]);
    return s;
}

static int run(struct session *s, const struct session_body *body, struct http_resp *rs,
               struct err *e)
{
    const struct session_req rq = { body->command, body->cwd, body->timeout };
    struct http_stream *stream;
    struct err why = { 0 };

    if (!*body->command)
        return err_set(e, ERRC_INVALID, "command: must not be empty");
    if (session_run(s, &rq, &stream, &why) == 0) {
        stream_begin(rs, stream);
        return 0;
    }
    if (why.code == ERRC_INVALID || why.code == ERRC_BUSY || why.code == ERRC_NOMEM) {
        *e = why;
        return -1;
    }
    return stream_short(session_id(s), why.msg, rs, e);
}

int session_run_post(void *arg, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct session_body body = { 0 };
    struct session *s = find(arg, rq, e);
    json_t *v;
    int rc = -1;

    if (!s)
        return -1;
    v = jx_parse(rq->body ? rq->body : "", rq->body_len, false, e);
    if (v && jx_decode(v, "", run_fields, ARRAY_LEN(run_fields), false, &body, e) == 0)
        rc = run(s, &body, rs, e);
    if (rc < 0 && e->code == ERRC_INVALID)
        (void)err_wrap(e, "error parsing request");
    json_decref(v);
    return rc;
}

int session_remove(void *arg, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct session *s = find(arg, rq, e);

    (void)rs;
    if (!s)
        return -1;
    session_delete(s);
    return 0;
}
