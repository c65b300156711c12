/* Runs of isolated sessions: foreground as a stream of events, background with status and log. */
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/macros.h"
#include "common/base/num.h"
#include "common/json/jx.h"
#include "execd/api/api.h"
#include "execd/api/isolated_routes.h"
#include "execd/app.h"
#include "execd/isolated/isolated.h"

#include <inttypes.h>

enum { CODE_LEN_MAX = 3 << 20, ENVS_MAX = 1024 };

struct run_body {
    const char *code;
    json_t *envs;
    int64_t timeout_s;
    bool background;
};

static const struct jx_field fields[] = {
    { "code", JX_STR, offsetof(struct run_body, code), JX_REQUIRED | JX_NONEMPTY, 0, 0,
      CODE_LEN_MAX },
    { "envs", JX_STR_MAP, offsetof(struct run_body, envs), JX_NULLABLE, 0, ENVS_MAX, 0 },
    { "timeout_seconds", JX_I64, offsetof(struct run_body, timeout_s), JX_NULLABLE, 0,
      ISOLATED_TIMEOUT_MAX, 0 },
    { "background", JX_BOOL, offsetof(struct run_body, background), JX_NULLABLE, 0, 0, 0 },
};

const struct api_table isolated_run_table = { fields, ARRAY_LEN(fields) };

static void set_time(json_t *v, const char *name, int64_t ms)
{
    char text[CLOCK_TEXT];

    clock_format_ms(ms, text);
    (void)json_object_set_new(v, name, json_string(text));
}

static json_t *handle_of(const struct http_req *rq, const struct background *b)
{
    json_t *v = json_pack("{s:s, s:s}", "session_id", rq->params[0], "run_id", b->id);

    set_time(v, "started_at", b->started_ms);
    return v;
}

static int run(struct isolated_session *s, struct http_req *rq, const struct run_body *b,
               struct http_resp *rs, struct err *e)
{
    size_t n = json_object_size(b->envs);
    const char **envs = arena_alloc(&rq->arena, (2 * n + 1) * sizeof(*envs));
    const struct isolated_run irq = { b->code, envs, n, b->timeout_s };
    const struct background *bg;
    struct http_stream *stream;
    const char *name;
    json_t *value;
    size_t i = 0;

    if (!envs)
        return err_nomem(e);
    json_object_foreach(b->envs, name, value) {
        envs[i++] = name;
        envs[i++] = json_string_value(value);
    }
    if (b->background) {
        bg = isolated_start(s, &irq, e);
        return bg ? isolated_reply(rs, 202, handle_of(rq, bg), e) : -1;
    }
    if (isolated_run(s, &irq, &stream, e) < 0)
        return -1;
    stream_begin(rs, stream);
    return 0;
}

int isolated_run_post(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct isolated_session *s = isolated_of(app, rq, e);
    struct run_body b = { 0 };
    json_t *body;
    int rc = -1;

    if (!s)
        return -1;
    body = jx_parse(rq->body ? rq->body : "", rq->body_len, false, e);
    if (body && jx_decode(body, "", fields, ARRAY_LEN(fields), false, &b, e) == 0)
        rc = run(s, rq, &b, rs, e);
    if (rc < 0 && e->code == ERRC_INVALID && !e->api_code)
        (void)err_wrap(e, "error parsing request");
    json_decref(body);
    return rc;
}

static const struct background *find(struct app *app, const struct http_req *rq, struct err *e)
{
    struct isolated_session *s = isolated_of(app, rq, e);
    const struct background *b = s ? isolated_background(s, rq->params[1]) : NULL;

    if (s && !b)
        (void)err_api(e, ERRC_NOT_FOUND, "SESSION_NOT_FOUND", "no run %.64s in this session",
                      rq->params[1]);
    return b;
}

int isolated_run_status(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    const struct background *b = find(app, rq, e);
    json_t *v;

    if (!b)
        return -1;
    v = handle_of(rq, b);
    (void)json_object_set_new(v, "running", json_boolean(b->running));
    if (!b->running) {
        set_time(v, "finished_at", b->finished_ms);
        if (b->error)
            (void)json_object_set_new(v, "error", json_string(b->error));
        else
            (void)json_object_set_new(v, "exit_code", json_integer(b->exit_code));
    }
    return isolated_reply(rs, 200, v, e);
}

int isolated_run_logs(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    const struct background *b = find(app, rq, e);
    const char *text = NULL;
    int64_t cursor = 0;
    uint64_t next;

    if (!b || http_req_query(rq, "cursor", 0, &text, e) < 0)
        return -1;
    if (text && *text && num_parse_i64(text, 0, INT64_MAX, &cursor) < 0)
        return err_set(e, ERRC_INVALID, "cursor: must be a number that is not negative");
    rs->body = spool_read(b->spool, (uint64_t)cursor, &rs->body_len, &next, e);
    if (!rs->body)
        return -1;
    rs->content_type = "text/plain; charset=utf-8";
    http_resp_header(rs, "EXECD-ISOLATED-TAIL-CURSOR", arena_printf(&rq->arena, "%" PRIu64, next));
    return 0;
}
