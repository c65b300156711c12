/* What a client asks for and the cage that comes of it: paths, order, identity, environment. */
#include "tests/unit/test.h"

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/macros.h"
#include "execd/isolated/plan.h"

#include <string.h>
#include <sys/stat.h>

struct place {
    char dir[32];
    struct env base;
};

static int setup(void **state)
{
    struct place *p = calloc(1, sizeof(*p));

    assert_non_null(p);
    (void)snprintf(p->dir, sizeof(p->dir), "/tmp/test-plan-XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    assert_int_equal(env_set(&p->base, "PATH", "/bin"), 0);
    assert_int_equal(env_set(&p->base, "PLAIN", "p"), 0);
    assert_int_equal(env_set(&p->base, "MY_TOKEN", "t"), 0);
    assert_int_equal(env_set(&p->base, "AWS_KEY", "a"), 0);
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    struct place *p = *state;
    char path[64];

    (void)snprintf(path, sizeof(path), "%s/a/b", p->dir);
    (void)rmdir(path);
    *strrchr(path, '/') = '\0';
    (void)rmdir(path);
    (void)rmdir(p->dir);
    env_free(&p->base);
    free(p);
    return 0;
}

static void keys(void **state)
{
    (void)state;
    assert_true(plan_key_matches("*_TOKEN", "MY_TOKEN"));
    assert_true(plan_key_matches("*_TOKEN", "_TOKEN"));
    assert_false(plan_key_matches("*_TOKEN", "TOKEN"));
    assert_false(plan_key_matches("*_TOKEN", "MY_TOKENS"));
    assert_true(plan_key_matches("AWS_*", "AWS_"));
    assert_false(plan_key_matches("AWS_*", "AWS"));
    assert_true(plan_key_matches("*", ""));
    assert_true(plan_key_matches("A", "A"));
    assert_false(plan_key_matches("A", "AB"));
    assert_false(plan_key_matches("", "A"));
}

static void clean_paths(void **state)
{
    static const char *const good[] = { "/", "/a", "/a/b", "/a/.b", "/a/..b", "/a b" };
    static const char *const bad[] = { "", "a", "/a/", "//a", "/a//b", "/a/.", "/a/../b", "./a" };
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(good); i++)
        assert_true(plan_path_clean(good[i]));
    for (i = 0; i < ARRAY_LEN(bad); i++)
        assert_false(plan_path_clean(bad[i]));
}

static void parents_come_first_and_the_first_is_the_directory(void **state)
{
    struct place *p = *state;
    char below[64];
    char mid[64];
    struct plan_req rq = { .n_mounts = 3 };
    struct plan plan;
    struct err e = { 0 };
    struct stat st;

    (void)snprintf(below, sizeof(below), "%s/a/b", p->dir);
    (void)snprintf(mid, sizeof(mid), "%s/a", p->dir);
    rq.mounts[0] = (struct plan_mount){ below, CAGE_SCRATCH };
    rq.mounts[1] = (struct plan_mount){ p->dir, CAGE_RO };
    rq.mounts[2] = (struct plan_mount){ mid, CAGE_RW };
    assert_int_equal(plan_make(&rq, &p->base, &plan, &e), 0);
    assert_int_equal(plan.cage.n_mounts, 3);
    assert_string_equal(plan.cage.mounts[0].dest, p->dir);
    assert_string_equal(plan.cage.mounts[1].dest, mid);
    assert_string_equal(plan.cage.mounts[2].dest, below);
    assert_int_equal(plan.cage.mounts[2].mode, CAGE_SCRATCH);
    assert_string_equal(plan.cage.cwd, below);
    assert_false(plan.background);
    assert_true(plan.cage.private_tmp);
    assert_int_equal(stat(below, &st), 0); /* made */
    plan_free(&plan);
}

static void what_cannot_be_is_refused(void **state)
{
    static const char *const bad[] = {
        "/",        "/run", "/proc", "/proc/x", "/sys",
        "/dev/shm", "/var", "/opt",  "tmp",     "/opt/opensandbox/x"
    };
    struct place *p = *state;
    struct plan_req rq = { .n_mounts = 1 };
    struct plan plan;
    struct err e = { 0 };
    size_t i;

    for (i = 0; i < ARRAY_LEN(bad); i++) {
        rq.mounts[0] = (struct plan_mount){ bad[i], CAGE_RW };
        assert_int_equal(plan_make(&rq, &p->base, &plan, &e), -1);
        assert_int_equal(e.code, ERRC_INVALID);
        assert_string_equal(e.api_code, "RUNTIME_ERROR");
    }
    rq.n_mounts = 0;
    assert_int_equal(plan_make(&rq, &p->base, &plan, &e), -1);
    rq.n_mounts = 2;
    rq.mounts[0] = rq.mounts[1] = (struct plan_mount){ p->dir, CAGE_RW };
    assert_int_equal(plan_make(&rq, &p->base, &plan, &e), -1);
    assert_contains(e.msg, "twice");
    rq.n_mounts = 1;
    rq.n_binds = 1;
    rq.binds[0] = (struct plan_bind){ "/etc", "/mnt", true };
    assert_int_equal(plan_make(&rq, &p->base, &plan, &e), -1);
    assert_contains(e.msg, "/workspace, /mnt, /media or /data");
}

static void environments(void **state)
{
    static const char *const patterns[] = { "MY_*" };
    struct place *p = *state;
    struct plan_req rq = { .n_mounts = 1, .mounts = { { p->dir, CAGE_OVERLAY } } };
    struct plan plan;
    struct err e = { 0 };

    assert_int_equal(plan_make(&rq, &p->base, &plan, &e), 0);
    assert_true(plan.background);
    assert_string_equal(env_get(&plan.env, "PLAIN"), "p");
    assert_string_equal(env_get(&plan.env, "PWD"), p->dir);
    assert_null(env_get(&plan.env, "MY_TOKEN"));
    assert_null(env_get(&plan.env, "AWS_KEY"));
    plan_free(&plan);

    rq.balanced = true;
    rq.keys = patterns;
    rq.n_keys = 1;
    assert_int_equal(plan_make(&rq, &p->base, &plan, &e), 0);
    assert_false(plan.cage.private_tmp);
    assert_null(env_get(&plan.env, "MY_TOKEN"));
    assert_string_equal(env_get(&plan.env, "AWS_KEY"), "a");
    plan_free(&plan);

    rq.keys_allow = true;
    assert_int_equal(plan_make(&rq, &p->base, &plan, &e), 0);
    assert_string_equal(env_get(&plan.env, "MY_TOKEN"), "t");
    assert_string_equal(env_get(&plan.env, "PATH"), "/bin");
    assert_null(env_get(&plan.env, "PLAIN"));
    plan_free(&plan);
}

static void identities(void **state)
{
    struct place *p = *state;
    struct plan_req rq = {
        .n_mounts = 1, .mounts = { { p->dir, CAGE_RW } }, .has_gid = true, .gid = 5
    };
    struct plan plan;
    struct err e = { 0 };

    assert_int_equal(plan_make(&rq, &p->base, &plan, &e), -1);
    assert_contains(e.msg, "gid: needs uid");
    rq.has_uid = true;
    rq.uid = 54321;
    assert_int_equal(plan_make(&rq, &p->base, &plan, &e), 0);
    assert_true(plan.has_id);
    assert_int_equal(plan.cage.uid, 54321);
    assert_int_equal(plan.cage.gid, 5);
    assert_int_equal(plan.id.uid, 54321);
    plan_free(&plan);
    rq.userns = true;
    assert_int_equal(plan_make(&rq, &p->base, &plan, &e), 0);
    assert_false(plan.has_id); /* outside it is the agent */
    assert_int_equal(plan.cage.uid, 54321);
    plan_free(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys),
        cmocka_unit_test(clean_paths),
        cmocka_unit_test_setup_teardown(parents_come_first_and_the_first_is_the_directory, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_cannot_be_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(environments, setup, teardown),
        cmocka_unit_test_setup_teardown(identities, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
