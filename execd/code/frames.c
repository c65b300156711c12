#include "execd/code/frames.h"

#include "common/base/err.h"
#include "common/base/macros.h"
#include "common/json/jx.h"

#include <string.h>

enum { READ_AHEAD = 128 * 1024 };

static const struct {
    const char *name;
    enum frame_type type;
} types[] = {
    { "ready", FRAME_READY },     { "busy", FRAME_BUSY },   { "result", FRAME_RESULT },
    { "display", FRAME_DISPLAY }, { "error", FRAME_ERROR }, { "idle", FRAME_IDLE },
};

struct said {
    const char *type;
    int64_t count;
    const char *ename;
    const char *evalue;
    json_t *traceback;
    json_t *data;
};

static const struct jx_field fields[] = {
    { "type", JX_STR, offsetof(struct said, type), JX_REQUIRED, 0, 0, 32 },
    { "count", JX_I64, offsetof(struct said, count), 0, 0, INT64_MAX, 0 },
    { "ename", JX_STR, offsetof(struct said, ename), 0, 0, 0, FRAMES_NAME_MAX },
    { "evalue", JX_STR, offsetof(struct said, evalue), 0, 0, 0, FRAMES_TEXT_MAX },
    { "traceback", JX_STR_LIST, offsetof(struct said, traceback), 0, 0, FRAMES_TRACEBACK_MAX,
      FRAMES_TEXT_MAX },
    { "data", JX_STR_MAP, offsetof(struct said, data), 0, 0, FRAMES_TYPES_MAX, FRAMES_LINE_MAX },
};

void frames_init(struct frames *f)
{
    *f = (struct frames){ .line = BUF_INIT(FRAMES_LINE_MAX + READ_AHEAD) };
}

void frames_free(struct frames *f)
{
    buf_free(&f->line);
}

char *frames_reserve(struct frames *f, size_t len)
{
    return buf_reserve(&f->line, len);
}

void frames_commit(struct frames *f, size_t len)
{
    f->line.len += len;
}

/* A short line may be a million empty lists, each of which takes memory. */
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
    return n > FRAMES_VALUES_MAX;
}

static int check(const struct said *s, struct frame *out, struct err *e)
{
    size_t i;

    for (i = 0; i < ARRAY_LEN(types) && strcmp(types[i].name, s->type) != 0; i++)
        ;
    if (i == ARRAY_LEN(types))
        return err_set(e, ERRC_INVALID, "type: unknown");
    if ((types[i].type == FRAME_RESULT || types[i].type == FRAME_DISPLAY) && !s->data)
        return err_set(e, ERRC_INVALID, "data: missing");
    if (types[i].type == FRAME_ERROR && (!s->ename || !s->evalue || !s->traceback))
        return err_set(e, ERRC_INVALID, "ename, evalue and traceback: missing");
    out->type = types[i].type;
    out->count = s->count;
    out->ename = s->ename;
    out->evalue = s->evalue;
    out->traceback = s->traceback;
    out->data = s->data;
    return 0;
}

/* text is changed: what is no UTF-8 text in JSON is made one. */
static int decode(char *text, size_t len, struct frame *out, struct err *e)
{
    struct said s = { 0 };
    json_t *v;

    *out = (struct frame){ 0 };
    if (too_many(text, len))
        return err_set(e, ERRC_INVALID, "more than %d values", FRAMES_VALUES_MAX);
    v = jx_parse_foreign(text, len, e);
    if (!v)
        return -1;
    if (jx_decode(v, "", fields, ARRAY_LEN(fields), false, &s, e) < 0 || check(&s, out, e) < 0) {
        json_decref(v);
        return -1;
    }
    out->value = v;
    return 1;
}

static void take(struct frames *f, size_t len)
{
    buf_consume(&f->line, len);
    f->scanned = 0;
    if (!f->line.len)
        buf_free(&f->line);
}

int frames_next(struct frames *f, struct frame *out, struct err *e)
{
    char *begin = f->line.data;
    char *end;
    size_t len;
    int rc;

    if (!f->line.len)
        return 0;
    end = memchr(begin + f->scanned, '\n', f->line.len - f->scanned);
    if (!end) {
        f->scanned = f->line.len;
        if (!f->skipping && f->line.len <= FRAMES_LINE_MAX)
            return 0;
        rc = f->skipping ? 0 : -1;
        f->skipping = true;
        take(f, f->line.len);
        return rc < 0 ? err_set(e, ERRC_INVALID, "longer than %d bytes", FRAMES_LINE_MAX) : 0;
    }
    len = (size_t)(end - begin);
    if (f->skipping) {
        f->skipping = false;
        take(f, len + 1);
        return frames_next(f, out, e);
    }
    if (len > FRAMES_LINE_MAX)
        rc = err_set(e, ERRC_INVALID, "longer than %d bytes", FRAMES_LINE_MAX);
    else
        rc = decode(begin, len, out, e);
    take(f, len + 1);
    return rc;
}

void frame_free(struct frame *fr)
{
    json_decref(fr->value);
    *fr = (struct frame){ 0 };
}
