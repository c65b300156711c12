/* /directories: list, make, remove (contract/execd.md 10.4). Everything runs in the helper
 * thread. */
#include "common/base/cleanup.h"
#include "common/base/num.h"
#include "execd/api/api.h"
#include "execd/api/listing.h"
#include "execd/api/scope.h"
#include "execd/api/wish.h"
#include "execd/fs/path.h"
#include "execd/fs/perms.h"
#include "execd/fs/tree.h"

#include <limits.h>
#include <string.h>
#include <sys/stat.h>

/* ---- list ---- */

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
    if (rc == 1 && num_parse_i64(text, 0, INT64_MAX, out) < 0)
        return err_set(e, ERRC_INVALID, "depth: must be an integer of at least 0");
    return rc;
}

static int list(struct scope *s, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    AUTO_LISTING struct listing l;
    const struct tree_visit visit = { .entry = listing_add, .arg = &l, .watch = s->watch };
    AUTO_FREE char *path = NULL;
    int64_t depth = 0;

    if (listing_begin(&l, s->tmpdir, e) < 0 || scope_path(s, rq, &path, e) < 0 ||
        list_depth(rq, &depth, e) < 0 || is_directory(path, e) < 0 ||
        tree_walk(path, depth < UINT_MAX ? (unsigned)depth : UINT_MAX, &visit, e) < 0)
        return -1;
    return listing_send(&l, rs, e);
}

int dirs_list(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    return scope_run(app, list, rq, rs, e);
}

/* ---- make ---- */

/* Mode and owner are for a directory that is new; one that is there is left as it is. */
static int make_one(const struct scope *s, const char *asked, const json_t *v, struct err *e)
{
    AUTO_FREE char *path = NULL;
    struct perms perms;
    struct stat st;

    if (wish_decode(v, asked, &perms, e) < 0 || path_resolve(asked, &s->from, &path, e) < 0)
        return -1;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return 0;
    if (path_make(path, 0777, e) < 0) {
        e->code = ERRC_SYS;
        return -1;
    }
    return perms_apply(path, &perms, e);
}

static int make(struct scope *s, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    json_t *body = scope_path_map(rq, e);
    const char *asked;
    json_t *v;
    int rc = body ? 0 : -1;

    (void)rs;
    json_object_foreach(body, asked, v) {
        if (rc == 0)
            rc = make_one(s, asked, v, e);
    }
    json_decref(body);
    return rc;
}

int dirs_make(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    return scope_run(app, make, rq, rs, e);
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

static int remove_dirs(struct scope *s, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    (void)rs;
    return scope_each_path(s, rq, remove_one, e);
}

int dirs_remove(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    return scope_run(app, remove_dirs, rq, rs, e);
}
