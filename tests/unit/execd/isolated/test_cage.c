/* The argument list of a cage: what goes in comes out, and nothing else is taken. */
#include "tests/unit/test.h"

#include "common/base/err.h"
#include "execd/isolated/cage.h"

#include <stdlib.h>
#include <string.h>

static const char *const program[] = { "/bin/sh", "-c", "--", NULL };

static void comes_back_as_it_was(void **state)
{
    struct cage c = { .dir = "/d",
                      .cwd = "/w x",
                      .mounts = { { CAGE_OVERLAY, "/a", "/b" },
                                  { CAGE_RW, "/e", "/c" },
                                  { CAGE_RO, "/ro", "/tmp" },
                                  { CAGE_SCRATCH, "/net", "/--" } },
                      .n_mounts = 4,
                      .private_tmp = true,
                      .userns = true,
                      .uid = 4294967294U,
                      .gid = 7,
                      .groups = { 1, 2 },
                      .n_groups = 2,
                      .report = 100,
                      .parent = 1 };
    struct err e = { 0 };
    struct cage out;
    const char *argv[64];
    char **head;
    size_t n = 0;
    size_t i;

    (void)state;
    head = cage_argv(&c, "/agent", &n);
    assert_non_null(head);
    assert_null(head[n]);
    assert_string_equal(head[0], "/agent");
    assert_string_equal(head[1], CAGE_VERB);
    memcpy(argv, head, n * sizeof(*argv));
    memcpy(argv + n, program, sizeof(program));
    assert_int_equal(cage_parse((char *const *)argv, &out, &e), 0);
    assert_string_equal(out.dir, "/d");
    assert_string_equal(out.cwd, "/w x");
    assert_int_equal(out.n_mounts, 4);
    for (i = 0; i < 4; i++) {
        assert_int_equal(out.mounts[i].mode, c.mounts[i].mode);
        assert_string_equal(out.mounts[i].source, c.mounts[i].source);
        assert_string_equal(out.mounts[i].dest, c.mounts[i].dest);
    }
    assert_true(out.private_tmp && out.userns && !out.own_net);
    assert_int_equal(out.uid, c.uid);
    assert_int_equal(out.gid, 7);
    assert_int_equal(out.n_groups, 2);
    assert_int_equal(out.groups[1], 2);
    assert_int_equal(out.report, 100);
    assert_int_equal(out.parent, 1);
    assert_string_equal(out.program[0], "/bin/sh");
    assert_string_equal(out.program[2], "--");
    free(head);
}

static void faults_are_named(void **state)
{
    static const struct {
        const char *argv[12];
        const char *says;
    } all[] = {
        { { "x", CAGE_VERB, NULL }, "program" },
        { { "x", CAGE_VERB, "dir", "/d", "cwd", "/", "--", NULL }, "program" },
        { { "x", CAGE_VERB, "dir", "d", "cwd", "/", "--", "p", NULL }, "dir and cwd" },
        { { "x", CAGE_VERB, "dir", "/d", "--", "p", NULL }, "dir and cwd" },
        { { "x", CAGE_VERB, "dir", NULL }, "argument is missing" },
        { { "x", CAGE_VERB, "what", "1", NULL }, "what" },
        { { "x", CAGE_VERB, "uid", "x", NULL }, "uid: not a number" },
        { { "x", CAGE_VERB, "uid", "-1", NULL }, "uid: not a number" },
        { { "x", CAGE_VERB, "rw", "/a", NULL }, "two absolute paths" },
        { { "x", CAGE_VERB, "ro", "a", "/b", NULL }, "two absolute paths" },
    };
    struct cage c;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct err e = { 0 };

        assert_int_equal(cage_parse((char *const *)all[i].argv, &c, &e), -1);
        assert_contains(e.msg, all[i].says);
    }
}

static void mounts_are_bounded(void **state)
{
    const char *argv[3 * (CAGE_MOUNTS_MAX + 1) + 10] = { "x", CAGE_VERB };
    struct err e = { 0 };
    struct cage c;
    size_t n = 2;
    size_t i;

    (void)state;
    for (i = 0; i < CAGE_MOUNTS_MAX + 1; i++) {
        argv[n++] = "rw";
        argv[n++] = "/a";
        argv[n++] = "/b";
    }
    assert_int_equal(cage_parse((char *const *)argv, &c, &e), -1);
    assert_contains(e.msg, "more than");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comes_back_as_it_was),
        cmocka_unit_test(faults_are_named),
        cmocka_unit_test(mounts_are_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
