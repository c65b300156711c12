/* Requests to a server that answers what the test says, then ends the connection. */
#include "tests/unit/test.h"

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/listen.h"
#include "common/base/loop.h"
#include "common/base/macros.h"
#include "execd/code/jupyter_rest.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct loop *loop;
static struct rest rest;
static int listener = -1;
static unsigned done;
static int status; /* 0: there was no answer */
static struct err error;
static struct buf body;

static void on_done(void *owner, const struct rest_answer *a, const struct err *e)
{
    assert_ptr_equal(owner, &rest);
    done++;
    status = a ? a->status : 0;
    buf_clear(&body);
    if (a) {
        assert_int_equal(buf_append(&body, a->body, a->len), 0);
        assert_int_equal(a->body[a->len], '\0');
    } else {
        error = *e;
    }
}

static int set_up(void **state)
{
    char url[64];
    uint16_t port;

    (void)state;
    loop = loop_new(NULL);
    body = BUF_INIT(4 << 20);
    if (listen_tcp("127.0.0.1", 0, 8, &listener, &port, NULL) < 0)
        return -1;
    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%u/base/", port);
    done = 0;
    return rest_init(&rest, loop, url, "s3cret", NULL);
}

static int tear_down(void **state)
{
    (void)state;
    if (listener >= 0)
        close(listener);
    buf_free(&body);
    loop_free(loop);
    return 0;
}

static void step(void)
{
    assert_true(loop_step(loop, 20, NULL) >= 0);
}

static struct rest_call *begin(const char *method, const char *sent, int timeout_ms)
{
    return rest_call(&rest, method, "/api/x", sent, timeout_ms, on_done, &rest, NULL);
}

static int take(void)
{
    int fd = -1;

    TEST_UNTIL((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0, step());
    return fd;
}

/* The request, until it ends with what is given. */
static void expect(int fd, const char *end, char *got, size_t cap)
{
    size_t len = 0;

    got[0] = '\0';
    TEST_UNTIL(len >= strlen(end) && strcmp(got + len - strlen(end), end) == 0, {
        ssize_t n = recv(fd, got + len, cap - 1 - len, 0);

        if (n > 0)
            got[len += (size_t)n] = '\0';
        else
            step();
    });
}

/* One request and these bytes as its answer, in pieces or at once. */
static void answer(const char *text, size_t len, bool pieces)
{
    char got[512];
    unsigned before = done;
    size_t at;
    size_t n;
    int fd;

    assert_non_null(begin("GET", NULL, TEST_DEADLINE_MS));
    fd = take();
    expect(fd, "\r\n\r\n", got, sizeof(got));
    for (at = 0; at < len && done == before; at += n) {
        n = pieces ? 1 : len - at;
        n = (size_t)send(fd, text + at, n, MSG_NOSIGNAL);
        if (n > len)
            n = 0; /* full */
        step();
    }
    close(fd);
    TEST_UNTIL(done > before, step());
}

#define ANSWER(text) answer((text), sizeof(text) - 1, false)

static void what_is_sent(void **state)
{
    char got[512];
    int fd;

    (void)state;
    assert_non_null(begin("POST", "{\"a\":1}", TEST_DEADLINE_MS));
    fd = take();
    expect(fd, "{\"a\":1}", got, sizeof(got));
    assert_ptr_equal(strstr(got, "POST /base/api/x HTTP/1.1\r\nHost: 127.0.0.1:"), got);
    assert_contains(got, "\r\nAuthorization: Token s3cret\r\n");
    assert_contains(got, "\r\nContent-Length: 7\r\n");
    close(fd);
    TEST_UNTIL(done, step());
    assert_null(strstr(error.msg, "s3cret"));
}

static void answers(void **state)
{
    static const char *const rows[] = {
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello and more",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x\r\nllo\r\n0\r\nT: v\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\nhello",
        "HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    };
    size_t i;

    (void)state;
    for (i = 0; i < 2 * ARRAY_LEN(rows); i++) {
        answer(rows[i / 2], strlen(rows[i / 2]), i % 2);
        assert_int_equal(status, 200);
        assert_string_equal(body.data, "hello");
    }
    ANSWER("HTTP/1.1 204 No Content\r\n\r\n");
    assert_int_equal(status, 204);
    ANSWER("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
    assert_int_equal(status, 403);
}

static void what_is_no_answer(void **state)
{
    static const char *const rows[] = {
        "",
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
        "SSH-2.0-x\r\n",
        "HTTP/1.1 101 Switching Protocols\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n",
    };
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(rows); i++) {
        answer(rows[i], strlen(rows[i]), false);
        if (status)
            fail_msg("accepted: %s", rows[i]);
        assert_int_equal(error.code, ERRC_BAD_GATEWAY);
        assert_contains(error.msg, rest.url);
    }
}

static void an_answer_has_a_limit(void **state)
{
    static const char head[] = "HTTP/1.1 200 OK\r\n\r\n";
    size_t len = sizeof(head) - 1;
    char *text = calloc(1, len + REST_ANSWER_MAX + 1);

    (void)state;
    memcpy(text, head, len);
    answer(text, len + REST_ANSWER_MAX, false);
    assert_int_equal(status, 200);
    assert_int_equal(body.len, REST_ANSWER_MAX);
    answer(text, len + REST_ANSWER_MAX + 1, false);
    assert_int_equal(status, 0);
    assert_contains(error.msg, "too long");
    free(text);
}

static void time_and_cancel(void **state)
{
    struct rest_call *c;
    int fd;

    (void)state;
    assert_non_null(begin("GET", NULL, 30));
    fd = take();
    TEST_UNTIL(done, step());
    assert_int_equal(error.code, ERRC_TIMEOUT);
    close(fd);
    c = begin("GET", NULL, TEST_DEADLINE_MS);
    fd = take();
    rest_cancel(c);
    close(fd);
    rest_cancel(NULL);
    close(listener);
    listener = -1;
    assert_non_null(begin("GET", NULL, TEST_DEADLINE_MS));
    assert_int_equal(done, 1); /* never from inside the call */
    TEST_UNTIL(done == 2, step());
    assert_int_equal(error.code, ERRC_BUSY);
    assert_contains(error.msg, "cannot be reached");
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    static const struct CMUnitTest tests[] = {
        CASE(what_is_sent),          CASE(answers),         CASE(what_is_no_answer),
        CASE(an_answer_has_a_limit), CASE(time_and_cancel),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
