#include "tests/unit/common/support/front_env.h"

#include "tests/unit/test.h"

#include "common/base/err.h"
#include "common/base/loop.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int64_t fake_ms;

static int64_t fake_mono_ms(void)
{
    return fake_ms;
}

static const struct clock fake_clock = { fake_mono_ms, fake_mono_ms };

/* ---- the owner ---- */

static bool starts(const struct front_req *rq, const char *prefix)
{
    size_t len = strlen(prefix);

    return rq->head->path.len >= len &&
           memcmp(head_text(rq->head, rq->head->path), prefix, len) == 0;
}

static void decide(void *owner, struct front_req *rq)
{
    static const struct rules_field id[] = { { "X-Id", "7" } };
    static const struct rules_edit edit = { NULL, id, 1 };
    static const struct front_answer teapot = { .status = 404, .code = "NO", .message = "a \"b\"" };
    struct fe *fe = owner;

    fe->decided++;
    rq->user = fe;
    if (starts(rq, "/internal")) {
        front_internal(rq, &edit);
    } else if (starts(rq, "/park")) {
        fe->parked = rq;
        front_park(rq, 1000);
    } else if (starts(rq, "/no")) {
        front_answer(rq, &teapot);
    } else {
        front_proxy(rq, &fe->proxy);
    }
}

static void done(void *owner, struct front_req *rq, const struct front_result *result)
{
    struct fe *fe = owner;

    assert_ptr_equal(rq->user, fe);
    fe->done++;
    fe->last = *result;
    if (rq == fe->parked) {
        fe->parked = NULL;
        fe->done_parked++;
    }
}

static int internal(void *owner, struct err *e)
{
    struct fe *fe = owner;
    int fds[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0)
        return err_sys(e, errno, "socketpair");
    assert_true(fe->n_inner < 8);
    fe->inner[fe->n_inner++] = fds[1];
    return fds[0];
}

static size_t stamp(void *owner, char *out, size_t cap)
{
    (void)owner, (void)cap;
    memcpy(out, "X-Id: 0\r\n", 9);
    return 9;
}

/* ---- life ---- */

static int listen_local(uint16_t *port)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, len), 0);
    assert_int_equal(listen(fd, 128), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
    *port = ntohs(a.sin_port);
    return fd;
}

struct fe *fe_new(const struct front_options *options)
{
    static const struct front_ops ops = {
        .decide = decide, .done = done, .internal = internal, .stamp = stamp
    };
    struct front_options o = { 0 };
    struct fe *fe = calloc(1, sizeof(*fe));
    struct err e = { 0 };

    assert_non_null(fe);
    if (options)
        o = *options;
    fake_ms = 1000;
    o.clock = &fake_clock;
    o.peer_header = "Peer";
    fe->loop = loop_new(&e);
    assert_non_null(fe->loop);
    fe->front = front_new(fe->loop, &ops, fe, &o, &e);
    assert_non_null(fe->front);
    assert_int_equal(front_listen(fe->front, listen_local(&fe->port), fe, &e), 0);
    fe->backend_fd = listen_local(&fe->backend_port);
    assert_int_equal(front_addr_ip(&fe->to, "127.0.0.1", fe->backend_port), 0);
    fe->proxy.to = &fe->to;
    return fe;
}

void fe_free(struct fe *fe)
{
    unsigned i;

    front_free(fe->front);
    assert_int_equal(fe->done, fe->decided); /* one for each, whatever happened */
    loop_free(fe->loop);
    for (i = 0; i < fe->n_inner; i++)
        fe_close(fe->inner[i]);
    fe_close(fe->backend_fd);
    free(fe);
}

void fe_advance(struct fe *fe, int64_t ms)
{
    fake_ms += ms;
    front_expire(fe->front);
}

void fe_step(struct fe *fe)
{
    struct err e = { 0 };

    assert_int_equal(loop_step(fe->loop, 10, &e), 0);
}

void fe_settle(struct fe *fe)
{
    struct err e = { 0 };
    int i;

    for (i = 0; i < 20; i++)
        assert_int_equal(loop_step(fe->loop, 0, &e), 0);
}

unsigned fe_sockets(const struct fe *fe)
{
    const struct front_stats *s = front_stats(fe->front);

    return s->clients + s->backends;
}

/* ---- peers ---- */

static void set_buffers(const struct fe *fe, int fd)
{
    if (fe->socket_buffer <= 0)
        return;
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &fe->socket_buffer, sizeof(int));
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &fe->socket_buffer, sizeof(int));
}

int fe_connect(struct fe *fe)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_port = htons(fe->port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    set_buffers(fe, fd);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    return fd;
}

int fe_accept(struct fe *fe)
{
    int fd = -1;

    TEST_UNTIL((fd = accept4(fe->backend_fd, NULL, NULL, SOCK_CLOEXEC)) >= 0, fe_step(fe));
    set_buffers(fe, fd);
    return fd;
}

bool fe_none_waiting(struct fe *fe)
{
    struct pollfd p = { .fd = fe->backend_fd, .events = POLLIN };

    fe_settle(fe);
    return poll(&p, 1, 0) == 0;
}

void fe_send_bytes(struct fe *fe, int fd, const char *data, size_t len)
{
    ssize_t n = 0;

    while (len) {
        TEST_UNTIL((n = send(fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL)) > 0, fe_step(fe));
        data += n;
        len -= (size_t)n;
    }
}

void fe_send(struct fe *fe, int fd, const char *text)
{
    fe_send_bytes(fe, fd, text, strlen(text));
}

static ssize_t receive(struct fe *fe, int fd, char *to, size_t len)
{
    ssize_t n = 0;

    TEST_UNTIL((n = recv(fd, to, len, MSG_DONTWAIT)) >= 0 || errno != EAGAIN, fe_step(fe));
    return n;
}

void fe_expect(struct fe *fe, int fd, const char *text)
{
    char got[FE_TEXT];
    size_t want = strlen(text);
    size_t have = 0;
    ssize_t n;

    assert_true(want < sizeof(got));
    while (have < want) {
        n = receive(fe, fd, got + have, want - have);
        if (n <= 0)
            fail_msg("ended after \"%.*s\"", (int)have, got);
        have += (size_t)n;
    }
    got[have] = '\0';
    assert_string_equal(got, text);
}

const char *fe_until(struct fe *fe, int fd, const char *end)
{
    static char got[FE_TEXT];
    size_t len = strlen(end);
    size_t have = 0;

    while (have < len || memcmp(got + have - len, end, len) != 0) {
        assert_true(have + 1 < sizeof(got));
        got[have + 1] = '\0';
        if (receive(fe, fd, got + have, 1) != 1)
            fail_msg("ended after \"%.*s\"", (int)have, got);
        have++;
    }
    got[have] = '\0';
    return got;
}

bool fe_end(struct fe *fe, int fd)
{
    char byte;
    ssize_t n = receive(fe, fd, &byte, 1);

    if (n > 0)
        fail_msg("there is \"%c\" instead of the end", byte);
    return n == 0;
}

bool fe_quiet(struct fe *fe, int fd)
{
    char byte;

    fe_settle(fe);
    return recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && errno == EAGAIN;
}

void fe_close(int fd)
{
    (void)close(fd);
}

void fe_reset(int fd)
{
    struct linger hard = { .l_onoff = 1 };

    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
    (void)close(fd);
}
