/* /files: what files are, downloads, deletion (contract/execd.md 10). Everything here runs in the
 * helper thread. */
#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/num.h"
#include "common/json/jx.h"
#include "execd/api/api.h"
#include "execd/api/scope.h"
#include "execd/fs/headers.h"
#include "execd/fs/info.h"
#include "execd/fs/path.h"
#include "execd/fs/range.h"
#include "execd/fs/slice.h"
#include "execd/fs/tmpfile.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

/* ---- info ---- */

/* Keyed by what the client asked for, byte for byte as far as JSON can carry it. */
static int add_info(json_t *map, const char *arg, const char *path, const struct names *n,
                    struct err *e)
{
    struct stat st;
    json_t *key;
    int rc;

    if (lstat(path, &st) < 0)
        return path_fail(e, errno, "look at", path);
    key = jx_bytes(arg, strlen(arg));
    rc = key ? json_object_set_new(map, json_string_value(key), info_of(path, &st, n)) : -1;
    json_decref(key);
    return rc < 0 ? err_nomem(e) : 0;
}

static int info(struct scope *s, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    AUTO_NAMES struct names n = { 0 };
    json_t *map = json_object();
    const char *asked;
    unsigned i;
    int rc = names_read(&n, e) < 0 || !map ? -1 : 1;

    for (i = 0; rc == 1; i++) {
        AUTO_FREE char *path = NULL;

        rc = http_req_query(rq, "path", i, &asked, e);
        if (rc == 1 &&
            (path_resolve(asked, &s->from, &path, e) < 0 || add_info(map, asked, path, &n, e) < 0))
            rc = -1;
    }
    if (rc == 0)
        rc = http_resp_json(rs, 200, jx_dump(map, false), e);
    json_decref(map);
    return rc;
}

int files_info(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    return scope_run(app, info, rq, rs, e);
}

/* ---- delete ---- */

static int delete_file(const char *path, struct err *e)
{
    struct stat st;

    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return err_set(e, ERRC_INTERNAL, "%.300s is a directory", path);
    if (unlink(path) < 0 && errno != ENOENT && errno != ENOTDIR) {
        (void)err_sys(e, errno, "cannot delete %.300s", path);
        return -1;
    }
    return 0;
}

static int delete_files(struct scope *s, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    (void)rs;
    return scope_each_path(s, rq, delete_file, e);
}

int files_delete(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    return scope_run(app, delete_files, rq, rs, e);
}

/* ---- download ---- */

static int attachment(struct http_req *rq, struct http_resp *rs, const char *path,
                      const struct stat *st, struct err *e)
{
    AUTO_BUF struct buf b = BUF_INIT(4096);
    const char *name = strrchr(path, '/');
    char date[HTTP_DATE_TEXT];

    if (disposition_format(name ? name + 1 : path, &b) < 0)
        return err_nomem(e);
    http_date_format(st->st_mtime, date);
    http_resp_header(rs, "Content-Disposition", arena_strndup(&rq->arena, b.data, b.len));
    http_resp_header(rs, "Last-Modified", arena_strndup(&rq->arena, date, strlen(date)));
    http_resp_header(rs, "Accept-Ranges", "bytes");
    return 0;
}

/* 304 or 412 by the dates of the request (RFC 9110 13.2.2; there are no entity tags); 0: go on. */
static int precondition(struct http_req *rq, const struct stat *st)
{
    const char *since = http_req_header(rq, "If-Modified-Since");
    const char *until = http_req_header(rq, "If-Unmodified-Since");
    int64_t t;

    if (until && http_date_parse(until, &t) == 0 && st->st_mtime > t)
        return 412;
    if (since && http_date_parse(since, &t) == 0 && st->st_mtime <= t)
        return 304;
    return 0;
}

static const char *usable_range(struct http_req *rq, const struct stat *st)
{
    const char *range = http_req_header(rq, "Range");
    const char *only_if = http_req_header(rq, "If-Range");
    int64_t t;

    if (range && only_if && (http_date_parse(only_if, &t) < 0 || t != st->st_mtime))
        return NULL; /* it changed: all of it is sent */
    return range;
}

static int send_range(struct http_req *rq, struct http_resp *rs, const char *range,
                      const struct stat *st, struct err *e)
{
    uint64_t size = (uint64_t)st->st_size;
    uint64_t off = 0;
    uint64_t len = 0;

    switch (range_parse(range, size, &off, &len)) {
    case RANGE_BROKEN:
        return err_set(e, ERRC_RANGE, "the Range header is not a byte range");
    case RANGE_BEYOND:
        http_resp_header(rs, "Content-Range", arena_printf(&rq->arena, "bytes */%" PRIu64, size));
        return err_set(e, ERRC_RANGE,
                       "the range begins behind the end of the file (%" PRIu64 " bytes)", size);
    case RANGE_OK:
        break;
    }
    rs->status = 206;
    rs->file_off = off;
    rs->file_len = len;
    http_resp_header(rs, "Content-Range",
                     arena_printf(&rq->arena, "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, off,
                                  off + len - 1, size));
    return 0;
}

static int refuse_stale(struct http_resp *rs, struct err *e)
{
    return http_resp_json(rs, 412,
                          strdup("{\"code\":\"PRECONDITION_FAILED\",\"message\":\"the file was "
                                 "modified after If-Unmodified-Since\"}"),
                          e);
}

static int send_file(struct http_req *rq, struct http_resp *rs, const char *path, struct err *e)
{
    struct stat st;
    AUTO_FD int fd = path_open_regular(path, "read", &st, e);
    const char *range;
    int status;

    if (fd < 0)
        return -1;
    status = precondition(rq, &st);
    if (status == 412)
        return refuse_stale(rs, e);
    if (status) {
        rs->status = status;
        return 0;
    }
    rs->file_len = (uint64_t)st.st_size;
    range = usable_range(rq, &st);
    if (range && send_range(rq, rs, range, &st, e) < 0)
        return -1;
    if (attachment(rq, rs, path, &st, e) < 0)
        return -1;
    rs->content_type = "application/octet-stream";
    rs->file_fd = TAKE_FD(fd);
    return 0;
}

/* A count of lines; *out stays as it is when the parameter is absent. 1: it was there. */
static int line_number(struct http_req *rq, const char *name, int64_t *out, struct err *e)
{
    const char *text;
    int rc = http_req_query(rq, name, 0, &text, e);

    if (rc == 1 && num_parse_i64(text, 1, INT64_MAX, out) < 0)
        return err_set(e, ERRC_INVALID, "%s: must be an integer of at least 1", name);
    return rc;
}

static int send_lines(const struct scope *sc, struct http_resp *rs, const char *path,
                      int64_t offset, int64_t limit, struct err *e)
{
    struct slice s;
    struct stat st;
    uint64_t len;
    AUTO_FD int fd = path_open_regular(path, "read", &st, e);

    if (fd < 0 || slice_find(fd, (uint64_t)offset, (uint64_t)limit, &s, e) < 0)
        return -1;
    if (s.crlf) {
        AUTO_FD int temp = tmpfile_open(sc->tmpdir);

        if (temp < 0)
            return err_set(e, ERRC_INTERNAL, "no temporary file can be made");
        if (slice_copy(fd, &s, temp, &len, e) < 0)
            return -1;
        s = (struct slice){ .len = len };
        (void)close(fd);
        fd = TAKE_FD(temp);
    }
    rs->content_type = "text/plain; charset=utf-8";
    rs->file_off = s.off;
    rs->file_len = s.len;
    rs->file_fd = TAKE_FD(fd);
    return 0;
}

static int download(struct scope *s, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    AUTO_FREE char *path = NULL;
    int64_t offset = 1;
    int64_t limit = 0;
    int by_offset;
    int by_limit;

    if (scope_path(s, rq, &path, e) < 0)
        return -1;
    by_offset = line_number(rq, "offset", &offset, e);
    by_limit = by_offset < 0 ? -1 : line_number(rq, "limit", &limit, e);
    if (by_limit < 0)
        return -1;
    if (!by_offset && !by_limit)
        return send_file(rq, rs, path, e);
    if (http_req_header(rq, "Range"))
        return err_set(e, ERRC_INVALID, "offset and limit do not go together with Range");
    return send_lines(s, rs, path, offset, limit, e);
}

int files_download(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    return scope_run(app, download, rq, rs, e);
}
