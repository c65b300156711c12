#include "tests/unit/common/support/http_env.h"

#include "common/base/jobs.h"
#include "common/base/listen.h"
#include "common/base/loop.h"
#include "common/base/num.h"
#include "tests/unit/test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* ---- server ---- */

static void *run_loop(void *arg)
{
    struct http_env *env = arg;

    (void)loop_run(env->loop, &env->e);
    return NULL;
}

void http_env_start(struct http_env *env, const struct http_service *svc, unsigned threads,
                    size_t queue_max)
{
    struct http_service full = *svc;
    int fd = -1;

    *env = (struct http_env){ 0 };
    env->loop = loop_new(&env->e);
    env->jobs = jobs_new(threads, queue_max, &env->e);
    assert_non_null(env->loop);
    assert_non_null(env->jobs);
    full.jobs = env->jobs;
    if (!full.max_connections)
        full.max_connections = 64;
    if (!full.idle_timeout_s)
        full.idle_timeout_s = 30;
    env->server = http_server_new(env->loop, &full, &env->e);
    assert_non_null(env->server);
    assert_int_equal(listen_tcp("127.0.0.1", 0, 128, &fd, &env->port, &env->e), 0);
    assert_int_equal(http_server_listen(env->server, fd, &env->e), 0);
    assert_int_equal(pthread_create(&env->thread, NULL, run_loop, env), 0);
    env->running = true;
}

void http_env_halt(struct http_env *env)
{
    if (!env->running)
        return;
    loop_stop(env->loop);
    pthread_join(env->thread, NULL);
    env->running = false;
}

void http_env_stop(struct http_env *env)
{
    http_env_halt(env);
    jobs_free(env->jobs);
    http_server_free(env->server);
    loop_free(env->loop);
    *env = (struct http_env){ 0 };
}

void http_env_wait(sem_t *sem)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    ts.tv_sec += TEST_DEADLINE_MS / 1000;
    while (sem_timedwait(sem, &ts) < 0)
        if (errno != EINTR)
            fail_msg("%s", "the event did not come before the deadline");
}

struct call {
    struct loop_call post;
    void (*fn)(void *arg);
    void *arg;
    sem_t done;
};

static void run_call(void *arg)
{
    struct call *c = arg;

    c->fn(c->arg);
    sem_post(&c->done);
}

void http_env_call(struct http_env *env, void (*fn)(void *arg), void *arg)
{
    struct call c = { .fn = fn, .arg = arg };

    sem_init(&c.done, 0, 0);
    c.post = (struct loop_call){ .fn = run_call, .arg = &c };
    loop_post(env->loop, &c.post);
    http_env_wait(&c.done);
    sem_destroy(&c.done);
}

/* ---- client ---- */

void client_open(struct client *c, const struct http_env *env)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(env->port) };
    struct timeval limit = { .tv_sec = TEST_DEADLINE_MS / 1000 };
    int one = 1;

    *c = (struct client){ .fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) };
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(c->fd >= 0);
    (void)setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    (void)setsockopt(c->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    (void)setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    assert_int_equal(connect(c->fd, (struct sockaddr *)&to, sizeof(to)), 0);
}

void client_close(struct client *c)
{
    if (c->fd >= 0)
        close(c->fd);
    free(c->mem);
    *c = (struct client){ .fd = -1 };
}

/* A server may close before it has read everything: that shows in the reply, not here. */
void client_send(struct client *c, const void *data, size_t len)
{
    const char *p = data;
    ssize_t n;

    while (len > 0) {
        n = send(c->fd, p, len, MSG_NOSIGNAL);
        if (n < 0 && (errno == EPIPE || errno == ECONNRESET))
            return;
        if (n <= 0)
            fail_msg("%s", "the server does not take the request");
        p += n;
        len -= (size_t)n;
    }
}

void client_text(struct client *c, const char *text)
{
    client_send(c, text, strlen(text));
}

void client_request(struct client *c, const char *first, const char *headers, const char *body)
{
    size_t cap = strlen(first) + strlen(headers) + 200;
    char *head = malloc(cap);
    int n;

    assert_non_null(head);
    n = snprintf(head, cap, "%s HTTP/1.1\r\nHost: t\r\n%s", first, headers);
    if (body)
        n += snprintf(head + n, cap - (size_t)n, "Content-Length: %zu\r\n", strlen(body));
    n += snprintf(head + n, cap - (size_t)n, "\r\n");
    client_send(c, head, (size_t)n);
    free(head);
    if (body)
        client_text(c, body);
}

/* One recv; 0 at the end (a reset counts as one). */
static int more(struct client *c)
{
    ssize_t n;

    if (c->in_len && c->in != c->mem)
        memmove(c->mem, c->in, c->in_len);
    if (c->cap - c->in_len < 65536) {
        c->cap = c->cap ? 2 * c->cap : 131072;
        c->mem = realloc(c->mem, c->cap);
        assert_non_null(c->mem);
    }
    c->in = c->mem;
    n = recv(c->fd, c->in + c->in_len, c->cap - c->in_len - 1, 0);
    if (n < 0 && errno == EAGAIN)
        fail_msg("no answer before the deadline, received %zu bytes so far", c->in_len);
    if (n <= 0)
        return 0;
    c->in_len += (size_t)n;
    c->in[c->in_len] = '\0';
    return 1;
}

int client_wait(struct client *c, size_t len)
{
    while (c->in_len < len)
        if (!more(c))
            return 0;
    return 1;
}

bool client_at_end(struct client *c)
{
    return c->in_len == 0 && !more(c);
}

static void take(struct client *c, size_t len)
{
    c->in += len;
    c->in_len -= len;
}

/* Length of what ends with the mark, waiting for it; 0 at the end of the connection. */
static size_t read_to(struct client *c, const char *mark)
{
    size_t n = strlen(mark);
    char *at = NULL;

    while (!c->in_len || !(at = memmem(c->in, c->in_len, mark, n)))
        if (!more(c))
            return 0;
    return (size_t)(at - c->in) + n;
}

static void add_body(struct client *c, struct reply *r, size_t len)
{
    if (r->body_len + len + 1 > r->body_cap) {
        r->body_cap = 2 * (r->body_len + len + 1);
        r->body = realloc(r->body, r->body_cap);
        assert_non_null(r->body);
    }
    if (len)
        memcpy(r->body + r->body_len, c->in, len);
    r->body_len += len;
    r->body[r->body_len] = '\0';
}

static size_t hex(const char *s)
{
    size_t n = 0;

    for (; strchr("0123456789abcdef", *s | 0x20) && *s != '\r'; s++)
        n = n * 16 + (size_t)(*s <= '9' ? *s - '0' : (*s | 0x20) - 'a' + 10);
    return n;
}

/* True when the last chunk came. */
static bool chunked(struct client *c, struct reply *r)
{
    size_t len;
    size_t line;

    for (;;) {
        line = read_to(c, "\r\n");
        if (!line)
            return false;
        len = hex(c->in);
        take(c, line);
        if (!client_wait(c, len + 2)) {
            add_body(c, r, c->in_len < len ? c->in_len : len);
            return false;
        }
        add_body(c, r, len);
        take(c, len + 2);
        if (!len)
            return true;
    }
}

static bool read_body(struct client *c, struct reply *r)
{
    const char *text = reply_header(r, "Content-Length");
    const char *coding;
    int64_t len;

    if (text) {
        assert_int_equal(num_parse_i64(text, 0, INT64_MAX, &len), 0);
        if (!client_wait(c, (size_t)len)) {
            add_body(c, r, c->in_len);
            return false;
        }
        add_body(c, r, (size_t)len);
        take(c, (size_t)len);
        return true;
    }
    coding = reply_header(r, "Transfer-Encoding");
    if (coding && strcmp(coding, "chunked") == 0)
        return chunked(c, r);
    while (more(c))
        ;
    add_body(c, r, c->in_len);
    take(c, c->in_len);
    return true;
}

void client_reply(struct client *c, bool head_only, struct reply *r)
{
    size_t len = read_to(c, "\r\n\r\n");
    int64_t status = 0;
    char digits[4] = "";

    *r = (struct reply){ 0 };
    if (!len)
        return;
    r->head = malloc(len + 1);
    assert_non_null(r->head);
    memcpy(r->head, c->in, len);
    r->head[len] = '\0';
    take(c, len);
    assert_memory_equal(r->head, "HTTP/1.", 7);
    memcpy(digits, r->head + 9, 3);
    assert_int_equal(num_parse_i64(digits, 100, 599, &status), 0);
    r->status = (int)status;
    r->clean = head_only || status == 204 || status == 304 || status == 100 || read_body(c, r);
}

void reply_free(struct reply *r)
{
    free(r->head);
    free(r->body);
    *r = (struct reply){ 0 };
}

static const char *find_header(const char *at, const char *name)
{
    size_t n = strlen(name);

    for (at = strstr(at, "\r\n"); at; at = strstr(at + 2, "\r\n"))
        if (strncasecmp(at + 2, name, n) == 0 && at[2 + n] == ':')
            return at + 2 + n + 1;
    return NULL;
}

const char *reply_header(const struct reply *r, const char *name)
{
    static char value[8192];
    const char *at = r->head ? find_header(r->head, name) : NULL;

    if (!at)
        return NULL;
    at += strspn(at, " ");
    (void)snprintf(value, sizeof(value), "%.*s", (int)strcspn(at, "\r"), at);
    return value;
}

unsigned reply_header_count(const struct reply *r, const char *name)
{
    const char *at = r->head;
    unsigned n = 0;

    while (at && (at = find_header(at, name)))
        n++;
    return n;
}

void http_once(const struct http_env *env, const char *first, const char *headers, const char *body,
               struct reply *r)
{
    struct client c;

    client_open(&c, env);
    client_request(&c, first, headers, body);
    client_reply(&c, strncmp(first, "HEAD ", 5) == 0, r);
    client_close(&c);
}
