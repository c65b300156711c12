#include "gateway/runtime/docker/progress.h"

#include "common/base/cleanup.h"
#include "common/base/macros.h"
#include "common/json/jx.h"

#include <string.h>

struct update {
    const char *status;
    const char *id;
    const char *error;
    json_t *error_detail;
};

static const struct jx_field update_fields[] = {
    { "status", JX_STR, offsetof(struct update, status), JX_NULLABLE, 0, 0, 0 },
    { "id", JX_STR, offsetof(struct update, id), JX_NULLABLE, 0, 0, 0 },
    { "error", JX_STR, offsetof(struct update, error), JX_NULLABLE, 0, 0, 0 },
    { "errorDetail", JX_OBJ, offsetof(struct update, error_detail), JX_NULLABLE, 0, 0, 0 },
};

void progress_init(struct progress *p)
{
    *p = (struct progress){ .line = BUF_INIT(PROGRESS_LINE_MAX) };
}

void progress_free(struct progress *p)
{
    buf_free(&p->line);
}

/* The three parts, cut to what fits. */
static void put3(char *out, const char *a, const char *sep, const char *b)
{
    const char *const parts[] = { a, sep, b };
    size_t at = 0;
    size_t i;
    size_t len;

    for (i = 0; i < ARRAY_LEN(parts); i++) {
        len = strnlen(parts[i], PROGRESS_TEXT - 1 - at);
        memcpy(out + at, parts[i], len);
        at += len;
    }
    out[at] = '\0';
}

static void take_line(struct progress *p)
{
    json_auto_t *v = p->line.len ? jx_parse(p->line.data, p->line.len, true, NULL) : NULL;
    struct update u = { 0 };

    if (!json_is_object(v) ||
        jx_decode(v, "", update_fields, ARRAY_LEN(update_fields), false, &u, NULL) < 0)
        return;
    if (!u.error && u.error_detail)
        u.error = json_string_value(json_object_get(u.error_detail, "message"));
    if (u.error || u.error_detail)
        put3(p->error, u.error && *u.error ? u.error : "unknown error", "", "");
    else if (u.status)
        put3(p->status, u.id ? u.id : "", u.id ? ": " : "", u.status);
}

void progress_feed(struct progress *p, const char *data, size_t len)
{
    const char *nl;
    size_t n;

    while (len > 0) {
        nl = memchr(data, '\n', len);
        n = nl ? (size_t)(nl - data) : len;
        if (!p->skip && buf_append(&p->line, data, n) < 0)
            p->skip = true;
        if (!nl)
            return;
        progress_end(p);
        data += n + 1;
        len -= n + 1;
    }
}

void progress_end(struct progress *p)
{
    if (!p->skip)
        take_line(p);
    buf_clear(&p->line);
    p->skip = false;
}
