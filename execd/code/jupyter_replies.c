#include "execd/code/jupyter_replies.h"

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/macros.h"
#include "common/json/jx.h"

#include <string.h>
#include <strings.h>

struct answer {
    const char *id;
    json_t *kernel;
    json_t *specs;
    json_t *spec;
    const char *language;
    const char *state;
    const char *message;
    const char *reason;
};

static const struct jx_field fields[] = {
    { "id", JX_STR, offsetof(struct answer, id), JX_NULLABLE, 0, 0, 0 },
    { "kernel", JX_OBJ, offsetof(struct answer, kernel), JX_NULLABLE, 0, 0, 0 },
    { "kernelspecs", JX_OBJ, offsetof(struct answer, specs), JX_NULLABLE, 0, 0, 0 },
    { "spec", JX_OBJ, offsetof(struct answer, spec), JX_NULLABLE, 0, 0, 0 },
    { "language", JX_STR, offsetof(struct answer, language), JX_NULLABLE, 0, 0, 0 },
    { "execution_state", JX_STR, offsetof(struct answer, state), JX_NULLABLE, 0, 0, 0 },
    { "message", JX_STR, offsetof(struct answer, message), JX_NULLABLE, 0, 0, 0 },
    { "reason", JX_STR, offsetof(struct answer, reason), JX_NULLABLE, 0, 0, 0 },
};

static int decode(const json_t *v, struct answer *out, struct err *e)
{
    *out = (struct answer){ 0 };
    if (jx_decode(v, "", fields, ARRAY_LEN(fields), false, out, e) < 0)
        return -1;
    return 0;
}

/* The caller owns *v, which is NULL after a failure. */
static int read_answer(const char *body, size_t len, json_t **v, struct answer *out, struct err *e)
{
    *v = jx_parse(body, len, true, e);
    if (*v && decode(*v, out, e) == 0)
        return 0;
    json_decref(*v);
    *v = NULL;
    e->code = ERRC_BAD_GATEWAY;
    return err_wrap(e, "the Jupyter server's answer");
}

/* NULL: it says none. */
static const char *language_of(const json_t *spec)
{
    struct answer outer;
    struct answer inner;

    if (!json_is_object(spec) || decode(spec, &outer, NULL) < 0 || !outer.spec ||
        decode(outer.spec, &inner, NULL) < 0)
        return NULL;
    return inner.language;
}

static bool name_ok(const char *name)
{
    size_t len = strlen(name);

    return len && len < JUPYTER_SPEC_TEXT;
}

/* How well a kernelspec serves; 0: not at all. */
static int rank(const char *name, const json_t *spec, const char *language)
{
    const char *its = language_of(spec);

    if (!its || strcasecmp(its, language) != 0 || !name_ok(name))
        return 0;
    return strcasecmp(name, language) == 0 ? 3 : strcmp(name, "python3") == 0 ? 1 : 2;
}

/* Each language once, as an error text. */
static void list_languages(const json_t *specs, struct buf *out)
{
    const char *name;
    json_t *spec;

    json_object_foreach((json_t *)specs, name, spec) {
        const char *language = language_of(spec);
        const char *at = language && out->len ? strstr(out->data, language) : NULL;
        size_t len = language ? strlen(language) : 0;
        bool listed = at && (at == out->data || at[-1] == ' ') && strchr(",", at[len]);

        if (len && !listed)
            (void)buf_printf(out, "%s%s", out->len ? ", " : "", language);
    }
}

int jupyter_choose_spec(const char *body, size_t len, const char *language, char *out,
                        struct err *e)
{
    AUTO_BUF struct buf have = BUF_INIT(256);
    const char *best = NULL;
    const char *name;
    struct answer a;
    json_t *spec;
    json_t *v;
    int top = 0;

    if (read_answer(body, len, &v, &a, e) < 0)
        return -1;
    json_object_foreach(a.specs, name, spec) {
        int now = rank(name, spec, language);

        if (now > top || (now && now == top && strcmp(name, best) < 0)) {
            top = now;
            best = name;
        }
    }
    if (best) {
        (void)snprintf(out, JUPYTER_SPEC_TEXT, "%s", best);
    } else {
        list_languages(a.specs, &have);
        (void)err_set(e, ERRC_INVALID,
                      "no kernel for the language \"%.40s\" on the Jupyter server; "
                      "languages available: %s",
                      language, have.len ? have.data : "none");
    }
    json_decref(v);
    return best ? 0 : -1;
}

char *jupyter_session_request(const char *path, const char *name, const char *spec)
{
    json_t *v = json_pack("{s:o, s:s, s:s, s:{s:s}}", "path", jx_bytes(path, strlen(path)), "name",
                          name, "type", "notebook", "kernel", "name", spec);
    char *text = v ? jx_dump(v, true) : NULL;

    json_decref(v);
    return text;
}

/* It becomes part of paths. */
static int take_id(const char *id, char *out, struct err *e)
{
    size_t len = id ? strlen(id) : 0;
    size_t i;

    for (i = 0; i < len; i++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.", id[i]))
            break;
    if (!len || len >= JUPYTER_ID_TEXT || i < len || *id == '.')
        return err_set(e, ERRC_BAD_GATEWAY, "the Jupyter server gave no usable id");
    memcpy(out, id, len + 1);
    return 0;
}

int jupyter_read_session(const char *body, size_t len, struct jupyter_ids *out, struct err *e)
{
    struct jupyter_ids ids;
    struct answer kernel;
    struct answer a;
    json_t *v;
    int rc;

    if (read_answer(body, len, &v, &a, e) < 0)
        return -1;
    if (!a.kernel || decode(a.kernel, &kernel, NULL) < 0)
        kernel = (struct answer){ 0 };
    rc = take_id(a.id, ids.session, e) < 0 || take_id(kernel.id, ids.kernel, e) < 0 ? -1 : 0;
    if (rc == 0)
        *out = ids;
    json_decref(v);
    return rc;
}

enum jupyter_state jupyter_read_kernel(const char *body, size_t len)
{
    enum jupyter_state state = JUPYTER_STATE_OTHER;
    struct err e = { 0 };
    struct answer a;
    json_t *v;

    if (read_answer(body, len, &v, &a, &e) < 0)
        return state;
    if (a.state && strcmp(a.state, "dead") == 0)
        state = JUPYTER_STATE_DEAD;
    else if (a.state && strstr(a.state, "restarting"))
        state = JUPYTER_STATE_RESTARTING;
    json_decref(v);
    return state;
}

void jupyter_read_error(const char *body, size_t len, char *out, size_t cap)
{
    struct err e = { 0 };
    struct answer a;
    json_t *v;

    *out = '\0';
    if (!len || read_answer(body, len, &v, &a, &e) < 0)
        return;
    if (a.message || a.reason)
        (void)snprintf(out, cap, "%s",
                       a.message && *a.message ? a.message
                       : a.reason              ? a.reason
                                               : "");
    json_decref(v);
}
