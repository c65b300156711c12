/* A Docker runtime over the fake engine, for the tests of its parts. */
#pragma once
#include "tests/unit/test.h"

#include "common/base/err.h"
#include "common/base/log.h"
#include "gateway/runtime/runtime.h"
#include "tests/fakes/fake_docker.h"

#include <stdlib.h>
#include <string.h>

#define INSTANCE "ab12cd34-0000-4000-8000-000000000000"
#define ID "11111111-2222-4333-8444-555555555555"
#define HASH "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

struct fixture {
    struct fake_docker *fake;
    struct runtime *rt;
    struct runtime_config cfg;
    struct runtime_place place;
    struct err e;
};

static const char *const fixture_caps[] = { "NET_RAW", "SYS_ADMIN", NULL };

static inline int set_up(void **state)
{
    struct fixture *x = calloc(1, sizeof(*x));

    log_set_level(LOG_OFF);
    x->fake = fake_docker_start();
    x->cfg = (struct runtime_config){ .instance = INSTANCE,
                                      .engine = fake_docker_socket(x->fake),
                                      .api_timeout_s = 10,
                                      .pull_timeout_s = 10,
                                      .network_mode = "bridge",
                                      .publish_host = "127.0.0.1",
                                      .drop_capabilities = fixture_caps,
                                      .no_new_privileges = true,
                                      .pids_limit = 4096,
                                      .log_max_mb = 10,
                                      .keep_host_open = true,
                                      .agent = "the agent",
                                      .agent_len = 9 };
    fake_docker_image(x->fake, "img:1");
    *state = x;
    return runtime_open("docker", &x->cfg, &x->rt, &x->e);
}

static inline int tear_down(void **state)
{
    struct fixture *x = *state;

    runtime_close(x->rt);
    fake_docker_stop(x->fake);
    free(x);
    return 0;
}

static inline int start_as(struct fixture *x, const char *id, const char *image, struct err *e)
{
    const struct runtime_spec spec = { .id = id,
                                       .image.ref = image,
                                       .memory_bytes = 64 << 20,
                                       .nano_cpus = 500000000,
                                       .claim_sha256 = HASH };
    struct runtime_place place;

    if (runtime_start_held(x->rt, &spec, &place, e) < 0)
        return -1;
    x->place = place;
    return 0;
}

static inline int start(struct fixture *x)
{
    x->e = (struct err){ 0 };
    return start_as(x, ID, "img:1", &x->e);
}

/* Prepared, and with an empty call log. */
static inline void prepare(struct fixture *x)
{
    assert_int_equal(runtime_prepare(x->rt, &x->e), 0);
    fake_docker_reset_calls(x->fake);
}

/* Opens it anew with what a test put into cfg. */
static inline int reopen(struct fixture *x)
{
    runtime_close(x->rt);
    x->rt = NULL;
    return runtime_open("docker", &x->cfg, &x->rt, &x->e);
}

/* The latest create of a sandbox. */
static inline void created_body(struct fixture *x, char *out, size_t size)
{
    fake_docker_body(x->fake, "POST /containers/create?name=sandbox-", out, size);
}

/* The next call to path fails so. */
static inline void fail_next(struct fixture *x, const char *path, const char *part, int status,
                             const char *body)
{
    fake_docker_rule(x->fake, &(struct fake_rule){ .path = path,
                                                   .part = part,
                                                   .how = FAKE_REPLY,
                                                   .status = status,
                                                   .body = body,
                                                   .times = 1 });
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
