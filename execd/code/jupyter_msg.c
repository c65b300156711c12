#include "execd/code/jupyter_msg.h"

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/macros.h"
#include "common/json/jx.h"
#include "common/json/utf8.h"

#include <string.h>

enum { BUFFERS_MAX = 4096, MIME_TYPES_MAX = 64, TRACEBACK_MAX = 4096 };

static const struct {
    const char *name;
    enum jupyter_type type;
} types[] = {
    { "stream", JUPYTER_STREAM },
    { "execute_result", JUPYTER_RESULT },
    { "display_data", JUPYTER_DISPLAY },
    { "update_display_data", JUPYTER_DISPLAY },
    { "error", JUPYTER_ERROR },
    { "execute_input", JUPYTER_INPUT },
    { "status", JUPYTER_STATUS },
    { "execute_reply", JUPYTER_REPLY },
    { "kernel_info_reply", JUPYTER_INFO },
};

static const struct {
    const char *name;
    enum jupyter_state state;
} states[] = {
    { "busy", JUPYTER_STATE_BUSY },
    { "idle", JUPYTER_STATE_IDLE },
    { "restarting", JUPYTER_STATE_RESTARTING },
    { "autorestarting", JUPYTER_STATE_RESTARTING },
    { "dead", JUPYTER_STATE_DEAD },
};

struct envelope {
    json_t *header;
    json_t *parent;
    json_t *content;
};

static const struct jx_field envelope_fields[] = {
    { "header", JX_OBJ, offsetof(struct envelope, header), JX_REQUIRED, 0, 0, 0 },
    { "parent_header", JX_OBJ, offsetof(struct envelope, parent), JX_NULLABLE, 0, 0, 0 },
    { "content", JX_OBJ, offsetof(struct envelope, content), JX_REQUIRED, 0, 0, 0 },
};

struct header {
    const char *id;
    const char *session;
    const char *type;
};

static const struct jx_field header_fields[] = {
    { "msg_id", JX_STR, offsetof(struct header, id), JX_NULLABLE, 0, 0, 256 },
    { "session", JX_STR, offsetof(struct header, session), JX_NULLABLE, 0, 0, 256 },
    { "msg_type", JX_STR, offsetof(struct header, type), JX_NULLABLE, 0, 0, 256 },
};

struct content {
    const char *name;
    const char *text;
    const char *state;
    const char *status;
    int64_t count;
    json_t *data;
    const char *ename;
    const char *evalue;
    json_t *traceback;
};

#define ANY_LEN JUPYTER_MESSAGE_MAX

static const struct jx_field content_fields[] = {
    { "name", JX_STR, offsetof(struct content, name), JX_NULLABLE, 0, 0, ANY_LEN },
    { "text", JX_STR, offsetof(struct content, text), JX_NULLABLE, 0, 0, ANY_LEN },
    { "execution_state", JX_STR, offsetof(struct content, state), JX_NULLABLE, 0, 0, ANY_LEN },
    { "status", JX_STR, offsetof(struct content, status), JX_NULLABLE, 0, 0, ANY_LEN },
    { "execution_count", JX_I64, offsetof(struct content, count), JX_NULLABLE, 0, INT64_MAX, 0 },
    { "data", JX_OBJ, offsetof(struct content, data), JX_NULLABLE, 0, 0, 0 },
    { "ename", JX_STR, offsetof(struct content, ename), JX_NULLABLE, 0, 0, ANY_LEN },
    { "evalue", JX_STR, offsetof(struct content, evalue), JX_NULLABLE, 0, 0, ANY_LEN },
    { "traceback", JX_STR_LIST, offsetof(struct content, traceback), JX_NULLABLE, 0, TRACEBACK_MAX,
      ANY_LEN },
};

/* A short message may be a million empty lists, each of which takes memory. */
static bool too_many(const char *s, size_t len)
{
    bool in_string = false;
    size_t n = 0;
    size_t i;

    for (i = 0; i < len; i++) {
        if (in_string && s[i] == '\\')
            i++;
        else if (s[i] == '"')
            in_string = !in_string;
        else if (!in_string && (s[i] == '[' || s[i] == '{' || s[i] == ','))
            n++;
    }
    return n > JUPYTER_VALUES_MAX;
}

static uint32_t be32(const char *p)
{
    const unsigned char *u = (const unsigned char *)p;

    return (uint32_t)u[0] << 24 | (uint32_t)u[1] << 16 | (uint32_t)u[2] << 8 | u[3];
}

/* The number of buffers, where each begins, then the buffers; the first is the JSON. */
static int first_buffer(const char **data, size_t *len, struct err *e)
{
    uint32_t n = *len >= 4 ? be32(*data) : 0;
    size_t from;
    size_t to;

    if (!n || n > BUFFERS_MAX || *len < 4 + 4 * (size_t)n)
        return err_set(e, ERRC_INVALID, "malformed buffers");
    from = be32(*data + 4);
    to = n > 1 ? be32(*data + 8) : *len;
    if (from < 4 + 4 * (size_t)n || from > to || to > *len)
        return err_set(e, ERRC_INVALID, "malformed buffers");
    *data += from;
    *len = to - from;
    return 0;
}

/* Duplicate keys and NULs in keys, which jx_parse refuses, are rare: only for them the text is copied. */
static json_t *load(const char *data, size_t len, struct err *e)
{
    struct err first = { 0 };
    json_t *v = jx_parse(data, len, true, &first);
    AUTO_FREE char *copy = NULL;

    if (v)
        return v;
    copy = malloc(len + 1);
    if (!copy) {
        (void)err_nomem(e);
        return NULL;
    }
    memcpy(copy, data, len);
    copy[len] = '\0';
    return jx_parse_foreign(copy, len, e);
}

static void set_evalue(json_t *content, struct content *c, json_t *text)
{
    (void)json_object_set_new(content, "evalue", text);
    c->evalue = json_string_value(json_object_get(content, "evalue"));
}

static void set_malformed(json_t *content, struct content *c, const struct err *why)
{
    *c = (struct content){ .ename = "KernelError", .status = "error" };
    set_evalue(content, c, json_sprintf("the kernel's error is malformed: %s", why->msg));
}

static void cut_evalue(json_t *content, struct content *c)
{
    if (c->evalue && strlen(c->evalue) > JUPYTER_TEXT_MAX)
        set_evalue(content, c,
                   json_stringn(c->evalue, utf8_valid_len(c->evalue, JUPYTER_TEXT_MAX)));
}

static enum jupyter_state state_of(const char *name)
{
    size_t i;

    for (i = 0; name && i < ARRAY_LEN(states); i++)
        if (strcmp(states[i].name, name) == 0)
            return states[i].state;
    return JUPYTER_STATE_OTHER;
}

static enum jupyter_outcome outcome_of(const char *status)
{
    if (status && strcmp(status, "error") == 0)
        return JUPYTER_FAILED;
    if (status && (strcmp(status, "aborted") == 0 || strcmp(status, "abort") == 0))
        return JUPYTER_ABORTED;
    return JUPYTER_OK;
}

static int check(enum jupyter_type type, const struct content *c, struct err *e)
{
    if (type == JUPYTER_STREAM && !c->text)
        return err_set(e, ERRC_INVALID, "text: missing");
    if ((type == JUPYTER_RESULT || type == JUPYTER_DISPLAY) &&
        (!c->data || json_object_size(c->data) > MIME_TYPES_MAX))
        return err_set(e, ERRC_INVALID, "data: missing, or more than %d types", MIME_TYPES_MAX);
    return 0;
}

/* What is wrong with an error must not make it a success. */
static int decode(json_t *content, enum jupyter_type type, struct content *out, struct err *e)
{
    bool may_fail = type == JUPYTER_ERROR || type == JUPYTER_REPLY;
    int rc = jx_decode(content, "", content_fields, ARRAY_LEN(content_fields), false, out, e);

    if (rc < 0 && !may_fail)
        return -1;
    if (rc < 0)
        set_malformed(content, out, e);
    else if (may_fail)
        cut_evalue(content, out);
    return 0;
}

static int take_content(json_t *content, struct jupyter_msg *out, struct err *e)
{
    struct content c = { 0 };

    if (decode(content, out->type, &c, e) < 0 || check(out->type, &c, e) < 0)
        return -1;
    out->outcome = outcome_of(c.status);
    out->state = state_of(c.state);
    out->is_stderr = c.name && strcmp(c.name, "stderr") == 0;
    out->text_len = c.text ? json_string_length(json_object_get(content, "text")) : 0;
    out->text = c.text ? c.text : "";
    out->count = c.count;
    out->data = c.data;
    out->ename = c.ename && *c.ename ? c.ename : "KernelError";
    out->evalue = c.evalue ? c.evalue : "";
    out->traceback = c.traceback;
    return 0;
}

static int take(json_t *v, struct jupyter_msg *out, struct err *e)
{
    struct envelope env = { 0 };
    struct header head = { 0 };
    struct header parent = { 0 };
    size_t i;

    if (jx_decode(v, "", envelope_fields, ARRAY_LEN(envelope_fields), false, &env, e) < 0 ||
        jx_decode(env.header, "header", header_fields, ARRAY_LEN(header_fields), false, &head, e) <
            0 ||
        (env.parent && jx_decode(env.parent, "parent_header", header_fields,
                                 ARRAY_LEN(header_fields), false, &parent, e) < 0))
        return -1;
    for (i = 0; i < ARRAY_LEN(types); i++)
        if (head.type && strcmp(types[i].name, head.type) == 0)
            out->type = types[i].type;
    out->parent = parent.id ? parent.id : "";
    out->session = head.session ? head.session : "";
    out->text = out->ename = out->evalue = "";
    return out->type == JUPYTER_OTHER ? 0 : take_content(env.content, out, e);
}

int jupyter_msg_parse(bool text, const char *data, size_t len, struct jupyter_msg *out,
                      struct err *e)
{
    struct jupyter_msg m = { 0 };

    if (!text && first_buffer(&data, &len, e) < 0)
        return -1;
    if (too_many(data, len))
        return err_set(e, ERRC_INVALID, "more than %d values", JUPYTER_VALUES_MAX);
    m.value = load(data, len, e);
    if (!m.value)
        return -1;
    if (take(m.value, &m, e) < 0) {
        json_decref(m.value);
        return -1;
    }
    *out = m;
    return 0;
}

void jupyter_msg_free(struct jupyter_msg *m)
{
    json_decref(m->value);
    *m = (struct jupyter_msg){ 0 };
}

/* ---- what is sent ---- */

/* Steals content. */
static char *build(const char *session, const char *id, const char *type, json_t *content)
{
    char date[CLOCK_TEXT];
    json_t *v;
    char *text;

    clock_format_ms(clock_wall_ms(), date);
    v = json_pack("{s:{s:s, s:s, s:s, s:s, s:s, s:s}, s:{}, s:{}, s:s, s:[], s:o}", "header",
                  "msg_id", id, "username", "sandbox", "session", session, "date", date, "msg_type",
                  type, "version", "5.3", "parent_header", "metadata", "channel", "shell",
                  "buffers", "content", content);
    text = v ? jx_dump(v, false) : NULL;
    json_decref(v);
    return text;
}

char *jupyter_msg_execute(const char *session, const char *id, const char *code, bool silent)
{
    /* stop_on_error: code of an abandoned run that fails must not abort the next one */
    return build(session, id, "execute_request",
                 json_pack("{s:o, s:b, s:b, s:{}, s:b, s:b}", "code", jx_bytes(code, strlen(code)),
                           "silent", silent, "store_history", !silent, "user_expressions",
                           "allow_stdin", false, "stop_on_error", false));
}

char *jupyter_msg_info(const char *session, const char *id)
{
    return build(session, id, "kernel_info_request", json_object());
}

static const struct {
    const char *language;
    const char *before;
    const char *after;
    bool shell; /* quoted as a shell wants it, else as a string of JSON */
} chdirs[] = {
    { "python", "__import__('os').chdir(", ")", false },
    { "bash", "cd -- ", "", true },
    { "javascript", "process.chdir(", ")", false },
    { "typescript", "process.chdir(", ")", false },
};

static int put_shell_word(struct buf *out, const char *s)
{
    int rc = buf_puts(out, "'");

    for (; *s && rc == 0; s++)
        rc = *s == '\'' ? buf_puts(out, "'\\''") : buf_append(out, s, 1);
    return rc < 0 ? -1 : buf_puts(out, "'");
}

static int put_json_word(struct buf *out, const char *s)
{
    json_t *v = jx_bytes(s, strlen(s));
    AUTO_FREE char *text = v ? jx_dump(v, false) : NULL;

    json_decref(v);
    return text ? buf_puts(out, text) : -1;
}

int jupyter_msg_chdir(const char *language, const char *path, char **out)
{
    AUTO_BUF struct buf b = BUF_INIT(64 << 10);
    size_t i = 0;

    *out = NULL;
    while (i < ARRAY_LEN(chdirs) && strcmp(chdirs[i].language, language) != 0)
        i++;
    if (i == ARRAY_LEN(chdirs))
        return 0;
    if (buf_puts(&b, chdirs[i].before) < 0 ||
        (chdirs[i].shell ? put_shell_word(&b, path) : put_json_word(&b, path)) < 0 ||
        buf_puts(&b, chdirs[i].after) < 0)
        return -1;
    *out = buf_take(&b);
    return *out ? 0 : -1;
}
