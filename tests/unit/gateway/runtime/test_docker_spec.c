/* What the Docker runtime asks of the engine for a sandbox, and what it makes of refusals. */
#include "tests/unit/gateway/runtime/docker_fixture.h"

#include "common/base/macros.h"
#include "gateway/runtime/docker/binds.h"

#define INVALID "SANDBOX::INVALID_PARAMETER"
#define START_FAILED "DOCKER::SANDBOX_START_FAILED"

static const struct runtime_mount mounts[] = {
    { .source = "/srv/data", .target = "/data", .read_only = true },
    { .named = true, .source = "work", .target = "/work" },
};

static struct runtime_spec full_spec(void)
{
    return (struct runtime_spec){ .id = ID,
                                  .image.ref = "img:1",
                                  .memory_bytes = 64 << 20,
                                  .nano_cpus = 500000000,
                                  .disk_bytes = INT64_C(5) << 30,
                                  .gpus = 2,
                                  .mounts = mounts,
                                  .n_mounts = ARRAY_LEN(mounts),
                                  .claim_sha256 = HASH };
}

static int start_spec(struct fixture *x, const struct runtime_spec *spec)
{
    x->e = (struct err){ 0 };
    return runtime_start_held(x->rt, spec, &x->place, &x->e);
}

/* ---- the body ---- */

static void mounts_are_bound_or_named(void **state)
{
    struct fixture *x = *state;
    const struct runtime_spec spec = full_spec();
    char body[8192];

    prepare(x);
    assert_int_equal(start_spec(x, &spec), 0);
    assert_int_equal(fake_docker_calls(x->fake, ""), 3);
    created_body(x, body, sizeof(body));
    assert_contains(body, "{\"Type\":\"bind\",\"Source\":\"/srv/data\",\"Target\":\"/data\","
                          "\"ReadOnly\":true,\"BindOptions\":{}}");
    assert_contains(body, "{\"Type\":\"volume\",\"Source\":\"work\",\"Target\":\"/work\","
                          "\"ReadOnly\":false,\"VolumeOptions\":{\"NoCopy\":false}}");
    assert_null(strstr(body, "\"Binds\"")); /* those would make what is missing */
}

/* The capability, mounts for AppArmor, a place for upper layers; nothing else is loosened. */
static void isolation_is_asked_for(void **state)
{
    static const char *const drop[] = { "NET_RAW", "CAP_SYS_ADMIN", NULL };
    struct fixture *x = *state;
    struct runtime_spec spec = full_spec();
    char body[8192];

    x->cfg.drop_capabilities = drop;
    x->cfg.no_new_privileges = true;
    x->cfg.apparmor_profile = "box";
    assert_int_equal(reopen(x), 0);
    prepare(x);
    spec.isolation = true;
    assert_int_equal(start_spec(x, &spec), 0);
    created_body(x, body, sizeof(body));
    assert_contains(body, "\"CapAdd\":[\"SYS_ADMIN\"]");
    assert_contains(body, "\"CapDrop\":[\"NET_RAW\"]");
    assert_contains(body, "\"SecurityOpt\":[\"no-new-privileges=true\",\"apparmor=unconfined\"]");
    assert_contains(body, "\"Target\":\"/var/lib/execd/isolation\",\"TmpfsOptions\":{\"SizeBytes\":"
                          "8589934592,\"Mode\":493}");
    assert_contains(body, "\"--isolation\"]");
    assert_null(strstr(body, "seccomp"));
    assert_null(strstr(body, "MaskedPaths"));
    assert_null(strstr(body, "Privileged"));
}

static void the_operators_binds_are_in_every_sandbox(void **state)
{
    static const char *const binds[] = { "/etc/ca:/etc/ca:ro", "cache:/cache", "/:/host:rw", NULL };
    struct fixture *x = *state;
    char body[8192];

    x->cfg.binds = binds;
    assert_int_equal(reopen(x), 0);
    assert_int_equal(start(x), 0);
    created_body(x, body, sizeof(body));
    assert_contains(body, "{\"Type\":\"bind\",\"Source\":\"/etc/ca\",\"Target\":\"/etc/ca\","
                          "\"ReadOnly\":true,");
    assert_contains(body, "{\"Type\":\"volume\",\"Source\":\"cache\",\"Target\":\"/cache\","
                          "\"ReadOnly\":false,");
    assert_contains(body, "{\"Type\":\"bind\",\"Source\":\"/\",\"Target\":\"/host\","
                          "\"ReadOnly\":false,");
}

static void bad_binds_are_refused_at_the_start(void **state)
{
    static const char *const bad[] = {
        "",
        "/a",
        "/a:",
        ":/a",
        "/a:b",
        "/a:/b:rx",
        "/a:/b:ro:",
        "/a:/",
        "/a:/b/",
        "/a/../b:/c",
        "/a:/b//c",
        "/a:/./b",
        "a b:/c",
        ".a:/c",
        "/a:/opt",
        "/a:/proc/x",
        "/a:/dev/shm",
        "/a:/sys",
        "/a:/opt/opensandbox",
        "/a:/opt/opensandbox/agent/x",
    };
    struct fixture *x = *state;
    const char *list[3] = { NULL };
    size_t i;

    x->cfg.binds = list;
    for (i = 0; i < ARRAY_LEN(bad); i++) {
        list[0] = bad[i];
        if (reopen(x) == 0)
            fail_msg("\"%s\" was accepted", bad[i]);
        assert_int_equal(x->e.code, ERRC_INVALID);
        assert_contains(x->e.msg, "docker.sandbox_binds");
        assert_contains(x->e.msg, bad[i]);
    }
    list[0] = "/a:/b";
    list[1] = "/c:/b:ro";
    assert_int_equal(reopen(x), -1);
    assert_contains(x->e.msg, "two entries");
}

static void binds_have_a_limit(void **state)
{
    static const char *list[BINDS_MAX + 2];
    char text[BINDS_MAX + 1][32];
    struct binds b = { 0 };
    struct err e = { 0 };
    int i;

    (void)state;
    for (i = 0; i <= BINDS_MAX; i++) {
        (void)snprintf(text[i], sizeof(text[i]), "/s:/t%d", i);
        list[i] = text[i];
    }
    assert_int_equal(binds_parse(list, &b, &e), -1);
    assert_contains(e.msg, "more than");
    binds_free(&b);
    list[BINDS_MAX] = NULL;
    assert_int_equal(binds_parse(list, &b, &e), 0);
    binds_free(&b);
}

static void gpus_and_disk_are_asked_for(void **state)
{
    struct fixture *x = *state;
    struct runtime_spec spec = full_spec();
    char body[8192];

    assert_int_equal(start_spec(x, &spec), 0);
    created_body(x, body, sizeof(body));
    assert_contains(body, "\"DeviceRequests\":[{\"Driver\":\"\",\"Count\":2,\"DeviceIDs\":[],"
                          "\"Capabilities\":[[\"gpu\"]],\"Options\":{}}]");
    assert_contains(body, "\"StorageOpt\":{\"size\":\"5368709120\"}");
    assert_int_equal(runtime_remove(x->rt, ID, &x->e), 0);
    spec.gpus = RUNTIME_GPUS_ALL;
    spec.disk_bytes = 0;
    assert_int_equal(start_spec(x, &spec), 0);
    created_body(x, body, sizeof(body));
    assert_contains(body, "\"Count\":-1");
    assert_null(strstr(body, "StorageOpt"));
}

static void the_output_has_a_cap_or_none(void **state)
{
    struct fixture *x = *state;
    char body[8192];

    x->cfg.log_max_mb = 3;
    assert_int_equal(reopen(x), 0);
    assert_int_equal(start(x), 0);
    created_body(x, body, sizeof(body));
    assert_contains(body, "\"Config\":{\"max-size\":\"3m\",\"max-file\":\"2\"}");
    assert_int_equal(runtime_remove(x->rt, ID, &x->e), 0);
    x->cfg.log_max_mb = 0;
    assert_int_equal(reopen(x), 0);
    assert_int_equal(start(x), 0);
    created_body(x, body, sizeof(body));
    assert_contains(body, "\"LogConfig\":{\"Type\":\"json-file\",\"Config\":{}}");
}

/* ---- refusals that the client can put right ---- */

struct refusal {
    const char *part; /* of the path */
    int status;
    const char *text; /* of the engine */
    const char *field;
};

static const struct refusal clients[] = {
    { "/start", 500, "could not select device driver \\\"\\\" with capabilities: [[gpu]]",
      "resourceLimits.gpu" },
    { "create", 500,
      "--storage-opt is supported only for overlay over xfs with 'pquota' mount option",
      "resourceLimits.disk" },
    { "create", 400, "Minimum memory limit allowed is 6MB", "resourceLimits.memory" },
    { "/start", 400, "container init was OOM-killed (memory limit too low?)",
      "resourceLimits.memory" },
    { "create", 400, "Range of CPUs is from 0.01 to 2.00, as there are only 2 CPUs available",
      "resourceLimits.cpu" },
    { "create", 400, "invalid reference format: repository name must be lowercase", "image.uri" },
    { "create", 400,
      "invalid mount config for type \\\"bind\\\": bind source path does not exist: /srv/data",
      "volumes: /data" },
    { "create", 400, "Duplicate mount point: /work", "volumes: /work" },
    { "/start", 400,
      "error mounting \\\"/srv/data\\\" to rootfs at \\\"/data\\\": not a directory: unknown",
      "volumes: /data" },
};

static void a_clients_mistake_names_the_field(void **state)
{
    struct fixture *x = *state;
    const struct runtime_spec spec = full_spec();
    char body[512];
    size_t i;

    prepare(x);
    for (i = 0; i < ARRAY_LEN(clients); i++) {
        (void)snprintf(body, sizeof(body), "{\"message\":\"%s\"}", clients[i].text);
        fail_next(x, "/containers/", clients[i].part, clients[i].status, body);
        assert_int_equal(start_spec(x, &spec), -1);
        assert_int_equal(x->e.code, ERRC_INVALID);
        assert_string_equal(x->e.api_code, INVALID);
        assert_contains(x->e.msg, clients[i].field);
        assert_int_equal(fake_docker_containers(x->fake, NULL), 0);
    }
}

/* The same words mean nothing to a client that did not ask for it. */
static void what_was_not_asked_for_is_not_the_clients(void **state)
{
    struct fixture *x = *state;
    const struct runtime_spec spec = { .id = ID, .image.ref = "img:1", .claim_sha256 = HASH };
    char body[512];
    size_t i;

    prepare(x);
    for (i = 0; i < ARRAY_LEN(clients); i++) {
        if (strcmp(clients[i].field, "image.uri") == 0)
            continue;
        (void)snprintf(body, sizeof(body), "{\"message\":\"%s\"}", clients[i].text);
        fail_next(x, "/containers/", clients[i].part, clients[i].status, body);
        assert_int_equal(start_spec(x, &spec), -1);
        assert_int_equal(x->e.code, ERRC_INTERNAL);
        assert_string_equal(x->e.api_code, START_FAILED);
    }
}

/* ---- refusals that the operator can put right ---- */

static void the_operators_mistake_names_the_key(void **state)
{
    static const char *const binds[] = { "/gone:/conf", NULL };
    static const struct refusal cases[] = {
        { "create", 400,
          "invalid mount config for type \\\"bind\\\": bind source path does not exist: /gone",
          "docker.sandbox_binds" },
        { "/start", 500,
          "unable to apply apparmor profile: apparmor failed to apply profile: write /proc/self/"
          "attr/apparmor/exec: no such file or directory",
          "docker.apparmor_profile" },
        { "create", 400, "Unknown runtime specified runsc", "secure_runtime" },
        { "create", 400, "unknown or invalid runtime name: runsc", "secure_runtime" },
    };
    struct fixture *x = *state;
    char body[512];
    size_t i;

    x->cfg.binds = binds;
    x->cfg.apparmor_profile = "box";
    x->cfg.docker_runtime = "runsc";
    assert_int_equal(reopen(x), 0);
    prepare(x);
    for (i = 0; i < ARRAY_LEN(cases); i++) {
        (void)snprintf(body, sizeof(body), "{\"message\":\"%s\"}", cases[i].text);
        fail_next(x, "/containers/", cases[i].part, cases[i].status, body);
        assert_int_equal(start(x), -1);
        assert_int_equal(x->e.code, ERRC_INTERNAL);
        assert_string_equal(x->e.api_code, START_FAILED);
        assert_contains(x->e.msg, cases[i].field);
        assert_int_equal(fake_docker_containers(x->fake, NULL), 0);
    }
}

static void a_client_cannot_blame_the_operators_bind(void **state)
{
    static const char *const binds[] = { "/srv:/work", NULL };
    struct fixture *x = *state;
    const struct runtime_spec spec = full_spec();

    x->cfg.binds = binds;
    assert_int_equal(reopen(x), 0);
    prepare(x);
    fail_next(x, "/containers/create", NULL, 400, "{\"message\":\"Duplicate mount point: /work\"}");
    assert_int_equal(start_spec(x, &spec), -1);
    assert_int_equal(x->e.code, ERRC_INVALID);
    assert_contains(x->e.msg, "volumes: /work");
}

/* An image may be called anything. */
static void names_are_not_taken_for_faults(void **state)
{
    struct fixture *x = *state;

    prepare(x);
    fail_next(x, "/containers/create", NULL, 404,
              "{\"message\":\"No such image: network/not found no such volume\"}");
    assert_int_equal(start(x), -1);
    assert_int_equal(x->e.code, ERRC_NOT_FOUND);
    assert_int_equal(fake_docker_calls(x->fake, ""), 1);
}

/* ERRC_NOT_FOUND means the image: whatever else is gone must not make the caller pull. */
static void only_an_image_is_not_found(void **state)
{
    struct fixture *x = *state;

    fail_next(x, "/networks/create", NULL, 404, "{\"message\":\"page not found\"}");
    assert_int_equal(start(x), -1);
    assert_int_not_equal(x->e.code, ERRC_NOT_FOUND);
    prepare(x);
    fail_next(x, "/containers/sandbox-", "/start", 404, "{\"message\":\"No such container\"}");
    assert_int_equal(start(x), -1);
    assert_int_equal(x->e.code, ERRC_INTERNAL);
    fail_next(x, "/containers/sandbox-", "/json", 404, "{\"message\":\"No such container\"}");
    assert_int_equal(start(x), -1);
    assert_int_equal(x->e.code, ERRC_INTERNAL);
    assert_string_equal(x->e.api_code, START_FAILED);
}

/* ---- what only the engine can tell ---- */

static void the_secure_runtime_is_looked_for_once(void **state)
{
    struct fixture *x = *state;

    assert_int_equal(runtime_prepare(x->rt, &x->e), 0);
    assert_int_equal(fake_docker_calls(x->fake, "GET /info"), 0); /* nothing to ask */
    x->cfg.docker_runtime = "runsc";
    assert_int_equal(reopen(x), 0);
    assert_int_equal(runtime_prepare(x->rt, &x->e), 0);
    assert_int_equal(runtime_prepare(x->rt, &x->e), 0);
    assert_int_equal(start(x), 0);
    assert_int_equal(fake_docker_calls(x->fake, "GET /info"), 1);
    fake_docker_die(x->fake); /* another engine may come */
    assert_int_equal(runtime_prepare(x->rt, &x->e), 0);
    assert_int_equal(runtime_pause(x->rt, ID, &x->e), -1);
    fake_docker_revive(x->fake);
    assert_int_equal(runtime_prepare(x->rt, &x->e), 0);
    assert_int_equal(fake_docker_calls(x->fake, "GET /info"), 2);
}

static void a_missing_secure_runtime_is_said(void **state)
{
    struct fixture *x = *state;

    x->cfg.docker_runtime = "kata-runtime";
    assert_int_equal(reopen(x), 0);
    assert_int_equal(runtime_prepare(x->rt, &x->e), -1);
    assert_string_equal(x->e.api_code, "DOCKER::INITIALIZATION_ERROR");
    assert_contains(x->e.msg, "kata-runtime");
    assert_contains(x->e.msg, "secure_runtime");
    assert_int_equal(start(x), -1);
    assert_int_equal(fake_docker_containers(x->fake, NULL), 0);
}

/* An engine without AppArmor takes any profile and applies none. */
static void apparmor_must_be_there(void **state)
{
    struct fixture *x = *state;

    x->cfg.apparmor_profile = "box";
    assert_int_equal(reopen(x), 0);
    fail_next(x, "/info", NULL, 200, "{\"SecurityOptions\":[\"name=seccomp,profile=default\"]}");
    assert_int_equal(runtime_prepare(x->rt, &x->e), -1);
    assert_string_equal(x->e.api_code, "DOCKER::INITIALIZATION_ERROR");
    assert_contains(x->e.msg, "docker.apparmor_profile = \"box\"");
    assert_int_equal(runtime_prepare(x->rt, &x->e), 0); /* switched on meanwhile */
    x->cfg.apparmor_profile = "unconfined";
    assert_int_equal(reopen(x), 0);
    fake_docker_reset_calls(x->fake);
    assert_int_equal(runtime_prepare(x->rt, &x->e), 0);
    assert_int_equal(fake_docker_calls(x->fake, "GET /info"), 0);
}

/* ---- hanging ---- */

/* Every call of a start hangs beyond its deadline once: an error, and nothing is left. */
static void a_hanging_engine_leaves_nothing(void **state)
{
    static const char *const parts[] = { "create?name=sandbox", "/start", "/json" };
    struct fixture *x = *state;
    size_t i;

    x->cfg.api_timeout_s = 1;
    assert_int_equal(reopen(x), 0);
    prepare(x);
    for (i = 0; i < ARRAY_LEN(parts); i++) {
        fake_docker_rule(x->fake, &(struct fake_rule){ .path = "/containers/",
                                                       .part = parts[i],
                                                       .how = FAKE_CLOSE,
                                                       .delay_ms = 600000,
                                                       .times = 1 });
        assert_int_equal(start(x), -1);
        assert_int_equal(x->e.code, ERRC_TIMEOUT);
        assert_int_equal(fake_docker_containers(x->fake, NULL), 0);
    }
    assert_int_equal(start(x), 0);
}

/* The connection breaks instead of the call, after it, or in the middle of the answer. The HTTP client
 * sends again what broke on a kept connection, so that some of it succeeds. */
static void a_broken_call_leaves_nothing(void **state)
{
    static const char *const parts[] = { "create?name=sandbox", "/start", "/json" };
    static const enum fake_how hows[] = { FAKE_CLOSE, FAKE_CARRIED, FAKE_TRUNCATE };
    struct fixture *x = *state;
    size_t i;
    size_t k;

    prepare(x);
    for (i = 0; i < ARRAY_LEN(parts); i++)
        for (k = 0; k < ARRAY_LEN(hows); k++) {
            if (hows[k] == FAKE_TRUNCATE && i == 1)
                continue; /* its answer has no body */
            fake_docker_rule(x->fake, &(struct fake_rule){ .path = "/containers/",
                                                           .part = parts[i],
                                                           .how = hows[k],
                                                           .times = 1 });
            if (start(x) == 0) {
                assert_int_equal(fake_docker_containers(x->fake, "running"), 1);
                assert_int_equal(runtime_remove(x->rt, ID, &x->e), 0);
            }
            assert_int_equal(fake_docker_containers(x->fake, NULL), 0);
            fake_docker_no_rules(x->fake);
        }
    assert_int_equal(start(x), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(mounts_are_bound_or_named),
        TEST(isolation_is_asked_for),
        TEST(the_operators_binds_are_in_every_sandbox),
        TEST(bad_binds_are_refused_at_the_start),
        cmocka_unit_test(binds_have_a_limit),
        TEST(gpus_and_disk_are_asked_for),
        TEST(the_output_has_a_cap_or_none),
        TEST(a_clients_mistake_names_the_field),
        TEST(what_was_not_asked_for_is_not_the_clients),
        TEST(the_operators_mistake_names_the_key),
        TEST(a_client_cannot_blame_the_operators_bind),
        TEST(names_are_not_taken_for_faults),
        TEST(only_an_image_is_not_found),
        TEST(the_secure_runtime_is_looked_for_once),
        TEST(a_missing_secure_runtime_is_said),
        TEST(apparmor_must_be_there),
        TEST(a_hanging_engine_leaves_nothing),
        TEST(a_broken_call_leaves_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
