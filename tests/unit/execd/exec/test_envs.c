/* Environments, the env file's grammar, expansion of paths. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "execd/exec/envfile.h"
#include "execd/fs/env.h"
#include "execd/fs/expand.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void set_get_unset(void **state)
{
    struct env v = { 0 };

    (void)state;
    assert_int_equal(env_put(&v, "A=1"), 0);
    assert_int_equal(env_put(&v, "AB=2"), 0);
    assert_int_equal(env_put(&v, "nothing"), 0);
    assert_int_equal(env_put(&v, "=odd"), 0);
    assert_int_equal(env_set(&v, "A", "3=4"), 0);
    assert_int_equal(v.n, 2);
    assert_string_equal(env_get(&v, "A"), "3=4");
    assert_null(env_get(&v, "B"));
    env_unset(&v, "A");
    env_unset(&v, "absent");
    assert_int_equal(v.n, 1);
    assert_string_equal(v.vars[0], "AB=2");
    assert_null(v.vars[1]);
    assert_false(env_name_ok(""));
    assert_false(env_name_ok("a=b"));
    assert_true(env_name_ok("a.b"));
    env_free(&v);
}

static void env_limit(void **state)
{
    struct env v = { 0 };
    char name[16];
    unsigned i;

    (void)state;
    for (i = 0; i < ENV_VARS_MAX; i++) {
        (void)snprintf(name, sizeof(name), "V%u", i);
        assert_int_equal(env_set(&v, name, ""), 0);
    }
    assert_int_equal(env_set(&v, "ONE_MORE", ""), -1);
    assert_int_equal(env_set(&v, "V7", "changed"), 0);
    assert_int_equal(v.n, ENV_VARS_MAX);
    env_free(&v);
}

/* Applies text over {HOME=/h, X=x} and compares one variable; NULL: not set. */
static void check(const char *text, const char *name, const char *want, unsigned skipped)
{
    struct env base = { 0 };
    struct env out = { 0 };
    unsigned n;

    assert_int_equal(env_set(&base, "HOME", "/h"), 0);
    assert_int_equal(env_set(&base, "X", "x"), 0);
    assert_int_equal(envfile_apply(text, &base, &out, &n), 0);
    if (want) {
        assert_non_null(env_get(&out, name));
        assert_string_equal(env_get(&out, name), want);
    } else {
        assert_null(env_get(&out, name));
    }
    assert_int_equal(n, skipped);
    env_free(&base);
    env_free(&out);
}

static void file_grammar(void **state)
{
    (void)state;
    check("", "A", NULL, 0);
    check("A=1", "A", "1", 0);
    check("  A = 1 \r\n", "A", "1", 0);
    check("# A=1\n\n\nB=2\n", "B", "2", 0);
    check("A=1\nA=2\n", "A", "2", 0);
    check("A=$X/${HOME}$NOPE", "A", "x//h", 0);
    check("A='$X'\n", "A", "$X", 0);
    check("A='it is\ntwo lines'\nB=1\n", "A", "it is\ntwo lines", 0);
    check("A='it is\ntwo lines'\nB=1\n", "B", "1", 0);
    check("A=\"a\\n\\t\\r\\\\\\\"$X\\q\"\n", "A", "a\n\t\r\\\"x\\q", 0);
    check("A=\"two\nlines\"\n", "A", "two\nlines", 0);
    check("A=''\n", "A", "", 0);
    check("A=\n", "A", "", 0);
    check("A='x' y\nB=1\n", "A", NULL, 1);
    check("A='x' y\nB=1\n", "B", "1", 1);
    check("A=\"open\nB=1\n", "B", "1", 1);
    check("A=\"open\nB=1\n", "A", NULL, 1);
    check("=x\nnothing\nB=1", "B", "1", 2);
    check("A=a=b", "A", "a=b", 0);
    check("A=it's", "A", "it's", 0);
    check("A='  sp '", "A", "  sp ", 0);
    check("A=$5 and $$", "A", "$5 and $$", 0);
}

static void paths(void **state)
{
    struct env v = { 0 };
    struct err e;
    char *out;

    (void)state;
    assert_int_equal(env_set(&v, "HOME", "/home/u"), 0);
    assert_int_equal(env_set(&v, "D", "dir"), 0);
    assert_int_equal(expand_path("~/a", &v, &out, &e), 0);
    assert_string_equal(out, "/home/u/a");
    free(out);
    assert_int_equal(expand_path("~", &v, &out, &e), 0);
    assert_string_equal(out, "/home/u");
    free(out);
    assert_int_equal(expand_path("~user/$D", &v, &out, &e), 0);
    assert_string_equal(out, "~user/dir");
    free(out);
    assert_int_equal(expand_path("/x/${D}s/$D.$/$5", &v, &out, &e), 0);
    assert_string_equal(out, "/x/dirs/dir.$/$5");
    free(out);
    assert_int_equal(expand_path("/$ZZ/$AA/${ZZ}/$D", &v, &out, &e), -1);
    assert_int_equal(e.code, ERRC_INVALID);
    assert_non_null(strstr(e.msg, "not set: AA, ZZ"));
    env_unset(&v, "HOME");
    assert_int_equal(expand_path("~/a", &v, &out, &e), 0);
    assert_string_equal(out, "//a");
    free(out);
    env_free(&v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(set_get_unset),
        cmocka_unit_test(env_limit),
        cmocka_unit_test(file_grammar),
        cmocka_unit_test(paths),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
