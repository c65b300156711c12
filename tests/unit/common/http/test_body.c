/* Request bodies: collected, handed to a sink, in the loop and in the job pool. */
#include "tests/unit/test.h"

#include "common/base/buf.h"
#include "common/base/macros.h"
#include "common/http/http.h"
#include "tests/unit/common/support/http_env.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL_MAX = 10, LARGE_MAX = 1 << 20 };

static struct {
    sem_t entered; /* a gated handler runs */
    sem_t open;    /* lets one of them go on */
    sem_t closed;  /* a sink was closed */
    atomic_int opens;
    atomic_int closes;
    atomic_ulong gate_thread;
} at;

static struct http_env env;

/* ---- handlers ---- */

static int echo(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    const char *body = rq->body ? rq->body : "(null)";

    (void)app;
    if (rq->body && strlen(rq->body) != rq->body_len)
        return err_set(e, ERRC_INTERNAL, "not terminated");
    return http_resp_json(rs, 200, strdup(body), e);
}

static int length(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    char text[32];

    (void)app;
    (void)snprintf(text, sizeof(text), "%zu", rq->body_len);
    return http_resp_json(rs, 200, strdup(text), e);
}

static int gated(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    (void)app, (void)rq;
    atomic_store(&at.gate_thread, (unsigned long)pthread_self());
    sem_post(&at.entered);
    sem_wait(&at.open);
    return http_resp_json(rs, 200, strdup("{\"gated\":1}"), e);
}

static int blocking_echo(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    return http_req_header(rq, "X-Fail") ? err_set(e, ERRC_CONFLICT, "as you wish")
                                         : echo(app, rq, rs, e);
}

/* ---- a sink that collects, refuses "bad", and counts ---- */

struct keep {
    struct buf buf;
    unsigned writes;
};

static int keep_open(void *app, struct http_req *rq, void **sink, struct err *e)
{
    struct keep *k;

    (void)app;
    atomic_fetch_add(&at.opens, 1);
    if (http_req_header(rq, "X-Refuse"))
        return err_set(e, ERRC_INVALID, "refused at open");
    k = calloc(1, sizeof(*k));
    if (!k)
        return err_nomem(e);
    k->buf = BUF_INIT(LARGE_MAX * 4);
    *sink = k;
    return 0;
}

static int keep_write(void *sink, const char *data, size_t len, struct err *e)
{
    struct keep *k = sink;

    k->writes++;
    if (memmem(data, len, "bad", 3))
        return err_set(e, ERRC_INVALID, "refused in the middle");
    return buf_append(&k->buf, data, len) < 0 ? err_nomem(e) : 0;
}

static void keep_close(void *sink)
{
    struct keep *k = sink;

    buf_free(&k->buf);
    free(k);
    atomic_fetch_add(&at.closes, 1);
    sem_post(&at.closed);
}

static const struct http_sink keep = { keep_open, keep_write, keep_close };

/* Length and sum of what arrived. */
static int kept(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct keep *k = rq->sink;
    unsigned long sum = 0;
    char text[64];
    size_t i;

    (void)app;
    for (i = 0; i < k->buf.len; i++)
        sum = sum * 31 + (unsigned char)k->buf.data[i];
    (void)snprintf(text, sizeof(text), "%zu %lu", k->buf.len, sum);
    return http_resp_json(rs, 200, strdup(text), e);
}

static int authorize(void *app, struct http_req *rq, struct err *e)
{
    (void)app;
    return http_req_header(rq, "X-Key") ? 0 : err_set(e, ERRC_UNAUTHORIZED, "send X-Key");
}

static const struct http_route routes[] = {
    { "POST", "/small", echo, HTTP_OPEN, SMALL_MAX, NULL },
    { "POST", "/large", length, HTTP_OPEN, LARGE_MAX, NULL },
    { "POST", "/nothing", echo, HTTP_OPEN, 0, NULL },
    { "PUT", "/small", echo, HTTP_OPEN, SMALL_MAX, NULL },
    { "PATCH", "/small", echo, HTTP_OPEN, SMALL_MAX, NULL },
    { "DELETE", "/small", echo, HTTP_OPEN, SMALL_MAX, NULL },
    { "GET", "/small", echo, HTTP_OPEN, SMALL_MAX, NULL },
    { "POST", "/private", echo, 0, SMALL_MAX, NULL },
    { "POST", "/sink", kept, HTTP_OPEN, 0, &keep },
    { "POST", "/slow-sink", kept, HTTP_OPEN | HTTP_BLOCKING, 0, &keep },
    { "POST", "/private-sink", kept, 0, 0, &keep },
    { "POST", "/blocking", blocking_echo, HTTP_OPEN | HTTP_BLOCKING, SMALL_MAX, NULL },
    { "GET", "/gated", gated, HTTP_OPEN | HTTP_BLOCKING, 0, NULL },
    { "GET", "/quick", echo, HTTP_OPEN, 0, NULL },
};

static int start(void **state)
{
    const struct http_service svc = {
        .routes = routes, .n_routes = ARRAY_LEN(routes), .authorize = authorize, .cors = true
    };

    (void)state;
    sem_init(&at.entered, 0, 0);
    sem_init(&at.open, 0, 0);
    sem_init(&at.closed, 0, 0);
    atomic_store(&at.opens, 0);
    atomic_store(&at.closes, 0);
    http_env_start(&env, &svc, 1, 1);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    http_env_stop(&env);
    sem_destroy(&at.entered);
    sem_destroy(&at.open);
    sem_destroy(&at.closed);
    return 0;
}

static void gives(const char *first, const char *headers, const char *body, int status,
                  const char *want)
{
    struct reply r;

    http_once(&env, first, headers, body, &r);
    if (r.status != status)
        fail_msg("%s: status %d, not %d", first, r.status, status);
    assert_true(r.clean);
    if (want)
        assert_contains(r.body, want);
    reply_free(&r);
}

/* The connection must be good for another request. */
static void still_usable(struct client *c)
{
    struct reply r;

    client_request(c, "GET /quick", "", NULL);
    client_reply(c, false, &r);
    assert_int_equal(r.status, 200);
    assert_string_equal(r.body, "(null)");
    reply_free(&r);
}

/* ---- collected bodies ---- */

static void body_at_the_limit_and_one_past(void **state)
{
    static const char *const methods[] = { "POST", "PUT", "PATCH", "DELETE", "GET" };
    char first[32];
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(methods); i++) {
        (void)snprintf(first, sizeof(first), "%s /small", methods[i]);
        gives(first, "", "0123456789", 200, "0123456789");
        gives(first, "", "0123456789a", 413, "larger than 10 bytes");
        gives(first, "", "", 200, "(null)");
        gives(first, "", NULL, 200, "(null)");
    }
    gives("POST /nothing", "", "x", 413, "larger than 0 bytes");
    gives("POST /nothing", "", "", 200, NULL);
}

static void large_body_arrives_whole(void **state)
{
    char *body = malloc(LARGE_MAX + 2);

    (void)state;
    assert_non_null(body);
    memset(body, 'b', LARGE_MAX + 1);
    body[LARGE_MAX] = '\0';
    gives("POST /large", "", body, 200, "1048576");
    body[LARGE_MAX] = 'b';
    body[LARGE_MAX + 1] = '\0';
    gives("POST /large", "", body, 413, NULL);
    free(body);
}

static void body_in_single_bytes(void **state)
{
    static const char text[] = "POST /small HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\nabcde";
    struct client c;
    struct reply r;
    size_t i;

    (void)state;
    client_open(&c, &env);
    for (i = 0; i < sizeof(text) - 1; i++)
        client_send(&c, text + i, 1);
    client_reply(&c, false, &r);
    assert_string_equal(r.body, "abcde");
    reply_free(&r);
    client_close(&c);
}

static void chunked(const char *chunks, int status, const char *want)
{
    struct client c;
    struct reply r;

    client_open(&c, &env);
    client_text(&c, "POST /small HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n");
    client_text(&c, chunks);
    client_reply(&c, false, &r);
    assert_int_equal(r.status, status);
    if (want)
        assert_contains(r.body, want);
    reply_free(&r);
    if (status == 200)
        still_usable(&c);
    client_close(&c);
}

static void chunked_bodies(void **state)
{
    (void)state;
    chunked("3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n", 200, "abcde");
    chunked("a\r\n0123456789\r\n0\r\n\r\n", 200, "0123456789");
    chunked("b\r\n0123456789a\r\n0\r\n\r\n", 413, "larger than 10 bytes");
    chunked("6\r\n012345\r\n5\r\n6789a\r\n0\r\n\r\n", 413, "larger than 10 bytes");
    chunked("0\r\n\r\n", 200, "(null)");
    chunked("0\r\nTrailer: x\r\n\r\n", 200, "(null)");
}

/* A refused body is read to its end: the client may look at the answer only then, and goes on. */
static void refused_bodies_leave_the_connection_usable(void **state)
{
    static const char *const firsts[] = { "POST /nowhere",   "PUT /nowhere",  "PATCH /nowhere",
                                          "DELETE /nowhere", "POST /private", "PUT /private",
                                          "GET /nowhere",    "POST /small" };
    char *body = malloc(300001);
    struct client c;
    struct reply r;
    size_t i;

    (void)state;
    assert_non_null(body);
    memset(body, 'b', 300000);
    body[300000] = '\0';
    client_open(&c, &env);
    for (i = 0; i < ARRAY_LEN(firsts); i++) {
        client_request(&c, firsts[i], "", body);
        client_reply(&c, false, &r);
        if (r.status != 401 && r.status != 413)
            fail_msg("%s: status %d", firsts[i], r.status);
        assert_true(r.clean);
        reply_free(&r);
        still_usable(&c);
    }
    client_request(&c, "OPTIONS /small",
                   "Origin: http://a\r\nAccess-Control-Request-Method: POST\r\n", body);
    client_reply(&c, false, &r);
    assert_int_equal(r.status, 200);
    reply_free(&r);
    still_usable(&c);
    client_close(&c);
    free(body);
}

/* The client waits for "100 Continue" before it sends: it gets the refusal instead. */
static void expect_continue(void **state)
{
    struct client c;
    struct reply r;

    (void)state;
    client_open(&c, &env);
    client_text(
        &c, "POST /small HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
    client_reply(&c, false, &r);
    assert_int_equal(r.status, 100);
    reply_free(&r);
    client_text(&c, "abcde");
    client_reply(&c, false, &r);
    assert_string_equal(r.body, "abcde");
    reply_free(&r);
    client_text(
        &c,
        "POST /small HTTP/1.1\r\nHost: t\r\nContent-Length: 50\r\nExpect: 100-continue\r\n\r\n");
    client_reply(&c, false, &r);
    assert_int_equal(r.status, 413);
    assert_true(r.clean);
    reply_free(&r);
    client_close(&c);
}

/* A body that is too much to read and drop is answered at once; the connection ends. */
static void enormous_length_is_answered_at_once(void **state)
{
    struct client c;
    struct reply r;

    (void)state;
    client_open(&c, &env);
    client_text(&c, "POST /small HTTP/1.1\r\nHost: t\r\nContent-Length: 99999999999\r\n\r\n");
    client_reply(&c, false, &r);
    assert_int_equal(r.status, 413);
    reply_free(&r);
    assert_true(client_at_end(&c));
    client_close(&c);
}

static void client_that_leaves_in_the_body(void **state)
{
    struct client c;

    (void)state;
    client_open(&c, &env);
    client_text(&c, "POST /small HTTP/1.1\r\nHost: t\r\nContent-Length: 9\r\n\r\nabc");
    client_close(&c);
    gives("GET /quick", "", NULL, 200, NULL);
}

/* ---- sinks ---- */

static char *numbered(size_t len, unsigned long *sum)
{
    char *body = malloc(len + 1);
    size_t i;

    assert_non_null(body);
    *sum = 0;
    for (i = 0; i < len; i++) {
        body[i] = (char)('0' + i * 7 % 10);
        *sum = *sum * 31 + (unsigned char)body[i];
    }
    body[len] = '\0';
    return body;
}

static void sink_gets_every_byte(const char *first)
{
    static const size_t sizes[] = { 0, 1, 1000, 40000, 3000000 };
    size_t i;

    for (i = 0; i < ARRAY_LEN(sizes); i++) {
        unsigned long sum;
        char *body = numbered(sizes[i], &sum);
        char want[64];

        (void)snprintf(want, sizeof(want), "%zu %lu", sizes[i], sum);
        gives(first, "", body, 200, want);
        free(body);
        http_env_wait(&at.closed);
    }
    assert_int_equal(atomic_load(&at.opens), ARRAY_LEN(sizes));
    assert_int_equal(atomic_load(&at.closes), ARRAY_LEN(sizes));
}

static void sink_in_the_loop(void **state)
{
    (void)state;
    sink_gets_every_byte("POST /sink");
}

static void sink_in_the_pool(void **state)
{
    (void)state;
    sink_gets_every_byte("POST /slow-sink");
}

static void sink_may_refuse(const char *first)
{
    unsigned long sum;
    char *body = numbered(300000, &sum);
    struct client c;
    struct reply r;

    client_open(&c, &env);
    client_request(&c, first, "X-Refuse: 1\r\n", body);
    client_reply(&c, false, &r);
    assert_int_equal(r.status, 400);
    assert_contains(r.body, "refused at open");
    reply_free(&r);
    assert_int_equal(atomic_load(&at.opens), 1);
    memcpy(body + 150000, "bad", 3);
    client_request(&c, first, "", body);
    client_reply(&c, false, &r);
    assert_int_equal(r.status, 400);
    assert_contains(r.body, "refused in the middle");
    reply_free(&r);
    http_env_wait(&at.closed);
    assert_int_equal(atomic_load(&at.closes), 1); /* one that did not open is not closed */
    still_usable(&c);
    client_close(&c);
    free(body);
}

static void sink_refuses_in_the_loop(void **state)
{
    (void)state;
    sink_may_refuse("POST /sink");
}

static void sink_refuses_in_the_pool(void **state)
{
    (void)state;
    sink_may_refuse("POST /slow-sink");
}

static void sink_is_not_opened_without_authorization(void **state)
{
    (void)state;
    gives("POST /private-sink", "", "abc", 401, NULL);
    assert_int_equal(atomic_load(&at.opens), 0);
    gives("POST /private-sink", "X-Key: 1\r\n", "abc", 200, "3 ");
}

/* Enough for a sink in the pool to be opened, not all that was announced. */
static void sink_is_closed_when_the_client_leaves(void **state)
{
    static const char *const paths[] = { "/sink", "/slow-sink" };
    unsigned long sum;
    char *body = numbered(200000, &sum);
    size_t i;

    (void)state;
    for (i = 0; i < 2; i++) {
        struct client c;
        char head[128];

        (void)snprintf(head, sizeof(head),
                       "POST %s HTTP/1.1\r\nHost: t\r\nContent-Length: 900000\r\n\r\n", paths[i]);
        client_open(&c, &env);
        client_text(&c, head);
        client_text(&c, body);
        TEST_UNTIL(atomic_load(&at.opens) == (int)i + 1, gives("GET /quick", "", NULL, 200, NULL));
        client_close(&c);
        http_env_wait(&at.closed);
    }
    assert_int_equal(atomic_load(&at.closes), 2);
    free(body);
}

/* Chunks of every size, several of them at once and cut anywhere. */
static void sink_gets_chunked_bodies(void **state)
{
    static const char *const paths[] = { "/sink", "/slow-sink" };
    static const size_t sizes[] = { 1, 2, 15, 16, 1000, 5000, 20000, 70000, 3, 1, 200000, 9 };
    unsigned long sum;
    char *body = numbered(296047, &sum);
    char want[64];
    size_t i;

    (void)state;
    (void)snprintf(want, sizeof(want), "296047 %lu", sum);
    for (i = 0; i < 2; i++) {
        struct client c;
        struct reply r;
        char text[128];
        const char *p = body;
        size_t k;

        client_open(&c, &env);
        (void)snprintf(text, sizeof(text),
                       "POST %s HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n",
                       paths[i]);
        client_text(&c, text);
        for (k = 0; k < ARRAY_LEN(sizes); k++) {
            (void)snprintf(text, sizeof(text), "%zx\r\n", sizes[k]);
            client_text(&c, text);
            client_send(&c, p, sizes[k]);
            client_text(&c, "\r\n");
            p += sizes[k];
        }
        client_text(&c, "0\r\n\r\n");
        client_reply(&c, false, &r);
        assert_int_equal(r.status, 200);
        assert_string_equal(r.body, want);
        reply_free(&r);
        still_usable(&c);
        client_close(&c);
    }
    free(body);
}

/* ---- blocking routes ---- */

static void blocking_route_answers(void **state)
{
    struct client c;
    struct reply r;
    int i;

    (void)state;
    client_open(&c, &env);
    for (i = 0; i < 20; i++) {
        client_request(&c, "POST /blocking", i % 2 ? "X-Fail: 1\r\n" : "", "hello");
        client_reply(&c, false, &r);
        assert_int_equal(r.status, i % 2 ? 409 : 200);
        assert_contains(r.body, i % 2 ? "as you wish" : "hello");
        reply_free(&r);
    }
    client_close(&c);
}

static void loop_goes_on_while_a_handler_blocks(void **state)
{
    struct client c;
    struct reply r;
    int i;

    (void)state;
    client_open(&c, &env);
    client_request(&c, "GET /gated", "", NULL);
    http_env_wait(&at.entered);
    for (i = 0; i < 5; i++)
        gives("GET /quick", "", NULL, 200, NULL);
    assert_true(atomic_load(&at.gate_thread) != (unsigned long)env.thread);
    sem_post(&at.open);
    client_reply(&c, false, &r);
    assert_string_equal(r.body, "{\"gated\":1}");
    reply_free(&r);
    still_usable(&c);
    client_close(&c);
}

static void count_active(void *arg)
{
    *(unsigned *)arg = http_server_active(env.server);
}

/* One runs, one waits in the queue of one; the third and a sink are told to come again. */
static void full_pool_is_503(void **state)
{
    unsigned long sum;
    char *body = numbered(300000, &sum);
    struct client c[2];
    struct client late;
    unsigned active = 0;
    struct reply r;
    int i;

    (void)state;
    client_open(&c[0], &env);
    client_request(&c[0], "GET /gated", "", NULL);
    http_env_wait(&at.entered);
    client_open(&c[1], &env);
    client_request(&c[1], "GET /gated", "", NULL);
    TEST_UNTIL(active == 2, http_env_call(&env, count_active, &active));
    client_open(&late, &env);
    client_request(&late, "POST /blocking", "", "x");
    client_reply(&late, false, &r);
    assert_int_equal(r.status, 503);
    assert_string_equal(reply_header(&r, "Retry-After"), "1");
    assert_contains(r.body, "try again");
    reply_free(&r);
    still_usable(&late);
    client_request(&late, "POST /slow-sink", "", body);
    client_reply(&late, false, &r);
    assert_int_equal(r.status, 503);
    reply_free(&r);
    still_usable(&late);
    client_close(&late);
    for (i = 0; i < 2; i++)
        sem_post(&at.open);
    for (i = 0; i < 2; i++) {
        client_reply(&c[i], false, &r);
        assert_int_equal(r.status, 200);
        reply_free(&r);
        client_close(&c[i]);
    }
    gives("POST /blocking", "", "x", 200, "x");
    free(body);
}

static void client_that_leaves_while_a_handler_blocks(void **state)
{
    struct client c;

    (void)state;
    client_open(&c, &env);
    client_request(&c, "GET /gated", "", NULL);
    http_env_wait(&at.entered);
    client_close(&c);
    sem_post(&at.open);
    gives("POST /blocking", "", "x", 200, "x");
}

/* As a program ends: the loop has stopped, jobs_free waits for the handler, its answer was posted to
 * a loop that no longer runs. */
static void server_ends_while_a_handler_blocks(void **state)
{
    struct client c;
    struct client piped;
    struct reply r;

    (void)state;
    client_open(&c, &env);
    client_request(&c, "GET /gated", "", NULL);
    client_request(&c, "GET /gated", "", NULL); /* must not start once the pool is gone */
    client_open(&piped, &env);
    client_text(&piped, "POST /blocking HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\nab");
    http_env_wait(&at.entered);
    http_env_halt(&env);
    client_text(&piped, "cde");
    sem_post(&at.open);
    http_env_stop(&env);
    client_reply(&c, false, &r);
    assert_true(r.status == 200 || r.status == 0);
    reply_free(&r);
    assert_true(client_at_end(&c));
    assert_true(client_at_end(&piped));
    client_close(&c);
    client_close(&piped);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(body_at_the_limit_and_one_past, start, stop),
        cmocka_unit_test_setup_teardown(large_body_arrives_whole, start, stop),
        cmocka_unit_test_setup_teardown(body_in_single_bytes, start, stop),
        cmocka_unit_test_setup_teardown(chunked_bodies, start, stop),
        cmocka_unit_test_setup_teardown(refused_bodies_leave_the_connection_usable, start, stop),
        cmocka_unit_test_setup_teardown(expect_continue, start, stop),
        cmocka_unit_test_setup_teardown(enormous_length_is_answered_at_once, start, stop),
        cmocka_unit_test_setup_teardown(client_that_leaves_in_the_body, start, stop),
        cmocka_unit_test_setup_teardown(sink_in_the_loop, start, stop),
        cmocka_unit_test_setup_teardown(sink_in_the_pool, start, stop),
        cmocka_unit_test_setup_teardown(sink_refuses_in_the_loop, start, stop),
        cmocka_unit_test_setup_teardown(sink_refuses_in_the_pool, start, stop),
        cmocka_unit_test_setup_teardown(sink_is_not_opened_without_authorization, start, stop),
        cmocka_unit_test_setup_teardown(sink_is_closed_when_the_client_leaves, start, stop),
        cmocka_unit_test_setup_teardown(sink_gets_chunked_bodies, start, stop),
        cmocka_unit_test_setup_teardown(blocking_route_answers, start, stop),
        cmocka_unit_test_setup_teardown(loop_goes_on_while_a_handler_blocks, start, stop),
        cmocka_unit_test_setup_teardown(full_pool_is_503, start, stop),
        cmocka_unit_test_setup_teardown(client_that_leaves_while_a_handler_blocks, start, stop),
        cmocka_unit_test_setup_teardown(server_ends_while_a_handler_blocks, start, stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
