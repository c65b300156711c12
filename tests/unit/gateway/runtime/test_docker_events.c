/* The watch verb of the Docker runtime against the fake engine's event stream, and its parser. */
#include "tests/unit/test.h"

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "gateway/runtime/docker/event_feed.h"
#include "gateway/runtime/runtime.h"
#include "tests/fakes/fake_docker.h"
#include "tests/fakes/fake_events.h"

#include <string.h>
#include <time.h>

#define INSTANCE "ab12cd34-0000-4000-8000-000000000000"
#define ID "11111111-2222-4333-8444-555555555555"
#define ID2 "11111111-2222-4333-8444-666666666666"

enum { NEWS_MAX = 128 };

/* What the watcher was told. */
struct news {
    pthread_mutex_t guard;
    pthread_cond_t changed;
    struct runtime_event list[NEWS_MAX];
    size_t len;
};

struct fixture {
    struct fake_docker *fake;
    struct fake_events *stream;
    struct runtime *rt;
    struct news news;
    char path[1024]; /* of the newest stream */
    struct err e;
};

static int set_up(void **state)
{
    struct fixture *x = calloc(1, sizeof(*x));
    struct runtime_config cfg = { .instance = INSTANCE,
                                  .api_timeout_s = 10,
                                  .keep_host_open = true,
                                  .agent = "the agent",
                                  .agent_len = 9 };
    pthread_condattr_t attr;

    log_set_level(LOG_OFF);
    x->fake = fake_docker_start();
    x->stream = fake_events_new(x->fake);
    cfg.engine = fake_docker_socket(x->fake);
    (void)pthread_mutex_init(&x->news.guard, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&x->news.changed, &attr);
    (void)pthread_condattr_destroy(&attr);
    *state = x;
    return runtime_open("docker", &cfg, &x->rt, &x->e);
}

static int tear_down(void **state)
{
    struct fixture *x = *state;

    runtime_close(x->rt);
    fake_docker_stop(x->fake);
    fake_events_free(x->stream);
    (void)pthread_cond_destroy(&x->news.changed);
    (void)pthread_mutex_destroy(&x->news.guard);
    free(x);
    return 0;
}

static void on_news(void *arg, const struct runtime_event *ev)
{
    struct news *n = arg;
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&n->guard);

    if (n->len == NEWS_MAX)
        abort();
    n->list[n->len++] = *ev;
    (void)pthread_cond_broadcast(&n->changed);
}

/* The nth news, from 0. */
static struct runtime_event nth(struct fixture *x, size_t i)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&x->news.guard);
    struct timespec until;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += TEST_DEADLINE_MS / 1000;
    while (x->news.len <= i)
        if (pthread_cond_timedwait(&x->news.changed, &x->news.guard, &until) == ETIMEDOUT)
            return (struct runtime_event){ .kind = (enum runtime_event_kind) - 1 };
    return x->news.list[i];
}

static size_t count(struct fixture *x)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&x->news.guard);

    return x->news.len;
}

#define assert_news(x, i, k) assert_int_equal(nth((x), (i)).kind, RUNTIME_EVENT_##k)

static void watch(struct fixture *x)
{
    assert_int_equal(runtime_watch(x->rt, on_news, &x->news, &x->e), 0);
    assert_int_equal(fake_events_wait(x->stream, 1, x->path, sizeof(x->path)), 0);
    assert_news(x, 0, SYNC);
}

static void say(struct fixture *x, const char *text)
{
    fake_events_send(x->stream, text, strlen(text));
}

/* An event as Docker 20.10 writes it. */
#define EVENT_OF(instance, name, id, action, attributes, ns)                                       \
    "{\"status\":\"" action "\",\"id\":\"c0ffee\",\"from\":\"img:1\",\"Type\":\"container\","      \
    "\"Action\":\"" action "\",\"Actor\":{\"ID\":\"c0ffee\",\"Attributes\":{" attributes           \
    "\"image\":\"img:1\",\"note\":\"} \\\" \\\\\",\"name\":\"" name "\",\"sandgate.id\":\"" id     \
    "\",\"sandgate.instance\":\"" instance "\",\"sandgate.role\":\"sandbox\"}},"                   \
    "\"scope\":\"local\",\"time\":1700000000,\"timeNano\":" ns "}\n"
#define EVENT(action, attributes, ns) EVENT_OF(INSTANCE, "sandbox-" ID, ID, action, attributes, ns)

/* ---- the stream ---- */

static void the_stream_begins_with_sync(void **state)
{
    struct fixture *x = *state;

    watch(x);
    assert_contains(x->path, "/events?filters=");
    assert_contains(x->path, "%22label%22%3A%5B%22sandgate.instance%3D" INSTANCE
                             "%22%2C%22sandgate.role%3Dsandbox%22%5D");
    assert_contains(x->path, "%22type%22%3A%5B%22container%22%5D");
    assert_null(strstr(x->path, "since="));
    assert_int_equal(runtime_watch(x->rt, on_news, &x->news, &x->e), -1);
    assert_int_equal(x->e.code, ERRC_CONFLICT);
}

static void every_kind_of_news_arrives(void **state)
{
    struct fixture *x = *state;

    watch(x);
    say(x, EVENT("create", "", "1700000000000000000"));
    say(x, EVENT("start", "", "1700000000000000001"));
    say(x, EVENT("pause", "", "1700000000001000000"));
    say(x, EVENT("unpause", "", "1700000000002000000"));
    say(x, EVENT("oom", "", "1700000000003000000"));
    say(x, EVENT("kill", "\"signal\":\"9\",", "1700000000004000000"));
    say(x, EVENT("exec_create: sh -c x", "", "1700000000004000001"));
    say(x, EVENT("die", "\"exitCode\":\"137\",", "1700000000005000000"));
    say(x, EVENT("destroy", "", "1700000000006000000"));
    assert_news(x, 1, STARTED);
    assert_string_equal(nth(x, 1).id, ID);
    assert_int_equal(nth(x, 1).at_ms, 1700000000000);
    assert_news(x, 2, PAUSED);
    assert_int_equal(nth(x, 2).at_ms, 1700000000001);
    assert_news(x, 3, RESUMED);
    assert_news(x, 4, OOM);
    assert_news(x, 5, ENDED);
    assert_int_equal(nth(x, 5).exit_code, 137);
    assert_news(x, 6, REMOVED);
    assert_int_equal(count(x), 7);
}

/* Another gateway's, and a container that somebody made from a committed sandbox. */
static void what_is_not_ours_is_passed_over(void **state)
{
    struct fixture *x = *state;

    watch(x);
    say(x, EVENT_OF("00000000", "sandbox-" ID, ID, "start", "", "1700000000000000001"));
    say(x, EVENT_OF(INSTANCE, "mine", ID, "start", "", "1700000000000000002"));
    say(x, EVENT_OF(INSTANCE, "sandbox-" ID2, ID, "start", "", "1700000000000000003"));
    say(x, "{\"Type\":\"network\",\"Action\":\"start\",\"timeNano\":5}");
    say(x, "{}\n\n");
    say(x, EVENT("destroy", "", "1700000000000000009"));
    assert_news(x, 1, REMOVED);
}

static void objects_may_be_cut_anywhere(void **state)
{
    struct fixture *x = *state;
    const char *text = EVENT("start", "", "1700000000000000001");
    const char *p;

    watch(x);
    for (p = text; *p; p++)
        fake_events_send(x->stream, p, 1);
    say(x, EVENT("pause", "", "1700000000000000002") EVENT("unpause", "", "1700000000000000003"));
    assert_news(x, 1, STARTED);
    assert_news(x, 2, PAUSED);
    assert_news(x, 3, RESUMED);
}

/* An event that broke off is asked for again. */
static void a_broken_stream_is_resumed_from_the_last_event(void **state)
{
    struct fixture *x = *state;

    watch(x);
    say(x, EVENT("start", "", "1700000000000000001"));
    assert_news(x, 1, STARTED);
    fake_events_send(x->stream, EVENT("die", "", "1700000000000000001"), 40);
    fake_events_cut(x->stream);
    assert_news(x, 2, LOST);
    assert_int_equal(fake_events_wait(x->stream, 2, x->path, sizeof(x->path)), 0);
    assert_contains(x->path, "&since=1700000000.000000001");
    assert_news(x, 3, SYNC);
    say(x, EVENT("start", "", "1700000000000000001")); /* the engine repeats it */
    say(x, EVENT("die", "\"exitCode\":\"0\",", "1700000000987654321"));
    assert_news(x, 4, ENDED);
    fake_events_end(x->stream); /* the engine shuts down in good order */
    assert_news(x, 5, LOST);
    assert_int_equal(fake_events_wait(x->stream, 3, x->path, sizeof(x->path)), 0);
    assert_contains(x->path, "&since=1700000000.987654321");
    assert_news(x, 6, SYNC);
}

static void a_dead_engine_is_lost_once(void **state)
{
    struct fixture *x = *state;

    watch(x);
    fake_docker_die(x->fake);
    assert_news(x, 1, LOST);
    fake_docker_revive(x->fake);
    assert_news(x, 2, SYNC);
    assert_int_equal(count(x), 3);
}

static void a_refusing_engine_is_asked_again(void **state)
{
    struct fixture *x = *state;
    const struct fake_rule refuse = { .path = "/events",
                                      .how = FAKE_REPLY,
                                      .status = 500,
                                      .body = "{\"message\":\"no\"}",
                                      .times = 2 };
    const struct fake_rule drop = { .path = "/events", .how = FAKE_CLOSE, .times = 2 };

    fake_docker_rule(x->fake, &refuse);
    fake_docker_rule(x->fake, &drop);
    watch(x); /* nothing to lose before: the first news is SYNC */
    assert_true(fake_docker_calls(x->fake, "GET /events") >= 5);
    assert_int_equal(count(x), 1);
}

/* The list tells what the events did not. */
static void an_unreadable_event_means_look_yourself(void **state)
{
    struct fixture *x = *state;
    AUTO_BUF struct buf big = BUF_INIT(4 << 20);
    static char many[EVENT_FEED_OBJECT_MAX];

    watch(x);
    say(x, "{\"Type\":\"container\",,}");
    assert_news(x, 1, SYNC);
    say(x, EVENT("die", "", "1700000000000000001")); /* without an exit code */
    assert_news(x, 2, SYNC);
    memset(many, '[', sizeof(many) - 1);
    (void)buf_printf(&big, "{\"label\":\"%s\"}", many);
    fake_events_send(x->stream, big.data, big.len);
    assert_news(x, 3, SYNC);
    say(x, EVENT("start", "", "1700000000000000002"));
    assert_news(x, 4, STARTED);
}

/* ---- unwatch ---- */

static void unwatch_interrupts_a_silent_stream(void **state)
{
    struct fixture *x = *state;

    watch(x);
    runtime_unwatch(x->rt);
    assert_int_equal(fake_events_wait_closed(x->stream), 0);
    assert_int_equal(count(x), 1); /* no LOST: nobody watches */
    runtime_unwatch(x->rt);
    assert_int_equal(runtime_watch(x->rt, on_news, &x->news, &x->e), 0); /* and once more */
    assert_news(x, 1, SYNC);
}

static void unwatch_interrupts_an_engine_that_hangs(void **state)
{
    struct fixture *x = *state;

    fake_events_hang(x->stream);
    assert_int_equal(runtime_watch(x->rt, on_news, &x->news, &x->e), 0);
    assert_int_equal(fake_events_wait(x->stream, 1, x->path, sizeof(x->path)), 0);
    runtime_unwatch(x->rt);
    assert_int_equal(count(x), 0);
}

static void unwatch_interrupts_the_wait_for_an_engine(void **state)
{
    struct fixture *x = *state;

    fake_docker_die(x->fake);
    assert_int_equal(runtime_watch(x->rt, on_news, &x->news, &x->e), 0);
    runtime_unwatch(x->rt);
    assert_int_equal(count(x), 0);
    runtime_unwatch(x->rt);
}

/* ---- the parser ---- */

static void on_fed(void *arg, const struct runtime_event *ev, int64_t at_ns)
{
    (void)at_ns;
    (void)buf_printf(arg, "%d ", (int)ev->kind);
}

/* With record separators, without line feeds, with garbage between the objects. */
static void the_feed_finds_objects(void **state)
{
    struct event_feed f;
    AUTO_BUF struct buf seen = BUF_INIT(1000);
    const char *text = "\x1e" EVENT("start", "", "1700000000000000001") "\r\n]}\"garbage " EVENT(
        "pause", "\"a\":{\"b\":[\"}\"]},", "1700000000000000001");

    (void)state;
    event_feed_init(&f, INSTANCE);
    event_feed_put(&f, text, strlen(text), on_fed, &seen);
    assert_string_equal(seen.data, "0 1 ");
    event_feed_put(&f, "{\"half", 6, on_fed, &seen);
    event_feed_reset(&f);
    text = EVENT("unpause", "", "0"); /* an engine without nanoseconds */
    event_feed_put(&f, text, strlen(text), on_fed, &seen);
    assert_string_equal(seen.data, "0 1 2 ");
    event_feed_free(&f);
}

/* One byte too many is passed over, and so is nothing else. */
static void objects_have_a_limit(void **state)
{
    struct event_feed f;
    AUTO_BUF struct buf seen = BUF_INIT(1000);
    AUTO_BUF struct buf text = BUF_INIT(2 * EVENT_FEED_OBJECT_MAX);
    const char *event = EVENT("start", "", "1700000000000000001");
    int i;

    (void)state;
    event_feed_init(&f, INSTANCE);
    for (i = 0; i < 2; i++) {
        size_t blanks = EVENT_FEED_OBJECT_MAX - (strlen(event) - 1) + (size_t)i;

        buf_clear(&text);
        (void)buf_append(&text, event, 1);
        memset(buf_reserve(&text, blanks), ' ', blanks);
        text.len += blanks;
        (void)buf_puts(&text, event + 1);
        event_feed_put(&f, text.data, text.len, on_fed, &seen);
        event_feed_put(&f, event, strlen(event), on_fed, &seen);
    }
    assert_string_equal(seen.data, "0 0 6 0 ");
    event_feed_free(&f);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_stream_begins_with_sync),
        TEST(every_kind_of_news_arrives),
        TEST(what_is_not_ours_is_passed_over),
        TEST(objects_may_be_cut_anywhere),
        TEST(a_broken_stream_is_resumed_from_the_last_event),
        TEST(a_dead_engine_is_lost_once),
        TEST(a_refusing_engine_is_asked_again),
        TEST(an_unreadable_event_means_look_yourself),
        TEST(unwatch_interrupts_a_silent_stream),
        TEST(unwatch_interrupts_an_engine_that_hangs),
        TEST(unwatch_interrupts_the_wait_for_an_engine),
        cmocka_unit_test(the_feed_finds_objects),
        cmocka_unit_test(objects_have_a_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
