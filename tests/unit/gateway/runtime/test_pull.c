/* Images of the Docker runtime: which are used, which are pulled, who shares a pull. */
#include "tests/unit/gateway/runtime/docker_fixture.h"

#include "common/base/buf.h"
#include "common/base/macros.h"
#include "gateway/runtime/docker/image.h"
#include "gateway/runtime/docker/pull.h"

#include <pthread.h>

#define PULL_FAILED "DOCKER::SANDBOX_IMAGE_PULL_FAILED"
#define PULLS "POST /images/create?fromImage"

enum { ASKERS = 8, LONG_MS = TEST_DEADLINE_MS };

static int pull(struct fixture *x, const char *ref, int wait_ms, char progress[RUNTIME_TEXT])
{
    const struct runtime_image image = { .ref = ref };

    x->e = (struct err){ 0 };
    return runtime_pull(x->rt, &image, wait_ms, progress, &x->e);
}

/* Pulls take so long, or until the engine is stopped. */
static void slow_pulls(struct fixture *x, int delay_ms)
{
    fake_docker_rule(x->fake, &(struct fake_rule){ .path = "/images/create?fromImage",
                                                   .how = FAKE_PASS,
                                                   .delay_ms = delay_ms });
}

static void until_done(struct fixture *x, const char *ref)
{
    char progress[RUNTIME_TEXT];
    int64_t until = test_deadline();
    int rc;

    while ((rc = pull(x, ref, 50, progress)) > 0)
        assert_true(clock_mono_ms() < until);
    assert_int_equal(rc, 0);
}

/* ---- what is used ---- */

static void a_missing_image_is_said_and_pulled(void **state)
{
    struct fixture *x = *state;
    char progress[RUNTIME_TEXT];

    prepare(x);
    assert_int_equal(start_as(x, ID, "reg.io/new:2", &x->e), -1);
    assert_int_equal(x->e.code, ERRC_NOT_FOUND);
    assert_string_equal(x->e.api_code, PULL_FAILED);
    assert_int_equal(fake_docker_calls(x->fake, ""), 1);
    assert_int_equal(pull(x, "reg.io/new:2", LONG_MS, progress), 0);
    assert_int_equal(fake_docker_calls(x->fake, PULLS "=reg.io%2Fnew&tag=2"), 1);
    assert_int_equal(fake_docker_calls(x->fake, ""), 3);
    assert_int_equal(start_as(x, ID, "reg.io/new:2", &x->e), 0);
    assert_int_equal(fake_docker_calls(x->fake, ""), 6);
}

static void what_is_there_is_not_pulled(void **state)
{
    struct fixture *x = *state;
    char progress[RUNTIME_TEXT] = "?";

    assert_int_equal(pull(x, "img:1", LONG_MS, progress), 0);
    assert_string_equal(progress, "");
    assert_int_equal(fake_docker_calls(x->fake, "GET /images/img:1/json"), 1);
    assert_int_equal(fake_docker_calls(x->fake, PULLS), 0);
}

static int start_on(struct fixture *x, const char *os, const char *arch)
{
    const struct runtime_spec spec = { .id = ID,
                                       .image.ref = "img:1",
                                       .image.platform_os = os,
                                       .image.platform_arch = arch,
                                       .claim_sha256 = HASH };
    struct runtime_place place;

    x->e = (struct err){ 0 };
    return runtime_start_held(x->rt, &spec, &place, &x->e);
}

static void a_fitting_platform_costs_no_call(void **state)
{
    struct fixture *x = *state;
    static const char *const names[] = { "amd64", "x86_64", "X86-64" };
    size_t i;

    prepare(x);
    for (i = 0; i < ARRAY_LEN(names); i++) {
        fake_docker_reset_calls(x->fake);
        assert_int_equal(start_on(x, "linux", names[i]), 0);
        assert_int_equal(fake_docker_calls(x->fake, ""), 3);
        assert_int_equal(fake_docker_calls(x->fake, "POST /containers/create?name=sandbox-" ID
                                                    "&platform=linux%2Famd64"),
                         1);
        assert_int_equal(runtime_remove(x->rt, ID, &x->e), 0);
    }
}

static void another_platform_is_pulled(void **state)
{
    struct fixture *x = *state;
    const struct runtime_image image = { .ref = "img:1",
                                         .platform_os = "linux",
                                         .platform_arch = "aarch64" };
    char progress[RUNTIME_TEXT];

    prepare(x);
    assert_int_equal(start_on(x, "linux", "aarch64"), -1);
    assert_int_equal(x->e.code, ERRC_NOT_FOUND);
    assert_contains(x->e.msg, "platform");
    assert_int_equal(fake_docker_containers(x->fake, NULL), 0);
    assert_int_equal(runtime_pull(x->rt, &image, LONG_MS, progress, &x->e), 0);
    assert_int_equal(fake_docker_calls(x->fake, PULLS "=img&tag=1&platform=linux%2Farm64"), 1);
    assert_int_equal(start_on(x, "linux", "aarch64"), 0);
}

/* The engine stores what the registry has. */
static void a_registry_without_the_platform_is_told_apart(void **state)
{
    struct fixture *x = *state;
    const struct runtime_image image = { .ref = "img:1",
                                         .platform_os = "linux",
                                         .platform_arch = "arm64" };
    char progress[RUNTIME_TEXT];

    fail_next(x, "/images/create", NULL, 200, "{\"status\":\"Image is up to date\"}\n");
    assert_int_equal(runtime_pull(x->rt, &image, LONG_MS, progress, &x->e), -1);
    assert_string_equal(x->e.api_code, PULL_FAILED);
    assert_int_equal(x->e.code, ERRC_INTERNAL);
    assert_contains(x->e.msg, "linux/amd64, not for linux/arm64");
}

/* Engines of API 1.49 hold several platforms under one name. */
static void a_new_engine_is_asked_for_the_platform(void **state)
{
    struct fixture *x = *state;
    const struct runtime_image image = { .ref = "img:1",
                                         .platform_os = "linux",
                                         .platform_arch = "amd64" };
    char progress[RUNTIME_TEXT];

    fake_docker_api(x->fake, "1.51");
    prepare(x);
    assert_int_equal(runtime_pull(x->rt, &image, LONG_MS, progress, &x->e), 0);
    assert_int_equal(fake_docker_calls(x->fake, "GET /images/img:1/json?platform=%7B%22os%22%3A%22"
                                                "linux%22%2C%22architecture%22%3A%22amd64%22%7D"),
                     1);
}

static void platforms_have_one_spelling(void **state)
{
    static const char *const cases[][3] = {
        { "linux", "amd64", "linux/amd64" },
        { "Linux", "x86_64", "linux/amd64" },
        { "linux", "x86-64", "linux/amd64" },
        { "linux", "aarch64", "linux/arm64" },
        { "linux", "arm64v8", "linux/arm64" },
        { "linux", "arm64/v8", "linux/arm64" },
        { "windows", "ARM64", "windows/arm64" },
        { "linux", "riscv64", "linux/riscv64" },
        { "", "amd64", "" },
        { "linux", "", "" },
        { NULL, NULL, "" },
    };
    char out[IMAGE_PLATFORM];
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(cases); i++) {
        image_ref_platform(cases[i][0], cases[i][1], out);
        assert_string_equal(out, cases[i][2]);
    }
}

/* A reference is part of a path of the engine's API. */
static void a_reference_cannot_leave_its_place(void **state)
{
    static const char *const bad[] = {
        "",   "/x",  "a//b",    "a/",  "../containers/x", "a/../b", "a/./b", ".a",
        "-a", "a b", "a?all=1", "a#b", "a%2fb",           "a\nb",   "a/-b",  "\xc3\xa9",
    };
    static const char *const good[] = {
        "a", "a:1", "localhost:5000/a/b_c-d.e:V1.0-x", "reg.io/a@sha256:0123", "sha256:0123",
    };
    struct runtime_image image = { 0 };
    char name[IMAGE_REF];
    char big[IMAGE_REF + 1];
    struct err e = { 0 };
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(bad); i++) {
        image.ref = bad[i];
        assert_int_equal(image_ref_name(&image, name, &e), -1);
        assert_int_equal(e.code, ERRC_INVALID);
        assert_string_equal(e.api_code, "SANDBOX::INVALID_PARAMETER");
        assert_contains(e.msg, "image.uri");
    }
    for (i = 0; i < ARRAY_LEN(good); i++) {
        image.ref = good[i];
        assert_int_equal(image_ref_name(&image, name, &e), 0);
        assert_string_equal(name, good[i]);
    }
    memset(big, 'a', sizeof(big));
    big[IMAGE_REF] = '\0';
    image.ref = big;
    assert_int_equal(image_ref_name(&image, name, &e), -1);
    big[IMAGE_REF - 1] = '\0';
    assert_int_equal(image_ref_name(&image, name, &e), 0);
}

static void a_bad_reference_costs_no_call(void **state)
{
    struct fixture *x = *state;
    char progress[RUNTIME_TEXT];

    prepare(x);
    assert_int_equal(start_as(x, ID, "../volumes/v", &x->e), -1);
    assert_int_equal(x->e.code, ERRC_INVALID);
    assert_int_equal(pull(x, "../volumes/v", LONG_MS, progress), -1);
    assert_int_equal(x->e.code, ERRC_INVALID);
    assert_int_equal(fake_docker_calls(x->fake, ""), 0);
}

/* ---- snapshots ---- */

static void a_snapshots_image_is_never_pulled(void **state)
{
    struct fixture *x = *state;
    const struct runtime_spec spec = { .id = ID, .image.snapshot_id = "5a7", .claim_sha256 = HASH };
    struct runtime_place place;
    char progress[RUNTIME_TEXT];
    char body[8192];

    prepare(x);
    assert_int_equal(runtime_start_held(x->rt, &spec, &place, &x->e), -1);
    assert_int_equal(x->e.code, ERRC_CONFLICT);
    assert_string_equal(x->e.api_code, "SNAPSHOT::INVALID_RESTORE_CONFIG");
    assert_contains(x->e.msg, "5a7");
    assert_int_equal(runtime_pull(x->rt, &spec.image, LONG_MS, progress, &x->e), -1);
    assert_int_equal(x->e.code, ERRC_CONFLICT);
    assert_string_equal(x->e.api_code, "SNAPSHOT::INVALID_RESTORE_CONFIG");
    assert_int_equal(fake_docker_calls(x->fake, PULLS), 0);

    fake_docker_image(x->fake, "opensandbox-snapshots:5a7");
    assert_int_equal(runtime_pull(x->rt, &spec.image, LONG_MS, progress, &x->e), 0);
    assert_int_equal(runtime_start_held(x->rt, &spec, &place, &x->e), 0);
    created_body(x, body, sizeof(body));
    assert_contains(body, "\"Image\":\"opensandbox-snapshots:5a7\"");
}

/* ---- failures ---- */

static void a_failed_pull_says_what_to_do(void **state)
{
    struct fixture *x = *state;
    char progress[RUNTIME_TEXT];

    fail_next(x, "/images/create", NULL, 404, "{\"message\":\"pull access denied for nope\"}");
    assert_int_equal(pull(x, "nope:1", LONG_MS, progress), -1);
    assert_string_equal(x->e.api_code, PULL_FAILED);
    assert_int_equal(x->e.code, ERRC_INTERNAL);
    assert_contains(x->e.msg, "nope:1");
    assert_contains(x->e.msg, "pull access denied");
    fail_next(x, "/images/create", NULL, 200,
              "{\"status\":\"Pulling\"}\n{\"error\":\"no space left on device\"}\n");
    assert_int_equal(pull(x, "nope:1", LONG_MS, progress), -1); /* at once */
    assert_contains(x->e.msg, "no space left");
    assert_int_equal(pull(x, "nope:1", LONG_MS, progress), 0);
    assert_int_equal(fake_docker_calls(x->fake, PULLS), 3);
}

static void half_an_answer_is_a_failure(void **state)
{
    struct fixture *x = *state;
    char progress[RUNTIME_TEXT];

    fake_docker_rule(x->fake, &(struct fake_rule){ .path = "/images/create?fromImage",
                                                   .how = FAKE_TRUNCATE,
                                                   .times = 1 });
    assert_int_equal(pull(x, "new:1", LONG_MS, progress), -1);
    assert_int_equal(x->e.code, ERRC_BUSY);
    fail_next(x, "/images/new:2/json", NULL, 500, "{\"message\":\"layers are lost\"}");
    assert_int_equal(pull(x, "new:2", LONG_MS, progress), -1);
    assert_contains(x->e.msg, "layers are lost");
    fail_next(x, "/images/new:2/json", NULL, 200, "[]");
    assert_int_equal(pull(x, "new:2", LONG_MS, progress), -1);
    assert_int_equal(x->e.code, ERRC_BAD_GATEWAY);
}

static void the_pulls_own_budget_ends_it(void **state)
{
    struct fixture *x = *state;
    char progress[RUNTIME_TEXT];

    x->cfg.pull_timeout_s = 1;
    assert_int_equal(reopen(x), 0);
    slow_pulls(x, 600000);
    assert_int_equal(pull(x, "new:1", LONG_MS, progress), -1);
    assert_string_equal(x->e.api_code, PULL_FAILED);
    assert_contains(x->e.msg, "engine.pull_timeout_seconds = 1");
}

static void an_id_cannot_be_pulled(void **state)
{
    struct fixture *x = *state;
    char progress[RUNTIME_TEXT];

    assert_int_equal(pull(x, "sha256:0123456789ab", LONG_MS, progress), -1);
    assert_contains(x->e.msg, "image id");
    assert_int_equal(fake_docker_calls(x->fake, PULLS), 0);
}

/* ---- sharing and waiting ---- */

struct asker {
    struct fixture *x;
    pthread_t thread;
    struct runtime_image image;
    int rc;
    struct err e;
};

static void *ask(void *arg)
{
    struct asker *a = arg;
    char progress[RUNTIME_TEXT];

    a->rc = runtime_pull(a->x->rt, &a->image, LONG_MS, progress, &a->e);
    return NULL;
}

static void ask_all(struct fixture *x, struct asker *a)
{
    int i;

    for (i = 0; i < ASKERS; i++) {
        a[i].x = x;
        a[i].image.ref = "new:1";
        assert_int_equal(pthread_create(&a[i].thread, NULL, ask, &a[i]), 0);
    }
    for (i = 0; i < ASKERS; i++)
        (void)pthread_join(a[i].thread, NULL);
}

static void all_who_ask_share_one_pull(void **state)
{
    struct fixture *x = *state;
    struct asker a[ASKERS] = { 0 };
    int i;

    slow_pulls(x, 400);
    ask_all(x, a);
    for (i = 0; i < ASKERS; i++)
        assert_int_equal(a[i].rc, 0);
    assert_int_equal(fake_docker_calls(x->fake, PULLS), 1);
}

static void all_who_wait_get_the_failure(void **state)
{
    struct fixture *x = *state;
    struct asker a[ASKERS] = { 0 };
    int i;

    fake_docker_rule(x->fake, &(struct fake_rule){ .path = "/images/create?fromImage",
                                                   .how = FAKE_REPLY,
                                                   .status = 500,
                                                   .body = "{\"message\":\"registry is away\"}",
                                                   .delay_ms = 400 });
    ask_all(x, a);
    for (i = 0; i < ASKERS; i++) {
        assert_int_equal(a[i].rc, -1);
        assert_contains(a[i].e.msg, "registry is away");
    }
    assert_int_equal(fake_docker_calls(x->fake, PULLS), 1);
}

static void other_credentials_are_another_pull(void **state)
{
    struct fixture *x = *state;
    struct asker a[ASKERS] = { 0 };
    int i;

    for (i = 0; i < ASKERS; i++) {
        a[i].image.registry_user = i < 4 ? "ann" : "bob";
        a[i].image.registry_password = "p";
    }
    slow_pulls(x, 400);
    ask_all(x, a);
    for (i = 0; i < ASKERS; i++)
        assert_int_equal(a[i].rc, 0);
    assert_int_equal(fake_docker_calls(x->fake, PULLS), 2);
}

/* The client is gone after the first wait; the image comes all the same. */
static void a_pull_goes_on_when_nobody_waits(void **state)
{
    struct fixture *x = *state;
    char progress[RUNTIME_TEXT];

    slow_pulls(x, 300);
    assert_int_equal(pull(x, "new:1", 0, progress), 1);
    assert_string_equal(progress, "asking the registry");
    until_done(x, "new:1");
    assert_int_equal(fake_docker_calls(x->fake, PULLS), 1);
    assert_int_equal(start_as(x, ID, "new:1", &x->e), 0);
}

/* It failed between two of the asker's waits: the asker hears of it, and the next one starts anew. */
static void a_failure_between_two_waits_is_heard(void **state)
{
    struct fixture *x = *state;
    char progress[RUNTIME_TEXT];
    struct buf out = BUF_INIT(64 << 10);

    fake_docker_rule(x->fake, &(struct fake_rule){ .path = "/images/create?fromImage",
                                                   .how = FAKE_REPLY,
                                                   .status = 500,
                                                   .body = "{\"message\":\"registry is away\"}",
                                                   .delay_ms = 100,
                                                   .times = 1 });
    assert_int_equal(pull(x, "new:1", 0, progress), 1);
    TEST_UNTIL((buf_clear(&out), runtime_metrics(x->rt, &out),
                strstr(out.data, "sandgate_image_pulls_running 0\n")),
               ;);
    buf_free(&out);
    assert_int_equal(pull(x, "new:1", LONG_MS, progress), -1);
    assert_contains(x->e.msg, "registry is away");
    assert_int_equal(pull(x, "new:1", LONG_MS, progress), 0);
    assert_int_equal(fake_docker_calls(x->fake, PULLS), 2);
}

static void too_many_pulls_are_refused(void **state)
{
    struct fixture *x = *state;
    char progress[RUNTIME_TEXT];
    char ref[32];
    int i;

    slow_pulls(x, 1000);
    for (i = 0; i < PULLS_MAX; i++) {
        (void)snprintf(ref, sizeof(ref), "new:%d", i);
        assert_int_equal(pull(x, ref, 0, progress), 1);
    }
    assert_int_equal(pull(x, "more:1", 0, progress), -1);
    assert_int_equal(x->e.code, ERRC_BUSY);
    assert_true(x->e.retry_after_s > 0);
    assert_int_equal(pull(x, "new:0", 0, progress), 1); /* joining is free */
    assert_int_equal(pull(x, "img:1", 0, progress), 0); /* so is what is there */
    until_done(x, "new:15");
    until_done(x, "new:0");
    until_done(x, "more:1");
}

/* Closing breaks off what runs, else this test would take ten minutes; the sanitizers see to it that
 * nothing is left. */
static void close_ends_running_pulls(void **state)
{
    struct fixture *x = *state;
    char progress[RUNTIME_TEXT];

    x->cfg.pull_timeout_s = 600;
    assert_int_equal(reopen(x), 0);
    slow_pulls(x, 600000);
    assert_int_equal(pull(x, "new:1", 0, progress), 1);
    assert_int_equal(pull(x, "new:2", 0, progress), 1);
    TEST_UNTIL(fake_docker_calls(x->fake, PULLS) == 2, (void)0);
    runtime_close(x->rt);
    x->rt = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_missing_image_is_said_and_pulled),
        TEST(what_is_there_is_not_pulled),
        TEST(a_fitting_platform_costs_no_call),
        TEST(another_platform_is_pulled),
        TEST(a_registry_without_the_platform_is_told_apart),
        TEST(a_new_engine_is_asked_for_the_platform),
        cmocka_unit_test(platforms_have_one_spelling),
        cmocka_unit_test(a_reference_cannot_leave_its_place),
        TEST(a_bad_reference_costs_no_call),
        TEST(a_snapshots_image_is_never_pulled),
        TEST(a_failed_pull_says_what_to_do),
        TEST(half_an_answer_is_a_failure),
        TEST(the_pulls_own_budget_ends_it),
        TEST(an_id_cannot_be_pulled),
        TEST(all_who_ask_share_one_pull),
        TEST(all_who_wait_get_the_failure),
        TEST(other_credentials_are_another_pull),
        TEST(a_pull_goes_on_when_nobody_waits),
        TEST(a_failure_between_two_waits_is_heard),
        TEST(too_many_pulls_are_refused),
        TEST(close_ends_running_pulls),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
