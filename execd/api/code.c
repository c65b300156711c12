/* /code: runs, interrupts, contexts (contract/execd.md 8.1). */
#include "common/base/cleanup.h"
#include "common/json/jx.h"
#include "execd/api/api.h"
#include "execd/app.h"
#include "execd/code/contexts.h"
#include "execd/fs/path.h"

#include <ctype.h>
#include <string.h>

enum { CODE_MAX = 4 << 20, CONTEXT_PATH_MAX = 4096 };

struct code {
    const char *code;
    json_t *context;
};

static const struct jx_field code_fields[] = {
    { "code", JX_STR, offsetof(struct code, code), JX_REQUIRED | JX_NONEMPTY, 0, 0, CODE_MAX },
    { "context", JX_OBJ, offsetof(struct code, context), JX_NULLABLE, 0, 0, 0 },
};

struct which {
    const char *id;
    const char *language;
    const char *cwd;
};

static const struct jx_field which_fields[] = {
    { "id", JX_STR, offsetof(struct which, id), JX_NULLABLE, 0, 0, HTTP_PARAM_LEN_MAX },
    { "language", JX_STR, offsetof(struct which, language), JX_NULLABLE, 0, 0,
      KERNEL_LANGUAGE_MAX - 1 },
    { "cwd", JX_STR, offsetof(struct which, cwd), JX_NULLABLE, 0, 0, CONTEXT_PATH_MAX },
};

const struct api_table code_table = { code_fields, ARRAY_LEN(code_fields) };
const struct api_table context_table = { which_fields, ARRAY_LEN(which_fields) };

/* A request that waits for its context. */
struct pending {
    struct context_waiter waiter;
    struct http_req *rq;
    struct http_resp *rs;
    json_t *body;
    const char *code; /* NULL: the context itself is the answer */
};

static int decode_which(const json_t *v, const char *at, struct which *out, struct err *e)
{
    *out = (struct which){ .id = "", .language = "", .cwd = "" };
    return v ? jx_decode(v, at, which_fields, ARRAY_LEN(which_fields), false, out, e) : 0;
}

/* Lower case, in the request's arena. */
static const char *language_of(struct http_req *rq, const char *given)
{
    char *out = arena_printf(&rq->arena, "%s", given);
    char *p;

    for (p = out; p && *p; p++)
        *p = (char)tolower((unsigned char)*p);
    return out;
}

static int not_found(const char *id, struct err *e)
{
    return err_api(e, ERRC_NOT_FOUND, "CONTEXT_NOT_FOUND", "context not found: %.64s", id);
}

/* contract/execd.md 8.1: what keeps a context from being made is a 500. */
static int no_context(struct err *e)
{
    if (e->code != ERRC_NOMEM && e->code != ERRC_BUSY)
        e->code = ERRC_INTERNAL;
    return -1;
}

static json_t *show(const struct context *c)
{
    json_t *out = json_pack("{s:s, s:s}", "id", context_id(c), "language", context_language(c));

    if (out && context_cwd(c))
        (void)json_object_set_new(out, "cwd", jx_bytes(context_cwd(c), strlen(context_cwd(c))));
    return out;
}

static int reply(json_t *v, struct http_resp *rs, struct err *e)
{
    int rc = http_resp_json(rs, 200, v ? jx_dump(v, false) : NULL, e);

    json_decref(v);
    return rc;
}

/* ---- running ---- */

static int run(struct context *c, const char *code, struct http_resp *rs, struct err *e)
{
    struct http_stream *stream;

    if (context_run(c, code, &stream, e) < 0)
        return -1;
    stream_begin(rs, stream);
    return 0;
}

static void on_context(struct context_waiter *w, struct context *c, const struct err *why)
{
    struct pending *p = CONTAINER_OF(w, struct pending, waiter);
    struct err e = { 0 };
    int rc = -1;

    if (c) {
        rc = p->code ? run(c, p->code, p->rs, &e) : reply(show(c), p->rs, &e);
    } else {
        e = *why;
        (void)no_context(&e);
    }
    json_decref(p->body);
    http_complete(p->rq, rc < 0 ? &e : NULL);
}

/* Takes over body when 0 is returned. */
static struct pending *pend(struct http_req *rq, struct http_resp *rs, const char *code,
                            struct err *e)
{
    struct pending *p = arena_alloc(&rq->arena, sizeof(*p));

    if (p)
        *p = (struct pending){
            .waiter = { .on_done = on_context }, .rq = rq, .rs = rs, .code = code
        };
    else
        (void)err_nomem(e);
    return p;
}

static int run_in_default(struct app *app, struct http_req *rq, json_t *body, const char *code,
                          const char *language, struct http_resp *rs, struct err *e)
{
    struct pending *p = pend(rq, rs, code, e);
    struct context *c;
    int rc = p ? contexts_default(app->contexts, language, &p->waiter, &c, e) : -1;

    if (rc < 0)
        return no_context(e);
    if (rc > 0)
        return run(c, code, rs, e);
    p->body = json_incref(body);
    http_defer(rq);
    return 0;
}

static int run_in_context(struct app *app, const struct which *w, const char *language,
                          const char *code, struct http_resp *rs, struct err *e)
{
    struct context *c = contexts_find(app->contexts, w->id);

    if (!c)
        return not_found(w->id, e);
    if (*language && strcmp(language, context_language(c)) != 0)
        return err_set(e, ERRC_INVALID, "context.language: context %s runs %s, not %s", w->id,
                       context_language(c), language);
    return run(c, code, rs, e);
}

static int start(struct app *app, struct http_req *rq, json_t *body, struct http_resp *rs,
                 struct err *e)
{
    struct code c = { 0 };
    struct which w;
    const char *language;

    if (jx_decode(body, "", code_fields, ARRAY_LEN(code_fields), false, &c, e) < 0 ||
        decode_which(c.context, "context", &w, e) < 0)
        return -1;
    language = language_of(rq, w.language);
    if (!language)
        return err_nomem(e);
    if (*w.id)
        return run_in_context(app, &w, language, c.code, rs, e);
    if (!*language || strcmp(language, "command") == 0)
        return command_text(app, rq, c.code, false, rs, e);
    if (strcmp(language, "background-command") == 0)
        return command_text(app, rq, c.code, true, rs, e);
    return run_in_default(app, rq, body, c.code, language, rs, e);
}

int code_post(void *arg, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    json_t *body = jx_parse(rq->body ? rq->body : "", rq->body_len, false, e);
    int rc = body ? start(arg, rq, body, rs, e) : -1;

    json_decref(body);
    if (rc < 0 && e->code == ERRC_INVALID)
        (void)err_wrap(e, "error parsing request");
    return rc;
}

int code_interrupt(struct app *app, const char *id, bool *found, struct err *e)
{
    struct context *c = contexts_find(app->contexts, id);

    *found = c != NULL;
    return c ? context_interrupt(c, e) : 0;
}

/* ---- contexts ---- */

static int make(struct app *app, struct http_req *rq, const struct which *w, struct http_resp *rs,
                struct err *e)
{
    const char *language = language_of(rq, w->language);
    struct pending *p = pend(rq, rs, NULL, e);
    const struct path_from from = { &app->base, NULL };
    AUTO_FREE char *cwd = NULL;

    if (!language || !p)
        return err_nomem(e);
    if (!*language)
        return err_set(e, ERRC_INVALID, "language: must not be empty");
    if (*w->cwd && (path_resolve(w->cwd, &from, &cwd, e) < 0 || path_make(cwd, 0777, e) < 0))
        return no_context(e);
    if (contexts_create(app->contexts, language, cwd, &p->waiter, e) < 0)
        return no_context(e);
    http_defer(rq);
    return 0;
}

int code_context_post(void *arg, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    json_t *body = jx_parse(rq->body ? rq->body : "", rq->body_len, false, e);
    struct which w;
    int rc = -1;

    if (body && decode_which(body, "", &w, e) == 0)
        rc = make(arg, rq, &w, rs, e);
    json_decref(body);
    if (rc < 0 && e->code == ERRC_INVALID)
        (void)err_wrap(e, "error parsing request");
    return rc;
}

int code_context_get(void *arg, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct app *app = arg;
    struct context *c = contexts_find(app->contexts, rq->params[0]);

    return c ? reply(show(c), rs, e) : not_found(rq->params[0], e);
}

int code_context_delete(void *arg, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct app *app = arg;
    struct context *c = contexts_find(app->contexts, rq->params[0]);

    (void)rs;
    if (!c)
        return not_found(rq->params[0], e);
    context_delete(c);
    return 0;
}

/* The query's language. 1: *out is it, 0: absent or empty, -1: err set. */
static int query_language(struct http_req *rq, const char **out, struct err *e)
{
    const char *given;
    int rc = http_req_query(rq, "language", 0, &given, e);

    if (rc <= 0 || !*given)
        return rc < 0 ? -1 : 0;
    *out = language_of(rq, given);
    return *out ? 1 : err_nomem(e);
}

int code_contexts_get(void *arg, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    static const char *const without[] = { "command", "background-command", "sql" };
    struct app *app = arg;
    const struct context *c = NULL;
    const char *language = NULL;
    json_t *out;
    size_t i;

    if (query_language(rq, &language, e) < 0)
        return -1;
    for (i = 0; language && i < ARRAY_LEN(without); i++)
        if (strcmp(language, without[i]) == 0)
            return err_set(e, ERRC_INTERNAL, "%s has no contexts", language);
    out = json_array();
    while ((c = contexts_next(app->contexts, c)))
        if (!language || strcmp(language, context_language(c)) == 0)
            (void)json_array_append_new(out, show(c));
    return reply(out, rs, e);
}

int code_contexts_delete(void *arg, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct app *app = arg;
    const char *language = NULL;
    int rc = query_language(rq, &language, e);

    (void)rs;
    if (rc < 0)
        return -1;
    if (!rc)
        return err_api(e, ERRC_INVALID, "MISSING_QUERY", "query parameter language is missing");
    contexts_delete_language(app->contexts, language);
    return 0;
}
