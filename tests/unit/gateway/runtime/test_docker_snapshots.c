/* Snapshots of the Docker runtime against an engine with a small image store. */
#include "tests/unit/test.h"

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "gateway/runtime/docker/tar.h"
#include "gateway/runtime/runtime.h"
#include "tests/fakes/fake_docker.h"

#include <jansson.h>
#include <string.h>

#define INSTANCE "ab12cd34-0000-4000-8000-000000000000"
#define ID "11111111-2222-4333-8444-555555555555"
#define SNAP "99999999-2222-4333-8444-555555555555"
#define NAME "opensandbox-snapshots:" SNAP
#define PART NAME "-part"
#define HASH "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

enum { IMAGES = 16, COMMITS = 64, STEPS = 16, TIMEOUT_MS = 10000 };

struct image {
    char name[128];
    json_t *about; /* GET /images/{name}/json */
    json_t *history;
};

/* The engine's images, and what is wrong with it. */
struct store {
    pthread_mutex_t guard; /* guards all below */
    struct image images[IMAGES];
    size_t n;
    unsigned commits;
    char parts[COMMITS][128]; /* names that were committed to */
    bool no_sandbox;
    bool no_base;
    bool unchanged;    /* the sandbox wrote nothing */
    bool refuse_load;  /* as an image store that wants the layers */
    bool swallow_load; /* says that it loaded, and did not */
    json_t *loaded;    /* configuration of the latest load */
    json_t *manifest;
};

struct fixture {
    struct fake_docker *fake;
    struct runtime *rt;
    struct store store;
    int64_t size;
    struct err e;
};

/* ---- the store ---- */

static struct image *find(struct store *s, const char *name)
{
    size_t i;

    for (i = 0; i < s->n; i++)
        if (strcmp(s->images[i].name, name) == 0)
            return &s->images[i];
    return NULL;
}

static void forget(struct store *s, struct image *im)
{
    json_decref(im->about);
    json_decref(im->history);
    *im = s->images[--s->n];
}

/* Takes over both values. A name moves from one image to another. */
static void put(struct store *s, const char *name, json_t *about, json_t *history)
{
    struct image *im = find(s, name);

    if (im)
        forget(s, im);
    if (s->n == IMAGES || !about || !history)
        abort();
    im = &s->images[s->n++];
    (void)snprintf(im->name, sizeof(im->name), "%s", name);
    im->about = about;
    im->history = history;
}

static void reply(struct fake_call *c, int status, const char *text)
{
    c->status = status;
    (void)buf_puts(c->reply, text);
}

static void reply_json(struct fake_call *c, const json_t *v)
{
    AUTO_FREE char *text = json_dumps(v, JSON_COMPACT);

    reply(c, 200, text);
}

/* As the engine does: what the body leaves empty comes from the container, labels are joined. */
static void commit(struct store *s, struct fake_call *c)
{
    static const char query[] = "&repo=opensandbox-snapshots&tag=";
    const char *tag = strstr(c->path, query);
    json_t *config;
    json_t *labels;

    if (s->no_sandbox) {
        reply(c, 404, "{\"message\":\"No such container: sandbox-" ID "\"}");
        return;
    }
    config = json_loadb(c->body, c->body_len, 0, NULL);
    labels = json_pack("{s:s, s:s, s:s, s:s, s:s}", "sandgate.id", ID, "sandgate.instance",
                       INSTANCE, "sandgate.role", "sandbox", "opensandbox.io/id", ID, "keep", "me");
    (void)json_object_update(labels, json_object_get(config, "Labels"));
    (void)json_object_set_new(config, "Labels", labels);
    (void)json_object_set_new(config, "Env", json_pack("[s]", "A=b"));
    (void)json_object_set_new(config, "User", json_string("nobody"));
    (void)json_object_set_new(config, "ExposedPorts",
                              json_pack("{s:{}, s:{}}", "44772/tcp", "80/tcp"));
    if (!tag || s->commits == COMMITS)
        abort();
    (void)snprintf(s->parts[s->commits], sizeof(s->parts[0]), "opensandbox-snapshots:%s",
                   tag + strlen(query));
    put(s, s->parts[s->commits++],
        json_pack("{s:s, s:s, s:s, s:s, s:o, s:{s:o}}", "Id", "sha256:c0", "Os", "linux",
                  "Architecture", "amd64", "Created", "2026-01-02T03:04:05.6Z", "Config", config,
                  "RootFS", "Layers",
                  s->unchanged ? json_pack("[s]", "sha256:a")
                               : json_pack("[s, s]", "sha256:a", "sha256:b")),
        json_pack("[{s:s, s:i}, {s:s, s:i}]", "CreatedBy", "--held --id " ID " " HASH, "Size",
                  s->unchanged ? 0 : 4711, "CreatedBy", "base", "Size", 1000000));
    reply(c, 201, "{\"Id\":\"sha256:c0\"}");
}

static json_t *member(const char *archive, size_t len, const char *name)
{
    struct tar_entry entry;
    size_t pos = 0;

    while (tar_next(archive, len, &pos, &entry) > 0)
        if (strcmp(entry.name, name) == 0)
            return json_loadb(entry.data, entry.len, 0, NULL);
    return NULL;
}

static void load(struct store *s, struct fake_call *c)
{
    json_t *first;
    const char *name;
    json_t *layers;

    json_decref(s->manifest);
    json_decref(s->loaded);
    s->manifest = member(c->body, c->body_len, "manifest.json");
    first = json_array_get(s->manifest, 0);
    s->loaded = member(c->body, c->body_len, json_string_value(json_object_get(first, "Config")));
    name = json_string_value(json_array_get(json_object_get(first, "RepoTags"), 0));
    layers = json_object_get(json_object_get(s->loaded, "rootfs"), "diff_ids");
    if (s->refuse_load) {
        reply(c, 200,
              "{\"errorDetail\":{\"message\":\"no such layer\"},\"error\":\"no such layer\"}\n");
        return;
    }
    if (!s->swallow_load)
        put(s, name,
            json_pack("{s:O, s:{s:O}}", "Config", json_object_get(s->loaded, "config"), "RootFS",
                      "Layers", layers),
            json_pack("[{s:i}]", "Size", s->unchanged ? 0 : 4711));
    reply(c, 200, "{\"stream\":\"Loaded image\"}\n");
}

static void tag(struct store *s, struct fake_call *c, const char *name)
{
    struct image *im = find(s, name);

    if (!im || !strstr(c->path, "?repo=opensandbox-snapshots&tag=" SNAP)) {
        reply(c, 404, "{\"message\":\"No such image\"}");
        return;
    }
    put(s, NAME, json_incref(im->about), json_incref(im->history));
    c->status = 201;
}

static void base_image(struct store *s, struct fake_call *c)
{
    json_auto_t *v =
        json_pack("{s:{s:[s], s:[s], s:[s], s:s, s:{s:s, s:s}, s:{s:[s, s]}, s:{s:{}}}, s:{s:[s]}}",
                  "Config", "Env", "A=b", "Entrypoint", "/entry", "Cmd", "serve", "User", "nobody",
                  "Labels", "keep", "me", "sandgate.recipe", "1", "Healthcheck", "Test", "CMD",
                  "true", "ExposedPorts", "44772/tcp", "RootFS", "Layers", "sha256:a");

    if (s->no_base)
        reply(c, 404, "{\"message\":\"No such image\"}");
    else
        reply_json(c, v);
}

/* /images/{name}{verb}: the name as it was before it was encoded. */
static void image_call(struct store *s, struct fake_call *c)
{
    const char *at = c->path + strlen("/images/");
    size_t len = strcspn(at, "/?");
    struct image *im;
    char name[128];
    const char *colon;

    (void)snprintf(name, sizeof(name), "%.*s", (int)len, at);
    colon = strstr(name, "%3A");
    if (colon)
        (void)snprintf(name, sizeof(name), "%.*s:%.*s", (int)(colon - name), at,
                       (int)(len - (size_t)(colon - name) - 3), at + (colon - name) + 3);
    im = find(s, name);
    if (strcmp(name, "sha256:ba5e") == 0)
        base_image(s, c);
    else if (!im)
        reply(c, 404, "{\"message\":\"No such image\"}");
    else if (strncmp(at + len, "/tag", 4) == 0)
        tag(s, c, name);
    else if (strcmp(c->method, "DELETE") == 0) {
        forget(s, im);
        reply(c, 200, "[]");
    } else if (strcmp(at + len, "/history") == 0)
        reply_json(c, im->history);
    else
        reply_json(c, im->about);
}

/* GET /images/json?filters={"reference":["<NAME>-part*"]} */
static void list(struct store *s, struct fake_call *c)
{
    json_auto_t *v = json_array();
    size_t i;

    if (strcmp(c->path,
               "/images/json?filters=%7B%22reference%22%3A%5B%22opensandbox-snapshots%3A" SNAP
               "-part%2A%22%5D%7D") != 0) {
        reply(c, 400, "{\"message\":\"an odd filter\"}");
        return;
    }
    for (i = 0; i < s->n; i++)
        if (strncmp(s->images[i].name, PART, strlen(PART)) == 0)
            (void)json_array_append_new(v, json_pack("{s:[s]}", "RepoTags", s->images[i].name));
    reply_json(c, v);
}

static enum fake_answer on_call(void *arg, struct fake_call *c)
{
    struct store *s = arg;
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&s->guard);

    if (strncmp(c->path, "/commit?container=sandbox-" ID,
                strlen("/commit?container=sandbox-" ID)) == 0)
        commit(s, c);
    else if (strncmp(c->path, "/images/load", 12) == 0)
        load(s, c);
    else if (strncmp(c->path, "/images/json?", 13) == 0)
        list(s, c);
    else if (strncmp(c->path, "/images/", 8) == 0)
        image_call(s, c);
    else if (strcmp(c->path, "/containers/sandbox-" ID "/json") == 0)
        reply(c, s->no_sandbox ? 404 : 200,
              s->no_sandbox ? "{\"message\":\"No such container\"}"
                            : "{\"Image\":\"sha256:ba5e\"}");
    else
        return FAKE_NOT_MINE;
    return FAKE_ANSWERED;
}

/* ---- fixture ---- */

static int set_up(void **state)
{
    struct fixture *x = calloc(1, sizeof(*x));
    struct runtime_config cfg = { .instance = INSTANCE,
                                  .api_timeout_s = 10,
                                  .keep_host_open = true,
                                  .agent = "the agent",
                                  .agent_len = 9 };

    log_set_level(LOG_OFF);
    (void)pthread_mutex_init(&x->store.guard, NULL);
    x->fake = fake_docker_start();
    fake_docker_model(x->fake, on_call, &x->store);
    cfg.engine = fake_docker_socket(x->fake);
    *state = x;
    return runtime_open("docker", &cfg, &x->rt, &x->e);
}

static int tear_down(void **state)
{
    struct fixture *x = *state;

    runtime_close(x->rt);
    fake_docker_stop(x->fake);
    while (x->store.n)
        forget(&x->store, &x->store.images[0]);
    json_decref(x->store.loaded);
    json_decref(x->store.manifest);
    (void)pthread_mutex_destroy(&x->store.guard);
    free(x);
    return 0;
}

static int make(struct fixture *x)
{
    x->e = (struct err){ 0 };
    x->size = -1;
    return runtime_snapshot_make(x->rt, ID, SNAP, TIMEOUT_MS, &x->size, &x->e);
}

/* Exactly the snapshot is there, and nothing that was needed to make it. */
static void assert_complete(struct fixture *x)
{
    assert_int_equal(x->store.n, 1);
    assert_string_equal(x->store.images[0].name, NAME);
    assert_int_equal(runtime_snapshot_get(x->rt, SNAP, &x->e), 0);
}

static void rule(struct fixture *x, const struct fake_rule *r)
{
    fake_docker_no_rules(x->fake);
    fake_docker_rule(x->fake, r);
}

/* ---- making ---- */

static void nothing_of_the_sandbox_is_in_the_image(void **state)
{
    struct fixture *x = *state;
    AUTO_FREE char *text = NULL;

    assert_int_equal(make(x), 0);
    assert_int_equal(x->size, 4711);
    assert_complete(x);
    text = json_dumps(x->store.loaded, JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(
        text,
        "{\"architecture\":\"amd64\",\"config\":{\"Cmd\":[\"serve\"],\"Entrypoint\":[\"/entry\"],"
        "\"Env\":[\"A=b\"],\"ExposedPorts\":{\"44772/tcp\":{}},\"Healthcheck\":{\"Test\":[\"CMD\","
        "\"true\"]},\"Labels\":{\"keep\":\"me\"},\"User\":\"nobody\"},\"created\":"
        "\"2026-01-02T03:04:05.6Z\",\"history\":[{\"created_by\":\"image\"},{\"created\":"
        "\"2026-01-02T03:04:05.6Z\",\"created_by\":\"snapshot\"}],\"os\":\"linux\",\"rootfs\":{"
        "\"diff_ids\":[\"sha256:a\",\"sha256:b\"],\"type\":\"layers\"}}");
    free(text);
    text = json_dumps(x->store.manifest, JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(text, "[{\"Config\":\"config.json\",\"Layers\":[\"0/layer.tar\","
                              "\"1/layer.tar\"],\"RepoTags\":[\"" NAME "\"]}]");
}

/* The base was removed while the sandbox ran: what the container says, without what is ours. */
static void a_lost_base_image_is_done_without(void **state)
{
    struct fixture *x = *state;
    AUTO_FREE char *text = NULL;

    x->store.no_base = true;
    assert_int_equal(make(x), 0);
    assert_complete(x);
    text = json_dumps(json_object_get(x->store.loaded, "config"), JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(text, "{\"Env\":[\"A=b\"],\"ExposedPorts\":{\"80/tcp\":{}},\"Labels\":{"
                              "\"keep\":\"me\"},\"User\":\"nobody\"}");
}

static void an_unchanged_sandbox_adds_nothing(void **state)
{
    struct fixture *x = *state;
    AUTO_FREE char *text = NULL;

    x->store.unchanged = true;
    assert_int_equal(make(x), 0);
    assert_int_equal(x->size, 0);
    text = json_dumps(json_object_get(x->store.loaded, "history"), JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(text, "[{\"created_by\":\"image\"},{\"created\":\"2026-01-02T03:04:05.6Z\","
                              "\"created_by\":\"snapshot\",\"empty_layer\":true}]");
}

/* An engine with another image store: the committed image itself, its labels blank. */
static void a_refused_load_falls_back(void **state)
{
    struct fixture *x = *state;
    AUTO_FREE char *text = NULL;
    const char *config;

    x->store.refuse_load = true;
    assert_int_equal(make(x), 0);
    assert_int_equal(x->size, 4711);
    assert_complete(x);
    text = json_dumps(json_object_get(x->store.images[0].about, "Config"), JSON_COMPACT);
    config = text;
    assert_null(strstr(config, ID));
    assert_null(strstr(config, INSTANCE));
    assert_null(strstr(config, HASH));
    assert_contains(config, "\"keep\":\"me\"");
    assert_int_equal(runtime_snapshot_remove(x->rt, SNAP, &x->e), 0);
    x->store.refuse_load = false;
    x->store.swallow_load = true;
    assert_int_equal(make(x), 0);
    assert_complete(x);
    assert_int_equal(runtime_snapshot_remove(x->rt, SNAP, &x->e), 0);
    x->store.swallow_load = false;
    rule(x, &(struct fake_rule){ .path = "/images/load", .how = FAKE_REPLY, .status = 501 });
    assert_int_equal(make(x), 0);
    assert_complete(x);
    assert_int_equal(x->store.n, 1);
}

static void making_it_again_changes_nothing(void **state)
{
    struct fixture *x = *state;

    assert_int_equal(make(x), 0);
    x->store.no_sandbox = true; /* it is not needed for that */
    assert_int_equal(make(x), 0);
    assert_int_equal(x->size, 4711);
    assert_int_equal(x->store.commits, 1);
    assert_complete(x);
}

/* The engine, or we, may die in any of its calls; how says whether it was carried out. */
static void die_and_repair(struct fixture *x, enum fake_how how, bool refuse)
{
    const int steps = STEPS;
    int i;

    for (i = 0; i < steps; i++) {
        x->store.refuse_load = refuse;
        rule(x, &(struct fake_rule){ .path = "/", .part = "", .how = how, .skip = i });
        if (make(x) == 0)
            break; /* fewer calls than that */
        fake_docker_no_rules(x->fake);
        fake_docker_revive(x->fake);
        assert_int_equal(make(x), 0);
        assert_complete(x);
        assert_int_equal(x->size, 4711);
        assert_int_equal(runtime_snapshot_remove(x->rt, SNAP, &x->e), 0);
        assert_int_equal(x->store.n, 0);
    }
    assert_in_range(i, 6, steps - 1);
}

static void any_step_may_be_the_last(void **state)
{
    die_and_repair(*state, FAKE_DIE, false);
}

static void any_answer_may_be_lost(void **state)
{
    die_and_repair(*state, FAKE_CARRIED, false);
}

static void any_step_of_the_fallback_may_be_the_last(void **state)
{
    die_and_repair(*state, FAKE_DIE, true);
}

static void an_answer_may_be_cut(void **state)
{
    die_and_repair(*state, FAKE_TRUNCATE, false);
}

static void refusals_are_told_apart(void **state)
{
    struct fixture *x = *state;
    struct fake_rule r = { .path = "/commit",
                           .how = FAKE_REPLY,
                           .status = 500,
                           .body = "{\"message\":\"no space left on device\"}" };

    rule(x, &r);
    assert_int_equal(make(x), -1);
    assert_int_equal(x->e.code, ERRC_INTERNAL);
    assert_string_equal(x->e.api_code, "SNAPSHOT::RUNTIME_CREATE_FAILED");
    assert_contains(x->e.msg, "no space left on device");
    r.status = 409;
    rule(x, &r);
    assert_int_equal(make(x), -1);
    assert_int_equal(x->e.code, ERRC_CONFLICT);
    assert_string_equal(x->e.api_code, "SNAPSHOT::RUNTIME_CREATE_CONFLICT");
    r.status = 404;
    rule(x, &r);
    assert_int_equal(make(x), -1);
    assert_int_equal(x->e.code, ERRC_NOT_FOUND);
    fake_docker_no_rules(x->fake);
    x->store.no_sandbox = true;
    assert_int_equal(make(x), -1);
    assert_int_equal(x->e.code, ERRC_NOT_FOUND);
    assert_string_equal(x->e.api_code, "DOCKER::SANDBOX_NOT_FOUND");
    fake_docker_die(x->fake);
    assert_int_equal(make(x), -1);
    assert_int_equal(x->e.code, ERRC_BUSY);
    assert_int_equal(x->size, -1);
}

static void odd_descriptions_are_failures(void **state)
{
    struct fixture *x = *state;
    struct fake_rule r = { .method = "GET",
                           .path = "/images/",
                           .part = "-part-",
                           .how = FAKE_REPLY,
                           .status = 200,
                           .body = "{\"RootFS\":7}" };

    rule(x, &r);
    assert_int_equal(make(x), -1);
    assert_int_equal(x->e.code, ERRC_BAD_GATEWAY);
    assert_string_equal(x->e.api_code, "SNAPSHOT::RUNTIME_CREATE_FAILED");
    assert_int_equal(x->store.n, 0); /* nothing is left */
    r.body = "no JSON";
    rule(x, &r);
    assert_int_equal(make(x), -1);
    assert_int_equal(x->e.code, ERRC_BAD_GATEWAY);
    r.status = 404;
    rule(x, &r);
    assert_int_equal(make(x), -1);
    assert_int_equal(x->e.code, ERRC_INTERNAL); /* not "no such sandbox" */
    r.part = "/history";
    r.status = 200;
    r.body = "[]";
    rule(x, &r);
    assert_int_equal(make(x), -1);
    assert_int_equal(x->e.code, ERRC_BAD_GATEWAY);
    assert_int_equal(x->store.n, 0);
}

static void the_time_is_for_all_of_it(void **state)
{
    struct fixture *x = *state;
    const struct fake_rule slow = { .path = "/commit", .how = FAKE_PASS, .delay_ms = 1000 };

    rule(x, &slow);
    assert_int_equal(runtime_snapshot_make(x->rt, ID, SNAP, 100, &x->size, &x->e), -1);
    assert_int_equal(x->e.code, ERRC_TIMEOUT);
}

/* ---- the others ---- */

static void a_missing_snapshot_is_not_found(void **state)
{
    struct fixture *x = *state;

    assert_int_equal(runtime_snapshot_get(x->rt, SNAP, &x->e), -1);
    assert_int_equal(x->e.code, ERRC_NOT_FOUND);
    assert_string_equal(x->e.api_code, "SNAPSHOT::NOT_FOUND");
    assert_int_equal(runtime_snapshot_remove(x->rt, SNAP, &x->e), 0);
    rule(x, &(struct fake_rule){ .path = "/images/", .how = FAKE_REPLY, .status = 500 });
    assert_int_equal(runtime_snapshot_get(x->rt, SNAP, &x->e), -1);
    assert_int_equal(x->e.code, ERRC_INTERNAL);
    assert_int_equal(runtime_snapshot_remove(x->rt, SNAP, &x->e), -1);
    assert_int_equal(x->e.code, ERRC_INTERNAL);
}

static void a_snapshot_in_use_stays(void **state)
{
    struct fixture *x = *state;
    struct fake_rule used = { .method = "DELETE",
                              .how = FAKE_REPLY,
                              .status = 409,
                              .body = "{\"message\":\"container c0ffee is using it\"}" };

    assert_int_equal(make(x), 0);
    rule(x, &used);
    assert_int_equal(runtime_snapshot_remove(x->rt, SNAP, &x->e), -1);
    assert_int_equal(x->e.code, ERRC_CONFLICT);
    assert_string_equal(x->e.api_code, "SNAPSHOT::DELETE_CONFLICT");
    assert_contains(x->e.msg, "c0ffee");
    fake_docker_no_rules(x->fake);
    assert_complete(x);
    fake_docker_reset_calls(x->fake);
    assert_int_equal(runtime_snapshot_remove(x->rt, SNAP, &x->e), 0);
    assert_int_equal(
        fake_docker_calls(x->fake, "DELETE /images/opensandbox-snapshots%3A" SNAP "?noprune=1"),
        1); /* and not by force */
    assert_int_equal(x->store.n, 0);
}

static void a_leftover_goes_with_its_snapshot(void **state)
{
    struct fixture *x = *state;

    rule(x, &(struct fake_rule){ .method = "DELETE", .path = "/images/", .how = FAKE_CLOSE });
    assert_int_equal(make(x), 0); /* complete all the same */
    assert_int_equal(x->store.n, 2);
    fake_docker_no_rules(x->fake);
    assert_int_equal(runtime_snapshot_remove(x->rt, SNAP, &x->e), 0);
    assert_int_equal(x->store.n, 0);
}

static size_t images(struct store *s)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&s->guard);

    return s->n;
}

/* The engine comes to the end of a commit whose answer nobody waits for, at any time. */
static void finish(struct store *s, const char *name)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&s->guard);

    put(s, name, json_object(), json_array());
}

static void attempts_do_not_meet(void **state)
{
    struct fixture *x = *state;
    struct store *s = &x->store;
    int64_t size;

    rule(x, &(struct fake_rule){ .path = "/commit", .how = FAKE_CARRIED, .times = 1 });
    assert_int_equal(make(x), -1);
    assert_int_equal(images(s), 1);
    assert_int_equal(make(x), 0); /* another one, which takes the first away */
    assert_int_equal(s->commits, 2);
    assert_string_not_equal(s->parts[0], s->parts[1]);
    assert_complete(x);

    finish(s, PART "-late"); /* that of a third comes to its end now */
    assert_int_equal(make(x), 0);
    assert_complete(x);
    finish(s, PART "-later");
    finish(s, PART); /* as earlier versions called it */
    finish(s, "opensandbox-snapshots:other-part-1");
    assert_int_equal(runtime_snapshot_remove(x->rt, SNAP, &x->e), 0);
    assert_int_equal(images(s), 1); /* of another snapshot */
    assert_int_equal(runtime_snapshot_make(x->rt, ID, SNAP, TIMEOUT_MS, &size, &x->e), 0);
    assert_int_equal(images(s), 2);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(nothing_of_the_sandbox_is_in_the_image),
        TEST(a_lost_base_image_is_done_without),
        TEST(an_unchanged_sandbox_adds_nothing),
        TEST(a_refused_load_falls_back),
        TEST(making_it_again_changes_nothing),
        TEST(any_step_may_be_the_last),
        TEST(any_answer_may_be_lost),
        TEST(any_step_of_the_fallback_may_be_the_last),
        TEST(an_answer_may_be_cut),
        TEST(refusals_are_told_apart),
        TEST(odd_descriptions_are_failures),
        TEST(the_time_is_for_all_of_it),
        TEST(a_missing_snapshot_is_not_found),
        TEST(a_snapshot_in_use_stays),
        TEST(a_leftover_goes_with_its_snapshot),
        TEST(attempts_do_not_meet),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
