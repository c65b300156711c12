#include "tests/fakes/fake_docker.h"

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "tests/fakes/fake_things.h"

#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { RULES = 32, CALLS = 4096, CONNS = 256, HEAD_MAX = 64 << 10 };

struct rule {
    struct fake_rule r;
    char *strings[4];
    int seen;
};

struct call {
    char line[1100]; /* "METHOD /path" */
    char *body;
};

struct conn {
    struct fake_docker *f;
    pthread_t thread;
    int fd;
    bool used;
};

struct fake_docker {
    char dir[64];
    char socket[96];
    char api[16];
    char spoken[16]; /* guarded */
    pthread_t acceptor;
    pthread_mutex_t guard; /* guards all below */
    int listener;
    bool stopping;
    struct conn conns[CONNS];
    size_t n_conns;
    struct rule rules[RULES];
    size_t n_rules;
    struct call calls[CALLS];
    size_t n_calls;
    struct things things;
    fake_model_fn model;
    void *model_arg;
};

/* ---- rules ---- */

static bool fits(struct rule *r, const struct ask *a)
{
    const struct fake_rule *q = &r->r;

    if ((q->method && strcmp(q->method, a->method) != 0) ||
        (q->path && strncmp(q->path, a->path, strlen(q->path)) != 0) ||
        (q->part && !strstr(a->path, q->part)))
        return false;
    r->seen++;
    return r->seen > q->skip && (!q->times || r->seen <= q->skip + q->times);
}

/* Copies the rule that decides; how FAKE_PASS when none does. */
static struct fake_rule decide(struct fake_docker *f, const struct ask *a)
{
    size_t i;

    for (i = f->n_rules; i > 0; i--)
        if (fits(&f->rules[i - 1], a))
            return f->rules[i - 1].r;
    return (struct fake_rule){ .how = FAKE_PASS };
}

void fake_docker_rule(struct fake_docker *f, const struct fake_rule *r)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&f->guard);
    struct rule *n;

    if (f->n_rules == RULES)
        abort();
    n = &f->rules[f->n_rules++];
    *n = (struct rule){ .r = *r };
    n->r.method = n->strings[0] = r->method ? strdup(r->method) : NULL;
    n->r.path = n->strings[1] = r->path ? strdup(r->path) : NULL;
    n->r.part = n->strings[2] = r->part ? strdup(r->part) : NULL;
    n->r.body_len = r->body_len ? r->body_len : strlen(r->body ? r->body : "");
    n->r.body = n->strings[3] = calloc(1, n->r.body_len + 1);
    if (r->body)
        memcpy(n->strings[3], r->body, n->r.body_len);
}

void fake_docker_no_rules(struct fake_docker *f)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&f->guard);
    size_t k;

    while (f->n_rules > 0) {
        f->n_rules--;
        for (k = 0; k < 4; k++)
            free(f->rules[f->n_rules].strings[k]);
    }
}

/* ---- connections ---- */

static bool read_some(int fd, struct buf *b)
{
    char *at = buf_reserve(b, 65536);
    ssize_t n = at ? recv(fd, at, 65536, 0) : -1;

    if (n <= 0)
        return false;
    b->len += (size_t)n;
    b->data[b->len] = '\0';
    return true;
}

/* One request; what follows it stays in b. */
static bool read_ask(int fd, struct buf *b, struct ask *a)
{
    const char *end;
    const char *cl;
    size_t head;
    size_t len;
    const char *path = a->path;
    char full[1024];

    while (!b->data || !(end = strstr(b->data, "\r\n\r\n")))
        if (!read_some(fd, b))
            return false;
    head = (size_t)(end - b->data) + 4;
    cl = strcasestr(b->data, "\r\ncontent-length:");
    len = 0;
    if (cl && cl < end && sscanf(cl + 17, "%zu", &len) != 1)
        return false;
    while (b->len < head + len)
        if (!read_some(fd, b))
            return false;
    if (sscanf(b->data, "%15s %1023s", a->method, full) != 2)
        return false;
    path = full;
    if (strncmp(path, "/v1.", 4) == 0) {
        (void)snprintf(a->version, sizeof(a->version), "%.*s", (int)strcspn(path + 2, "/"),
                       path + 2);
        path = strchr(path + 1, '/');
    }
    (void)snprintf(a->path, sizeof(a->path), "%s", path ? path : "/");
    (void)buf_append(&a->body, b->data + head, len);
    buf_consume(b, head + len);
    return true;
}

static bool send_all(int fd, const char *p, size_t len)
{
    ssize_t n;

    for (; len > 0; p += n, len -= (size_t)n) {
        n = send(fd, p, len, MSG_NOSIGNAL);
        if (n <= 0)
            return false;
    }
    return true;
}

static bool send_reply(int fd, const char *api, const struct ask *a, bool cut)
{
    AUTO_BUF struct buf out = BUF_INIT(BODY_MAX);

    (void)buf_printf(&out, "HTTP/1.1 %d X\r\n", a->status);
    if (*api)
        (void)buf_printf(&out, "Api-Version: %s\r\n", api);
    if (a->status != 204 && a->status != 304)
        (void)buf_printf(&out, "Content-Length: %zu\r\n", a->reply.len);
    (void)buf_puts(&out, "\r\n");
    if (a->status != 204 && a->reply.len)
        (void)buf_append(&out, a->reply.data, cut ? a->reply.len / 2 : a->reply.len);
    return send_all(fd, out.data, out.len) && !cut;
}

static void record(struct fake_docker *f, const struct ask *a)
{
    struct call *c;

    if (f->n_calls == CALLS)
        abort();
    c = &f->calls[f->n_calls++];
    (void)snprintf(c->line, sizeof(c->line), "%s %s", a->method, a->path);
    memcpy(f->spoken, a->version, sizeof(f->spoken));
    c->body = strndup(a->body.data ? a->body.data : "", 32768);
}

/* Ends early when the engine is stopped: a call may hang "for ever". */
static void rest(struct fake_docker *f, int ms)
{
    const struct timespec nap = { .tv_nsec = 5000000L };
    const int64_t until = clock_mono_ms() + ms;
    bool stop = false;

    while (!stop && clock_mono_ms() < until) {
        (void)nanosleep(&nap, NULL);
        (void)pthread_mutex_lock(&f->guard);
        stop = f->stopping;
        (void)pthread_mutex_unlock(&f->guard);
    }
}

static void drop_all(struct fake_docker *f) /* caller holds the lock */
{
    size_t i;

    if (f->listener >= 0)
        (void)close(f->listener);
    f->listener = -1;
    (void)unlink(f->socket);
    for (i = 0; i < f->n_conns; i++)
        if (f->conns[i].fd >= 0)
            (void)shutdown(f->conns[i].fd, SHUT_RDWR);
}

void fake_docker_model(struct fake_docker *f, fake_model_fn fn, void *arg)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&f->guard);

    f->model = fn;
    f->model_arg = arg;
}

static enum fake_answer ask_model(struct fake_docker *f, int fd, struct ask *a)
{
    struct fake_call c = { .method = a->method,
                           .path = a->path,
                           .body = a->body.data ? a->body.data : "",
                           .body_len = a->body.len,
                           .fd = fd,
                           .status = 200,
                           .reply = &a->reply };
    enum fake_answer rc = f->model ? f->model(f->model_arg, &c) : FAKE_NOT_MINE;

    a->status = c.status;
    return rc;
}

/* False: the connection is to be closed. */
static bool serve_one(struct fake_docker *f, int fd, struct ask *a)
{
    struct fake_rule r;
    enum fake_answer modelled = FAKE_NOT_MINE;
    char api[16];

    (void)pthread_mutex_lock(&f->guard);
    record(f, a);
    r = decide(f, a);
    memcpy(api, f->api, sizeof(api));
    if (r.how == FAKE_DIE)
        drop_all(f);
    (void)pthread_mutex_unlock(&f->guard);
    if (r.delay_ms)
        rest(f, r.delay_ms);
    if (r.how == FAKE_CLOSE || r.how == FAKE_DIE)
        return false;
    if (r.how != FAKE_REPLY)
        modelled = ask_model(f, fd, a);
    if (modelled == FAKE_TAKEN)
        return false;
    (void)pthread_mutex_lock(&f->guard);
    if (r.how == FAKE_REPLY)
        ask_say_bytes(a, r.status, r.body, r.body_len);
    else if (modelled == FAKE_NOT_MINE)
        things_answer(&f->things, a);
    (void)pthread_mutex_unlock(&f->guard);
    if (r.how == FAKE_CARRIED)
        return false;
    return send_reply(fd, api, a, r.how == FAKE_TRUNCATE);
}

static void *serve(void *arg)
{
    struct conn *c = arg;
    struct buf b = BUF_INIT(BODY_MAX + HEAD_MAX);
    bool more = true;

    while (more) {
        struct ask a = { .body = BUF_INIT(BODY_MAX), .reply = BUF_INIT(BODY_MAX) };

        more = read_ask(c->fd, &b, &a) && serve_one(c->f, c->fd, &a);
        buf_free(&a.body);
        buf_free(&a.reply);
    }
    buf_free(&b);
    (void)pthread_mutex_lock(&c->f->guard);
    (void)close(c->fd);
    c->fd = -1;
    (void)pthread_mutex_unlock(&c->f->guard);
    return NULL;
}

static int listen_at(const char *path)
{
    struct sockaddr_un sa = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", path);
    if (fd < 0 || bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 || listen(fd, 128) < 0) {
        if (fd >= 0)
            (void)close(fd);
        return -1;
    }
    return fd;
}

/* Caller holds the lock; a slot is used once. */
static void take_conn(struct fake_docker *f, int fd)
{
    struct conn *c;

    if (f->n_conns == CONNS)
        abort();
    c = &f->conns[f->n_conns++];
    *c = (struct conn){ .f = f, .fd = fd };
    c->used = pthread_create(&c->thread, NULL, serve, c) == 0;
}

static void *accept_all(void *arg)
{
    struct fake_docker *f = arg;
    bool stop = false;

    while (!stop) {
        struct pollfd p = { .fd = -1, .events = POLLIN };
        int fd;

        (void)pthread_mutex_lock(&f->guard);
        p.fd = f->listener;
        stop = f->stopping;
        (void)pthread_mutex_unlock(&f->guard);
        if (stop || poll(&p, 1, 2) <= 0)
            continue;
        (void)pthread_mutex_lock(&f->guard);
        fd = f->listener >= 0 ? accept4(f->listener, NULL, NULL, SOCK_CLOEXEC) : -1;
        if (fd >= 0)
            take_conn(f, fd);
        (void)pthread_mutex_unlock(&f->guard);
    }
    return NULL;
}

struct fake_docker *fake_docker_start(void)
{
    struct fake_docker *f = calloc(1, sizeof(*f));

    if (!f)
        return NULL;
    (void)pthread_mutex_init(&f->guard, NULL);
    (void)snprintf(f->dir, sizeof(f->dir), "/tmp/fake-docker-XXXXXX");
    (void)snprintf(f->api, sizeof(f->api), "1.41");
    if (!mkdtemp(f->dir)) {
        free(f);
        return NULL;
    }
    (void)snprintf(f->socket, sizeof(f->socket), "%s/s", f->dir);
    f->listener = listen_at(f->socket);
    if (f->listener < 0 || pthread_create(&f->acceptor, NULL, accept_all, f) != 0)
        abort();
    return f;
}

void fake_docker_stop(struct fake_docker *f)
{
    size_t i;

    (void)pthread_mutex_lock(&f->guard);
    f->stopping = true;
    drop_all(f);
    (void)pthread_mutex_unlock(&f->guard);
    (void)pthread_join(f->acceptor, NULL);
    for (i = 0; i < f->n_conns; i++)
        if (f->conns[i].used)
            (void)pthread_join(f->conns[i].thread, NULL);
    fake_docker_no_rules(f);
    for (i = 0; i < f->n_calls; i++)
        free(f->calls[i].body);
    for (i = 0; i < f->things.n_images; i++)
        things_clean(&f->things.images[i]);
    for (i = 0; i < f->things.n_containers; i++)
        things_clean(&f->things.containers[i]);
    for (i = 0; i < f->things.n_volumes; i++)
        things_clean(&f->things.volumes[i]);
    for (i = 0; i < f->things.n_networks; i++)
        things_clean(&f->things.networks[i]);
    (void)rmdir(f->dir);
    (void)pthread_mutex_destroy(&f->guard);
    free(f);
}

const char *fake_docker_socket(const struct fake_docker *f)
{
    return f->socket;
}

void fake_docker_api(struct fake_docker *f, const char *version)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&f->guard);

    (void)snprintf(f->api, sizeof(f->api), "%s", version);
}

void fake_docker_spoken(struct fake_docker *f, char out[16])
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&f->guard);

    memcpy(out, f->spoken, sizeof(f->spoken));
}

void fake_docker_image(struct fake_docker *f, const char *name)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&f->guard);

    (void)snprintf(things_add(f->things.images, &f->things.n_images, THINGS, name)->arch,
                   sizeof(f->things.images->arch), "%s", "amd64");
}

void fake_docker_die(struct fake_docker *f)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&f->guard);

    drop_all(f);
}

void fake_docker_revive(struct fake_docker *f)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&f->guard);

    if (f->listener < 0)
        f->listener = listen_at(f->socket);
}

void fake_docker_prune(struct fake_docker *f)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&f->guard);

    while (f->things.n_volumes)
        things_take_out(f->things.volumes, &f->things.n_volumes,
                        &f->things.volumes[f->things.n_volumes - 1]);
    while (f->things.n_networks)
        things_take_out(f->things.networks, &f->things.n_networks,
                        &f->things.networks[f->things.n_networks - 1]);
}

void fake_docker_spoil(struct fake_docker *f)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&f->guard);
    size_t i;

    for (i = 0; i < f->things.n_volumes; i++)
        f->things.volumes[i].spoiled = true;
}

void fake_docker_end(struct fake_docker *f, const char *name, int exit_code)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&f->guard);
    struct thing *c = things_find(f->things.containers, f->things.n_containers, name, strlen(name));

    if (!c)
        return;
    (void)snprintf(c->state, sizeof(c->state), "exited");
    c->exit_code = exit_code;
}

unsigned fake_docker_calls(struct fake_docker *f, const char *beginning)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&f->guard);
    unsigned n = 0;
    size_t i;

    for (i = 0; i < f->n_calls; i++)
        if (strncmp(f->calls[i].line, beginning, strlen(beginning)) == 0 &&
            (*beginning || !strstr(f->calls[i].line, "/_ping")))
            n++;
    return n;
}

void fake_docker_reset_calls(struct fake_docker *f)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&f->guard);

    while (f->n_calls > 0)
        free(f->calls[--f->n_calls].body);
}

unsigned fake_docker_containers(struct fake_docker *f, const char *state)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&f->guard);
    unsigned n = 0;
    size_t i;

    for (i = 0; i < f->things.n_containers; i++)
        n += !state || strcmp(f->things.containers[i].state, state) == 0;
    return n;
}

void fake_docker_body(struct fake_docker *f, const char *beginning, char *out, size_t size)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&f->guard);
    size_t i;

    out[0] = '\0';
    for (i = f->n_calls; i > 0; i--)
        if (strncmp(f->calls[i - 1].line, beginning, strlen(beginning)) == 0) {
            (void)snprintf(out, size, "%s", f->calls[i - 1].body);
            return;
        }
}
