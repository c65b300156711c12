/* The Docker runtime against the fake engine: calls per operation, pulls, death at every step. */
#include "gateway/runtime/docker/image.h"
#include "tests/unit/gateway/runtime/docker_fixture.h"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CREATORS = 8 };

/* ---- the hot path ---- */

static void a_start_is_three_calls(void **state)
{
    struct fixture *x = *state;

    prepare(x);
    assert_int_equal(start(x), 0);
    assert_int_equal(fake_docker_calls(x->fake, ""), 3);
    assert_int_equal(fake_docker_calls(x->fake, "POST /containers/create?name=sandbox-" ID), 1);
    assert_int_equal(fake_docker_calls(x->fake, "POST /containers/sandbox-" ID "/start"), 1);
    assert_int_equal(fake_docker_calls(x->fake, "GET /containers/sandbox-" ID "/json"), 1);
    assert_string_equal(x->place.address, "10.9.0.3");
    assert_int_equal(x->place.agent_port, 44772);
    assert_string_equal(x->place.host_address, "127.0.0.1");
    assert_int_equal(x->place.host_port, 32768);
}

static void the_other_verbs_are_one_call_each(void **state)
{
    struct fixture *x = *state;
    struct runtime_status st;
    struct runtime_list list;

    prepare(x);
    assert_int_equal(start(x), 0);
    fake_docker_reset_calls(x->fake);
    assert_int_equal(runtime_status(x->rt, ID, &st, &x->e), 0);
    assert_int_equal(runtime_list(x->rt, &list, &x->e), 0);
    runtime_list_free(&list);
    assert_int_equal(runtime_pause(x->rt, ID, &x->e), 0);
    assert_int_equal(runtime_resume(x->rt, ID, &x->e), 0);
    assert_int_equal(runtime_remove(x->rt, ID, &x->e), 0);
    assert_int_equal(fake_docker_calls(x->fake, ""), 5);
}

/* The sweep prepares before each look: that costs nothing while the engine stays the same. */
static void preparing_again_costs_nothing(void **state)
{
    struct fixture *x = *state;

    prepare(x);
    assert_int_equal(runtime_prepare(x->rt, &x->e), 0);
    assert_int_equal(fake_docker_calls(x->fake, ""), 0);
    fake_docker_die(x->fake);
    assert_int_equal(runtime_remove(x->rt, ID, &x->e), -1);
    fake_docker_revive(x->fake);
    assert_int_equal(runtime_prepare(x->rt, &x->e), 0);
    assert_true(fake_docker_calls(x->fake, "") > 0);
}

static void the_request_says_what_the_design_says(void **state)
{
    static const char *const parts[] = {
        "\"Entrypoint\":[\"/opt/opensandbox/agent/execd\"]",
        "\"Cmd\":[\"--held\",\"--id=" ID "\",\"--claim-sha256=" HASH "\"]",
        "\"sandgate.instance\":\"" INSTANCE "\"",
        "\"sandgate.role\":\"sandbox\"",
        "\"opensandbox.io/id\":\"" ID "\"",
        "\"NetworkMode\":\"sandgate-ab12cd34\"",
        "\"44772/tcp\":[{\"HostIp\":\"127.0.0.1\",\"HostPort\":\"\"}]",
        "{\"Type\":\"tmpfs\",\"Target\":\"/opt/opensandbox\",\"TmpfsOptions\":{\"SizeBytes\":"
        "16777216,\"Mode\":1023}}",
        "\"Target\":\"/opt/opensandbox/agent\",\"ReadOnly\":true,\"VolumeOptions\":{\"NoCopy\":"
        "true}",
        "\"CapDrop\":[\"NET_RAW\",\"SYS_ADMIN\"]",
        "\"SecurityOpt\":[\"no-new-privileges=true\"]",
        "\"Memory\":67108864,\"MemorySwap\":67108864",
        "\"NanoCpus\":500000000",
        "\"PidsLimit\":4096",
        "\"ReadonlyRootfs\":false",
        "\"Healthcheck\":{\"Test\":[\"NONE\"]}",
        "\"LogConfig\":{\"Type\":\"json-file\",\"Config\":{\"max-size\":\"10m\",\"max-file\":\"2\"}}",
    };
    struct fixture *x = *state;
    char body[8192];
    size_t i;

    assert_int_equal(start(x), 0);
    fake_docker_body(x->fake, "POST /containers/create?name=sandbox-", body, sizeof(body));
    for (i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        assert_contains(body, parts[i]);
    assert_null(strstr(body, "\"Env\""));
    assert_null(strstr(body, "RestartPolicy"));
    assert_null(strstr(body, "\"Runtime\""));
}

/* The engine's API takes the profile itself, not the name of a file. */
static void the_seccomp_profile_is_read_and_sent(void **state)
{
    struct fixture *x = *state;
    char path[] = "/tmp/test-seccomp-XXXXXX";
    int fd = mkstemp(path);
    struct runtime_config cfg = x->cfg;
    char body[8192];

    assert_true(fd >= 0);
    assert_int_equal(write(fd, "{ \"defaultAction\": \"X\" }", 24), 24);
    cfg.seccomp_profile = path;
    cfg.apparmor_profile = "box";
    cfg.docker_runtime = "runsc";
    runtime_close(x->rt);
    x->rt = NULL;
    assert_int_equal(runtime_open("docker", &cfg, &x->rt, &x->e), 0);
    assert_int_equal(start(x), 0);
    fake_docker_body(x->fake, "POST /containers/create?name=sandbox-", body, sizeof(body));
    assert_contains(body, "\"seccomp={\\\"defaultAction\\\":\\\"X\\\"}\",\"apparmor=box\"");
    assert_contains(body, "\"Runtime\":\"runsc\"");

    runtime_close(x->rt);
    x->rt = NULL;
    assert_int_equal(ftruncate(fd, 5), 0);
    assert_int_equal(runtime_open("docker", &cfg, &x->rt, &x->e), -1);
    assert_contains(x->e.msg, path);
    (void)close(fd);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(runtime_open("docker", &cfg, &x->rt, &x->e), -1);
}

static void unlimited_means_absent(void **state)
{
    struct fixture *x = *state;
    const struct runtime_spec spec = { .id = ID, .image.ref = "img:1", .claim_sha256 = HASH };
    char body[8192];

    assert_int_equal(runtime_start_held(x->rt, &spec, &x->place, &x->e), 0);
    fake_docker_body(x->fake, "POST /containers/create?name=sandbox-", body, sizeof(body));
    assert_null(strstr(body, "Memory"));
    assert_null(strstr(body, "NanoCpus"));
}

/* ---- preparation ---- */

static void preparation_makes_network_image_and_volume_once(void **state)
{
    struct fixture *x = *state;
    struct runtime *other;

    assert_int_equal(runtime_prepare(x->rt, &x->e), 0);
    assert_int_equal(fake_docker_calls(x->fake, "POST /networks/create"), 1);
    assert_int_equal(
        fake_docker_calls(x->fake, "POST /images/create?fromSrc=-&repo=sandgate-agent"), 1);
    assert_int_equal(fake_docker_containers(x->fake, NULL), 0); /* the helper is gone */
    assert_int_equal(fake_docker_calls(x->fake, "POST /containers/sandgate-agent"), 0);

    fake_docker_reset_calls(x->fake); /* the next start of the gateway only looks */
    assert_int_equal(runtime_open("docker", &x->cfg, &other, &x->e), 0);
    assert_int_equal(runtime_prepare(other, &x->e), 0);
    assert_int_equal(fake_docker_calls(x->fake, "POST /networks/create"), 0);
    assert_int_equal(fake_docker_calls(x->fake, "POST /images/create"), 0);
    assert_int_equal(fake_docker_calls(x->fake, "GET /containers/sandgate-agent"), 1);
    runtime_close(other);
}

/* Address ranges of an engine are few. */
static void an_idle_instance_takes_its_network_with_it(void **state)
{
    struct fixture *x = *state;

    assert_int_equal(start(x), 0);
    runtime_close(x->rt);
    assert_int_equal(fake_docker_calls(x->fake, "DELETE /networks/"), 0);
    assert_int_equal(runtime_open("docker", &x->cfg, &x->rt, &x->e), 0);
    assert_int_equal(runtime_prepare(x->rt, &x->e), 0);
    assert_int_equal(runtime_remove(x->rt, ID, &x->e), 0);
    runtime_close(x->rt);
    assert_int_equal(fake_docker_calls(x->fake, "DELETE /networks/sandgate-ab12cd34"), 1);
    x->rt = NULL;
}

static void a_foreign_network_of_our_name_is_not_taken(void **state)
{
    struct fixture *x = *state;
    struct runtime *other;
    struct runtime_config cfg = x->cfg;

    assert_int_equal(runtime_prepare(x->rt, &x->e), 0);
    cfg.instance = "ab12cd34-ffff-4000-8000-000000000000";
    assert_int_equal(runtime_open("docker", &cfg, &other, &x->e), 0);
    assert_int_equal(runtime_prepare(other, &x->e), -1);
    assert_int_equal(x->e.code, ERRC_CONFLICT);
    assert_contains(x->e.msg, "docker network rm sandgate-ab12cd34");
    runtime_close(other);
}

static void a_named_network_must_exist(void **state)
{
    struct fixture *x = *state;
    struct runtime *other;
    struct runtime_config cfg = x->cfg;

    cfg.network_mode = "corp";
    assert_int_equal(runtime_open("docker", &cfg, &other, &x->e), 0);
    assert_int_equal(runtime_prepare(other, &x->e), -1);
    assert_int_equal(x->e.code, ERRC_INVALID);
    assert_string_equal(x->e.api_code, "SANDBOX::INVALID_PARAMETER");
    runtime_close(other);
    cfg.network_mode = "host";
    assert_int_equal(runtime_open("docker", &cfg, &other, &x->e), -1);
}

static void addresses_of_sandboxes_are_known(void **state)
{
    struct fixture *x = *state;

    assert_false(runtime_is_sandbox_address(x->rt, "10.9.0.2"));
    assert_int_equal(runtime_prepare(x->rt, &x->e), 0);
    assert_true(runtime_is_sandbox_address(x->rt, "10.9.0.2"));
    assert_true(runtime_is_sandbox_address(x->rt, "10.9.255.255"));
    assert_true(runtime_is_sandbox_address(x->rt, "::ffff:10.9.1.1"));
    assert_false(runtime_is_sandbox_address(x->rt, "10.9.0.1")); /* the host's own end */
    assert_false(runtime_is_sandbox_address(x->rt, "10.10.0.1"));
    assert_false(runtime_is_sandbox_address(x->rt, "127.0.0.1"));
    assert_false(runtime_is_sandbox_address(x->rt, "::1"));
    assert_false(runtime_is_sandbox_address(x->rt, "rubbish"));
}

/* Another volume is filled, the bad one is dropped. */
static void a_spoiled_volume_is_replaced(void **state)
{
    struct fixture *x = *state;
    struct runtime *other;
    char body[8192];

    assert_int_equal(runtime_prepare(x->rt, &x->e), 0);
    fake_docker_spoil(x->fake);
    fake_docker_reset_calls(x->fake);
    assert_int_equal(runtime_open("docker", &x->cfg, &other, &x->e), 0);
    assert_int_equal(runtime_prepare(other, &x->e), 0);
    runtime_close(other);
    assert_int_equal(fake_docker_calls(x->fake, "POST /volumes/create"), 2);
    fake_docker_body(x->fake, "POST /volumes/create", body, sizeof(body));
    assert_contains(body, "-2\"");
    assert_int_equal(fake_docker_calls(x->fake, "DELETE /volumes/sandgate-agent-"), 1);
}

/* Network and volume pruned under a running gateway: the start that misses them makes them anew. */
static void pruned_parts_come_back(void **state)
{
    struct fixture *x = *state;

    prepare(x);
    fake_docker_prune(x->fake);
    assert_int_equal(start(x), 0);
    assert_int_equal(fake_docker_containers(x->fake, NULL), 1);
    assert_int_equal(fake_docker_calls(x->fake, "POST /containers/create?name=sandbox-"), 2);
    assert_int_equal(fake_docker_calls(x->fake, "POST /networks/create"), 1);
}

/* ---- refusals ---- */

static void a_refused_start_leaves_nothing(void **state)
{
    struct fixture *x = *state;

    prepare(x);
    fail_next(x, "/containers/sandbox-", "/start", 500, "{\"message\":\"cgroups are on fire\"}");
    assert_int_equal(start(x), -1);
    assert_string_equal(x->e.api_code, "DOCKER::SANDBOX_START_FAILED");
    assert_int_equal(x->e.code, ERRC_INTERNAL);
    assert_contains(x->e.msg, "cgroups are on fire");
    assert_int_equal(fake_docker_containers(x->fake, NULL), 0);
    assert_int_equal(fake_docker_calls(x->fake, "POST /containers/create"), 1); /* no retry */
}

static void a_lost_port_race_is_run_again(void **state)
{
    struct fixture *x = *state;

    prepare(x);
    fail_next(x, "/containers/sandbox-", "/start", 500,
              "{\"message\":\"Bind for 127.0.0.1:32768 failed: port is already allocated\"}");
    assert_int_equal(start(x), 0);
    assert_int_equal(fake_docker_containers(x->fake, "running"), 1);
    assert_int_equal(fake_docker_containers(x->fake, NULL), 1);
}

static void a_clients_mistake_is_400(void **state)
{
    struct fixture *x = *state;

    prepare(x);
    fail_next(x, "/containers/create", NULL, 400,
              "{\"message\":\"Range of CPUs is from 0.01 to 2.00, as there are only 2 CPUs "
              "available\"}");
    assert_int_equal(start(x), -1);
    assert_int_equal(x->e.code, ERRC_INVALID);
    assert_string_equal(x->e.api_code, "SANDBOX::INVALID_PARAMETER");
    assert_contains(x->e.msg, "only 2 CPUs");
    fail_next(x, "/containers/create", NULL, 400, "{\"message\":\"Unknown runtime specified x\"}");
    assert_int_equal(start(x), -1);
    assert_int_equal(x->e.code, ERRC_INTERNAL);
}

/* An id that exists is never removed by a start with another claim: it may be a running sandbox. */
static void a_second_start_of_an_id_harms_nothing(void **state)
{
    struct fixture *x = *state;
    const struct runtime_spec other = { .id = ID, .image.ref = "img:1", .claim_sha256 = "00" HASH };

    assert_int_equal(start(x), 0);
    assert_int_equal(runtime_start_held(x->rt, &other, &x->place, &x->e), -1);
    assert_int_equal(x->e.code, ERRC_CONFLICT);
    assert_int_equal(fake_docker_containers(x->fake, "running"), 1);
}

/* The engine carried the create out and broke the connection, which was a kept one: the HTTP client
 * asks again on another, and the name is taken by ourselves. */
static void a_create_that_is_sent_twice_is_one(void **state)
{
    struct fixture *x = *state;

    prepare(x);
    fake_docker_rule(x->fake, &(struct fake_rule){ .path = "/containers/create?name=sandbox",
                                                   .how = FAKE_CARRIED,
                                                   .times = 1 });
    assert_int_equal(start(x), 0);
    assert_int_equal(fake_docker_calls(x->fake, "POST /containers/create?name=sandbox"), 2);
    assert_int_equal(fake_docker_containers(x->fake, "running"), 1);
    assert_int_equal(fake_docker_containers(x->fake, NULL), 1);
}

static void a_sandbox_that_ends_at_once_says_why(void **state)
{
    struct fixture *x = *state;

    prepare(x);
    fake_docker_rule(x->fake, &(struct fake_rule){
                                  .path = "/containers/sandbox-",
                                  .part = "/json",
                                  .how = FAKE_REPLY,
                                  .status = 200,
                                  .body = "{\"State\":{\"Status\":\"exited\",\"ExitCode\":3}}",
                              });
    fake_docker_rule(x->fake, &(struct fake_rule){ .part = "/logs", .how = FAKE_PASS });
    assert_int_equal(start(x), -1);
    assert_contains(x->e.msg, "exit status 3");
    assert_contains(x->e.msg, "oh no!");
    assert_int_equal(fake_docker_containers(x->fake, NULL), 0);
}

/* One image with labels of megabytes would make every list of sandboxes too large to be read. */
static void labels_of_an_image_have_a_limit(void **state)
{
    static const char begin[] =
        "{\"State\":{\"Status\":\"running\"},\"Config\":{\"Labels\":{\"k\":\"";
    struct fixture *x = *state;
    char *body = calloc(1, IMAGE_LABELS_MAX + 256);
    size_t past;

    for (past = 0; past < 2; past++) {
        memcpy(body, begin, sizeof(begin));
        memset(body + sizeof(begin) - 1, 'x', IMAGE_LABELS_MAX - 1 + past);
        memcpy(body + sizeof(begin) - 2 + IMAGE_LABELS_MAX + past, "\"}}}", sizeof("\"}}}"));
        prepare(x);
        fake_docker_rule(x->fake, &(struct fake_rule){ .path = "/containers/sandbox-",
                                                       .part = "/json",
                                                       .how = FAKE_REPLY,
                                                       .status = 200,
                                                       .body = body });
        assert_int_equal(start(x), -1);
        assert_contains(x->e.msg, past ? "image.uri: the labels" : "no address");
        assert_int_equal(fake_docker_containers(x->fake, NULL), 0);
        fake_docker_no_rules(x->fake);
    }
    free(body);
}

/* ---- many at once ---- */

struct creator {
    struct fixture *x;
    pthread_t thread;
    char id[RUNTIME_ID];
    int rc;
    struct err e;
};

static void *create_one(void *arg)
{
    struct creator *c = arg;
    const struct runtime_spec spec = { .id = c->id, .image.ref = "img:1", .claim_sha256 = HASH };
    struct runtime_place place;

    c->rc = runtime_start_held(c->x->rt, &spec, &place, &c->e);
    return NULL;
}

static void create_many(struct fixture *x, struct creator *c)
{
    int i;

    for (i = 0; i < CREATORS; i++) {
        c[i] = (struct creator){ .x = x };
        memcpy(c[i].id, ID, sizeof(ID));
        c[i].id[0] = (char)('0' + i);
        assert_int_equal(pthread_create(&c[i].thread, NULL, create_one, &c[i]), 0);
    }
    for (i = 0; i < CREATORS; i++)
        (void)pthread_join(c[i].thread, NULL);
}

static void concurrent_creates_share_the_preparation(void **state)
{
    struct fixture *x = *state;
    struct creator c[CREATORS];
    int i;

    create_many(x, c);
    for (i = 0; i < CREATORS; i++)
        assert_int_equal(c[i].rc, 0);
    assert_int_equal(fake_docker_calls(x->fake, "POST /networks/create"), 1);
    assert_int_equal(fake_docker_calls(x->fake, "POST /images/create?fromSrc"), 1);
    assert_int_equal(fake_docker_containers(x->fake, "running"), CREATORS);
}

/* ---- death of the engine ---- */

static void engine_down_is_said_and_survived(void **state)
{
    struct fixture *x = *state;

    fake_docker_die(x->fake);
    assert_int_equal(start(x), -1);
    assert_int_equal(x->e.code, ERRC_BUSY);
    assert_string_equal(x->e.api_code, "DOCKER::INITIALIZATION_ERROR");
    fake_docker_revive(x->fake);
    assert_int_equal(start(x), 0);
}

/* The engine dies when the call comes, or when it was carried out but not answered; it comes back
 * with what it had, and remove leaves nothing whatever the step was. */
static void the_engine_may_die_at_any_step(void **state)
{
    static const struct {
        const char *path;
        const char *part;
    } steps[] = {
        { "/networks?", NULL },
        { "/networks/create", NULL },
        { "/volumes/create", NULL },
        { "/containers/create?name=sandgate-agent", NULL },
        { "/images/create?fromSrc", NULL },
        { "/containers/sandgate-agent", "/archive" },
        { "/containers/create?name=sandbox", NULL },
        { "/containers/sandbox", "/start" },
        { "/containers/sandbox", "/json" },
    };
    static const enum fake_how hows[] = { FAKE_DIE, FAKE_CARRIED, FAKE_CLOSE, FAKE_TRUNCATE };
    size_t i;
    size_t k;

    for (i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        for (k = 0; k < sizeof(hows) / sizeof(hows[0]); k++) {
            struct fixture *x;

            assert_int_equal(set_up(state), 0);
            x = *state;
            fake_docker_rule(x->fake, &(struct fake_rule){ .path = steps[i].path,
                                                           .part = steps[i].part,
                                                           .how = hows[k],
                                                           .times = 1 });
            if (start(x) < 0) {
                fake_docker_revive(x->fake);
                assert_int_equal(runtime_remove(x->rt, ID, &x->e), 0);
                assert_int_equal(start(x), 0);
            }
            assert_int_equal(fake_docker_containers(x->fake, "running"), 1);
            assert_int_equal(runtime_remove(x->rt, ID, &x->e), 0);
            assert_int_equal(runtime_prepare(x->rt, &x->e), 0);
            assert_int_equal(fake_docker_containers(x->fake, NULL), 0);
            (void)tear_down(state);
        }
    }
}

/* ---- the other verbs ---- */

static void remove_is_idempotent_and_waits(void **state)
{
    struct fixture *x = *state;

    assert_int_equal(start(x), 0);
    fake_docker_rule(x->fake, &(struct fake_rule){ .method = "DELETE",
                                                   .how = FAKE_REPLY,
                                                   .status = 409,
                                                   .body = "{\"message\":\"removal of container is "
                                                           "already in progress\"}",
                                                   .times = 3 });
    assert_int_equal(runtime_remove(x->rt, ID, &x->e), 0);
    assert_int_equal(fake_docker_calls(x->fake, "DELETE /containers/sandbox-" ID "?force=1&v=1"),
                     4);
    assert_int_equal(runtime_remove(x->rt, ID, &x->e), 0);
    assert_int_equal(fake_docker_containers(x->fake, NULL), 0);
}

static void pause_and_resume_know_their_conflicts(void **state)
{
    struct fixture *x = *state;

    assert_int_equal(runtime_pause(x->rt, ID, &x->e), -1);
    assert_int_equal(x->e.code, ERRC_NOT_FOUND);
    assert_string_equal(x->e.api_code, "DOCKER::SANDBOX_NOT_FOUND");
    assert_int_equal(start(x), 0);
    assert_int_equal(runtime_resume(x->rt, ID, &x->e), -1); /* the engine says 500 to this */
    assert_int_equal(x->e.code, ERRC_CONFLICT);
    assert_string_equal(x->e.api_code, "DOCKER::SANDBOX_NOT_PAUSED");
    assert_int_equal(runtime_pause(x->rt, ID, &x->e), 0);
    assert_int_equal(runtime_pause(x->rt, ID, &x->e), -1);
    assert_int_equal(x->e.code, ERRC_CONFLICT);
    assert_string_equal(x->e.api_code, "DOCKER::SANDBOX_NOT_RUNNING");
    assert_int_equal(runtime_resume(x->rt, ID, &x->e), 0);
    fail_next(x, "/containers/", "/pause", 500, "{\"message\":\"freezer is broken\"}");
    assert_int_equal(runtime_pause(x->rt, ID, &x->e), -1);
    assert_string_equal(x->e.api_code, "DOCKER::SANDBOX_PAUSE_FAILED");
    assert_contains(x->e.msg, "freezer is broken");
}

static void status_and_list_tell_the_same(void **state)
{
    struct fixture *x = *state;
    struct runtime_status st;
    struct runtime_list list;

    assert_int_equal(runtime_status(x->rt, ID, &st, &x->e), -1);
    assert_int_equal(x->e.code, ERRC_NOT_FOUND);
    assert_int_equal(start(x), 0);
    fake_docker_end(x->fake, "sandbox-" ID, 137);
    assert_int_equal(runtime_status(x->rt, ID, &st, &x->e), 0);
    assert_int_equal(st.state, RUNTIME_ENDED);
    assert_int_equal(st.exit_code, 137);
    assert_true(st.ended_ms > 0);
    assert_int_equal(runtime_list(x->rt, &list, &x->e), 0);
    assert_int_equal(list.len, 1);
    assert_string_equal(list.items[0].id, ID);
    assert_int_equal(list.items[0].state, RUNTIME_ENDED);
    assert_int_equal(list.items[0].exit_code, 137);
    runtime_list_free(&list);
}

static char steps[512];

static bool record_step(const char *step)
{
    (void)snprintf(steps + strlen(steps), sizeof(steps) - strlen(steps), "%s ", step);
    return true;
}

static void every_step_passes_the_crash_hook(void **state)
{
    struct fixture *x = *state;
    struct runtime_config cfg = x->cfg;

    steps[0] = '\0';
    cfg.crash = record_step;
    runtime_close(x->rt);
    assert_int_equal(runtime_open("docker", &cfg, &x->rt, &x->e), 0);
    assert_int_equal(start(x), 0);
    assert_int_equal(runtime_remove(x->rt, ID, &x->e), 0);
    assert_string_equal(steps, "network.made inject.volume inject.imported inject.filled "
                               "inject.checked create.made create.started "
                               "create.inspected delete.removed ");
}

/* A development agent: every regular file of a directory, named after the content. */
static void an_agent_directory_is_packed_whole(void **state)
{
    struct fixture *x = *state;
    char dir[] = "/tmp/test-agent-XXXXXX";
    char path[64];
    struct runtime_config cfg = x->cfg;
    static const char *const names[] = { "execd", "libx.so.1" };
    char body[16384];
    size_t i;

    assert_non_null(mkdtemp(dir));
    cfg.agent = NULL;
    cfg.agent_len = 0;
    cfg.agent_dir = dir;
    for (i = 0; i < 2; i++) {
        FILE *f;

        (void)snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        f = fopen(path, "we");
        assert_non_null(f);
        (void)fprintf(f, "content of %s", names[i]);
        (void)fclose(f);
    }
    (void)snprintf(path, sizeof(path), "%s/sub", dir);
    assert_int_equal(mkdir(path, 0755), 0);
    runtime_close(x->rt);
    assert_int_equal(runtime_open("docker", &cfg, &x->rt, &x->e), 0);
    assert_int_equal(runtime_prepare(x->rt, &x->e), 0);
    fake_docker_body(x->fake, "POST /images/create?fromSrc", body, sizeof(body));
    assert_int_equal(fake_docker_containers(x->fake, NULL), 0);
    assert_string_equal(body, "opt/"); /* the archive's first name */

    assert_int_equal(rmdir(path), 0);
    for (i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        (void)unlink(path);
    }
    assert_int_equal(rmdir(dir), 0);
    runtime_close(x->rt);
    x->rt = NULL;
    assert_int_equal(runtime_open("docker", &cfg, &x->rt, &x->e), 0);
    assert_int_equal(runtime_prepare(x->rt, &x->e), -1);
    assert_contains(x->e.msg, dir);
}

static void an_unknown_backend_is_refused(void **state)
{
    struct fixture *x = *state;
    struct runtime *rt;

    assert_int_equal(runtime_open("podman?", &x->cfg, &rt, &x->e), -1);
    assert_contains(x->e.msg, "podman?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_start_is_three_calls),
        TEST(the_other_verbs_are_one_call_each),
        TEST(preparing_again_costs_nothing),
        TEST(the_request_says_what_the_design_says),
        TEST(the_seccomp_profile_is_read_and_sent),
        TEST(unlimited_means_absent),
        TEST(preparation_makes_network_image_and_volume_once),
        TEST(an_idle_instance_takes_its_network_with_it),
        TEST(a_foreign_network_of_our_name_is_not_taken),
        TEST(a_named_network_must_exist),
        TEST(addresses_of_sandboxes_are_known),
        TEST(a_spoiled_volume_is_replaced),
        TEST(pruned_parts_come_back),
        TEST(a_refused_start_leaves_nothing),
        TEST(a_lost_port_race_is_run_again),
        TEST(a_clients_mistake_is_400),
        TEST(a_second_start_of_an_id_harms_nothing),
        TEST(a_create_that_is_sent_twice_is_one),
        TEST(a_sandbox_that_ends_at_once_says_why),
        TEST(labels_of_an_image_have_a_limit),
        TEST(concurrent_creates_share_the_preparation),
        TEST(engine_down_is_said_and_survived),
        cmocka_unit_test(the_engine_may_die_at_any_step),
        TEST(remove_is_idempotent_and_waits),
        TEST(pause_and_resume_know_their_conflicts),
        TEST(status_and_list_tell_the_same),
        TEST(every_step_passes_the_crash_hook),
        TEST(an_agent_directory_is_packed_whole),
        TEST(an_unknown_backend_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
