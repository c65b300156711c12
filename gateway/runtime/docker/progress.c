#include "gateway/runtime/docker/progress.h"

#include "common/base/cleanup.h"
#include "common/base/macros.h"
#include "common/json/jx.h"
#include "common/json/utf8.h"

#include <stdio.h>
#include <string.h>

/* Bytes of a layer that are believed; 128 of them fit into 64 bits times 100. */
#define LAYER_MAX (INT64_C(1) << 48)

struct update {
    const char *status;
    const char *id;
    const char *error;
    json_t *error_detail;
    json_t *detail;
};

static const struct jx_field update_fields[] = {
    { "status", JX_STR, offsetof(struct update, status), JX_NULLABLE, 0, 0, 0 },
    { "id", JX_STR, offsetof(struct update, id), JX_NULLABLE, 0, 0, 0 },
    { "error", JX_STR, offsetof(struct update, error), JX_NULLABLE, 0, 0, 0 },
    { "errorDetail", JX_OBJ, offsetof(struct update, error_detail), JX_NULLABLE, 0, 0, 0 },
    { "progressDetail", JX_OBJ, offsetof(struct update, detail), JX_NULLABLE, 0, 0, 0 },
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

/* ---- layers ---- */

static struct progress_layer *layer_of(struct progress *p, const char *id, bool make)
{
    unsigned i;

    for (i = 0; i < p->n_layers; i++)
        if (strcmp(p->layers[i].id, id) == 0)
            return &p->layers[i];
    if (!make || p->n_layers == PROGRESS_LAYERS || strlen(id) >= PROGRESS_ID)
        return NULL;
    memcpy(p->layers[p->n_layers].id, id, strlen(id) + 1);
    return &p->layers[p->n_layers++];
}

/* Only downloads are measured: unpacking has numbers of its own, and whatever a layer does after
 * its download, it has arrived. */
static void take_layer(struct progress *p, const struct update *u)
{
    json_int_t current = json_integer_value(json_object_get(u->detail, "current"));
    json_int_t total = json_integer_value(json_object_get(u->detail, "total"));
    bool downloading = strcmp(u->status, "Downloading") == 0;
    bool sized = downloading && total > 0 && total <= LAYER_MAX;
    struct progress_layer *l = layer_of(p, u->id, sized);

    if (!l)
        return;
    if (sized)
        l->total = total;
    if (!downloading)
        l->current = l->total;
    else if (sized)
        l->current = current < 0 ? 0 : current > total ? total : current;
}

void progress_text(const struct progress *p, char *out, size_t size)
{
    int64_t current = 0;
    int64_t total = 0;
    size_t len;
    unsigned i;

    for (i = 0; i < p->n_layers; i++) {
        current += p->layers[i].current;
        total += p->layers[i].total;
    }
    if (total > 0) {
        (void)snprintf(out, size, "%d%% of %lld MB", (int)(current * 100 / total),
                       (long long)((total + 999999) / 1000000));
        return;
    }
    len = strnlen(p->status, size - 1);
    memcpy(out, p->status, len);
    out[len] = '\0';
    out[utf8_valid_len(out, len)] = '\0';
}

/* ---- lines ---- */

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
    if (u.status && u.id)
        take_layer(p, &u);
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
