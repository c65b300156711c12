/* The engine client against the fake engine: version, deadlines, broken and oversized replies. */
#include "tests/unit/test.h"

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "gateway/runtime/docker/engine.h"
#include "tests/fakes/fake_docker.h"
#include "tests/fakes/fake_events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct fixture {
    struct fake_docker *fake;
    struct fake_events *stream; /* "/events" */
    struct engine *en;
    struct err e;
};

static int set_up(void **state)
{
    struct fixture *x = calloc(1, sizeof(*x));

    log_set_level(LOG_OFF);
    x->fake = fake_docker_start();
    x->stream = fake_events_new(x->fake);
    x->en = engine_new(fake_docker_socket(x->fake), 10000);
    *state = x;
    return x->fake && x->en ? 0 : -1;
}

static int tear_down(void **state)
{
    struct fixture *x = *state;

    engine_free(x->en);
    fake_docker_stop(x->fake);
    fake_events_free(x->stream);
    free(x);
    return 0;
}

static int get(struct fixture *x, const char *path, json_t **out)
{
    const struct engine_call c = { .method = "GET", .path = path };

    x->e = (struct err){ 0 };
    return engine_do(x->en, &c, "test", out, &x->e);
}

static void rule(struct fixture *x, enum fake_how how, int status, const char *body)
{
    const struct fake_rule r = { .path = "/thing", .how = how, .status = status, .body = body };

    fake_docker_no_rules(x->fake);
    fake_docker_rule(x->fake, &r);
}

static void one_ping_serves_many_calls(void **state)
{
    struct fixture *x = *state;
    int i;

    rule(x, FAKE_REPLY, 200, "{}");
    for (i = 0; i < 5; i++)
        assert_int_equal(get(x, "/thing", NULL), 0);
    assert_int_equal(fake_docker_calls(x->fake, "GET /_ping"), 1);
    assert_int_equal(engine_breaks(x->en), 0);
}

/* An engine newer than this client is spoken to in the newest version that the client knows. */
static void version_is_the_smaller_one(void **state)
{
    struct fixture *x = *state;

    char spoken[16];
    char newest[16];

    (void)snprintf(newest, sizeof(newest), "1.%d", ENGINE_API_MAX);
    fake_docker_api(x->fake, "1.99");
    rule(x, FAKE_REPLY, 200, "{}");
    assert_int_equal(get(x, "/thing", NULL), 0);
    fake_docker_spoken(x->fake, spoken);
    assert_string_equal(spoken, newest);
    fake_docker_die(x->fake); /* downgraded */
    fake_docker_api(x->fake, "1.43");
    fake_docker_revive(x->fake);
    assert_int_equal(get(x, "/thing", NULL), 0); /* still in the old one, which it may refuse */
    assert_int_equal(get(x, "/thing", NULL), 0);
    fake_docker_spoken(x->fake, spoken);
    assert_string_equal(spoken, "1.43");
}

static void too_old_an_engine_is_refused(void **state)
{
    struct fixture *x = *state;

    fake_docker_api(x->fake, "1.40");
    assert_int_equal(get(x, "/thing", NULL), -1);
    assert_int_equal(x->e.code, ERRC_UNSUPPORTED);
    assert_contains(x->e.msg, "1.40");
    fake_docker_api(x->fake, "1.41"); /* upgraded: asked again */
    rule(x, FAKE_REPLY, 200, "{}");
    assert_int_equal(get(x, "/thing", NULL), 0);
}

static void version_is_asked_again_when_the_engine_came_back(void **state)
{
    struct fixture *x = *state;

    rule(x, FAKE_REPLY, 200, "{}");
    assert_int_equal(get(x, "/thing", NULL), 0);
    fake_docker_die(x->fake);
    assert_int_equal(get(x, "/thing", NULL), -1);
    fake_docker_revive(x->fake);
    assert_int_equal(get(x, "/thing", NULL), 0);
    assert_int_equal(fake_docker_calls(x->fake, "GET /_ping"), 2);
    assert_true(engine_breaks(x->en) > 0);
}

/* Replaced while idle: no call fails, and still the version is asked again and the break shows. */
static void a_silent_restart_is_noticed(void **state)
{
    struct fixture *x = *state;

    rule(x, FAKE_REPLY, 200, "{}");
    assert_int_equal(get(x, "/thing", NULL), 0);
    fake_docker_die(x->fake);
    fake_docker_revive(x->fake);
    assert_int_equal(get(x, "/thing", NULL), 0);
    assert_int_equal(engine_breaks(x->en), 1);
    assert_int_equal(get(x, "/thing", NULL), 0);
    assert_int_equal(fake_docker_calls(x->fake, "GET /_ping"), 2);
}

static void a_refused_version_is_negotiated_anew(void **state)
{
    struct fixture *x = *state;
    const struct fake_rule once = { .path = "/thing",
                                    .how = FAKE_REPLY,
                                    .status = 400,
                                    .body =
                                        "{\"message\":\"client version 1.41 is too old. Minimum "
                                        "supported API version is 1.44\"}",
                                    .times = 1 };

    rule(x, FAKE_REPLY, 200, "{}");
    fake_docker_rule(x->fake, &once);
    assert_int_equal(get(x, "/thing", NULL), 0);
    assert_int_equal(fake_docker_calls(x->fake, "GET /_ping"), 2);
    assert_int_equal(fake_docker_calls(x->fake, "GET /thing"), 2);
}

static void engine_down_is_503_with_the_contracts_code(void **state)
{
    struct fixture *x = *state;

    fake_docker_die(x->fake);
    assert_int_equal(get(x, "/thing", NULL), -1);
    assert_int_equal(x->e.code, ERRC_BUSY);
    assert_string_equal(x->e.api_code, "DOCKER::INITIALIZATION_ERROR");
    assert_true(x->e.retry_after_s > 0);
    assert_contains(x->e.msg, fake_docker_socket(x->fake));
}

static void the_deadline_holds(void **state)
{
    struct fixture *x = *state;
    const struct engine_call c = { .method = "GET", .path = "/thing", .timeout_ms = 100 };
    const struct fake_rule slow = { .path = "/thing", .how = FAKE_PASS, .delay_ms = 1500 };
    int64_t t = clock_mono_ms();

    fake_docker_rule(x->fake, &slow);
    assert_int_equal(engine_do(x->en, &c, "test", NULL, &x->e), -1);
    assert_int_equal(x->e.code, ERRC_TIMEOUT);
    assert_in_range(clock_mono_ms() - t, 100, 1400);
}

static void the_engines_words_are_kept(void **state)
{
    struct fixture *x = *state;

    rule(x, FAKE_REPLY, 500, "{\"message\":\"driver failed programming external connectivity\"}\n");
    assert_int_equal(get(x, "/thing", NULL), -1);
    assert_int_equal(x->e.code, ERRC_INTERNAL);
    assert_contains(x->e.msg, "driver failed programming external connectivity");
    rule(x, FAKE_REPLY, 409, "plain text\n");
    assert_int_equal(get(x, "/thing", NULL), -1);
    assert_int_equal(x->e.code, ERRC_CONFLICT);
    assert_contains(x->e.msg, "plain text");
    rule(x, FAKE_REPLY, 404, "");
    assert_int_equal(get(x, "/thing", NULL), -1);
    assert_int_equal(x->e.code, ERRC_NOT_FOUND);
}

static void cut_and_broken_replies_are_failures(void **state)
{
    struct fixture *x = *state;
    json_t *v = NULL;

    rule(x, FAKE_CLOSE, 0, NULL);
    assert_int_equal(get(x, "/thing", &v), -1);
    assert_int_equal(x->e.code, ERRC_BUSY);
    fake_docker_no_rules(x->fake);
    fake_docker_rule(x->fake, &(struct fake_rule){ .path = "/networks", .how = FAKE_TRUNCATE });
    (void)get(x, "/networks?x=1", &v);
    assert_null(v);
    rule(x, FAKE_REPLY, 200, "{\"half\":");
    assert_int_equal(get(x, "/thing", &v), -1);
    assert_int_equal(x->e.code, ERRC_BAD_GATEWAY);
    assert_null(v);
}

static void replies_are_bounded(void **state)
{
    struct fixture *x = *state;
    struct engine_call c = { .method = "GET", .path = "/thing", .reply_max = 10 };

    rule(x, FAKE_REPLY, 200, "[1,2,3,45]");
    assert_int_equal(engine_do(x->en, &c, "test", NULL, &x->e), 0);
    c.reply_max = 9;
    assert_int_equal(engine_do(x->en, &c, "test", NULL, &x->e), -1);
    assert_int_equal(x->e.code, ERRC_BAD_GATEWAY);
    assert_int_equal(engine_breaks(x->en), 0); /* the engine is well */
}

static int refuse(void *arg, const char *data, size_t len)
{
    (void)data;
    *(size_t *)arg += len;
    return 0;
}

/* Only a success is streamed: the text of a failure is for the error. */
static void failures_do_not_reach_the_sink(void **state)
{
    struct fixture *x = *state;
    size_t got = 0;
    struct engine_call c = { .method = "POST", .path = "/thing", .sink = refuse, .sink_arg = &got };

    rule(x, FAKE_REPLY, 500, "{\"message\":\"no\"}");
    assert_int_equal(engine_do(x->en, &c, "test", NULL, &x->e), -1);
    assert_contains(x->e.msg, "no");
    assert_int_equal(got, 0);
    rule(x, FAKE_REPLY, 200, "12345");
    assert_int_equal(engine_do(x->en, &c, "test", NULL, &x->e), 0);
    assert_int_equal(got, 5);
}

/* ---- streams, and calls that can be broken off ---- */

struct listener {
    struct fixture *x;
    int stop_fd;
    unsigned opened;
    size_t bytes;
    void (*on_open)(struct listener *l);
    void (*on_bytes)(struct listener *l);
};

static void opened(void *arg)
{
    struct listener *l = arg;

    l->opened++;
    if (l->on_open)
        l->on_open(l);
}

static int heard(void *arg, const char *data, size_t len)
{
    struct listener *l = arg;

    (void)data;
    l->bytes += len;
    if (l->on_bytes)
        l->on_bytes(l);
    return 0;
}

static int listen_to(struct listener *l, int timeout_ms, int silence_ms)
{
    const struct engine_call c = { .method = "GET",
                                   .path = "/events",
                                   .endless = true,
                                   .timeout_ms = timeout_ms,
                                   .silence_ms = silence_ms,
                                   .opened = opened,
                                   .sink = heard,
                                   .sink_arg = l,
                                   .stop_fd = &l->stop_fd };
    AUTO_REPLY struct engine_reply r = { 0 };
    int rc;

    l->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    l->x->e = (struct err){ 0 };
    rc = engine_send(l->x->en, &c, &r, &l->x->e);
    (void)close(l->stop_fd);
    return rc;
}

static void stop_it(struct listener *l)
{
    (void)eventfd_write(l->stop_fd, 1);
}

static void end_it(struct listener *l)
{
    fake_events_end(l->x->stream);
}

static void cut_it(struct listener *l)
{
    fake_events_cut(l->x->stream);
}

static void say_something(struct listener *l)
{
    fake_events_send(l->x->stream, "hello", 5);
}

/* The deadline ends with the head: it is the silence that is reported. */
static void a_stream_outlives_the_deadline(void **state)
{
    struct listener l = { .x = *state };

    assert_int_equal(listen_to(&l, 100, 300), -1);
    assert_int_equal(l.x->e.code, ERRC_TIMEOUT);
    assert_contains(l.x->e.msg, "silent for 300 ms");
    assert_int_equal(l.opened, 1);
    assert_int_equal(engine_breaks(l.x->en), 0); /* silence is not a failure */
}

static void a_stream_without_a_head_is_late(void **state)
{
    struct listener l = { .x = *state };

    fake_events_hang(l.x->stream);
    assert_int_equal(listen_to(&l, 100, 0), -1);
    assert_int_equal(l.x->e.code, ERRC_TIMEOUT);
    assert_contains(l.x->e.msg, "within 100 ms");
    assert_int_equal(l.opened, 0);
    assert_true(engine_breaks(l.x->en) > 0);
}

static void a_stream_ends_when_the_engine_says_so(void **state)
{
    struct listener l = { .x = *state, .on_open = say_something, .on_bytes = end_it };

    assert_int_equal(listen_to(&l, 10000, 0), 0);
    assert_int_equal(l.opened, 1);
    assert_int_equal(l.bytes, 5);
}

static void a_broken_stream_is_noticed_at_once(void **state)
{
    struct listener l = { .x = *state, .on_open = say_something, .on_bytes = cut_it };

    assert_int_equal(listen_to(&l, 10000, 0), -1);
    assert_int_equal(l.x->e.code, ERRC_BUSY);
    assert_string_equal(l.x->e.api_code, "DOCKER::INITIALIZATION_ERROR");
    assert_int_equal(l.bytes, 5);
    assert_int_equal(engine_breaks(l.x->en), 1);
}

static void a_stream_can_be_stopped(void **state)
{
    struct listener l = { .x = *state, .on_open = stop_it };
    AUTO_BUF struct buf counters = BUF_INIT(64 << 10);

    assert_int_equal(listen_to(&l, 10000, 0), -1);
    assert_int_equal(l.x->e.code, ERRC_BUSY);
    assert_contains(l.x->e.msg, "broken off");
    assert_int_equal(engine_breaks(l.x->en), 0);
    assert_int_equal(fake_events_wait_closed(l.x->stream), 0);
    engine_metrics(l.x->en, &counters);
    assert_contains(counters.data, "{op=\"events\",result=\"ok\"} 1\n");
    assert_contains(counters.data, "{op=\"events\",result=\"failed\"} 0\n");
}

/* Not only streams: every call, and the question for the version before it. */
static void a_call_can_be_stopped_before_it_begins(void **state)
{
    struct fixture *x = *state;
    int fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
    const struct engine_call c = { .method = "GET", .path = "/thing", .stop_fd = &fd };
    const struct fake_rule slow = {
        .path = "/_ping", .how = FAKE_PASS, .delay_ms = 500, .times = 1
    };

    fake_docker_rule(x->fake, &slow);
    assert_int_equal(engine_do(x->en, &c, "test", NULL, &x->e), -1);
    assert_contains(x->e.msg, "broken off");
    assert_int_equal(fake_docker_calls(x->fake, "GET /thing"), 0);
    (void)close(fd);
}

static void a_refused_stream_is_a_reply(void **state)
{
    struct fixture *x = *state;
    struct listener l = { .x = x };
    const struct engine_call c = { .method = "GET",
                                   .path = "/thing",
                                   .endless = true,
                                   .opened = opened,
                                   .sink = heard,
                                   .sink_arg = &l };

    rule(x, FAKE_REPLY, 500, "{\"message\":\"no\"}");
    assert_int_equal(engine_do(x->en, &c, "test", NULL, &x->e), -1);
    assert_contains(x->e.msg, "no");
    assert_int_equal(l.opened, 0);
    assert_int_equal(l.bytes, 0);
}

static void path_segments_are_encoded(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(100);

    (void)state;
    assert_int_equal(engine_segment(&b, "a/b:c%\xc3"), 0);
    assert_string_equal(b.data, "a%2Fb%3Ac%25%C3");
    assert_int_equal(engine_query(&b, "k", "&="), 0);
    assert_int_equal(engine_query(&b, "l", ""), 0);
    assert_string_equal(b.data, "a%2Fb%3Ac%25%C3?k=%26%3D&l=");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(one_ping_serves_many_calls),
        TEST(version_is_the_smaller_one),
        TEST(too_old_an_engine_is_refused),
        TEST(version_is_asked_again_when_the_engine_came_back),
        TEST(a_silent_restart_is_noticed),
        TEST(a_refused_version_is_negotiated_anew),
        TEST(engine_down_is_503_with_the_contracts_code),
        TEST(the_deadline_holds),
        TEST(the_engines_words_are_kept),
        TEST(cut_and_broken_replies_are_failures),
        TEST(replies_are_bounded),
        TEST(failures_do_not_reach_the_sink),
        TEST(a_stream_outlives_the_deadline),
        TEST(a_stream_without_a_head_is_late),
        TEST(a_stream_ends_when_the_engine_says_so),
        TEST(a_broken_stream_is_noticed_at_once),
        TEST(a_stream_can_be_stopped),
        TEST(a_call_can_be_stopped_before_it_begins),
        TEST(a_refused_stream_is_a_reply),
        cmocka_unit_test(path_segments_are_encoded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
