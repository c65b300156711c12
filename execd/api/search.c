/* GET /files/search (contract/execd.md 10.1). */
#include "common/base/cleanup.h"
#include "execd/api/api.h"
#include "execd/api/listing.h"
#include "execd/api/scope.h"
#include "execd/fs/glob.h"
#include "execd/fs/tree.h"

#include <limits.h>
#include <string.h>
#include <sys/stat.h>

struct search {
    struct watch watch;
    struct listing found;
    struct glob *pattern; /* NULL: it is bad, and bad says why */
    struct err bad;
};

static int look(void *arg, const char *path, const struct stat *st, struct err *e)
{
    struct search *s = arg;
    const char *slash = strrchr(path, '/');

    if (S_ISDIR(st->st_mode))
        return 0;
    if (!s->pattern) { /* only now: a search that meets no name has nothing to complain about */
        *e = s->bad;
        return -1;
    }
    return glob_match(s->pattern, slash ? slash + 1 : path) ? listing_add(&s->found, path, st, e)
                                                            : 0;
}

/* What cannot be read below is left out: one closed directory must not hide all the rest. */
static int look_at_all(struct search *s, const char *path, struct err *e)
{
    const struct tree_visit visit = {
        .entry = look, .arg = s, .watch = s->watch, .skip_closed = true
    };
    struct stat st;

    if (lstat(path, &st) < 0)
        return path_fail(e, errno, "search", path);
    if (!S_ISDIR(st.st_mode))
        return look(s, path, &st, e);
    return tree_walk(path, UINT_MAX, &visit, e);
}

static int search(struct scope *sc, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    AUTO_FREE char *path = NULL;
    const char *pattern = "**";
    struct search s = { .watch = sc->watch };
    int rc = scope_path(sc, rq, &path, e);

    if (rc < 0 || http_req_query(rq, "pattern", 0, &pattern, e) < 0)
        return -1;
    s.pattern = glob_compile(*pattern ? pattern : "**", &s.bad);
    rc = listing_begin(&s.found, sc->tmpdir, e);
    if (rc == 0)
        rc = look_at_all(&s, path, e);
    if (rc == 0)
        rc = listing_send(&s.found, rs, e);
    listing_free(&s.found);
    glob_free(s.pattern);
    return rc;
}

int files_search(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    return scope_run(app, search, rq, rs, e);
}
