#include "tests/fakes/fake_docker.h"

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "gateway/runtime/docker/tar.h"

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

enum {
    RULES = 32,
    CALLS = 4096,
    THINGS = 1024,
    CONNS = 256,
    HEAD_MAX = 64 << 10,
    BODY_MAX = 8 << 20
};

struct thing {
    char name[320];
    char image[320];
    char state[16];
    char arch[16]; /* images */
    char ip[24];
    int exit_code;
    bool filled; /* volumes */
    bool spoiled;
    json_t *labels;
    struct buf content; /* images made by import */
};

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
    struct thing images[THINGS];
    size_t n_images;
    struct thing containers[THINGS];
    size_t n_containers;
    struct thing volumes[THINGS];
    size_t n_volumes;
    struct thing networks[8];
    size_t n_networks;
    unsigned next_ip;
};

/* One call being answered. */
struct ask {
    char method[16];
    char version[16];
    char path[1024]; /* without version */
    struct buf body;
    int status;
    struct buf reply;
};

static struct thing *find(struct thing *list, size_t n, const char *name, size_t len)
{
    size_t i;

    for (i = 0; i < n; i++)
        if (strlen(list[i].name) == len && memcmp(list[i].name, name, len) == 0)
            return &list[i];
    return NULL;
}

static struct thing *add(struct thing *list, size_t *n, size_t max, const char *name)
{
    struct thing *t;

    if (*n == max)
        abort();
    t = &list[(*n)++];
    *t = (struct thing){ .content = BUF_INIT(BODY_MAX) };
    (void)snprintf(t->name, sizeof(t->name), "%s", name);
    return t;
}

static void clean(struct thing *t)
{
    json_decref(t->labels);
    buf_free(&t->content);
}

static void take_out(struct thing *list, size_t *n, struct thing *t)
{
    clean(t);
    memmove(t, t + 1, (size_t)(list + *n - (t + 1)) * sizeof(*t));
    (*n)--;
}

/* ---- answers ---- */

static void say(struct ask *a, int status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void say(struct ask *a, int status, const char *fmt, ...)
{
    char text[4096];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    a->status = status;
    buf_clear(&a->reply);
    (void)buf_puts(&a->reply, text);
}

static void say_bytes(struct ask *a, int status, const char *body, size_t len)
{
    a->status = status;
    buf_clear(&a->reply);
    (void)buf_append(&a->reply, body, len);
}

static void say_json(struct ask *a, int status, json_t *v)
{
    AUTO_FREE char *text = json_dumps(v, JSON_COMPACT);

    json_decref(v);
    a->status = status;
    buf_clear(&a->reply);
    (void)buf_puts(&a->reply, text);
}

/* Value of a query key, percent-decoded. */
static void query(const struct ask *a, const char *key, char *out, size_t size)
{
    const char *at = strchr(a->path, '?');
    size_t klen = strlen(key);
    size_t n = 0;
    unsigned hex;

    out[0] = '\0';
    while (at && (strncmp(at + 1, key, klen) != 0 || at[1 + klen] != '='))
        at = strchr(at + 1, '&');
    if (!at)
        return;
    for (at += klen + 2; *at && *at != '&' && n + 1 < size; at++) {
        if (*at == '%' && sscanf(at + 1, "%2x", &hex) == 1) {
            out[n++] = (char)hex;
            at += 2;
        } else {
            out[n++] = *at;
        }
    }
    out[n] = '\0';
}

/* "linux/arm64" of the query; without one the engine's own. */
static void take_platform(const struct ask *a, struct thing *image)
{
    char platform[64];
    const char *slash;

    query(a, "platform", platform, sizeof(platform));
    slash = strchr(platform, '/');
    (void)snprintf(image->arch, sizeof(image->arch), "%s", slash ? slash + 1 : "amd64");
}

static bool has_platform(const struct ask *a, const struct thing *image)
{
    struct thing want;

    query(a, "platform", want.name, sizeof(want.name));
    if (!*want.name)
        return true;
    take_platform(a, &want);
    return strcmp(want.arch, image->arch) == 0;
}

/* GET /images/{name}/json */
static void image_call(struct fake_docker *f, struct ask *a)
{
    const char *name = a->path + strlen("/images/");
    const char *end = strstr(name, "/json");
    size_t len = end ? (size_t)(end - name) : 0;
    const struct thing *t = find(f->images, f->n_images, name, len);

    if (t)
        say(a, 200, "{\"Id\":\"sha256:1\",\"Os\":\"linux\",\"Architecture\":\"%s\"}", t->arch);
    else
        say(a, 404, "{\"message\":\"No such image: %.*s\"}", (int)len, name);
}

static void info(struct fake_docker *f, struct ask *a)
{
    (void)f;
    say(a, 200,
        "{\"Runtimes\":{\"runc\":{},\"runsc\":{}},\"SecurityOptions\":[\"name=apparmor\","
        "\"name=seccomp,profile=default\"]}");
}

static void create_image(struct fake_docker *f, struct ask *a)
{
    char repo[128];
    char tag[128];
    char name[300];
    struct thing *t;
    bool import;

    query(a, "repo", repo, sizeof(repo));
    import = repo[0] != '\0';
    if (!import)
        query(a, "fromImage", repo, sizeof(repo));
    query(a, "tag", tag, sizeof(tag));
    (void)snprintf(name, sizeof(name), "%s:%s", repo, tag);
    t = find(f->images, f->n_images, name, strlen(name));
    if (!t)
        t = add(f->images, &f->n_images, THINGS, name);
    take_platform(a, t);
    if (import) {
        buf_clear(&t->content);
        (void)buf_append(&t->content, a->body.data, a->body.len);
    }
    say(a, 200, "{\"status\":\"Pulling\",\"id\":\"latest\"}\r\n{\"status\":\"sha256:1\"}\r\n");
}

static void create_volume(struct fake_docker *f, struct ask *a)
{
    json_t *v = json_loadb(a->body.data, a->body.len, 0, NULL);
    const char *name = json_string_value(json_object_get(v, "Name"));

    if (!find(f->volumes, f->n_volumes, name, strlen(name)))
        (void)add(f->volumes, &f->n_volumes, THINGS, name);
    say(a, 201, "{\"Name\":\"%s\"}", name);
    json_decref(v);
}

static void create_network(struct fake_docker *f, struct ask *a)
{
    json_t *v = json_loadb(a->body.data, a->body.len, 0, NULL);
    const char *name = json_string_value(json_object_get(v, "Name"));

    if (find(f->networks, f->n_networks, name, strlen(name))) {
        say(a, 409, "{\"message\":\"network with name %s already exists\"}", name);
    } else {
        add(f->networks, &f->n_networks, 8, name)->labels =
            json_incref(json_object_get(v, "Labels"));
        say(a, 201, "{\"Id\":\"net1\"}");
    }
    json_decref(v);
}

static json_t *network_json(const struct thing *t)
{
    return json_pack("{s:s, s:O, s:{s:[{s:s, s:s}]}}", "Name", t->name, "Labels", t->labels, "IPAM",
                     "Config", "Subnet", "10.9.0.0/16", "Gateway", "10.9.0.1");
}

static void list_networks(struct fake_docker *f, struct ask *a)
{
    json_t *list = json_array();
    size_t i;

    for (i = 0; i < f->n_networks; i++)
        (void)json_array_append_new(list, network_json(&f->networks[i]));
    say_json(a, 200, list);
}

/* The mounts and the network of a create, as far as the engine acts on them. */
static void take_mounts(struct fake_docker *f, json_t *v, struct thing *c)
{
    json_t *host = json_object_get(v, "HostConfig");
    json_t *item;
    size_t i;

    json_array_foreach(json_object_get(host, "Mounts"), i, item) {
        const char *src = json_string_value(json_object_get(item, "Source"));
        const char *type = json_string_value(json_object_get(item, "Type"));
        json_t *options = json_object_get(item, "VolumeOptions");
        struct thing *vol = src ? find(f->volumes, f->n_volumes, src, strlen(src)) : NULL;

        if (!src || strcmp(type, "volume") != 0)
            continue;
        if (!vol)
            vol = add(f->volumes, &f->n_volumes, THINGS, src); /* silently, as the engine does */
        if (!options)
            vol->filled = true;
        else if (!json_is_true(json_object_get(options, "NoCopy")))
            continue; /* a user's, not the agent's */
        (void)snprintf(c->ip, sizeof(c->ip), "%s", vol->filled ? "good" : "empty");
    }
}

static void create_container(struct fake_docker *f, struct ask *a)
{
    json_t *v = json_loadb(a->body.data, a->body.len, 0, NULL);
    const char *image = json_string_value(json_object_get(v, "Image"));
    const struct thing *i = find(f->images, f->n_images, image, strlen(image));
    char name[128];
    struct thing *c;

    query(a, "name", name, sizeof(name));
    if (find(f->containers, f->n_containers, name, strlen(name))) {
        say(a, 409, "{\"message\":\"Conflict. The container name \\\"/%s\\\" is in use\"}", name);
    } else if (!i) {
        say(a, 404, "{\"message\":\"No such image: %s\"}", image);
    } else if (!has_platform(a, i)) {
        say(a, 404,
            "{\"message\":\"image with reference %s was found but does not match the specified "
            "platform: wanted other, actual: linux/%s\"}",
            image, i->arch);
    } else {
        c = add(f->containers, &f->n_containers, THINGS, name);
        (void)snprintf(c->image, sizeof(c->image), "%s", image);
        (void)snprintf(c->state, sizeof(c->state), "created");
        c->labels = json_incref(json_object_get(v, "Labels"));
        take_mounts(f, v, c);
        say(a, 201, "{\"Id\":\"%s\",\"Warnings\":[]}", name);
    }
    json_decref(v);
}

static json_t *ports_json(void)
{
    return json_pack("{s:[{s:s, s:s}]}", "44772/tcp", "HostIp", "127.0.0.1", "HostPort", "32768");
}

static void inspect(struct fake_docker *f, struct ask *a, const struct thing *c)
{
    const char *net = f->n_networks ? f->networks[0].name : "none";

    say_json(a, 200,
             json_pack("{s:{s:s, s:i, s:b, s:s}, s:{s:O}, s:{s:{s:{s:s}}, s:o}}", "State", "Status",
                       c->state, "ExitCode", c->exit_code, "OOMKilled", 0, "FinishedAt",
                       strcmp(c->state, "exited") == 0 ? "2026-01-02T03:04:05.6Z"
                                                       : "0001-01-01T00:00:00Z",
                       "Config", "Labels", c->labels, "NetworkSettings", "Networks", net,
                       "IPAddress", strcmp(c->state, "created") == 0 ? "" : c->ip, "Ports",
                       ports_json()));
}

static void list_containers(struct fake_docker *f, struct ask *a)
{
    const char *net = f->n_networks ? f->networks[0].name : "none";
    json_t *list = json_array();
    size_t i;

    for (i = 0; i < f->n_containers; i++) {
        const struct thing *c = &f->containers[i];
        char slash[340];
        char text[64];

        (void)snprintf(slash, sizeof(slash), "/%s", c->name);
        (void)snprintf(text, sizeof(text), "Exited (%d) 2 hours ago", c->exit_code);
        (void)json_array_append_new(
            list, json_pack("{s:[s], s:s, s:s, s:O, s:[{s:s, s:i, s:i, s:s}], s:{s:{s:{s:s}}}}",
                            "Names", slash, "State", c->state, "Status", text, "Labels", c->labels,
                            "Ports", "IP", "127.0.0.1", "PrivatePort", 44772, "PublicPort", 32768,
                            "Type", "tcp", "NetworkSettings", "Networks", net, "IPAddress", c->ip));
    }
    say_json(a, 200, list);
}

static void start(struct fake_docker *f, struct ask *a, struct thing *c)
{
    if (!f->n_networks) {
        say(a, 404, "{\"message\":\"network sandgate-0 not found\"}");
    } else if (strcmp(c->ip, "empty") == 0) {
        say(a, 400,
            "{\"message\":\"exec: \\\"/opt/opensandbox/agent/execd\\\": stat "
            "/opt/opensandbox/agent/execd: no such file or directory: unknown\"}");
    } else {
        (void)snprintf(c->state, sizeof(c->state), "running");
        (void)snprintf(c->ip, sizeof(c->ip), "10.9.0.%u", ++f->next_ip % 250 + 2);
        say(a, 204, "%s", "");
    }
}

static void archive(struct fake_docker *f, struct ask *a, const struct thing *c)
{
    const struct thing *image = find(f->images, f->n_images, c->image, strlen(c->image));

    a->status = 200;
    buf_clear(&a->reply);
    if (f->n_volumes && f->volumes[f->n_volumes - 1].spoiled)
        return;
    if (image)
        (void)buf_append(&a->reply, image->content.data, image->content.len);
}

static void change(struct ask *a, struct thing *c, const char *from, const char *to)
{
    if (strcmp(c->state, from) != 0) {
        say(a, strcmp(to, "paused") == 0 ? 409 : 500, "{\"message\":\"Container %s is not %s\"}",
            c->name, from);
        return;
    }
    (void)snprintf(c->state, sizeof(c->state), "%s", to);
    say(a, 204, "%s", "");
}

/* As the engine: a frozen container cannot act on the signal. */
static void stop(struct ask *a, struct thing *c)
{
    bool running = strcmp(c->state, "running") == 0;

    if (strcmp(c->state, "paused") == 0) {
        say(a, 500, "{\"message\":\"Container %s is paused\"}", c->name);
        return;
    }
    if (running)
        (void)snprintf(c->state, sizeof(c->state), "exited");
    say(a, running ? 204 : 304, "%s", "");
}

/* /containers/{name}[/verb][?query] */
static void container_call(struct fake_docker *f, struct ask *a)
{
    const char *name = a->path + strlen("/containers/");
    size_t len = strcspn(name, "/?");
    const char *verb = name[len] == '/' ? name + len + 1 : "";
    struct thing *c = find(f->containers, f->n_containers, name, len);
    static const char line[] = "\1\0\0\0\0\0\0\7oh no!\n";

    if (!c) {
        say(a, 404, "{\"message\":\"No such container: %.*s\"}", (int)len, name);
    } else if (strcmp(a->method, "DELETE") == 0) {
        take_out(f->containers, &f->n_containers, c);
        say(a, 204, "%s", "");
    } else if (strcmp(verb, "start") == 0) {
        start(f, a, c);
    } else if (strcmp(verb, "json") == 0) {
        inspect(f, a, c);
    } else if (strcmp(verb, "pause") == 0) {
        change(a, c, "running", "paused");
    } else if (strcmp(verb, "unpause") == 0) {
        change(a, c, "paused", "running");
    } else if (strncmp(verb, "stop", 4) == 0) {
        stop(a, c);
    } else if (strncmp(verb, "archive", 7) == 0) {
        archive(f, a, c);
    } else if (strncmp(verb, "logs", 4) == 0) {
        a->status = 200;
        (void)buf_append(&a->reply, line, sizeof(line) - 1);
    } else {
        say(a, 404, "{\"message\":\"page not found\"}");
    }
}

static void volume_call(struct fake_docker *f, struct ask *a)
{
    const char *name = a->path + strlen("/volumes/");
    struct thing *v = find(f->volumes, f->n_volumes, name, strlen(name));

    if (v)
        take_out(f->volumes, &f->n_volumes, v);
    say(a, v ? 204 : 404, "%s", v ? "" : "{\"message\":\"no such volume\"}");
}

static void network_call(struct fake_docker *f, struct ask *a)
{
    const char *name = a->path + strlen("/networks/");
    struct thing *n = find(f->networks, f->n_networks, name, strlen(name));

    if (n && strcmp(a->method, "DELETE") == 0) {
        take_out(f->networks, &f->n_networks, n);
        say(a, 204, "%s", "");
    } else if (n)
        say_json(a, 200, network_json(n));
    else
        say(a, 404, "{\"message\":\"network %s not found\"}", name);
}

static const struct {
    const char *method;
    const char *path;
    void (*answer)(struct fake_docker *f, struct ask *a);
} answers[] = {
    { "POST", "/images/create", create_image },
    { "GET", "/images/", image_call },
    { "GET", "/info", info },
    { "POST", "/volumes/create", create_volume },
    { "DELETE", "/volumes/", volume_call },
    { "POST", "/networks/create", create_network },
    { "GET", "/networks?", list_networks },
    { "", "/networks/", network_call },
    { "POST", "/containers/create", create_container },
    { "GET", "/containers/json", list_containers },
    { "", "/containers/", container_call },
};

static void answer(struct fake_docker *f, struct ask *a)
{
    size_t i;

    for (i = 0; i < sizeof(answers) / sizeof(answers[0]); i++)
        if (strncmp(a->method, answers[i].method, strlen(answers[i].method)) == 0 &&
            strncmp(a->path, answers[i].path, strlen(answers[i].path)) == 0) {
            answers[i].answer(f, a);
            return;
        }
    if (strncmp(a->path, "/_ping", 6) == 0)
        say(a, 200, "OK");
    else
        say(a, 404, "{\"message\":\"page not found\"}");
}

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

/* False: the connection is to be closed. */
static bool serve_one(struct fake_docker *f, int fd, struct ask *a)
{
    struct fake_rule r;
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
    (void)pthread_mutex_lock(&f->guard);
    if (r.how == FAKE_REPLY)
        say_bytes(a, r.status, r.body, r.body_len);
    else
        answer(f, a);
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
    for (i = 0; i < f->n_images; i++)
        clean(&f->images[i]);
    for (i = 0; i < f->n_containers; i++)
        clean(&f->containers[i]);
    for (i = 0; i < f->n_volumes; i++)
        clean(&f->volumes[i]);
    for (i = 0; i < f->n_networks; i++)
        clean(&f->networks[i]);
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

    (void)snprintf(add(f->images, &f->n_images, THINGS, name)->arch, sizeof(f->images->arch), "%s",
                   "amd64");
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

    while (f->n_volumes)
        take_out(f->volumes, &f->n_volumes, &f->volumes[f->n_volumes - 1]);
    while (f->n_networks)
        take_out(f->networks, &f->n_networks, &f->networks[f->n_networks - 1]);
}

void fake_docker_spoil(struct fake_docker *f)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&f->guard);
    size_t i;

    for (i = 0; i < f->n_volumes; i++)
        f->volumes[i].spoiled = true;
}

void fake_docker_end(struct fake_docker *f, const char *name, int exit_code)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&f->guard);
    struct thing *c = find(f->containers, f->n_containers, name, strlen(name));

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

    for (i = 0; i < f->n_containers; i++)
        n += !state || strcmp(f->containers[i].state, state) == 0;
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
