/* What goes past libmicrohttpd: files that the front sends for it, bodies that a sink reads from the client's socket. */
#include "tests/unit/test.h"

#include "common/base/err.h"
#include "common/base/jobs.h"
#include "common/base/loop.h"
#include "common/base/macros.h"
#include "common/front/front.h"
#include "common/http/http.h"

#include <dirent.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { FILE_LEN = 3 << 20, FILE_OFF = 4097, BODY_LEN = 1 << 20 };

struct env {
    struct loop *loop;
    struct jobs *jobs;
    struct http_server *api;
    struct front *front;
    uint64_t promised; /* length of the file that the next answer names */
};

/* Of the sink. */
static atomic_int opens;
static atomic_int closes;
static atomic_size_t taken;
static atomic_ulong sum;

static unsigned long add(unsigned long s, const char *data, size_t len)
{
    size_t i;

    for (i = 0; i < len; i++)
        s = s * 31 + (unsigned char)data[i];
    return s;
}

static char pattern(size_t i)
{
    return (char)(i * 7 + i / 4096);
}

/* ---- the API ---- */

static int get_file(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    const struct env *env = app;
    size_t i;
    char *p;

    (void)rq;
    rs->file_fd = memfd_create("t", MFD_CLOEXEC);
    if (rs->file_fd < 0 || ftruncate(rs->file_fd, FILE_OFF + FILE_LEN) < 0)
        return err_nomem(e);
    p = mmap(NULL, FILE_OFF + FILE_LEN, PROT_READ | PROT_WRITE, MAP_SHARED, rs->file_fd, 0);
    assert_ptr_not_equal(p, MAP_FAILED);
    for (i = 0; i < FILE_LEN; i++)
        p[FILE_OFF + i] = pattern(i);
    (void)munmap(p, FILE_OFF + FILE_LEN);
    rs->file_off = FILE_OFF;
    rs->file_len = env->promised;
    rs->content_type = "text/x-test";
    return 0;
}

static int small(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    (void)app;
    return http_resp_json(rs, 200, strdup(http_req_header(rq, "Body") ? "\"seen\"" : "\"small\""),
                          e);
}

static int sink_open(void *app, struct http_req *rq, void **sink, struct err *e)
{
    (void)app, (void)e;
    atomic_fetch_add(&opens, 1);
    *sink = rq;
    return http_req_header(rq, "X-Refuse") ? err_set(e, ERRC_INVALID, "refused at open") : 0;
}

static int sink_write(void *sink, const char *data, size_t len, struct err *e)
{
    (void)sink;
    if (memmem(data, len, "bad", 3))
        return err_set(e, ERRC_INVALID, "refused in the middle");
    atomic_store(&sum, add(atomic_load(&sum), data, len));
    atomic_fetch_add(&taken, len);
    return 0;
}

static void sink_close(void *sink)
{
    (void)sink;
    atomic_fetch_add(&closes, 1);
}

static const struct http_sink sink = { sink_open, sink_write, sink_close };

static int put(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    char text[64];

    (void)app, (void)rq;
    (void)snprintf(text, sizeof(text), "\"%zu\"", atomic_load(&taken));
    return http_resp_json(rs, 200, strdup(text), e);
}

static const struct http_route routes[] = {
    { "GET", "/file", get_file, HTTP_OPEN | HTTP_BLOCKING, 0, NULL },
    { "GET", "/small", small, HTTP_OPEN, 0, NULL },
    { "POST", "/small", small, HTTP_OPEN, 64, NULL },
    { "POST", "/put", put, HTTP_OPEN | HTTP_BLOCKING, 0, &sink },
};

/* ---- the front ---- */

static ssize_t read_loan(void *arg, char *out, size_t cap, struct err *e)
{
    ssize_t n = front_loan_read(arg, out, cap);

    return n != -1 ? n : err_set(e, ERRC_INVALID, "broken body");
}

static void close_loan(void *arg)
{
    front_loan_close(arg);
}

static void decide(void *owner, struct front_req *rq)
{
    struct env *env = owner;
    struct http_source src = { .read = read_loan, .close = close_loan, .arg = front_lend(rq) };
    char *name = malloc(HTTP_NAME_MAX);

    assert_non_null(name);
    rq->user = name;
    name[0] = '\0';
    if (!src.arg) {
        front_internal(rq, NULL);
        return;
    }
    src.fd = front_loan_fd(src.arg);
    assert_int_equal(http_server_lend(env->api, &src, name), 0);
    front_internal_lent(rq, NULL, name);
}

static void done(void *owner, struct front_req *rq, const struct front_result *result)
{
    struct env *env = owner;

    (void)result;
    http_server_take_back(env->api, rq->user);
    free(rq->user);
}

static int internal(void *owner, struct err *e)
{
    return http_server_connect(((struct env *)owner)->api, e);
}

static int take_file(void *owner, const char *name, size_t len, struct front_file *out)
{
    struct http_file f;

    if (http_server_take_file(((struct env *)owner)->api, name, len, &f) < 0)
        return -1;
    *out = (struct front_file){ f.fd, f.off, f.len };
    return 0;
}

static int set_up(void **state)
{
    static const struct front_ops ops = {
        .decide = decide, .done = done, .internal = internal, .file = take_file
    };
    static const struct front_options opt = { .body_header = "Body", .file_header = "File" };
    static struct env env;
    struct http_service svc = { .app = &env,
                                .routes = routes,
                                .n_routes = ARRAY_LEN(routes),
                                .max_connections = 100,
                                .body_header = "Body",
                                .file_header = "File" };
    struct err e = { 0 };

    env = (struct env){ .promised = FILE_LEN };
    atomic_store(&opens, 0);
    atomic_store(&closes, 0);
    atomic_store(&taken, 0);
    atomic_store(&sum, 0);
    env.loop = loop_new(&e);
    env.jobs = jobs_new(2, 16, &e);
    assert_non_null(env.loop);
    assert_non_null(env.jobs);
    svc.jobs = env.jobs;
    env.api = http_server_new(env.loop, &svc, &e);
    assert_non_null(env.api);
    env.front = front_new(env.loop, &ops, &env, &opt, &e);
    assert_non_null(env.front);
    *state = &env;
    return 0;
}

static void free_api(struct env *env)
{
    jobs_free(env->jobs);
    env->jobs = NULL;
    http_server_free(env->api);
    env->api = NULL;
}

static int tear_down(void **state)
{
    struct env *env = *state;

    front_free(env->front);
    free_api(env);
    loop_free(env->loop);
    return 0;
}

static unsigned descriptors(void)
{
    DIR *d = opendir("/proc/self/fd");
    unsigned n = 0;

    assert_non_null(d);
    while (readdir(d))
        n++;
    (void)closedir(d);
    return n;
}

static int connect_client(struct env *env)
{
    struct sockaddr peer = { .sa_family = AF_UNIX };
    struct err e = { 0 };
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    assert_int_equal(front_adopt(env->front, fds[1], &peer, sizeof(peer), NULL, &e), 0);
    return fds[0];
}

static void step(struct env *env)
{
    struct err e = { 0 };

    assert_int_equal(loop_step(env->loop, 10, &e), 0);
}

static void say(struct env *env, int fd, const char *data, size_t len)
{
    ssize_t n = 0;

    for (; len; data += n, len -= (size_t)n)
        TEST_UNTIL((n = send(fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL)) > 0, step(env));
}

#define SAY(env, fd, text) say((env), (fd), (text), strlen(text))

/* Reads one response: the head into text, the body's length and sum. */
static size_t hear(struct env *env, int fd, char text[4096], unsigned long *body_sum)
{
    static char block[1 << 16];
    size_t head = 0;
    size_t left = 0;
    size_t want = 0;
    ssize_t n = 0;
    const char *at;

    for (; head < 4 || memcmp(text + head - 4, "\r\n\r\n", 4) != 0; head++) {
        assert_true(head < 4095);
        TEST_UNTIL((n = recv(fd, text + head, 1, MSG_DONTWAIT)) >= 0, step(env));
        assert_int_equal(n, 1);
    }
    text[head] = '\0';
    at = strcasestr(text, "Content-Length: ");
    assert_non_null(at);
    for (at += 16; *at >= '0' && *at <= '9'; at++)
        want = want * 10 + (size_t)(*at - '0');
    left = want;
    for (*body_sum = 0; left; left -= (size_t)n) {
        TEST_UNTIL(
            (n = recv(fd, block, left < sizeof(block) ? left : sizeof(block), MSG_DONTWAIT)) >= 0,
            step(env));
        if (n == 0)
            return want - left;
        *body_sum = add(*body_sum, block, (size_t)n);
    }
    return want;
}

static void closes_now(struct env *env, int fd)
{
    char c;

    TEST_UNTIL(recv(fd, &c, 1, MSG_DONTWAIT) == 0, step(env));
    (void)close(fd);
}

/* ---- files ---- */

static void a_file_is_sent_by_the_front(void **state)
{
    struct env *env = *state;
    int c = connect_client(env);
    unsigned long want = 0;
    unsigned long got;
    char head[4096];
    size_t i;
    char ch;

    for (i = 0; i < FILE_LEN; i++) {
        ch = pattern(i);
        want = add(want, &ch, 1);
    }
    for (i = 0; i < 2; i++) {
        SAY(env, c, "GET /file HTTP/1.1\r\nHost: h\r\n\r\nGET /small HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_int_equal(hear(env, c, head, &got), FILE_LEN);
        assert_true(got == want);
        assert_contains(head, "Content-Type: text/x-test\r\n");
        assert_null(strcasestr(head, "\nFile:"));
        assert_int_equal(hear(env, c, head, &got), 7);
    }
    (void)close(c);
}

static void head_has_the_length_only(void **state)
{
    struct env *env = *state;
    int c = connect_client(env);
    unsigned long got;
    char head[4096];
    size_t have = 0;
    ssize_t n;

    SAY(env, c, "HEAD /file HTTP/1.1\r\nHost: h\r\n\r\n");
    for (head[0] = '\0'; !strstr(head, "\r\n\r\n"); head[have] = '\0') {
        TEST_UNTIL((n = recv(c, head + have, sizeof(head) - 1 - have, MSG_DONTWAIT)) >= 0,
                   step(env));
        assert_true(n > 0);
        have += (size_t)n;
    }
    assert_contains(head, "Content-Length: 3145728\r\n");
    SAY(env, c, "GET /small HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(hear(env, c, head, &got), 7);
    (void)close(c);
}

static void a_file_that_is_shorter_ends_the_connection(void **state)
{
    struct env *env = *state;
    int c = connect_client(env);
    unsigned long got;
    char head[4096];

    env->promised = FILE_LEN + (16 << 20);
    SAY(env, c, "GET /file HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_true(hear(env, c, head, &got) < env->promised);
    (void)close(c);
}

static void clients_that_leave_keep_no_file_open(void **state)
{
    struct env *env = *state;
    unsigned before;
    char head[4096];
    ssize_t n;
    int c;
    int i;

    c = connect_client(env);
    SAY(env, c, "GET /small HTTP/1.1\r\nHost: h\r\n\r\n");
    TEST_UNTIL(recv(c, head, sizeof(head), MSG_DONTWAIT) > 0, step(env));
    (void)close(c);
    TEST_UNTIL(front_stats(env->front)->clients == 0, step(env));
    before = descriptors();
    for (i = 0; i < 20; i++) {
        c = connect_client(env);
        SAY(env, c, "GET /file HTTP/1.1\r\nHost: h\r\n\r\n");
        if (i % 2) /* in the middle; else before anything came */
            TEST_UNTIL((n = recv(c, head, sizeof(head), MSG_DONTWAIT)) > 0, step(env));
        (void)close(c);
    }
    TEST_UNTIL(front_stats(env->front)->clients == 0 && descriptors() <= before, step(env));
}

/* ---- bodies ---- */

static char *body(void)
{
    char *p = malloc(BODY_LEN);
    size_t i;

    assert_non_null(p);
    for (i = 0; i < BODY_LEN; i++)
        p[i] = pattern(i);
    return p;
}

static void chunk(struct env *env, int c, const char *data, size_t len)
{
    char line[32];

    (void)snprintf(line, sizeof(line), "%zx;ext=1\r\n", len);
    SAY(env, c, line);
    say(env, c, data, len);
    SAY(env, c, "\r\n");
}

static void bodies_are_read_where_they_come_in(void **state)
{
    struct env *env = *state;
    char *data = body();
    const unsigned long want = add(0, data, BODY_LEN);
    unsigned long got;
    char head[4096];
    size_t at;
    size_t n;
    int c = connect_client(env);

    SAY(env, c, "POST /put HTTP/1.1\r\nHost: h\r\nContent-Length: 1048576\r\n\r\n");
    say(env, c, data, BODY_LEN);
    SAY(env, c, "GET /small HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(hear(env, c, head, &got), 9);
    assert_int_equal(atomic_load(&taken), BODY_LEN);
    assert_true(atomic_load(&sum) == want);
    assert_int_equal(hear(env, c, head, &got), 7);

    atomic_store(&taken, 0);
    atomic_store(&sum, 0);
    SAY(env, c, "POST /put HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (at = 0, n = 1; at < BODY_LEN; at += n, n = (n * 5 + 3) % 70000 + 1) {
        n = n < BODY_LEN - at ? n : BODY_LEN - at;
        chunk(env, c, data + at, n);
    }
    SAY(env, c, "0\r\nTrailer: x\r\n\r\nGET /small HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(hear(env, c, head, &got), 9);
    assert_int_equal(atomic_load(&taken), BODY_LEN);
    assert_true(atomic_load(&sum) == want);
    assert_int_equal(hear(env, c, head, &got), 7);
    TEST_UNTIL(atomic_load(&closes) == 2, step(env));
    free(data);
    (void)close(c);
}

static void short_chunked_bodies_with_their_head(void **state)
{
    struct env *env = *state;
    int c = connect_client(env);
    unsigned long got;
    char head[4096];
    int i;

    for (i = 0; i < 3; i++)
        SAY(env, c,
            "POST /put HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
    for (i = 0; i < 3; i++)
        assert_true(hear(env, c, head, &got) == 3);
    assert_int_equal(atomic_load(&taken), 9);
    (void)close(c);
}

static void clients_cannot_name_a_source(void **state)
{
    struct env *env = *state;
    int c = connect_client(env);
    unsigned long got;
    char head[4096];

    SAY(env, c, "POST /small HTTP/1.1\r\nHost: h\r\nBody: 1\r\nContent-Length: 2\r\n\r\nab");
    assert_int_equal(hear(env, c, head, &got), 7); /* not "seen" */
    (void)close(c);
}

static void refusals_come_after_the_body(void **state)
{
    static const char *const heads[] = {
        "POST /put HTTP/1.1\r\nHost: h\r\nX-Refuse: 1\r\nContent-Length: 1048576\r\n\r\n",
        "POST /put HTTP/1.1\r\nHost: h\r\nContent-Length: 1048576\r\n\r\n",
        "POST /nowhere HTTP/1.1\r\nHost: h\r\nContent-Length: 1048576\r\n\r\n",
    };
    struct env *env = *state;
    char *data = body();
    int c = connect_client(env);
    unsigned long got;
    char head[4096];
    unsigned i;

    memcpy(data + 1000, "bad", 3);
    for (i = 0; i < ARRAY_LEN(heads); i++) {
        SAY(env, c, heads[i]);
        say(env, c, data, BODY_LEN);
        (void)hear(env, c, head, &got);
        assert_contains(head, i < 2 ? "HTTP/1.1 400 " : "HTTP/1.1 404 ");
    }
    SAY(env, c, "GET /small HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(hear(env, c, head, &got), 7);
    free(data);
    (void)close(c);
}

static void a_route_without_a_sink_ends_the_connection(void **state)
{
    struct env *env = *state;
    int c = connect_client(env);
    unsigned long got;
    char head[4096];

    SAY(env, c, "POST /small HTTP/1.1\r\nHost: h\r\nContent-Length: 1048576\r\n\r\nab");
    assert_int_equal(hear(env, c, head, &got), 6); /* "seen": its header is there */
    closes_now(env, c);
}

static void broken_chunks_are_told(void **state)
{
    struct env *env = *state;
    int c = connect_client(env);
    unsigned long got;
    char head[4096];

    SAY(env, c, "POST /put HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabX");
    (void)hear(env, c, head, &got);
    assert_contains(head, "HTTP/1.1 400 ");
    closes_now(env, c);
    TEST_UNTIL(atomic_load(&closes) == atomic_load(&opens), step(env));
}

static void a_client_that_leaves_ends_its_sink(void **state)
{
    struct env *env = *state;
    unsigned before = 0;
    int round;
    int c;

    for (round = 0; round < 6; round++) {
        c = connect_client(env);
        SAY(env, c, "POST /put HTTP/1.1\r\nHost: h\r\nContent-Length: 1048576\r\n\r\nsome");
        TEST_UNTIL(atomic_load(&taken) == 4 * (size_t)(round + 1), step(env));
        (void)close(c);
        TEST_UNTIL(atomic_load(&closes) == round + 1 && front_stats(env->front)->clients == 0,
                   step(env));
        if (round == 0)
            before = descriptors();
    }
    TEST_UNTIL(descriptors() <= before, step(env));
}

static void a_server_that_ends_lets_go(void **state)
{
    struct env *env = *state;
    int c = connect_client(env);

    SAY(env, c, "POST /put HTTP/1.1\r\nHost: h\r\nContent-Length: 1048576\r\n\r\nsome");
    TEST_UNTIL(atomic_load(&taken) == 4, step(env));
    front_free(env->front);
    env->front = NULL;
    free_api(env);
    assert_int_equal(atomic_load(&closes), 1);
    (void)close(c);
}

#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        T(a_file_is_sent_by_the_front),
        T(head_has_the_length_only),
        T(a_file_that_is_shorter_ends_the_connection),
        T(clients_that_leave_keep_no_file_open),
        T(bodies_are_read_where_they_come_in),
        T(short_chunked_bodies_with_their_head),
        T(clients_cannot_name_a_source),
        T(refusals_come_after_the_body),
        T(a_route_without_a_sink_ends_the_connection),
        T(broken_chunks_are_told),
        T(a_client_that_leaves_ends_its_sink),
        T(a_server_that_ends_lets_go),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
