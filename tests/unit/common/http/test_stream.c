/* Responses that are produced over time, and answers that are deferred. */
#include "tests/unit/test.h"

#include "common/base/macros.h"
#include "common/http/http.h"
#include "tests/unit/common/support/http_env.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { STREAM_MAX = 1000 };

static struct http_env env;

/* The owner of the stream under test; the loop's thread writes it, the test reads after a post. */
static struct owner {
    struct http_stream *st;
    struct http_req *deferred;
    struct http_resp *deferred_rs;
    sem_t opened;
    sem_t drained;
    sem_t closed;
    atomic_int drains;
    atomic_int closes;
    atomic_bool write_on_drain;
    int last; /* result of the last call */
    int refused_at;
} at;

static void on_drain(void *owner)
{
    struct owner *o = owner;

    if (atomic_load(&o->write_on_drain))
        (void)http_stream_write(o->st, "drained;", 8);
    atomic_fetch_add(&o->drains, 1);
    sem_post(&o->drained);
}

static void on_close(void *owner)
{
    struct owner *o = owner;

    http_stream_release(o->st);
    o->st = NULL;
    atomic_fetch_add(&o->closes, 1);
    sem_post(&o->closed);
}

static const struct http_stream_ops ops = { on_drain, on_close };

static int open_stream(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    (void)app, (void)rq;
    at.st = http_stream_new(env.server, STREAM_MAX, &ops, &at);
    if (!at.st)
        return err_nomem(e);
    rs->stream = at.st;
    rs->content_type = "text/event-stream";
    sem_post(&at.opened);
    return 0;
}

/* Everything is there before the handler returns; the owner lets go at once. */
static int short_stream(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct http_stream *st = http_stream_new(env.server, STREAM_MAX, &ops, &at);

    (void)app, (void)rq;
    if (!st)
        return err_nomem(e);
    rs->stream = st;
    (void)http_stream_write(st, "all at once", 11);
    http_stream_end(st);
    http_stream_release(st);
    return 0;
}

/* The handler gives up after it has made the stream. */
static int failed_stream(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct http_stream *st = http_stream_new(env.server, STREAM_MAX, &ops, &at);

    (void)app, (void)rq;
    if (!st)
        return err_nomem(e);
    rs->stream = st;
    http_stream_release(st);
    return err_set(e, ERRC_CONFLICT, "changed my mind");
}

static int defer(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    (void)app, (void)e;
    at.deferred = rq;
    at.deferred_rs = rs;
    http_defer(rq);
    sem_post(&at.opened);
    return 0;
}

static int quick(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    (void)app, (void)rq;
    return http_resp_json(rs, 200, strdup("{}"), e);
}

static int defer_and_complete(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    http_defer(rq);
    (void)quick(app, rq, rs, e);
    http_complete(rq, NULL);
    return 0;
}

static const struct http_route routes[] = {
    { "GET", "/stream", open_stream, 0, 0, NULL },
    { "GET", "/short", short_stream, 0, 0, NULL },
    { "GET", "/failed", failed_stream, 0, 0, NULL },
    { "GET", "/defer", defer, 0, 0, NULL },
    { "GET", "/complete", defer_and_complete, 0, 0, NULL },
    { "GET", "/quick", quick, 0, 0, NULL },
};

static int start(void **state)
{
    const struct http_service svc = { .routes = routes, .n_routes = ARRAY_LEN(routes) };

    (void)state;
    memset(&at, 0, sizeof(at));
    sem_init(&at.opened, 0, 0);
    sem_init(&at.drained, 0, 0);
    sem_init(&at.closed, 0, 0);
    http_env_start(&env, &svc, 1, 1);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    http_env_stop(&env);
    sem_destroy(&at.opened);
    sem_destroy(&at.drained);
    sem_destroy(&at.closed);
    return 0;
}

/* ---- what the loop's thread does for a test ---- */

static void do_write(void *text)
{
    at.last = http_stream_write(at.st, text, strlen(text));
}

static void do_end(void *arg)
{
    (void)arg;
    http_stream_end(at.st);
}

static void do_abort(void *arg)
{
    (void)arg;
    http_stream_abort(at.st);
}

static void do_release(void *arg)
{
    (void)arg;
    http_stream_release(at.st);
    at.st = NULL;
}

static void write_text(const char *text)
{
    http_env_call(&env, do_write, (void *)text);
}

static void open_one(struct client *c, const char *first)
{
    client_open(c, &env);
    client_request(c, first, "", NULL);
    http_env_wait(&at.opened);
}

/* Waits until the text is in the raw input of the client. */
static void sees(struct client *c, const char *text)
{
    size_t n = strlen(text);
    size_t from = 0; /* searched so far, less what may be the text's beginning */

    while (c->in_len < n || !memmem(c->in + from, c->in_len - from, text, n)) {
        from = c->in_len < n ? 0 : c->in_len - n + 1;
        if (!client_wait(c, c->in_len + 1))
            fail_msg("the connection ended before \"%s\"", text);
    }
}

/* ---- tests ---- */

static void events_arrive_one_by_one(void **state)
{
    struct client c;
    struct reply r;
    char text[32];
    int i;

    (void)state;
    open_one(&c, "GET /stream");
    for (i = 0; i < 50; i++) {
        (void)snprintf(text, sizeof(text), "event %d;", i);
        write_text(text);
        assert_int_equal(at.last, 0);
        sees(&c, text); /* now, not with the next one */
    }
    http_env_call(&env, do_end, NULL);
    client_reply(&c, false, &r);
    assert_int_equal(r.status, 200);
    assert_string_equal(reply_header(&r, "Content-Type"), "text/event-stream");
    assert_true(r.clean);
    assert_contains(r.body, "event 0;event 1;");
    assert_contains(r.body, "event 49;");
    reply_free(&r);
    http_env_wait(&at.closed);
    client_request(&c, "GET /quick", "", NULL); /* the connection is kept */
    client_reply(&c, false, &r);
    assert_int_equal(r.status, 200);
    reply_free(&r);
    client_close(&c);
}

static void end_without_a_byte(void **state)
{
    struct client c;
    struct reply r;

    (void)state;
    open_one(&c, "GET /stream");
    http_env_call(&env, do_end, NULL);
    client_reply(&c, false, &r);
    assert_true(r.clean);
    assert_int_equal(r.body_len, 0);
    reply_free(&r);
    http_env_wait(&at.closed);
    client_close(&c);
}

static void abort_is_an_error_for_the_client(void **state)
{
    struct client c;
    struct reply r;

    (void)state;
    open_one(&c, "GET /stream");
    write_text("half");
    sees(&c, "half");
    http_env_call(&env, do_abort, NULL);
    client_reply(&c, false, &r);
    assert_int_equal(r.status, 200);
    assert_string_equal(r.body, "half");
    assert_false(r.clean);
    reply_free(&r);
    http_env_wait(&at.closed);
    client_close(&c);
}

static void release_without_end_is_an_abort(void **state)
{
    struct client c;
    struct reply r;

    (void)state;
    open_one(&c, "GET /stream");
    write_text("half");
    http_env_call(&env, do_release, NULL);
    client_reply(&c, false, &r);
    assert_false(r.clean);
    reply_free(&r);
    client_close(&c);
    assert_int_equal(atomic_load(&at.closes), 0); /* released: no more calls */
}

static void end_and_release_flush_what_is_buffered(void **state)
{
    struct client c;
    struct reply r;

    (void)state;
    open_one(&c, "GET /stream");
    write_text("the rest");
    http_env_call(&env, do_end, NULL);
    http_env_call(&env, do_release, NULL);
    client_reply(&c, false, &r);
    assert_true(r.clean);
    assert_string_equal(r.body, "the rest");
    reply_free(&r);
    client_close(&c);
}

static void stream_that_is_over_before_it_began(void **state)
{
    struct reply r;
    int i;

    (void)state;
    for (i = 0; i < 10; i++) {
        http_once(&env, "GET /short", "", NULL, &r);
        assert_true(r.clean);
        assert_string_equal(r.body, "all at once");
        reply_free(&r);
    }
}

static void handler_that_fails_after_making_a_stream(void **state)
{
    struct reply r;

    (void)state;
    http_once(&env, "GET /failed", "", NULL, &r);
    assert_int_equal(r.status, 409);
    assert_contains(r.body, "changed my mind");
    reply_free(&r);
    assert_int_equal(atomic_load(&at.closes), 0);
}

static void head_of_a_stream(void **state)
{
    struct client c;
    struct reply r;

    (void)state;
    open_one(&c, "HEAD /stream");
    client_reply(&c, true, &r);
    assert_int_equal(r.status, 200);
    reply_free(&r);
    http_env_wait(&at.closed);
    client_close(&c);
}

/* ---- back-pressure ---- */

/* Writes 100 bytes at a time until one is refused. */
static void do_fill(void *arg)
{
    char text[100];
    int i;

    (void)arg;
    memset(text, 'f', sizeof(text));
    for (i = 0; i < 1 << 20; i++)
        if (http_stream_write(at.st, text, sizeof(text)) < 0)
            break;
    at.refused_at = i;
}

static void slow_client_is_held_back(void **state)
{
    struct client c;
    struct reply r;
    size_t total = 0;
    int rounds;

    (void)state;
    open_one(&c, "GET /stream");
    sees(&c, "\r\n\r\n");
    for (rounds = 0; rounds < 1000 && atomic_load(&at.drains) == 0; rounds++) {
        http_env_call(&env, do_fill, NULL); /* the sockets' buffers fill up, then ours */
        total += (size_t)at.refused_at * 100;
        if (at.refused_at == 0)
            break;
    }
    assert_true(total > 0);
    atomic_store(&at.write_on_drain, true);
    http_env_call(&env, do_end, NULL);
    client_reply(&c, false, &r);
    assert_true(r.clean);
    assert_true(r.body_len >= total);
    reply_free(&r);
    http_env_wait(&at.closed);
    assert_true(atomic_load(&at.drains) > 0);
    client_close(&c);
}

static void buffer_takes_max_and_not_more(void **state)
{
    char text[STREAM_MAX + 2];
    struct client c;

    (void)state;
    open_one(&c, "GET /stream");
    sees(&c, "\r\n\r\n");
    http_env_halt(&env); /* nothing is read while this thread is the loop's */
    memset(text, 't', sizeof(text));
    assert_int_equal(http_stream_write(at.st, text, STREAM_MAX - 1), 0);
    assert_int_equal(http_stream_write(at.st, text, 2), -1);
    assert_int_equal(http_stream_write(at.st, text, 1), 0);
    assert_int_equal(http_stream_write(at.st, text, 1), -1);
    assert_int_equal(http_stream_write(at.st, text, 0), 0);
    client_close(&c);
}

static void one_large_write_into_an_empty_buffer(void **state)
{
    char *text = malloc(200001);
    struct client c;
    struct reply r;

    (void)state;
    assert_non_null(text);
    memset(text, 'L', 200000);
    text[200000] = '\0';
    open_one(&c, "GET /stream");
    write_text(text);
    assert_int_equal(at.last, 0);
    http_env_call(&env, do_end, NULL);
    client_reply(&c, false, &r);
    assert_true(r.clean);
    assert_int_equal(r.body_len, 200000);
    assert_string_equal(r.body, text);
    reply_free(&r);
    client_close(&c);
    free(text);
}

static void drain_comes_after_a_refusal(void **state)
{
    enum { MORE_THAN_SOCKETS_HOLD = 20000000 };
    char *text = malloc(MORE_THAN_SOCKETS_HOLD + 1);
    struct client c;
    struct reply r;

    (void)state;
    assert_non_null(text);
    memset(text, '.', MORE_THAN_SOCKETS_HOLD);
    text[MORE_THAN_SOCKETS_HOLD] = '\0';
    atomic_store(&at.write_on_drain, true);
    open_one(&c, "GET /stream");
    write_text(text);
    assert_int_equal(at.last, 0);
    write_text("x");
    assert_int_equal(at.last, -1);
    assert_int_equal(atomic_load(&at.drains), 0);
    sees(&c, "drained;");
    assert_int_equal(atomic_load(&at.drains), 1);
    http_env_call(&env, do_end, NULL);
    client_reply(&c, false, &r);
    assert_true(r.clean);
    assert_int_equal(r.body_len, MORE_THAN_SOCKETS_HOLD + 8);
    reply_free(&r);
    client_close(&c);
    free(text);
}

static void very_many_events(void **state)
{
    enum { EVENTS = 3000 };
    struct client c;
    struct reply r;
    char text[48];
    const char *p;
    int i;

    (void)state;
    open_one(&c, "GET /stream");
    for (i = 0; i < EVENTS; i++) {
        (void)snprintf(text, sizeof(text), "event %d\n", i);
        write_text(text);
        while (at.last < 0) {
            http_env_wait(&at.drained);
            write_text(text);
        }
    }
    http_env_call(&env, do_end, NULL);
    client_reply(&c, false, &r);
    assert_true(r.clean);
    for (i = 0, p = r.body; i < EVENTS; i++, p = strchr(p, '\n') + 1) {
        int n = snprintf(text, sizeof(text), "event %d\n", i);

        assert_memory_equal(p, text, (size_t)n);
    }
    assert_int_equal(*p, '\0');
    reply_free(&r);
    client_close(&c);
}

/* ---- the client leaves ---- */

/* An idle stream: nobody writes, so only the socket itself can tell. */
static void idle_client_that_leaves_is_noticed(void **state)
{
    struct client c;

    (void)state;
    open_one(&c, "GET /stream");
    sees(&c, "\r\n\r\n");
    client_close(&c);
    http_env_wait(&at.closed);
    assert_int_equal(atomic_load(&at.closes), 1);
}

static void client_that_resets_is_noticed(void **state)
{
    struct linger now = { .l_onoff = 1 };
    struct client c;

    (void)state;
    open_one(&c, "GET /stream");
    write_text("x");
    sees(&c, "x");
    (void)setsockopt(c.fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    client_close(&c);
    http_env_wait(&at.closed);
}

static void busy_client_that_leaves_is_noticed(void **state)
{
    struct client c;

    (void)state;
    open_one(&c, "GET /stream");
    http_env_call(&env, do_fill, NULL);
    client_close(&c);
    http_env_wait(&at.closed);
}

static void do_write_late(void *arg)
{
    at.last = http_stream_closed(arg) ? http_stream_write(arg, "late", 4) : -2;
    http_stream_end(arg);
    http_stream_abort(arg);
    http_stream_release(arg);
}

static void keep_open(void *owner)
{
    (void)owner;
    sem_post(&at.closed);
}

static const struct http_stream_ops keep_ops = { NULL, keep_open };

static void do_swap_ops(void *arg)
{
    (void)arg;
    http_stream_release(at.st);
    at.st = NULL;
}

/* A stream whose owner keeps its reference: writes to it are swallowed. */
static int kept_stream(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    (void)app, (void)rq, (void)e;
    at.st = http_stream_new(env.server, STREAM_MAX, &keep_ops, &at);
    rs->stream = at.st;
    sem_post(&at.opened);
    return 0;
}

static const struct http_route kept_routes[] = { { "GET", "/kept", kept_stream, 0, 0, NULL } };

static void writes_after_the_end_are_swallowed(void **state)
{
    const struct http_service svc = { .routes = kept_routes, .n_routes = 1 };
    struct client c;

    (void)state;
    http_env_stop(&env);
    http_env_start(&env, &svc, 1, 1);
    open_one(&c, "GET /kept");
    client_close(&c);
    http_env_wait(&at.closed);
    http_env_call(&env, do_write_late, at.st);
    assert_int_equal(at.last, 0);
    open_one(&c, "GET /kept");
    client_close(&c);
    http_env_wait(&at.closed);
    http_env_call(&env, do_swap_ops, NULL);
}

/* ---- the server ends ---- */

static void server_ends_with_live_streams(void **state)
{
    enum { MANY = 20 };
    struct client c[MANY];
    struct reply r;
    int i;

    (void)state;
    for (i = 0; i < MANY; i++) {
        open_one(&c[i], "GET /stream");
        sees(&c[i], "\r\n\r\n");
        if (i < MANY - 1)
            http_env_call(&env, do_release, NULL); /* aborted, perhaps not yet cut */
    }
    write_text("x");
    sees(&c[MANY - 1], "x");
    http_env_stop(&env);
    assert_int_equal(atomic_load(&at.closes), 1);
    for (i = 0; i < MANY; i++) {
        client_reply(&c[i], false, &r);
        assert_false(r.clean);
        reply_free(&r);
        client_close(&c[i]);
    }
}

static void server_ends_with_idle_streams(void **state)
{
    enum { MANY = 20 };
    struct http_stream *st[MANY];
    const struct http_service svc = { .routes = kept_routes, .n_routes = 1 };
    struct client c[MANY];
    struct reply r;
    int i;

    (void)state;
    http_env_stop(&env);
    http_env_start(&env, &svc, 1, 1);
    for (i = 0; i < MANY; i++) {
        open_one(&c[i], "GET /kept");
        st[i] = at.st;
    }
    http_env_halt(&env);
    http_server_free(env.server);
    env.server = NULL;
    for (i = 0; i < MANY; i++) {
        assert_true(http_stream_closed(st[i]));
        http_stream_release(st[i]);
        client_reply(&c[i], false, &r);
        assert_false(r.clean);
        reply_free(&r);
        client_close(&c[i]);
    }
}

/* ---- deferred answers ---- */

static void do_complete(void *arg)
{
    struct err e = { 0 };

    (void)quick(NULL, at.deferred, at.deferred_rs, &e);
    http_complete(at.deferred, arg);
}

static void deferred_answer(void **state)
{
    struct err e = { 0 };
    struct client c;
    struct reply r;

    (void)state;
    (void)err_set(&e, ERRC_TIMEOUT, "too slow");
    open_one(&c, "GET /defer");
    http_env_call(&env, do_complete, NULL);
    client_reply(&c, false, &r);
    assert_int_equal(r.status, 200);
    assert_string_equal(r.body, "{}");
    reply_free(&r);
    client_request(&c, "GET /defer", "", NULL);
    http_env_wait(&at.opened);
    http_env_call(&env, do_complete, &e);
    client_reply(&c, false, &r);
    assert_int_equal(r.status, 504);
    assert_contains(r.body, "too slow");
    reply_free(&r);
    client_request(&c, "GET /complete", "", NULL);
    client_reply(&c, false, &r);
    assert_int_equal(r.status, 200);
    reply_free(&r);
    client_close(&c);
}

static void deferred_client_leaves(void **state)
{
    struct client c;
    struct reply r;

    (void)state;
    open_one(&c, "GET /defer");
    client_close(&c);
    http_once(&env, "GET /quick", "", NULL, &r);
    reply_free(&r);
    http_env_call(&env, do_complete, NULL);
    http_once(&env, "GET /quick", "", NULL, &r);
    assert_int_equal(r.status, 200);
    reply_free(&r);
}

static void server_ends_before_the_answer(void **state)
{
    struct client c;
    struct reply r;

    (void)state;
    open_one(&c, "GET /defer");
    http_env_stop(&env);
    client_reply(&c, false, &r);
    assert_int_equal(r.status, 503);
    assert_contains(r.body, "stopping");
    reply_free(&r);
    client_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(events_arrive_one_by_one, start, stop),
        cmocka_unit_test_setup_teardown(end_without_a_byte, start, stop),
        cmocka_unit_test_setup_teardown(abort_is_an_error_for_the_client, start, stop),
        cmocka_unit_test_setup_teardown(release_without_end_is_an_abort, start, stop),
        cmocka_unit_test_setup_teardown(end_and_release_flush_what_is_buffered, start, stop),
        cmocka_unit_test_setup_teardown(stream_that_is_over_before_it_began, start, stop),
        cmocka_unit_test_setup_teardown(handler_that_fails_after_making_a_stream, start, stop),
        cmocka_unit_test_setup_teardown(head_of_a_stream, start, stop),
        cmocka_unit_test_setup_teardown(slow_client_is_held_back, start, stop),
        cmocka_unit_test_setup_teardown(buffer_takes_max_and_not_more, start, stop),
        cmocka_unit_test_setup_teardown(one_large_write_into_an_empty_buffer, start, stop),
        cmocka_unit_test_setup_teardown(drain_comes_after_a_refusal, start, stop),
        cmocka_unit_test_setup_teardown(very_many_events, start, stop),
        cmocka_unit_test_setup_teardown(idle_client_that_leaves_is_noticed, start, stop),
        cmocka_unit_test_setup_teardown(client_that_resets_is_noticed, start, stop),
        cmocka_unit_test_setup_teardown(busy_client_that_leaves_is_noticed, start, stop),
        cmocka_unit_test_setup_teardown(writes_after_the_end_are_swallowed, start, stop),
        cmocka_unit_test_setup_teardown(server_ends_with_live_streams, start, stop),
        cmocka_unit_test_setup_teardown(server_ends_with_idle_streams, start, stop),
        cmocka_unit_test_setup_teardown(deferred_answer, start, stop),
        cmocka_unit_test_setup_teardown(deferred_client_leaves, start, stop),
        cmocka_unit_test_setup_teardown(server_ends_before_the_answer, start, stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
