/* Fronts on threads of their own share nothing: one proxies to the other. For the thread sanitizer. */
#include "tests/unit/test.h"

#include "common/base/err.h"
#include "common/base/loop.h"
#include "common/front/front.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

enum { REQUESTS = 50 };

struct worker {
    pthread_t thread;
    struct loop *loop;
    struct front *front;
    struct front_addr to; /* len 0: answers by itself */
    uint16_t port;
    unsigned done; /* of the worker's thread until it is joined */
};

static void decide(void *owner, struct front_req *rq)
{
    static const struct front_answer answer = { .status = 200, .body = "{}", .body_len = 2 };
    struct worker *w = owner;

    if (w->to.len)
        front_proxy(rq, &(struct front_proxy){ .to = &w->to });
    else
        front_answer(rq, &answer);
}

static void done(void *owner, struct front_req *rq, const struct front_result *result)
{
    (void)rq;
    ((struct worker *)owner)->done += result->complete;
}

static void *work(void *arg)
{
    struct err e = { 0 };

    (void)loop_run(((struct worker *)arg)->loop, &e);
    return NULL;
}

static int local_socket(bool listening, uint16_t *port)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_port = htons(*port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct timeval limit = { .tv_sec = TEST_DEADLINE_MS / 1000 };
    socklen_t len = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | (listening ? SOCK_NONBLOCK : 0), 0);

    assert_true(fd >= 0);
    if (!listening) {
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
        assert_int_equal(connect(fd, (struct sockaddr *)&a, len), 0);
        return fd;
    }
    assert_int_equal(bind(fd, (struct sockaddr *)&a, len), 0);
    assert_int_equal(listen(fd, 16), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
    *port = ntohs(a.sin_port);
    return fd;
}

static void start(struct worker *w)
{
    static const struct front_ops ops = { .decide = decide, .done = done };
    struct err e = { 0 };

    w->loop = loop_new(&e);
    assert_non_null(w->loop);
    w->front = front_new(w->loop, &ops, w, NULL, &e);
    assert_non_null(w->front);
    assert_int_equal(front_listen(w->front, local_socket(true, &w->port), NULL, &e), 0);
    assert_int_equal(pthread_create(&w->thread, NULL, work, w), 0);
}

static void stop(struct worker *w)
{
    loop_stop(w->loop);
    assert_int_equal(pthread_join(w->thread, NULL), 0);
    front_free(w->front);
    loop_free(w->loop);
}

static void ask(int fd)
{
    static const char request[] = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    char got[512] = { 0 };
    size_t have = 0;
    ssize_t n;

    assert_int_equal(send(fd, request, sizeof(request) - 1, MSG_NOSIGNAL), sizeof(request) - 1);
    while (!strstr(got, "\r\n\r\n{}")) {
        n = recv(fd, got + have, sizeof(got) - 1 - have, 0);
        assert_true(n > 0);
        have += (size_t)n;
    }
    assert_contains(got, "HTTP/1.1 200 OK\r\n");
}

static void two_fronts_on_two_threads(void **state)
{
    struct worker far = { 0 };
    struct worker near = { 0 };
    int fds[2];
    int i;

    (void)state;
    start(&far);
    assert_int_equal(front_addr_ip(&near.to, "127.0.0.1", far.port), 0);
    start(&near);
    fds[0] = local_socket(false, &near.port);
    fds[1] = local_socket(false, &far.port);
    for (i = 0; i < REQUESTS; i++)
        ask(fds[i % 2]);
    (void)close(fds[0]);
    (void)close(fds[1]);
    stop(&near);
    stop(&far);
    assert_int_equal(near.done, REQUESTS / 2);
    assert_int_equal(far.done, REQUESTS);
}

int main(void)
{
    static const struct CMUnitTest tests[] = { cmocka_unit_test(two_fronts_on_two_threads) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
