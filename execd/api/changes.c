/* What changes files: /files/mv, /files/permissions, /files/replace (contract/execd.md 10).
 * Everything here runs in the job pool. Bodies are read as a whole before anything is done. */
#include "common/base/cleanup.h"
#include "common/json/jx.h"
#include "execd/api/api.h"
#include "execd/api/scope.h"
#include "execd/api/wish.h"
#include "execd/fs/move.h"
#include "execd/fs/perms.h"
#include "execd/fs/put.h"
#include "execd/fs/replace.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum {
    MOVES_MAX = 10000,
    REPLACE_FILES_MAX = 1000,
    REPLACE_OPEN_MAX = 64, /* files that wait for the others with a descriptor each */
    PATH_ARG_MAX = 16384,
};

/* ---- mv ---- */

struct pair {
    const char *src;
    const char *dest;
};

static const struct jx_field move_fields[] = {
    { "src", JX_STR, offsetof(struct pair, src), JX_REQUIRED | JX_NONEMPTY, 0, 0, PATH_ARG_MAX },
    { "dest", JX_STR, offsetof(struct pair, dest), JX_REQUIRED | JX_NONEMPTY, 0, 0, PATH_ARG_MAX },
};

const struct api_table move_table = { move_fields, ARRAY_LEN(move_fields) };

static int decode_pair(const json_t *list, size_t i, struct pair *out, struct err *e)
{
    char at[32];

    (void)snprintf(at, sizeof(at), "[%zu]", i);
    return jx_decode(json_array_get(list, i), at, move_fields, ARRAY_LEN(move_fields), false, out,
                     e);
}

static int move_one(const struct scope *s, const struct pair *p, struct err *e)
{
    AUTO_FREE char *src = NULL;
    AUTO_FREE char *dest = NULL;

    if (path_resolve(p->src, &s->from, &src, e) < 0 ||
        path_resolve(p->dest, &s->from, &dest, e) < 0)
        return -1;
    return move_path(src, dest, &s->watch, e);
}

static int move_list(const struct scope *s, const json_t *list, struct err *e)
{
    struct pair p = { 0 };
    size_t i;

    if (json_is_null(list))
        return 0;
    if (!json_is_array(list) || json_array_size(list) > MOVES_MAX)
        return err_set(e, ERRC_INVALID, "body: must be an array of at most %d moves", MOVES_MAX);
    for (i = 0; i < json_array_size(list); i++)
        if (decode_pair(list, i, &p, e) < 0)
            return -1;
    for (i = 0; i < json_array_size(list); i++)
        if (decode_pair(list, i, &p, e) < 0 || move_one(s, &p, e) < 0)
            return -1;
    return 0;
}

static int move(struct scope *s, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    json_t *body = jx_parse(rq->body ? rq->body : "", rq->body_len, false, e);
    int rc = body ? move_list(s, body, e) : -1;

    (void)rs;
    json_decref(body);
    return rc;
}

int files_move(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    return scope_run(app, move, rq, rs, e);
}

/* ---- permissions ---- */

static int set_one(const struct scope *s, const char *asked, const struct perms *perms,
                   struct err *e)
{
    AUTO_FREE char *path = NULL;
    struct stat st;

    if (path_resolve(asked, &s->from, &path, e) < 0)
        return -1;
    if (stat(path, &st) < 0) {
        (void)path_fail(e, errno, "change", path);
        e->code = ERRC_SYS; /* 500, but with its code: clients know no 404 of this route */
        return -1;
    }
    return perms_apply(path, perms, e);
}

static int permissions(struct scope *s, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    json_t *body = scope_path_map(rq, e);
    struct perms perms;
    const char *asked;
    json_t *v;
    int rc = body ? 0 : -1;

    (void)rs;
    json_object_foreach(body, asked, v) {
        if (rc == 0)
            rc = wish_decode(v, asked, &perms, e);
    }
    json_object_foreach(body, asked, v) {
        if (rc == 0 && (wish_decode(v, asked, &perms, e) < 0 || set_one(s, asked, &perms, e) < 0))
            rc = -1;
    }
    json_decref(body);
    return rc;
}

int files_permissions(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    return scope_run(app, permissions, rq, rs, e);
}

/* ---- replace ---- */

struct wanted {
    const char *old;
    const char *new;
};

static const struct jx_field replace_fields[] = {
    { "old", JX_STR, offsetof(struct wanted, old), JX_REQUIRED | JX_NONEMPTY, 0, 0, 4 << 20 },
    { "new", JX_STR, offsetof(struct wanted, new), JX_NULLABLE, 0, 0, 4 << 20 },
};

const struct api_table replace_table = { replace_fields, ARRAY_LEN(replace_fields) };

/* One file of a request; names of all change when all are written. */
struct change {
    const char *asked;
    struct wanted wanted;
    struct put put;
    uint64_t count;
};

struct batch {
    struct change *changes;
    size_t n;
};

static void batch_free(struct batch *b)
{
    size_t i;

    for (i = 0; i < b->n; i++)
        put_free(&b->changes[i].put);
    free(b->changes);
}

static int batch_read(struct batch *b, json_t *body, struct err *e)
{
    const char *asked;
    json_t *v;
    int rc = 0;

    if (json_object_size(body) > REPLACE_FILES_MAX)
        return err_set(e, ERRC_INVALID, "body: more than %d files in one request",
                       REPLACE_FILES_MAX);
    b->changes = calloc(json_object_size(body) + 1, sizeof(*b->changes));
    if (!b->changes)
        return err_nomem(e);
    json_object_foreach(body, asked, v) {
        struct change *c = &b->changes[b->n++];

        *c = (struct change){ .asked = asked, .wanted.new = "", .put = PUT_INIT };
        if (rc == 0)
            rc = jx_decode(v, asked, replace_fields, ARRAY_LEN(replace_fields), false, &c->wanted,
                           e);
    }
    return rc;
}

/* Two changes of one file would each be made of its old content. */
static int only_once(const struct batch *b, size_t i, struct err *e)
{
    const char *target = b->changes[i].put.target;
    size_t k;

    for (k = 0; k < i && target; k++)
        if (b->changes[k].put.target && strcmp(b->changes[k].put.target, target) == 0)
            return err_set(e, ERRC_INVALID, "%.200s and %.200s are the same file",
                           b->changes[k].asked, b->changes[i].asked);
    return 0;
}

static int prepare(const struct scope *s, struct batch *b, size_t i, struct err *e)
{
    static const struct perms as_it_is = { 0 };
    struct change *c = &b->changes[i];
    const struct replace r = { c->wanted.old, strlen(c->wanted.old), c->wanted.new,
                               strlen(c->wanted.new), s->watch };
    AUTO_FREE char *path = NULL;
    AUTO_FD int fd = -1;
    struct stat st;

    if (path_resolve(c->asked, &s->from, &path, e) < 0)
        return -1;
    fd = path_open_regular(path, "read", &st, e);
    if (fd < 0 || replace_copy(fd, &r, path, s->tmpdir, &c->put, &c->count, e) < 0)
        return -1;
    if (!c->count)
        return 0;
    if (only_once(b, i, e) < 0 || put_seal(&c->put, &as_it_is, 0, e) < 0)
        return -1;
    return i < REPLACE_OPEN_MAX ? 0 : put_park(&c->put, e);
}

static int replace_all(const struct scope *s, struct batch *b, struct err *e)
{
    static const struct perms as_it_is = { 0 };
    size_t i;

    for (i = 0; i < b->n; i++)
        if (prepare(s, b, i, e) < 0)
            return -1;
    for (i = 0; i < b->n; i++)
        if (b->changes[i].count && put_commit(&b->changes[i].put, &as_it_is, e) < 0)
            return -1;
    return 0;
}

static int tell_counts(struct http_resp *rs, const struct batch *b, struct err *e)
{
    json_t *map = json_object();
    size_t i;
    int rc = 0;

    for (i = 0; i < b->n && rc == 0; i++)
        rc = json_object_set_new(
            map, b->changes[i].asked,
            json_pack("{s:I}", "replacedCount", (json_int_t)b->changes[i].count));
    rc = map && rc == 0 ? http_resp_json(rs, 200, jx_dump(map, false), e) : err_nomem(e);
    json_decref(map);
    return rc;
}

/* Clients of old want an empty body; "verbose" must be exactly "true". */
static int replace(struct scope *s, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    json_t *body = scope_path_map(rq, e);
    const char *verbose = "";
    struct batch b = { 0 };
    int rc = body && http_req_query(rq, "verbose", 0, &verbose, e) >= 0 ? 0 : -1;

    if (rc == 0)
        rc = batch_read(&b, body, e);
    if (rc == 0)
        rc = replace_all(s, &b, e);
    if (rc == 0 && strcmp(verbose, "true") == 0)
        rc = tell_counts(rs, &b, e);
    batch_free(&b);
    json_decref(body);
    return rc;
}

int files_replace(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    return scope_run(app, replace, rq, rs, e);
}
