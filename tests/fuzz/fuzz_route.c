/* Request targets: routing, percent-decoding, query parameters. */
#include "tests/fuzz/fuzz.h"

#include "common/base/macros.h"
#include "common/http/internal.h"
#include "common/json/utf8.h"

static int nothing(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    (void)app, (void)rq, (void)rs, (void)e;
    return 0;
}

static const struct http_route routes[] = {
    { "GET", "/health", nothing, 0, 0, NULL },
    { "GET", "/sandboxes", nothing, 0, 0, NULL },
    { "POST", "/sandboxes", nothing, 0, 0, NULL },
    { "GET", "/sandboxes/{id}", nothing, 0, 0, NULL },
    { "DELETE", "/sandboxes/{id}", nothing, 0, 0, NULL },
    { "GET", "/sandboxes/{id}/endpoints/{port}", nothing, HTTP_PREFIX_ONLY, 0, NULL },
    { "GET", "/sandboxes/{id}/proxy/{port}/{*}", nothing, 0, 0, NULL },
    { "GET", "/a/{w}/{x}/{y}/{z}", nothing, HTTP_BARE_ONLY, 0, NULL },
};

static void check_params(const struct http_req *rq)
{
    const char *p = rq->route->pattern;
    size_t slot = 0;

    for (p = strchr(p, '{'); p; p = strchr(p + 1, '{'), slot++) {
        MUST(slot < HTTP_PARAMS_MAX && rq->params[slot]);
        if (p[1] == '*')
            continue;
        MUST(*rq->params[slot] && strlen(rq->params[slot]) <= HTTP_PARAM_LEN_MAX);
        MUST(!strchr(rq->params[slot], '/'));
    }
}

static void try_method(const struct http_service *svc, const char *method, const char *path)
{
    struct http_req rq = { .method = method, .path = path, .mount = "" };
    const char *allow = NULL;
    struct err e = { 0 };

    rq.arena = ARENA_INIT(HTTP_ARENA_MAX);
    if (router_match(svc, &rq, &allow, &e) == 0)
        check_params(&rq);
    else
        MUST(e.code == ERRC_NOT_FOUND || (e.code == ERRC_METHOD && allow && *allow));
    arena_free(&rq.arena);
}

static void try_query(const char *query)
{
    static const char *const names[] = { "page", "state", "a b", "" };
    struct http_req rq = { .query = query };
    const char *v;
    size_t i;

    rq.arena = ARENA_INIT(HTTP_ARENA_MAX);
    for (i = 0; i < ARRAY_LEN(names); i++) {
        unsigned nth;
        struct err e = { 0 };

        for (nth = 0; http_req_query(&rq, names[i], nth, &v, &e) > 0; nth++)
            MUST(strlen(v) <= strlen(query));
        MUST(nth <= strlen(query) + 1);
    }
    arena_free(&rq.arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct http_service svc = {
        .routes = routes, .n_routes = ARRAY_LEN(routes), .prefix = "/v1", .strip = "/base"
    };
    char *target;
    char *q;

    if (size > HTTP_TARGET_MAX)
        return 0;
    target = fuzz_text(data, size);
    q = strchr(target, '?');
    if (q)
        *q = '\0';
    try_method(&svc, "GET", target);
    try_method(&svc, "POST", target);
    try_method(&svc, "BREW", target);
    if (q)
        try_query(q + 1);
    free(target);
    return 0;
}
