/* What a request becomes before a handler sees it, and what every response has. */
#include "tests/unit/test.h"

#include "common/base/macros.h"
#include "common/http/http.h"
#include "tests/unit/common/support/http_env.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int answer(struct http_resp *rs, const char *text, struct err *e)
{
    rs->content_type = "text/plain";
    return http_resp_json(rs, 200, strdup(text), e);
}

static int say_hello(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    (void)app;
    return http_resp_json(
        rs, 200, strdup(strcmp(rq->mount, "") ? "{\"hello\":\"mounted\"}" : "{\"hello\":1}"), e);
}

static int say_params(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    const char *text =
        arena_printf(&rq->arena, "%s|%s|%s", rq->params[0] ? rq->params[0] : "-",
                     rq->params[1] ? rq->params[1] : "-", rq->params[2] ? rq->params[2] : "-");

    (void)app;
    return answer(rs, text, e);
}

static int say_method(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    (void)app;
    return answer(rs, rq->method, e);
}

/* Every value of "a", then the only one of "b c". */
static int say_query(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    char text[4096] = "";
    size_t len = 0;
    const char *v;
    unsigned n;
    int rc;

    (void)app;
    for (n = 0; (rc = http_req_query(rq, "a", n, &v, e)) > 0; n++)
        len += (size_t)snprintf(text + len, sizeof(text) - len, "[%s]", v);
    if (rc == 0 && (rc = http_req_query(rq, "b c", 0, &v, e)) > 0)
        (void)snprintf(text + len, sizeof(text) - len, "b=%s", v);
    return rc < 0 ? -1 : answer(rs, text, e);
}

static int count_query(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    const char *v;
    unsigned n = 0;
    int rc;

    (void)app;
    while ((rc = http_req_query(rq, "p", n, &v, e)) > 0)
        n++;
    return rc < 0 ? -1 : answer(rs, arena_printf(&rq->arena, "%u", n), e);
}

static int say_headers(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    const char *v = http_req_header(rq, "x-test");

    (void)app;
    http_resp_header(rs, "X-One", "1");
    http_resp_header(rs, "X-None", NULL);
    return answer(rs, v ? v : "(none)", e);
}

/* Fails after it had begun to answer. */
static int fail_late(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    (void)app, (void)rq;
    (void)http_resp_json(rs, 200, strdup("{\"secret\":1}"), e);
    e->retry_after_s = 0;
    (void)err_api(e, ERRC_BUSY, "POOL::FULL", "no \xff room");
    e->retry_after_s = 7;
    return -1;
}

static int fail_with(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    (void)app, (void)rs;
    return err_set(e, strcmp(rq->params[0], "conflict") ? ERRC_INTERNAL : ERRC_CONFLICT, "%s", "");
}

static int no_content(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    (void)app, (void)rq, (void)e;
    rs->status = 204;
    return 0;
}

static int authorize(void *app, struct http_req *rq, struct err *e)
{
    const char *key = http_req_header(rq, "X-Key");

    (void)app;
    return key && strcmp(key, "k") == 0 ? 0 : err_set(e, ERRC_UNAUTHORIZED, "send X-Key");
}

static const struct http_route routes[] = {
    { "GET", "/hello", say_hello, HTTP_OPEN, 0, NULL },
    { "POST", "/hello", say_method, HTTP_OPEN, 0, NULL },
    { "GET", "/items/{id}", say_params, HTTP_OPEN, 0, NULL },
    { "DELETE", "/items/{id}", say_method, HTTP_OPEN, 0, NULL },
    { "PATCH", "/items/{id}", say_method, HTTP_OPEN, 0, NULL },
    { "PUT", "/items/{id}", say_method, HTTP_OPEN, 0, NULL },
    { "GET", "/items/{id}/x/{name}", say_params, HTTP_OPEN, 0, NULL },
    { "GET", "/rest/{port}/{*}", say_params, HTTP_OPEN, 0, NULL },
    { "GET", "/items/special", say_hello, HTTP_OPEN, 0, NULL },
    { "GET", "/query", say_query, HTTP_OPEN, 0, NULL },
    { "GET", "/count", count_query, HTTP_OPEN, 0, NULL },
    { "GET", "/headers", say_headers, HTTP_OPEN, 0, NULL },
    { "GET", "/late", fail_late, HTTP_OPEN, 0, NULL },
    { "GET", "/fail/{how}", fail_with, HTTP_OPEN, 0, NULL },
    { "DELETE", "/none", no_content, HTTP_OPEN, 0, NULL },
    { "GET", "/private", say_hello, 0, 0, NULL },
    { "GET", "/bare", say_hello, HTTP_OPEN | HTTP_BARE_ONLY, 0, NULL },
    { "GET", "/below", say_hello, HTTP_OPEN | HTTP_PREFIX_ONLY, 0, NULL },
};

static const char *const codes[ERRC_MAX_] = { [ERRC_CONFLICT] = "SERVICE::CONFLICT" };

static struct http_env env;

static int start(void **state)
{
    const struct http_service svc = {
        .routes = routes,
        .n_routes = ARRAY_LEN(routes),
        .prefix = "/v1",
        .strip = "/base",
        .codes = codes,
        .authorize = authorize,
        .cors = true,
    };

    (void)state;
    http_env_start(&env, &svc, 1, 4);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    http_env_stop(&env);
    return 0;
}

/* Sends one request without a body and compares status and, unless NULL, the body. */
static void gives(const char *first, const char *headers, int status, const char *body)
{
    struct reply r;

    http_once(&env, first, headers, NULL, &r);
    if (r.status != status)
        fail_msg("%s: status %d, not %d: %s", first, r.status, status, r.body ? r.body : "");
    assert_true(r.clean);
    if (body)
        assert_string_equal(r.body, body);
    assert_non_null(reply_header(&r, "X-Request-ID"));
    assert_int_equal(reply_header_count(&r, "Date"), 1);
    reply_free(&r);
}

/* The same for an error: the body is exactly {"code","message"}. */
static void refuses(const char *first, const char *headers, int status, const char *code,
                    const char *text)
{
    struct reply r;
    json_t *v;

    http_once(&env, first, headers, NULL, &r);
    if (r.status != status)
        fail_msg("%s: status %d, not %d", first, r.status, status);
    assert_string_equal(reply_header(&r, "Content-Type"), "application/json");
    assert_non_null(reply_header(&r, "X-Request-ID"));
    v = json_loadb(r.body, r.body_len, 0, NULL);
    assert_int_equal(json_object_size(v), 2);
    assert_string_equal(json_string_value(json_object_get(v, "code")), code);
    assert_contains(json_string_value(json_object_get(v, "message")), text);
    json_decref(v);
    reply_free(&r);
}

/* ---- routing ---- */

static void routes_by_path_and_method(void **state)
{
    (void)state;
    gives("GET /hello", "", 200, "{\"hello\":1}");
    gives("POST /hello", "", 200, "POST");
    gives("DELETE /items/7", "", 200, "DELETE");
    gives("PATCH /items/7", "", 200, "PATCH");
    gives("PUT /items/7", "", 200, "PUT");
    gives("GET /items/7/x/y", "", 200, "7|y|-");
    gives("DELETE /none", "", 204, NULL);
}

static void forgives_one_trailing_slash(void **state)
{
    (void)state;
    gives("GET /hello/", "", 200, "{\"hello\":1}");
    gives("GET /items/7/", "", 200, "7|-|-");
    refuses("GET /hello//", "", 401, "UNAUTHORIZED", "");
    refuses("GET //hello", "X-Key: k\r\n", 404, "NOT_FOUND", "no such path");
    refuses("GET /items/", "X-Key: k\r\n", 404, "NOT_FOUND", "");
    refuses("GET /items//x/y", "X-Key: k\r\n", 404, "NOT_FOUND", "");
    refuses("GET /items/7/x", "X-Key: k\r\n", 404, "NOT_FOUND", "");
    refuses("GET /hell", "X-Key: k\r\n", 404, "NOT_FOUND", "");
    refuses("GET /helloo", "X-Key: k\r\n", 404, "NOT_FOUND", "");
    refuses("GET /Hello", "X-Key: k\r\n", 404, "NOT_FOUND", "");
    refuses("GET /", "X-Key: k\r\n", 404, "NOT_FOUND", "");
}

static void first_row_wins(void **state)
{
    (void)state;
    gives("GET /items/special", "", 200, "special|-|-");
}

static void parameters_are_decoded(void **state)
{
    (void)state;
    gives("GET /items/a%20b", "", 200, "a b|-|-");
    gives("GET /items/%41%7e+", "", 200, "A~+|-|-");
    gives("GET /items/%c3%a9", "", 200, "\xc3\xa9|-|-");
    gives("GET /items/100%25", "", 200, "100%|-|-");
    gives("GET /items/%252F", "", 200, "%2F|-|-");
}

static void parameters_that_cannot_be_are_no_match(void **state)
{
    static const char *const bad[] = { "%",     "%4",  "%zz", "a%2", "%00", "a%00b",
                                       "a%2Fb", "%2f", "%0a", "%1f", "%7f", "%-1" };
    char first[64];
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(bad); i++) {
        (void)snprintf(first, sizeof(first), "GET /items/%s", bad[i]);
        refuses(first, "X-Key: k\r\n", 404, "NOT_FOUND", "");
    }
}

static void parameter_length_is_limited(void **state)
{
    char first[4 * HTTP_PARAM_LEN_MAX + 32] = "GET /items/";
    char want[HTTP_PARAM_LEN_MAX + 8];
    size_t at = strlen(first);
    int i;

    (void)state;
    memset(first + at, 'x', HTTP_PARAM_LEN_MAX);
    memset(want, 'x', HTTP_PARAM_LEN_MAX);
    memcpy(want + HTTP_PARAM_LEN_MAX, "|-|-", 5);
    gives(first, "", 200, want);
    first[at + HTTP_PARAM_LEN_MAX] = 'x';
    refuses(first, "X-Key: k\r\n", 404, "NOT_FOUND", "");
    for (i = 0; i < HTTP_PARAM_LEN_MAX; i++)
        memcpy(first + at + 3 * i, "%78", 3);
    first[at + 3 * HTTP_PARAM_LEN_MAX] = '\0';
    gives(first, "", 200, want);
    memcpy(first + at + 3 * HTTP_PARAM_LEN_MAX, "%78", 4);
    refuses(first, "X-Key: k\r\n", 404, "NOT_FOUND", "");
}

static void rest_of_the_path_stays_raw(void **state)
{
    (void)state;
    gives("GET /rest/80/a/b%2Fc", "", 200, "80|a/b%2Fc|-");
    gives("GET /rest/80/", "", 200, "80||-");
    gives("GET /rest/80//x", "", 200, "80|/x|-");
    gives("GET /rest/80/x?q=1", "", 200, "80|x|-");
    refuses("GET /rest/80", "X-Key: k\r\n", 404, "NOT_FOUND", "");
}

static void prefixes(void **state)
{
    (void)state;
    gives("GET /v1/hello", "", 200, "{\"hello\":\"mounted\"}");
    gives("GET /base/hello", "", 200, "{\"hello\":1}");
    gives("GET /base/v1/hello", "", 200, "{\"hello\":\"mounted\"}");
    gives("GET /bare", "", 200, NULL);
    gives("GET /v1/below", "", 200, NULL);
    refuses("GET /v1/bare", "X-Key: k\r\n", 404, "NOT_FOUND", "");
    refuses("GET /below", "X-Key: k\r\n", 404, "NOT_FOUND", "");
    refuses("GET /v1", "X-Key: k\r\n", 404, "NOT_FOUND", "");
    refuses("GET /v1hello", "X-Key: k\r\n", 404, "NOT_FOUND", "");
    refuses("GET /v1/v1/hello", "X-Key: k\r\n", 404, "NOT_FOUND", "");
}

static void other_methods_are_405_with_allow(void **state)
{
    struct reply r;

    (void)state;
    refuses("DELETE /hello", "X-Key: k\r\n", 405, "METHOD_NOT_ALLOWED", "use GET, POST");
    refuses("BREW /items/7", "X-Key: k\r\n", 405, "METHOD_NOT_ALLOWED",
            "use GET, DELETE, PATCH, PUT");
    http_once(&env, "DELETE /hello", "X-Key: k\r\n", NULL, &r);
    assert_string_equal(reply_header(&r, "Allow"), "GET, POST");
    assert_int_equal(reply_header_count(&r, "Allow"), 1);
    reply_free(&r);
}

static void head_is_get_without_a_body(void **state)
{
    struct client c;
    struct reply r;

    (void)state;
    client_open(&c, &env);
    client_request(&c, "HEAD /hello", "", NULL);
    client_reply(&c, true, &r);
    assert_int_equal(r.status, 200);
    assert_string_equal(reply_header(&r, "Content-Length"), "11");
    reply_free(&r);
    client_request(&c, "GET /hello", "", NULL); /* no stray byte in between */
    client_reply(&c, false, &r);
    assert_string_equal(r.body, "{\"hello\":1}");
    reply_free(&r);
    client_close(&c);
}

/* ---- query ---- */

static void query_values(void **state)
{
    (void)state;
    gives("GET /query", "", 200, "");
    gives("GET /query?", "", 200, "");
    gives("GET /query?a=1", "", 200, "[1]");
    gives("GET /query?a=1&a=2&x=3&a=", "", 200, "[1][2][]");
    gives("GET /query?a", "", 200, "[]");
    gives("GET /query?a&a=b", "", 200, "[][b]");
    gives("GET /query?a=x=y", "", 200, "[x=y]");
    gives("GET /query?a=%26%3d+%2B", "", 200, "[&= +]");
    gives("GET /query?%61=1&b+c=2", "", 200, "[1]b=2");
    gives("GET /query?b%20c=2", "", 200, "b=2");
    gives("GET /query?&&a=1&&", "", 200, "[1]");
    gives("GET /query?A=1&aa=2&=3", "", 200, "");
    gives("GET /query?a=%c3%a9", "", 200, "[\xc3\xa9]");
    gives("GET /query?a=1?a=2", "", 200, "[1?a=2]");
}

static void broken_queries(void **state)
{
    (void)state;
    refuses("GET /query?a=%", "", 400, "INVALID_REQUEST", "query parameter a");
    refuses("GET /query?a=%4", "", 400, "INVALID_REQUEST", "percent");
    refuses("GET /query?a=%gg", "", 400, "INVALID_REQUEST", "percent");
    refuses("GET /query?a=x%00", "", 400, "INVALID_REQUEST", "percent");
    refuses("GET /query?%zz=1", "", 400, "INVALID_REQUEST", "name is not valid percent-encoding");
}

/* Reading them all must run out of neither the request's nor libmicrohttpd's memory (which took some 400
 * and then never answered). */
static void very_many_parameters(void **state)
{
    char *first = malloc(HTTP_TARGET_MAX + 64);
    size_t len;
    unsigned n = 0;
    char want[16];

    (void)state;
    assert_non_null(first);
    len = (size_t)snprintf(first, 64, "GET /count?");
    while (n < 600) {
        memcpy(first + len, "p=1&", 5);
        len += 4;
        n++;
    }
    (void)snprintf(want, sizeof(want), "%u", n);
    gives(first, "", 200, want);
    free(first);
}

/* ---- authorization ---- */

static void authorization(void **state)
{
    struct reply r;

    (void)state;
    gives("GET /private", "X-Key: k\r\n", 200, NULL);
    refuses("GET /private", "", 401, "UNAUTHORIZED", "send X-Key");
    refuses("GET /private", "X-Key: K\r\n", 401, "UNAUTHORIZED", "");
    refuses("GET /nowhere", "", 401, "UNAUTHORIZED", "");
    /* which methods a path has is nothing for a stranger either */
    http_once(&env, "DELETE /hello", "", NULL, &r);
    assert_int_equal(r.status, 401);
    assert_null(reply_header(&r, "Allow"));
    reply_free(&r);
}

/* ---- headers ---- */

static void headers_in_and_out(void **state)
{
    struct reply r;

    (void)state;
    gives("GET /headers", "X-TEST: some value \r\n", 200, "some value");
    gives("GET /headers", "", 200, "(none)");
    http_once(&env, "GET /headers", "", NULL, &r);
    assert_string_equal(reply_header(&r, "X-One"), "1");
    assert_null(reply_header(&r, "X-None"));
    assert_string_equal(reply_header(&r, "Content-Type"), "text/plain");
    reply_free(&r);
}

static void id_of(const char *headers, char out[HTTP_REQUEST_ID_MAX + 2])
{
    struct reply r;

    http_once(&env, "GET /hello", headers, NULL, &r);
    assert_int_equal(reply_header_count(&r, "X-Request-ID"), 1);
    (void)snprintf(out, HTTP_REQUEST_ID_MAX + 2, "%s", reply_header(&r, "X-Request-ID"));
    reply_free(&r);
}

static void request_id_is_echoed(void **state)
{
    char headers[HTTP_REQUEST_ID_MAX + 64];
    char got[HTTP_REQUEST_ID_MAX + 2];
    char longest[HTTP_REQUEST_ID_MAX + 1];

    (void)state;
    id_of("X-Request-ID: my-id/1\r\n", got);
    assert_string_equal(got, "my-id/1");
    id_of("x-request-id:   padded   \r\n", got);
    assert_string_equal(got, "padded");
    memset(longest, 'i', HTTP_REQUEST_ID_MAX);
    longest[HTTP_REQUEST_ID_MAX] = '\0';
    (void)snprintf(headers, sizeof(headers), "X-Request-ID: %s\r\n", longest);
    id_of(headers, got);
    assert_string_equal(got, longest);
    refuses("GET /fail/x", "X-Request-ID: on-error\r\n", 500, "INTERNAL_ERROR", "unexpected");
}

static void request_id_is_made(void **state)
{
    char headers[HTTP_REQUEST_ID_MAX + 64] = "X-Request-ID: ";
    size_t at = strlen(headers);
    char got[HTTP_REQUEST_ID_MAX + 2];
    char other[HTTP_REQUEST_ID_MAX + 2];
    const char *const bad[] = { "", "X-Request-ID:\r\n", "X-Request-ID: a b\r\n",
                                "X-Request-ID: \xc3\xa9\r\n", headers };
    size_t i;

    (void)state;
    memset(headers + at, 'i', HTTP_REQUEST_ID_MAX + 1);
    memcpy(headers + at + HTTP_REQUEST_ID_MAX + 1, "\r\n", 3);
    id_of("", other);
    for (i = 0; i < ARRAY_LEN(bad); i++) {
        id_of(bad[i], got);
        assert_int_equal(strlen(got), 32);
        assert_int_equal(strspn(got, "0123456789abcdef"), 32);
        assert_string_not_equal(got, other);
    }
}

static void cors_reflects_the_origin(void **state)
{
    struct reply r;

    (void)state;
    http_once(&env, "GET /hello", "Origin: http://a.example\r\n", NULL, &r);
    assert_string_equal(reply_header(&r, "Access-Control-Allow-Origin"), "http://a.example");
    assert_string_equal(reply_header(&r, "Access-Control-Allow-Credentials"), "true");
    assert_string_equal(reply_header(&r, "Access-Control-Expose-Headers"), "OPEN-SANDBOX-ORIGIN");
    assert_string_equal(reply_header(&r, "Vary"), "Origin");
    reply_free(&r);
    http_once(&env, "GET /private", "Origin: null\r\n", NULL, &r);
    assert_int_equal(r.status, 401);
    assert_string_equal(reply_header(&r, "Access-Control-Allow-Origin"), "null");
    reply_free(&r);
    http_once(&env, "GET /hello", "", NULL, &r);
    assert_null(reply_header(&r, "Access-Control-Allow-Origin"));
    assert_string_equal(reply_header(&r, "Vary"), "Origin");
    reply_free(&r);
}

static void preflight_comes_before_everything(void **state)
{
    static const char headers[] = "Origin: http://a\r\nAccess-Control-Request-Method: POST\r\n"
                                  "Access-Control-Request-Headers: x-key, content-type\r\n";
    static const char *const paths[] = { "OPTIONS /private", "OPTIONS /nowhere",
                                         "OPTIONS /v1/hello" };
    struct reply r;
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(paths); i++) {
        http_once(&env, paths[i], headers, NULL, &r);
        assert_int_equal(r.status, 200);
        assert_string_equal(r.body, "OK");
        assert_string_equal(reply_header(&r, "Access-Control-Max-Age"), "600");
        assert_contains(reply_header(&r, "Access-Control-Allow-Methods"), "DELETE, GET");
        assert_string_equal(reply_header(&r, "Access-Control-Allow-Headers"),
                            "x-key, content-type");
        assert_string_equal(reply_header(&r, "Access-Control-Allow-Origin"), "http://a");
        assert_non_null(reply_header(&r, "X-Request-ID"));
        reply_free(&r);
    }
    refuses("OPTIONS /hello", "X-Key: k\r\n", 405, "METHOD_NOT_ALLOWED", "use GET");
    refuses("OPTIONS /hello", "X-Key: k\r\nOrigin: http://a\r\n", 405, "METHOD_NOT_ALLOWED",
            "use GET");
}

static void ranges_are_not_ours(void **state)
{
    (void)state;
    gives("GET /hello", "Range: bytes=0-3\r\n", 200, "{\"hello\":1}");
}

/* ---- errors ---- */

static void late_failure_replaces_the_answer(void **state)
{
    struct reply r;

    (void)state;
    refuses("GET /late", "", 503, "POOL::FULL", "no \xef\xbf\xbd room");
    http_once(&env, "GET /late", "", NULL, &r);
    assert_string_equal(reply_header(&r, "Retry-After"), "7");
    assert_null(strstr(r.body, "secret"));
    reply_free(&r);
}

static void codes_of_the_service(void **state)
{
    (void)state;
    refuses("GET /fail/conflict", "", 409, "SERVICE::CONFLICT", "An unexpected error occurred.");
    refuses("GET /fail/other", "", 500, "INTERNAL_ERROR", "An unexpected error occurred.");
}

/* ---- sizes ---- */

static void target_length_is_limited(void **state)
{
    char *first = malloc(2 * HTTP_TARGET_MAX);
    size_t at;

    (void)state;
    assert_non_null(first);
    at = (size_t)snprintf(first, 64, "GET /query?x=");
    memset(first + at, 'y', HTTP_TARGET_MAX + 4 - at); /* "GET " is no part of it */
    first[HTTP_TARGET_MAX + 4] = '\0';
    gives(first, "", 200, "");
    first[HTTP_TARGET_MAX + 4] = 'y';
    first[HTTP_TARGET_MAX + 5] = '\0';
    refuses(first, "", 414, "URI_TOO_LONG", "longer than 8192");
    free(first);
}

static void head_size_is_limited(void **state)
{
    char *headers = malloc(80000);
    struct reply r;
    size_t at;

    (void)state;
    assert_non_null(headers);
    at = (size_t)snprintf(headers, 64, "X-Test: ");
    memset(headers + at, 'h', 70000);
    memcpy(headers + at + 70000, "\r\n", 3);
    http_once(&env, "GET /headers", headers, NULL, &r);
    assert_true(r.status == 431 || r.status == 413);
    reply_free(&r);
    memcpy(headers + at + 8000, "\r\n", 3);
    http_once(&env, "GET /headers", headers, NULL, &r);
    assert_int_equal(r.status, 200);
    assert_int_equal(r.body_len, 8000);
    reply_free(&r);
    free(headers);
}

#define BYTES(text)                                                                                \
    {                                                                                              \
        text, sizeof(text) - 1                                                                     \
    }

static void garbage_is_refused(void **state)
{
    static const struct {
        const char *data;
        size_t len;
    } garbage[] = {
        BYTES("GET\r\n\r\n"),
        BYTES("GET \r\n\r\n"),
        BYTES("GET  \r\n\r\n"),
        BYTES("GET /hello\r\n\r\n"),
        BYTES("GET /hello HTTP/1.1\r\n\r\n"), /* no Host */
        BYTES("GET /hello HTTP/2.0\r\nHost: t\r\n\r\n"),
        BYTES("GET /a b HTTP/1.1\r\nHost: t\r\n\r\n"),
        BYTES("GET /hello HTTP/1.1\r\nHost: t\r\nno colon\r\n\r\n"),
        BYTES("POST /hello HTTP/1.1\r\nHost: t\r\nContent-Length: x\r\n\r\n"),
        BYTES("POST /hello HTTP/1.1\r\nHost: t\r\nContent-Length: -1\r\n\r\n"),
        BYTES("POST /hello HTTP/1.1\r\nHost: t\r\nContent-Length: 99999999999999999999\r\n\r\n"),
        BYTES("POST /hello HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
        BYTES("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"),
    };
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(garbage); i++) {
        struct client c;
        struct reply r;

        client_open(&c, &env);
        client_send(&c, garbage[i].data, garbage[i].len);
        client_reply(&c, false, &r);
        if (r.status != 0 && r.status < 400)
            fail_msg("%s: status %d", garbage[i].data, r.status);
        reply_free(&r);
        client_close(&c);
    }
    gives("GET /hello", "", 200, NULL); /* still alive */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(routes_by_path_and_method),
        cmocka_unit_test(forgives_one_trailing_slash),
        cmocka_unit_test(first_row_wins),
        cmocka_unit_test(parameters_are_decoded),
        cmocka_unit_test(parameters_that_cannot_be_are_no_match),
        cmocka_unit_test(parameter_length_is_limited),
        cmocka_unit_test(rest_of_the_path_stays_raw),
        cmocka_unit_test(prefixes),
        cmocka_unit_test(other_methods_are_405_with_allow),
        cmocka_unit_test(head_is_get_without_a_body),
        cmocka_unit_test(query_values),
        cmocka_unit_test(broken_queries),
        cmocka_unit_test(very_many_parameters),
        cmocka_unit_test(authorization),
        cmocka_unit_test(headers_in_and_out),
        cmocka_unit_test(request_id_is_echoed),
        cmocka_unit_test(request_id_is_made),
        cmocka_unit_test(cors_reflects_the_origin),
        cmocka_unit_test(preflight_comes_before_everything),
        cmocka_unit_test(ranges_are_not_ours),
        cmocka_unit_test(late_failure_replaces_the_answer),
        cmocka_unit_test(codes_of_the_service),
        cmocka_unit_test(target_length_is_limited),
        cmocka_unit_test(head_size_is_limited),
        cmocka_unit_test(garbage_is_refused),
    };

    return cmocka_run_group_tests(tests, start, stop);
}
