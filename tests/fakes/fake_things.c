#include "tests/fakes/fake_things.h"

#include "common/base/cleanup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct thing *things_find(struct thing *list, size_t n, const char *name, size_t len)
{
    size_t i;

    for (i = 0; i < n; i++)
        if (strlen(list[i].name) == len && memcmp(list[i].name, name, len) == 0)
            return &list[i];
    return NULL;
}

struct thing *things_add(struct thing *list, size_t *n, size_t max, const char *name)
{
    struct thing *t;

    if (*n == max)
        abort();
    t = &list[(*n)++];
    *t = (struct thing){ .content = BUF_INIT(BODY_MAX) };
    (void)snprintf(t->name, sizeof(t->name), "%s", name);
    return t;
}

void things_clean(struct thing *t)
{
    json_decref(t->labels);
    json_decref(t->cmd);
    buf_free(&t->content);
}

void things_take_out(struct thing *list, size_t *n, struct thing *t)
{
    things_clean(t);
    memmove(t, t + 1, (size_t)(list + *n - (t + 1)) * sizeof(*t));
    (*n)--;
}

/* ---- answers ---- */

void ask_say(struct ask *a, int status, const char *fmt, ...)
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

void ask_say_bytes(struct ask *a, int status, const char *body, size_t len)
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
static void image_call(struct things *f, struct ask *a)
{
    const char *name = a->path + strlen("/images/");
    const char *end = strstr(name, "/json");
    size_t len = end ? (size_t)(end - name) : 0;
    const struct thing *t = things_find(f->images, f->n_images, name, len);

    if (t)
        ask_say(a, 200, "{\"Id\":\"sha256:1\",\"Os\":\"linux\",\"Architecture\":\"%s\"}", t->arch);
    else
        ask_say(a, 404, "{\"message\":\"No such image: %.*s\"}", (int)len, name);
}

static void info(struct things *f, struct ask *a)
{
    (void)f;
    ask_say(a, 200,
            "{\"Runtimes\":{\"runc\":{},\"runsc\":{}},\"SecurityOptions\":[\"name=apparmor\","
            "\"name=seccomp,profile=default\"]}");
}

static void create_image(struct things *f, struct ask *a)
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
    t = things_find(f->images, f->n_images, name, strlen(name));
    if (!t)
        t = things_add(f->images, &f->n_images, THINGS, name);
    take_platform(a, t);
    if (import) {
        buf_clear(&t->content);
        (void)buf_append(&t->content, a->body.data, a->body.len);
    }
    ask_say(a, 200, "{\"status\":\"Pulling\",\"id\":\"latest\"}\r\n{\"status\":\"sha256:1\"}\r\n");
}

static void create_volume(struct things *f, struct ask *a)
{
    json_t *v = json_loadb(a->body.data, a->body.len, 0, NULL);
    const char *name = json_string_value(json_object_get(v, "Name"));

    if (!things_find(f->volumes, f->n_volumes, name, strlen(name)))
        (void)things_add(f->volumes, &f->n_volumes, THINGS, name);
    ask_say(a, 201, "{\"Name\":\"%s\"}", name);
    json_decref(v);
}

static void create_network(struct things *f, struct ask *a)
{
    json_t *v = json_loadb(a->body.data, a->body.len, 0, NULL);
    const char *name = json_string_value(json_object_get(v, "Name"));

    if (things_find(f->networks, f->n_networks, name, strlen(name))) {
        ask_say(a, 409, "{\"message\":\"network with name %s already exists\"}", name);
    } else {
        things_add(f->networks, &f->n_networks, 8, name)->labels =
            json_incref(json_object_get(v, "Labels"));
        ask_say(a, 201, "{\"Id\":\"net1\"}");
    }
    json_decref(v);
}

static json_t *network_json(const struct thing *t)
{
    return json_pack("{s:s, s:O, s:{s:[{s:s, s:s}]}}", "Name", t->name, "Labels", t->labels, "IPAM",
                     "Config", "Subnet", "10.9.0.0/16", "Gateway", "10.9.0.1");
}

static void list_networks(struct things *f, struct ask *a)
{
    json_t *list = json_array();
    size_t i;

    for (i = 0; i < f->n_networks; i++)
        (void)json_array_append_new(list, network_json(&f->networks[i]));
    say_json(a, 200, list);
}

/* The mounts and the network of a create, as far as the engine acts on them. */
static void take_mounts(struct things *f, json_t *v, struct thing *c)
{
    json_t *host = json_object_get(v, "HostConfig");
    json_t *item;
    size_t i;

    json_array_foreach(json_object_get(host, "Mounts"), i, item) {
        const char *src = json_string_value(json_object_get(item, "Source"));
        const char *type = json_string_value(json_object_get(item, "Type"));
        json_t *options = json_object_get(item, "VolumeOptions");
        struct thing *vol = src ? things_find(f->volumes, f->n_volumes, src, strlen(src)) : NULL;

        if (!src || strcmp(type, "volume") != 0)
            continue;
        if (!vol)
            vol = things_add(f->volumes, &f->n_volumes, THINGS,
                             src); /* silently, as the engine does */
        if (!options)
            vol->filled = true;
        else if (!json_is_true(json_object_get(options, "NoCopy")))
            continue; /* a user's, not the agent's */
        (void)snprintf(c->ip, sizeof(c->ip), "%s", vol->filled ? "good" : "empty");
    }
}

static void create_container(struct things *f, struct ask *a)
{
    json_t *v = json_loadb(a->body.data, a->body.len, 0, NULL);
    const char *image = json_string_value(json_object_get(v, "Image"));
    const struct thing *i = things_find(f->images, f->n_images, image, strlen(image));
    char name[128];
    struct thing *c;

    query(a, "name", name, sizeof(name));
    if (things_find(f->containers, f->n_containers, name, strlen(name))) {
        ask_say(a, 409, "{\"message\":\"Conflict. The container name \\\"/%s\\\" is in use\"}",
                name);
    } else if (!i) {
        ask_say(a, 404, "{\"message\":\"No such image: %s\"}", image);
    } else if (!has_platform(a, i)) {
        ask_say(a, 404,
                "{\"message\":\"image with reference %s was found but does not match the specified "
                "platform: wanted other, actual: linux/%s\"}",
                image, i->arch);
    } else {
        c = things_add(f->containers, &f->n_containers, THINGS, name);
        (void)snprintf(c->image, sizeof(c->image), "%s", image);
        (void)snprintf(c->state, sizeof(c->state), "created");
        c->labels = json_incref(json_object_get(v, "Labels"));
        c->cmd = json_incref(json_object_get(v, "Cmd"));
        take_mounts(f, v, c);
        ask_say(a, 201, "{\"Id\":\"%s\",\"Warnings\":[]}", name);
    }
    json_decref(v);
}

static json_t *ports_json(void)
{
    return json_pack("{s:[{s:s, s:s}]}", "44772/tcp", "HostIp", "127.0.0.1", "HostPort", "32768");
}

static void inspect(struct things *f, struct ask *a, const struct thing *c)
{
    const char *net = f->n_networks ? f->networks[0].name : "none";

    say_json(a, 200,
             json_pack("{s:{s:s, s:i, s:b, s:s}, s:{s:O, s:O*}, s:{s:{s:{s:s}}, s:o}}", "State",
                       "Status", c->state, "ExitCode", c->exit_code, "OOMKilled", 0, "FinishedAt",
                       strcmp(c->state, "exited") == 0 ? "2026-01-02T03:04:05.6Z"
                                                       : "0001-01-01T00:00:00Z",
                       "Config", "Labels", c->labels, "Cmd", c->cmd, "NetworkSettings", "Networks",
                       net, "IPAddress", strcmp(c->state, "created") == 0 ? "" : c->ip, "Ports",
                       ports_json()));
}

static void list_containers(struct things *f, struct ask *a)
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

static void start(struct things *f, struct ask *a, struct thing *c)
{
    if (!f->n_networks) {
        ask_say(a, 404, "{\"message\":\"network sandgate-0 not found\"}");
    } else if (strcmp(c->ip, "empty") == 0) {
        ask_say(a, 400,
                "{\"message\":\"exec: \\\"/opt/opensandbox/agent/execd\\\": stat "
                "/opt/opensandbox/agent/execd: no such file or directory: unknown\"}");
    } else {
        (void)snprintf(c->state, sizeof(c->state), "running");
        (void)snprintf(c->ip, sizeof(c->ip), "10.9.0.%u", ++f->next_ip % 250 + 2);
        ask_say(a, 204, "%s", "");
    }
}

static void archive(struct things *f, struct ask *a, const struct thing *c)
{
    const struct thing *image = things_find(f->images, f->n_images, c->image, strlen(c->image));

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
        ask_say(a, strcmp(to, "paused") == 0 ? 409 : 500,
                "{\"message\":\"Container %s is not %s\"}", c->name, from);
        return;
    }
    (void)snprintf(c->state, sizeof(c->state), "%s", to);
    ask_say(a, 204, "%s", "");
}

/* As the engine: a frozen container cannot act on the signal. */
static void stop(struct ask *a, struct thing *c)
{
    bool running = strcmp(c->state, "running") == 0;

    if (strcmp(c->state, "paused") == 0) {
        ask_say(a, 500, "{\"message\":\"Container %s is paused\"}", c->name);
        return;
    }
    if (running)
        (void)snprintf(c->state, sizeof(c->state), "exited");
    ask_say(a, running ? 204 : 304, "%s", "");
}

/* /containers/{name}[/verb][?query] */
static void container_call(struct things *f, struct ask *a)
{
    const char *name = a->path + strlen("/containers/");
    size_t len = strcspn(name, "/?");
    const char *verb = name[len] == '/' ? name + len + 1 : "";
    struct thing *c = things_find(f->containers, f->n_containers, name, len);
    static const char line[] = "\1\0\0\0\0\0\0\7oh no!\n";

    if (!c) {
        ask_say(a, 404, "{\"message\":\"No such container: %.*s\"}", (int)len, name);
    } else if (strcmp(a->method, "DELETE") == 0) {
        things_take_out(f->containers, &f->n_containers, c);
        ask_say(a, 204, "%s", "");
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
        ask_say(a, 404, "{\"message\":\"page not found\"}");
    }
}

static void volume_call(struct things *f, struct ask *a)
{
    const char *name = a->path + strlen("/volumes/");
    struct thing *v = things_find(f->volumes, f->n_volumes, name, strlen(name));

    if (v)
        things_take_out(f->volumes, &f->n_volumes, v);
    ask_say(a, v ? 204 : 404, "%s", v ? "" : "{\"message\":\"no such volume\"}");
}

static void network_call(struct things *f, struct ask *a)
{
    const char *name = a->path + strlen("/networks/");
    struct thing *n = things_find(f->networks, f->n_networks, name, strlen(name));

    if (n && strcmp(a->method, "DELETE") == 0) {
        things_take_out(f->networks, &f->n_networks, n);
        ask_say(a, 204, "%s", "");
    } else if (n)
        say_json(a, 200, network_json(n));
    else
        ask_say(a, 404, "{\"message\":\"network %s not found\"}", name);
}

static const struct {
    const char *method;
    const char *path;
    void (*answer)(struct things *f, struct ask *a);
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

void things_answer(struct things *f, struct ask *a)
{
    size_t i;

    for (i = 0; i < sizeof(answers) / sizeof(answers[0]); i++)
        if (strncmp(a->method, answers[i].method, strlen(answers[i].method)) == 0 &&
            strncmp(a->path, answers[i].path, strlen(answers[i].path)) == 0) {
            answers[i].answer(f, a);
            return;
        }
    if (strncmp(a->path, "/_ping", 6) == 0)
        ask_say(a, 200, "OK");
    else
        ask_say(a, 404, "{\"message\":\"page not found\"}");
}
