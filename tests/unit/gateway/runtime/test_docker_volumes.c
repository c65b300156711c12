/* Named volumes of the Docker runtime against the fake engine with one volume. */
#include "tests/unit/test.h"

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "gateway/runtime/runtime.h"
#include "tests/fakes/fake_docker.h"

#include <jansson.h>
#include <string.h>

#define INSTANCE "ab12cd34-0000-4000-8000-000000000000"
#define ID "11111111-2222-4333-8444-555555555555"
#define ID2 "11111111-2222-4333-8444-666666666666"

/* The engine's only volume; a second name does not occur. */
struct store {
    pthread_mutex_t guard;
    json_t *volume; /* guarded; NULL: none */
};

struct fixture {
    struct fake_docker *fake;
    struct store store;
    struct runtime *rt;
    struct runtime_volume v;
    struct err e;
};

static void make(struct store *s, const struct fake_call *c)
{
    json_t *v = json_loadb(c->body, c->body_len, 0, NULL);

    if (s->volume) { /* the engine keeps what it has */
        json_decref(v);
        return;
    }
    (void)json_object_set_new(
        v, "Mountpoint",
        json_sprintf("/engine/%s/_data", json_string_value(json_object_get(v, "Name"))));
    (void)json_object_set_new(v, "Options", json_null());
    s->volume = v;
}

static enum fake_answer on_call(void *arg, struct fake_call *c)
{
    struct store *s = arg;
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&s->guard);
    AUTO_FREE char *text = NULL;
    const char *name;

    if (strncmp(c->path, "/volumes/", 9) != 0)
        return FAKE_NOT_MINE;
    if (strcmp(c->method, "POST") == 0)
        make(s, c);
    name = json_string_value(json_object_get(s->volume, "Name"));
    c->status = 404;
    if (!name || (strcmp(c->method, "POST") != 0 && strcmp(c->path + 9, name) != 0))
        return FAKE_ANSWERED;
    c->status = strcmp(c->method, "POST") == 0 ? 201 : strcmp(c->method, "GET") == 0 ? 200 : 204;
    text = json_dumps(s->volume, JSON_COMPACT);
    if (c->status != 204) {
        (void)buf_puts(c->reply, text);
    } else {
        json_decref(s->volume);
        s->volume = NULL;
    }
    return FAKE_ANSWERED;
}

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
    json_decref(x->store.volume);
    (void)pthread_mutex_destroy(&x->store.guard);
    free(x);
    return 0;
}

static void answer(struct fixture *x, const char *method, int status, const char *body)
{
    const struct fake_rule r = {
        .method = method, .path = "/volumes", .how = FAKE_REPLY, .status = status, .body = body
    };

    fake_docker_no_rules(x->fake);
    fake_docker_rule(x->fake, &r);
}

static int get(struct fixture *x, const char *name)
{
    x->e = (struct err){ 0 };
    return runtime_volume_get(x->rt, name, &x->v, &x->e);
}

static void one_is_made_for_a_sandbox(void **state)
{
    struct fixture *x = *state;
    char body[1024];

    assert_int_equal(runtime_volume_make(x->rt, "data", ID, &x->e), 0);
    fake_docker_body(x->fake, "POST /volumes/create", body, sizeof(body));
    assert_contains(body, "\"Name\":\"data\"");
    assert_contains(body, "\"Driver\":\"local\"");
    assert_contains(body, "\"sandgate.instance\":\"" INSTANCE "\"");
    assert_contains(body, "\"sandgate.role\":\"volume\"");
    assert_contains(body, "\"sandgate.sandbox\":\"" ID "\"");
    assert_contains(body, "\"opensandbox.io/volume-managed-by\":\"server\"");
    assert_int_equal(get(x, "data"), 0);
    assert_string_equal(x->v.driver, "local");
    assert_string_equal(x->v.path, "/engine/data/_data");
    assert_string_equal(x->v.made_for, ID);
    assert_false(x->v.internal);
}

static void one_that_exists_keeps_its_owner(void **state)
{
    struct fixture *x = *state;

    assert_int_equal(runtime_volume_make(x->rt, "data", ID, &x->e), 0);
    assert_int_equal(runtime_volume_make(x->rt, "data", ID2, &x->e), 0);
    assert_int_equal(get(x, "data"), 0);
    assert_string_equal(x->v.made_for, ID);
    answer(x, "POST", 409, "{\"message\":\"a volume named data already exists\"}");
    assert_int_equal(runtime_volume_make(x->rt, "data", ID2, &x->e), 0); /* of another driver */
}

static void a_missing_one_is_not_found(void **state)
{
    struct fixture *x = *state;

    assert_int_equal(get(x, "data"), -1);
    assert_int_equal(x->e.code, ERRC_NOT_FOUND);
    assert_string_equal(x->e.api_code, "VOLUME::PVC_NOT_FOUND");
    assert_int_equal(runtime_volume_remove(x->rt, "data", ID, &x->e), 0);
}

static void names_are_encoded(void **state)
{
    struct fixture *x = *state;

    assert_int_equal(get(x, "../a b?c#d"), -1);
    assert_int_equal(fake_docker_calls(x->fake, "GET /volumes/..%2Fa%20b%3Fc%23d"), 1);
}

static void the_servers_own_are_internal(void **state)
{
    struct fixture *x = *state;
    static const char *const names[] = { "opensandbox-runtime-1", "opensandbox-win-oem-1",
                                         "sandgate-agent-0123" };
    size_t i;

    for (i = 0; i < 3; i++) {
        assert_int_equal(runtime_volume_make(x->rt, names[i], ID, &x->e), 0);
        assert_int_equal(get(x, names[i]), 0);
        assert_true(x->v.internal);
        assert_int_equal(runtime_volume_remove(x->rt, names[i], ID, &x->e), 0);
        assert_int_equal(get(x, names[i]), 0); /* never removed by this */
        json_decref(x->store.volume);
        x->store.volume = NULL;
    }
    answer(x, "GET", 200,
           "{\"Name\":\"x\",\"Driver\":\"local\",\"Labels\":{\"sandgate.role\":\"agent\"}}");
    assert_int_equal(get(x, "x"), 0);
    assert_true(x->v.internal);
    assert_string_equal(x->v.path, "");
}

/* What another gateway, an administrator or another sandbox made is not ours to remove. */
static void only_the_sandboxes_own_is_removed(void **state)
{
    struct fixture *x = *state;
    static const char *const labels[] = {
        "null",
        "{}",
        "{\"opensandbox.io/volume-managed-by\":\"server\"}",
        "{\"sandgate.instance\":\"another\",\"sandgate.role\":\"volume\",\"sandgate.sandbox\":\"" ID
        "\"}",
        "{\"sandgate.instance\":\"" INSTANCE "\",\"sandgate.sandbox\":\"" ID "\"}",
        "{\"sandgate.instance\":\"" INSTANCE
        "\",\"sandgate.role\":\"volume\",\"sandgate.sandbox\":\"" ID2 "\"}",
    };
    char body[512];
    size_t i;

    for (i = 0; i < sizeof(labels) / sizeof(labels[0]); i++) {
        (void)snprintf(body, sizeof(body), "{\"Name\":\"x\",\"Driver\":\"local\",\"Labels\":%s}",
                       labels[i]);
        answer(x, "GET", 200, body);
        assert_int_equal(runtime_volume_remove(x->rt, "x", ID, &x->e), 0);
        assert_int_equal(runtime_volume_remove(x->rt, "x", "", &x->e), 0);
    }
    assert_int_equal(fake_docker_calls(x->fake, "DELETE "), 0);
    fake_docker_no_rules(x->fake);
    assert_int_equal(runtime_volume_make(x->rt, "data", ID, &x->e), 0);
    assert_int_equal(runtime_volume_remove(x->rt, "data", ID, &x->e), 0);
    assert_int_equal(get(x, "data"), -1);
}

static void one_in_use_is_a_conflict(void **state)
{
    struct fixture *x = *state;

    assert_int_equal(runtime_volume_make(x->rt, "data", ID, &x->e), 0);
    answer(x, "DELETE", 409, "{\"message\":\"remove data: volume is in use - [c0ffee]\"}");
    assert_int_equal(runtime_volume_remove(x->rt, "data", ID, &x->e), -1);
    assert_int_equal(x->e.code, ERRC_CONFLICT);
    assert_contains(x->e.msg, "c0ffee");
    answer(x, "DELETE", 404, "{\"message\":\"no such volume\"}");
    assert_int_equal(runtime_volume_remove(x->rt, "data", ID, &x->e), 0); /* somebody was faster */
}

/* A share or a directory behind the local driver is at its path only while it is mounted. */
static void a_device_has_no_path(void **state)
{
    struct fixture *x = *state;

    answer(x, "GET", 200,
           "{\"Name\":\"x\",\"Driver\":\"local\",\"Mountpoint\":\"/v/x\",\"Labels\":null,"
           "\"Options\":{\"device\":\":/export\",\"type\":\"nfs\"}}");
    assert_int_equal(get(x, "x"), 0);
    assert_string_equal(x->v.path, "");
    answer(x, "GET", 200,
           "{\"Name\":\"x\",\"Driver\":\"rexray\",\"Mountpoint\":\"/v/x\",\"Labels\":{}}");
    assert_int_equal(get(x, "x"), 0);
    assert_string_equal(x->v.driver, "rexray");
}

static void failures_are_told_apart(void **state)
{
    struct fixture *x = *state;

    answer(x, NULL, 500, "{\"message\":\"driver is down\"}");
    assert_int_equal(get(x, "x"), -1);
    assert_int_equal(x->e.code, ERRC_INTERNAL);
    assert_string_equal(x->e.api_code, "VOLUME::PVC_INSPECT_FAILED");
    assert_contains(x->e.msg, "driver is down");
    assert_int_equal(runtime_volume_make(x->rt, "x", ID, &x->e), -1);
    assert_int_equal(x->e.code, ERRC_INTERNAL);
    assert_int_equal(runtime_volume_remove(x->rt, "x", ID, &x->e), -1);
    assert_int_equal(x->e.code, ERRC_INTERNAL);
    answer(x, NULL, 400, "{\"message\":\"includes invalid characters\"}");
    assert_int_equal(runtime_volume_make(x->rt, "x", ID, &x->e), -1);
    assert_int_equal(x->e.code, ERRC_INVALID);
    assert_string_equal(x->e.api_code, "VOLUME::INVALID_PVC_NAME");
    answer(x, NULL, 200, "[");
    assert_int_equal(get(x, "x"), -1);
    assert_int_equal(x->e.code, ERRC_BAD_GATEWAY);
    fake_docker_die(x->fake);
    assert_int_equal(get(x, "x"), -1);
    assert_int_equal(x->e.code, ERRC_BUSY);
    assert_int_equal(runtime_volume_remove(x->rt, "x", ID, &x->e), -1);
    assert_int_equal(x->e.code, ERRC_BUSY);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(one_is_made_for_a_sandbox),    TEST(one_that_exists_keeps_its_owner),
        TEST(a_missing_one_is_not_found),   TEST(names_are_encoded),
        TEST(the_servers_own_are_internal), TEST(only_the_sandboxes_own_is_removed),
        TEST(one_in_use_is_a_conflict),     TEST(a_device_has_no_path),
        TEST(failures_are_told_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
