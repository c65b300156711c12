/* /directories: list, make, remove (contract/execd.md 10.4). Everything runs in the helper
 * thread. */
#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/num.h"
#include "common/json/jx.h"
#include "execd/api/api.h"
#include "execd/app.h"
#include "execd/fs/info.h"
#include "execd/fs/path.h"
#include "execd/fs/perms.h"
#include "execd/fs/tree.h"

#include <string.h>
#include <sys/stat.h>

enum { LIST_TEXT_MAX = 64 << 20 };

/* ---- list ---- */

struct listing {
    struct buf text;
    struct names names;
};

static int add_entry(void *arg, const char *path, const struct stat *st, struct err *e)
{
    struct listing *l = arg;
    json_t *info = info_of(path, st, &l->names);
    AUTO_FREE char *text = info ? jx_dump(info, false) : NULL;

    json_decref(info);
    if (!text)
        return err_nomem(e);
    if (buf_puts(&l->text, l->text.len > 1 ? "," : "") < 0 || buf_puts(&l->text, text) < 0)
        return err_set(e, ERRC_INTERNAL, "the list is longer than %d MiB; ask for a smaller depth",
                       LIST_TEXT_MAX >> 20);
    return 0;
}

static int write_list(const char *path, unsigned depth, struct listing *l, struct err *e)
{
    if (names_read(&l->names, e) < 0)
        return -1;
    if (buf_puts(&l->text, "[") < 0)
        return err_nomem(e);
    if (tree_walk(path, depth, add_entry, l, e) < 0)
        return -1;
    return buf_puts(&l->text, "]") < 0 ? err_nomem(e) : 0;
}

static int is_directory(const char *path, struct err *e)
{
    struct stat st;

    if (lstat(path, &st) < 0)
        return path_fail(e, errno, "list", path);
    if (!S_ISDIR(st.st_mode))
        return err_set(e, ERRC_INVALID, "%.300s is not a directory", path);
    return 0;
}

static int list_depth(struct http_req *rq, int64_t *out, struct err *e)
{
    const char *text;
    int rc = http_req_query(rq, "depth", 0, &text, e);

    *out = 1;
    if (rc == 1 && num_parse_i64(text, 0, INT32_MAX, out) < 0)
        return err_set(e, ERRC_INVALID, "depth: must be an integer of at least 0");
    return rc;
}

int dirs_list(void *arg, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct app *app = arg;
    struct listing l = { .text = BUF_INIT(LIST_TEXT_MAX) };
    AUTO_FREE char *path = NULL;
    const char *asked;
    int64_t depth;
    int rc = http_req_query(rq, "path", 0, &asked, e);

    if (rc < 0)
        return -1;
    if (!rc || !*asked)
        return err_api(e, ERRC_INVALID, "MISSING_QUERY", "query parameter path is missing");
    if (list_depth(rq, &depth, e) < 0 || path_resolve(asked, &app->base, &path, e) < 0 ||
        is_directory(path, e) < 0)
        return -1;
    rc = write_list(path, (unsigned)depth, &l, e);
    if (rc == 0)
        rc = http_resp_json(rs, 200, buf_take(&l.text), e);
    buf_free(&l.text);
    names_free(&l.names);
    return rc;
}

/* ---- make ---- */

struct wish {
    const char *owner;
    const char *group;
    int64_t mode;
};

static const struct jx_field fields[] = {
    { "owner", JX_STR, offsetof(struct wish, owner), JX_NULLABLE, 0, 0, 256 },
    { "group", JX_STR, offsetof(struct wish, group), JX_NULLABLE, 0, 0, 256 },
    { "mode", JX_I64, offsetof(struct wish, mode), JX_NULLABLE, 0, INT64_MAX, 0 },
};

const struct api_table dirs_table = { fields, ARRAY_LEN(fields) };

/* Mode and owner are for a directory that is new; one that is there is left as it is. */
static int make_one(struct app *app, const char *asked, const json_t *v, struct err *e)
{
    AUTO_FREE char *path = NULL;
    struct wish w = { 0 };
    struct perms perms;
    struct stat st;

    if (jx_decode(v, asked, fields, ARRAY_LEN(fields), false, &w, e) < 0 ||
        perms_resolve(w.mode, w.owner, w.group, &perms, e) < 0 ||
        path_resolve(asked, &app->base, &path, e) < 0)
        return -1;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return 0;
    if (path_make(path, e) < 0) {
        e->code = ERRC_SYS;
        return -1;
    }
    return perms_apply(path, &perms, e);
}

int dirs_make(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    json_t *body = jx_parse(rq->body ? rq->body : "", rq->body_len, false, e);
    const char *asked;
    json_t *v;
    int rc = body ? 0 : -1;

    (void)rs;
    if (body && !json_is_object(body))
        rc = err_set(e, ERRC_INVALID, "body: must be an object of paths");
    json_object_foreach(body, asked, v) {
        if (rc == 0)
            rc = make_one(app, asked, v, e);
    }
    json_decref(body);
    return rc;
}

/* ---- remove ---- */

static int remove_one(const char *path, struct err *e)
{
    struct stat st;

    if (lstat(path, &st) < 0)
        return errno == ENOENT || errno == ENOTDIR
                   ? 0
                   : err_sys(e, errno, "cannot remove %.300s", path);
    if (!S_ISDIR(st.st_mode))
        return err_set(e, ERRC_INTERNAL, "%.300s is not a directory", path);
    if (strcmp(path, "/") == 0)
        return err_set(e, ERRC_INTERNAL, "the root directory is not removed");
    return tree_remove(path, e);
}

int dirs_remove(void *arg, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    (void)rs;
    return each_path(arg, rq, remove_one, e);
}
