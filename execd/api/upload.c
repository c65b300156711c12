/* POST /files/upload: pairs of a "metadata" and a "file" part (contract/execd.md 10.2). Runs in
 * the helper thread; bytes go to disk as they arrive, names change when all have. */
#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/http/multipart.h"
#include "common/json/jx.h"
#include "execd/api/api.h"
#include "execd/api/scope.h"
#include "execd/fs/path.h"
#include "execd/fs/put.h"
#include "execd/fs/tmpfile.h"

#include <string.h>

enum {
    UPLOAD_PAIRS_MAX = 1000,
    UPLOAD_OPEN_MAX = 64, /* files that wait for the others with a descriptor each */
    UPLOAD_PARTS_MAX = 2 * UPLOAD_PAIRS_MAX + 16,
    UPLOAD_METADATA_MAX = 64 * 1024,
    UPLOAD_MODE = 0777, /* of a new file, minus umask: as upstream makes them */
};

enum part { PART_OTHER, PART_METADATA, PART_FILE };

/* The i-th metadata part and the i-th file part, in whatever order they come. */
struct pair {
    char *path; /* NULL: no metadata yet */
    struct perms perms;
    struct put put;
    int early; /* >= 0: the bytes, when they came before the metadata; not linked anywhere */
};

struct upload {
    struct scope scope;
    struct multipart *parser;
    enum part part;
    struct buf metadata;
    struct pair *pairs;
    size_t cap;
    size_t n_metadata;
    size_t n_files;
};

struct metadata {
    const char *path;
    const char *owner;
    const char *group;
    int64_t mode;
};

static const struct jx_field fields[] = {
    { "path", JX_STR, offsetof(struct metadata, path), JX_REQUIRED | JX_NONEMPTY, 0, 0, 16384 },
    { "owner", JX_STR, offsetof(struct metadata, owner), JX_NULLABLE, 0, 0, 256 },
    { "group", JX_STR, offsetof(struct metadata, group), JX_NULLABLE, 0, 0, 256 },
    { "mode", JX_I64, offsetof(struct metadata, mode), JX_NULLABLE, 0, INT64_MAX, 0 },
};

const struct api_table upload_table = { fields, ARRAY_LEN(fields) };

/* ---- parts ---- */

static int invalid(struct err *e, const char *api_code)
{
    e->api_code = api_code;
    return -1;
}

static int need_pair(struct upload *up, size_t index, struct err *e)
{
    size_t cap = up->cap ? 2 * up->cap : 4;
    struct pair *grown;

    if (index >= UPLOAD_PAIRS_MAX)
        return err_api(e, ERRC_INVALID, "INVALID_FILE", "more than %d files in one request",
                       UPLOAD_PAIRS_MAX);
    if (index < up->cap)
        return 0;
    grown = realloc(up->pairs, cap * sizeof(*grown));
    if (!grown)
        return err_nomem(e);
    for (up->pairs = grown; up->cap < cap; up->cap++)
        grown[up->cap] = (struct pair){ .early = -1, .put = PUT_INIT };
    return 0;
}

static int begin_file(struct upload *up, struct err *e)
{
    struct pair *p = &up->pairs[up->n_files];

    if (p->path)
        return put_open(&p->put, p->path, up->scope.tmpdir, e);
    p->early = tmpfile_open(up->scope.tmpdir);
    if (p->early < 0)
        return err_set(e, ERRC_INTERNAL,
                       "a file came before its metadata, and no temporary file can be made");
    return 0;
}

static int on_part(void *arg, const struct multipart_part *part, struct err *e)
{
    struct upload *up = arg;

    up->part = strcmp(part->name, "metadata") == 0 ? PART_METADATA
               : strcmp(part->name, "file") == 0   ? PART_FILE
                                                   : PART_OTHER;
    if (up->part == PART_METADATA) {
        buf_clear(&up->metadata);
        return need_pair(up, up->n_metadata, e);
    }
    if (up->part != PART_FILE)
        return 0;
    return need_pair(up, up->n_files, e) < 0 ? -1 : begin_file(up, e);
}

static int on_data(void *arg, const char *data, size_t len, struct err *e)
{
    struct upload *up = arg;
    struct pair *p;

    if (up->part == PART_METADATA && buf_append(&up->metadata, data, len) < 0)
        return err_api(e, ERRC_INVALID, "INVALID_FILE_METADATA", "metadata is larger than %d bytes",
                       UPLOAD_METADATA_MAX);
    if (up->part != PART_FILE)
        return 0;
    p = &up->pairs[up->n_files];
    if (p->early >= 0) {
        struct put spool = { .fd = p->early, .target = (char *)"a temporary file" };

        return put_write(&spool, data, len, e);
    }
    return put_write(&p->put, data, len, e);
}

static int end_metadata(struct upload *up, struct err *e)
{
    struct pair *p = &up->pairs[up->n_metadata++];
    struct metadata m = { 0 };
    const char *text = up->metadata.data ? up->metadata.data : "";
    json_t *v = jx_parse(text, up->metadata.len, true, e);
    int rc = -1;

    if (!v || jx_decode(v, "metadata", fields, ARRAY_LEN(fields), false, &m, e) < 0)
        (void)invalid(e, "INVALID_FILE_METADATA");
    else if (perms_resolve(m.mode, m.owner, m.group, &p->perms, e) < 0)
        (void)invalid(e, e->code == ERRC_INVALID ? "INVALID_FILE_METADATA" : NULL);
    else
        rc = path_resolve(m.path, &up->scope.from, &p->path, e);
    json_decref(v);
    return rc;
}

static int seal(struct upload *up, struct pair *p, struct err *e)
{
    if (put_seal(&p->put, &p->perms, UPLOAD_MODE & ~up->scope.umask, e) < 0)
        return -1;
    return p - up->pairs < UPLOAD_OPEN_MAX ? 0 : put_park(&p->put, e);
}

static int on_end(void *arg, struct err *e)
{
    struct upload *up = arg;
    struct pair *p;

    if (up->part == PART_METADATA)
        return end_metadata(up, e);
    if (up->part != PART_FILE)
        return 0;
    p = &up->pairs[up->n_files++];
    return p->early < 0 ? seal(up, p, e) : 0;
}

static const struct multipart_ops ops = { on_part, on_data, on_end };

/* ---- the body ---- */

static void upload_close(void *sink)
{
    struct upload *up = sink;
    size_t i;

    for (i = 0; i < up->cap; i++) {
        put_free(&up->pairs[i].put);
        free(up->pairs[i].path);
        if (up->pairs[i].early >= 0)
            (void)close(up->pairs[i].early);
    }
    free(up->pairs);
    scope_close(&up->scope);
    buf_free(&up->metadata);
    multipart_free(up->parser);
    free(up);
}

static int upload_open(void *app, struct http_req *rq, void **sink, struct err *e)
{
    struct upload *up = calloc(1, sizeof(*up));

    if (!up)
        return err_nomem(e);
    if (scope_open(&up->scope, app, rq, e) < 0) {
        free(up);
        return -1;
    }
    up->metadata = BUF_INIT(UPLOAD_METADATA_MAX);
    up->parser = multipart_new(http_req_header(rq, "Content-Type"), UPLOAD_PARTS_MAX, &ops, up, e);
    if (!up->parser) {
        scope_close(&up->scope);
        free(up);
        return e->code == ERRC_INVALID ? invalid(e, "INVALID_FILE") : -1;
    }
    *sink = up;
    return 0;
}

static int upload_write(void *sink, const char *data, size_t len, struct err *e)
{
    struct upload *up = sink;

    if (scope_enter(&up->scope, e) < 0)
        return -1;
    if (scope_leave(&up->scope, multipart_push(up->parser, data, len, e), e) == 0)
        return 0;
    if (e->code == ERRC_INVALID && !e->api_code)
        e->api_code = "INVALID_FILE";
    return -1;
}

const struct http_sink upload_sink = { upload_open, upload_write, upload_close };

/* ---- the answer ---- */

static int check_counts(const struct upload *up, struct err *e)
{
    if (multipart_finish(up->parser, e) < 0)
        return invalid(e, "INVALID_FILE");
    if (!up->n_metadata)
        return err_api(e, ERRC_INVALID, "INVALID_FILE_METADATA", "there is no metadata part");
    if (!up->n_files)
        return err_api(e, ERRC_INVALID, "INVALID_FILE_CONTENT", "there is no file part");
    if (up->n_files != up->n_metadata)
        return err_api(e, ERRC_INVALID, "INVALID_FILE", "%zu metadata parts, but %zu file parts",
                       up->n_metadata, up->n_files);
    return 0;
}

static int place_early(struct upload *up, struct pair *p, struct err *e)
{
    if (put_open(&p->put, p->path, up->scope.tmpdir, e) < 0 || put_copy(p->early, p->put.fd, e) < 0)
        return -1;
    return seal(up, p, e);
}

static int place_all(struct upload *up, struct err *e)
{
    size_t i;

    if (check_counts(up, e) < 0)
        return -1;
    for (i = 0; i < up->n_files; i++)
        if (up->pairs[i].early >= 0 && place_early(up, &up->pairs[i], e) < 0)
            return -1;
    for (i = 0; i < up->n_files; i++)
        if (put_commit(&up->pairs[i].put, &up->pairs[i].perms, e) < 0)
            return -1;
    return 0;
}

int upload_post(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct upload *up = rq->sink;

    (void)app, (void)rs;
    if (scope_enter(&up->scope, e) < 0)
        return -1;
    return scope_leave(&up->scope, place_all(up, e), e);
}
