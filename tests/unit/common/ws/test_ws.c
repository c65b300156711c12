/* Connections over a socket pair: both ends ours, or one of them bare bytes. */
#include "tests/unit/test.h"

#include "common/base/err.h"
#include "common/base/loop.h"
#include "common/ws/ws.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct end {
    struct ws *ws;
    struct buf got; /* messages, each followed by '|' */
    unsigned messages;
    unsigned rooms;
    unsigned closes;
    unsigned code;
    char reason[128];
    bool text;
    bool pause; /* after a message */
    bool echo;
};

static struct loop *loop;
static struct ws_set set;
static struct end a; /* the server's end */
static struct end b;
static int raw = -1; /* instead of b */

static void on_message(void *owner, bool text, const char *data, size_t len)
{
    struct end *t = owner;

    t->messages++;
    t->text = text;
    assert_int_equal(data[len], '\0');
    (void)buf_append(&t->got, data, len);
    (void)buf_append(&t->got, "|", 1);
    if (t->echo)
        (void)ws_send(t->ws, WS_TEXT, "echo ", 5, data, len);
    if (t->pause)
        ws_pause(t->ws, true);
}

static void on_room(void *owner)
{
    ((struct end *)owner)->rooms++;
}

static void on_close(void *owner, unsigned code, const char *reason)
{
    struct end *t = owner;

    t->closes++;
    t->code = code;
    t->ws = NULL;
    (void)snprintf(t->reason, sizeof(t->reason), "%s", reason);
}

static const struct ws_ops ops = { NULL, on_message, on_room, on_close };

static void pair(int fds[2])
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
}

static void open_both(const struct ws_options *options)
{
    int fds[2];

    pair(fds);
    a.ws = ws_adopt(&set, fds[0], true, options, &ops, &a);
    b.ws = ws_adopt(&set, fds[1], false, options, &ops, &b);
    assert_non_null(a.ws);
    assert_non_null(b.ws);
}

static void open_raw(const struct ws_options *options)
{
    int fds[2];

    pair(fds);
    a.ws = ws_adopt(&set, fds[0], true, options, &ops, &a);
    assert_non_null(a.ws);
    raw = fds[1];
}

static int set_up(void **state)
{
    (void)state;
    loop = loop_new(NULL);
    set = (struct ws_set){ .loop = loop };
    a = (struct end){ .got = BUF_INIT(8 << 20) };
    b = (struct end){ .got = BUF_INIT(8 << 20) };
    return loop ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    ws_set_free(&set);
    buf_free(&a.got);
    buf_free(&b.got);
    if (raw >= 0)
        close(raw);
    raw = -1;
    loop_free(loop);
    return 0;
}

static void step(void)
{
    assert_true(loop_step(loop, 20, NULL) >= 0);
}

static void send_raw(const char *data, size_t len)
{
    assert_int_equal(send(raw, data, len, MSG_NOSIGNAL), (ssize_t)len);
}

#define SEND_RAW(s) send_raw((s), sizeof(s) - 1)

static void expect_raw(const char *data, size_t len)
{
    char in[256];
    size_t got = 0;

    while (got < len) {
        ssize_t n = recv(raw, in + got, len - got, 0);

        if (n < 0 && errno == EAGAIN) {
            step();
            continue;
        }
        assert_true(n > 0);
        got += (size_t)n;
    }
    assert_memory_equal(in, data, len);
}

#define EXPECT_RAW(s) expect_raw((s), sizeof(s) - 1)

static bool raw_ended(void)
{
    char c;

    return recv(raw, &c, 1, 0) == 0;
}

static void both_ways(void **state)
{
    (void)state;
    open_both(NULL);
    a.echo = true;
    assert_int_equal(ws_send(b.ws, WS_TEXT, "he", 2, "llo", 3), 0);
    TEST_UNTIL(b.messages, step());
    assert_string_equal(a.got.data, "hello|");
    assert_string_equal(b.got.data, "echo hello|");
    assert_true(b.text);
    ws_close(b.ws, 4001, "enough", 0);
    TEST_UNTIL(a.closes && b.closes && !set.head, step());
    assert_int_equal(a.code, 4001);
    assert_string_equal(a.reason, "enough");
    assert_int_equal(b.code, 4001); /* the answer repeats it */
}

static void a_ping_is_answered_between_parts(void **state)
{
    (void)state;
    open_raw(NULL);
    SEND_RAW("\x01\x81\0\0\0\0a\x89\x82\0\0\0\0hi\x80\x81\0\0\0\0b");
    EXPECT_RAW("\x8a\x02hi");
    TEST_UNTIL(a.messages, step());
    assert_string_equal(a.got.data, "ab|");
}

static void what_breaks_the_rules_is_closed(void **state)
{
    (void)state;
    open_raw(&(struct ws_options){ .message_max = 10 });
    SEND_RAW("\x81\x8b\0\0\0\0"
             "elevenbytes");
    EXPECT_RAW("\x88\x11\x03\xf1message too big");
    TEST_UNTIL(a.closes, step());
    assert_int_equal(a.code, WS_CODE_TOO_BIG);
    assert_true(raw_ended()); /* it lingers until our end is told */
    shutdown(raw, SHUT_WR);
    TEST_UNTIL(!set.head, step());
}

static void a_peer_that_goes_without_a_word(void **state)
{
    (void)state;
    open_raw(NULL);
    close(raw);
    raw = -1;
    TEST_UNTIL(a.closes, step());
    assert_int_equal(a.code, WS_CODE_ABNORMAL);
    assert_null(set.head);
}

static void a_full_queue_refuses_and_tells(void **state)
{
    static char kib[1024];
    unsigned sent = 0;

    (void)state;
    open_both(&(struct ws_options){ .queue_max = 64 << 10 });
    ws_pause(b.ws, true);
    while (ws_send(a.ws, WS_BINARY, NULL, 0, kib, sizeof(kib)) == 0)
        assert_true(++sent < 100000);
    assert_true(ws_queued(a.ws) <= 64 << 10);
    assert_true(ws_room(a.ws) < sizeof(kib));
    assert_int_equal(ws_send(a.ws, WS_TEXT | WS_FORCE, NULL, 0, "last", 4), 0);
    ws_pause(b.ws, false);
    TEST_UNTIL(a.rooms == 1 && b.messages == sent + 1, step());
    assert_int_equal(ws_queued(a.ws), 0);
}

static void one_large_message_into_an_empty_queue(void **state)
{
    char *big = calloc(1, 900000);

    (void)state;
    open_both(&(struct ws_options){ .queue_max = 1000 });
    assert_int_equal(ws_send(a.ws, WS_BINARY, "x", 1, big, 900000), 0);
    assert_int_equal(ws_send(a.ws, WS_BINARY, "x", 1, big, 1), -1);
    TEST_UNTIL(b.messages == 1 && a.rooms == 1, step());
    assert_int_equal(b.got.len, 900002);
    free(big);
}

static void pause_and_resume_lose_nothing(void **state)
{
    unsigned i;

    (void)state;
    open_both(NULL);
    a.pause = true;
    for (i = 0; i < 20; i++)
        assert_int_equal(ws_send(b.ws, WS_TEXT, NULL, 0, "m", 1), 0);
    for (i = 1; i <= 20; i++) {
        TEST_UNTIL(a.messages == i, step());
        step();
        assert_int_equal(a.messages, i);
        ws_pause(a.ws, false);
    }
    /* a peer that leaves while it is paused is noticed */
    (void)ws_send(b.ws, WS_TEXT, NULL, 0, "m", 1);
    TEST_UNTIL(a.messages == 21, step());
    ws_close(b.ws, WS_CODE_NORMAL, "", 1);
    ws_forget(b.ws);
    TEST_UNTIL(a.closes, step());
}

static void a_silent_peer_is_dead(void **state)
{
    (void)state;
    open_raw(&(struct ws_options){ .ping_ms = 10, .dead_ms = 60 });
    EXPECT_RAW("\x89\x00\x89\x00"); /* Pings, never answered */
    TEST_UNTIL(a.closes, step());
    assert_int_equal(a.code, WS_CODE_ABNORMAL);
    assert_contains(a.reason, "does not answer");
}

static void a_paused_end_shows_that_it_lives(void **state)
{
    (void)state;
    open_raw(&(struct ws_options){ .ping_ms = 10 });
    ws_pause(a.ws, true);
    SEND_RAW("\x89\x80mask"); /* is not read */
    EXPECT_RAW("\x89\x00\x8a\x00\x89\x00\x8a\x00");
}

static void pongs_keep_it_alive(void **state)
{
    int64_t until = clock_mono_ms() + 300;

    (void)state;
    open_both(&(struct ws_options){ .ping_ms = 20, .dead_ms = 100 });
    while (clock_mono_ms() < until)
        step();
    assert_int_equal(a.closes + b.closes, 0);
}

static void a_peer_that_does_not_read_is_cut(void **state)
{
    char *big = calloc(1, 4 << 20);

    (void)state;
    open_raw(&(struct ws_options){ .write_ms = 50 });
    assert_int_equal(ws_send(a.ws, WS_BINARY, NULL, 0, big, 4 << 20), 0);
    TEST_UNTIL(a.closes, step());
    assert_contains(a.reason, "does not read");
    free(big);
}

static void a_close_has_an_end_whatever_the_peer_does(void **state)
{
    char *big = calloc(1, 4 << 20);

    (void)state;
    open_raw(&(struct ws_options){ .close_ms = 50 });
    ws_close(a.ws, WS_CODE_NORMAL, "x", 0);
    TEST_UNTIL(a.closes, step());
    assert_contains(a.reason, "does not close");
    close(raw);
    a.closes = 0;
    open_raw(NULL);
    assert_int_equal(ws_send(a.ws, WS_BINARY, NULL, 0, big, 4 << 20), 0); /* the socket is full */
    ws_close(a.ws, 4001, "TAKEN_OVER", 50);
    TEST_UNTIL(a.closes, step());
    assert_null(set.head);
    free(big);
}

static void forgotten_ones_end_by_themselves(void **state)
{
    (void)state;
    open_both(NULL);
    (void)ws_send(a.ws, WS_TEXT, NULL, 0, "bye", 3);
    ws_forget(a.ws);
    TEST_UNTIL(b.closes && !set.head, step());
    assert_string_equal(b.got.data, "bye|");
    assert_int_equal(b.code, WS_CODE_GOING_AWAY);
    assert_int_equal(a.closes, 0);
}

static void messages_after_our_close_are_dropped(void **state)
{
    (void)state;
    open_raw(NULL);
    ws_close(a.ws, WS_CODE_NORMAL, "", 0);
    EXPECT_RAW("\x88\x02\x03\xe8");
    SEND_RAW("\x81\x81\0\0\0\0a\x88\x82\0\0\0\0\x03\xe8");
    TEST_UNTIL(a.closes, step());
    assert_int_equal(a.messages, 0);
    assert_int_equal(a.code, WS_CODE_NORMAL);
}

static void a_client_that_finds_nobody(void **state)
{
    struct ws_dial d = { .host = "nowhere.example", .port = 1, .target = "/" };
    struct err e;

    (void)state;
    assert_null(ws_connect(&set, &d, NULL, &ops, &b, &e));
    assert_contains(e.msg, "IP address");
    d.host = "127.0.0.1";
    b.ws = ws_connect(&set, &d, NULL, &ops, &b, &e);
    if (b.ws)
        TEST_UNTIL(b.closes, step());
    assert_contains(b.ws || b.closes ? b.reason : e.msg, "refused");
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(both_ways),
        CASE(a_ping_is_answered_between_parts),
        CASE(a_paused_end_shows_that_it_lives),
        CASE(what_breaks_the_rules_is_closed),
        CASE(a_peer_that_goes_without_a_word),
        CASE(a_full_queue_refuses_and_tells),
        CASE(one_large_message_into_an_empty_queue),
        CASE(pause_and_resume_lose_nothing),
        CASE(a_silent_peer_is_dead),
        CASE(pongs_keep_it_alive),
        CASE(a_peer_that_does_not_read_is_cut),
        CASE(a_close_has_an_end_whatever_the_peer_does),
        CASE(forgotten_ones_end_by_themselves),
        CASE(messages_after_our_close_are_dropped),
        CASE(a_client_that_finds_nobody),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
