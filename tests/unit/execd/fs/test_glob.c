/* Patterns for names of files (contract/execd.md 10.1). */
#include "tests/unit/test.h"

#include "common/base/err.h"
#include "execd/fs/glob.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool match(const char *pattern, const char *name)
{
    struct err e = { 0 };
    struct glob *g = glob_compile(pattern, &e);
    bool is;

    if (!g)
        fail_msg("%s: %s", pattern, e.msg);
    is = glob_match(g, name);
    glob_free(g);
    return is;
}

static void bad(const char *pattern)
{
    struct err e = { 0 };
    struct glob *g = glob_compile(pattern, &e);

    if (g)
        fail_msg("%s is no bad pattern", pattern);
    assert_int_equal(e.code, ERRC_INTERNAL);
    assert_non_null(strstr(e.msg, "error searching files. "));
}

static void names(void **state)
{
    static const struct {
        const char *pattern;
        const char *yes[6];
        const char *no[6];
    } rows[] = {
        { "**", { "a", ".a", "a.b", "" }, { 0 } },
        { "*", { "a", ".hidden", "" }, { 0 } },
        { "*.py", { "a.py", ".py", "a.b.py" }, { "a.pyc", "apy", "A.PY" } },
        { "**/*.py", { "a.py" }, { "a.pyc" } },
        { "**/**/a", { "a" }, { "b" } },
        { "a**b", { "ab", "axb", "axyb" }, { "a", "abx" } },
        { "a*b*c", { "abc", "aXbYc", "abbcc" }, { "acb", "ab" } },
        { "?",
          { "a", "\xc3\xa9", "\xe6\x8a\xa5", "\xf0\x9f\x98\x80", "\xff" },
          { "", "ab", "\xc3\xa9x", "\xc3\xff" } },
        { "??", { "ab", "\xc3\xff" }, { "\xc3\xa9" } },
        { "[a-c]x", { "ax", "bx", "cx" }, { "dx", "x", "-x" } },
        { "[!a-c]", { "d", "-" }, { "a", "b", "" } },
        { "[^a]", { "b", "^" }, { "a" } },
        { "[a-]", { "a", "-" }, { "b" } },
        { "[\\]x]", { "]", "x" }, { "\\" } },
        { "[\xc3\xa0-\xc3\xaf]", { "\xc3\xa9" }, { "e" } },
        { "{a,b}.c", { "a.c", "b.c" }, { "c.c", "a,b.c", ".c" } },
        { "*.{c,h{,pp}}", { "x.c", "x.h", "x.hpp" }, { "x.cpp", "x." } },
        { "{a*,*b}c", { "ac", "aXc", "Xbc", "bc" }, { "xc" } },
        { "{}a", { "a" }, { "{}a" } },
        { "a,b}", { "a,b}" }, { "a" } },
        { "\\*", { "*" }, { "a", "\\*" } },
        { "\\{a,b\\}", { "{a,b}" }, { "a" } },
        { "!(*.txt)", { "a.c", "txt" }, { "a.txt", ".txt" } },
        { "!({a,b})", { "c", "" }, { "a", "b" } },
        { "**/!(a)", { "b" }, { "a" } },
        { "a!", { "a!" }, { "a" } },
        { "\\!a", { "!a" }, { "a" } },
        { "dir/*.c", { 0 }, { "x.c", "dir" } },
        { "a/**", { 0 }, { "a" } },
        { "", { "" }, { "a" } },
    };
    size_t i;
    size_t k;

    (void)state;
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (k = 0; k < 6 && rows[i].yes[k]; k++)
            if (!match(rows[i].pattern, rows[i].yes[k]))
                fail_msg("%s must match %s", rows[i].pattern, rows[i].yes[k]);
        for (k = 0; k < 6 && rows[i].no[k]; k++)
            if (match(rows[i].pattern, rows[i].no[k]))
                fail_msg("%s must not match %s", rows[i].pattern, rows[i].no[k]);
    }
}

static void bad_patterns(void **state)
{
    static const char *const rows[] = { "[",  "[]",   "[!]",      "[a",  "[a-", "[b-a]",
                                        "{a", "{a,b", "a\\",      "[\\", "{",   "!",
                                        "!a", "!(a",  "**/!(a)b", "!()b" };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        bad(rows[i]);
}

/* What another matcher would try for longer than the world lasts. */
static void no_pattern_takes_long(void **state)
{
    char pattern[GLOB_PATTERN_MAX + 2];
    char name[GLOB_NAME_MAX + 2];
    size_t i;

    (void)state;
    memset(name, 'a', sizeof(name));
    name[GLOB_NAME_MAX] = '\0';
    for (i = 0; i + 2 < GLOB_PATTERN_MAX; i += 2)
        memcpy(pattern + i, "*a", 2);
    memcpy(pattern + i, "b", 2);
    assert_false(match(pattern, name));
    pattern[0] = '\0';
    for (i = 0; i + 8 < GLOB_PATTERN_MAX; i += 7)
        memcpy(pattern + i, "{a,a*}*", 8);
    assert_true(match(pattern, name));
}

static void limits(void **state)
{
    char text[GLOB_PATTERN_MAX + 2];
    size_t i;

    (void)state;
    memset(text, '*', sizeof(text));
    text[GLOB_PATTERN_MAX] = '\0';
    assert_true(match(text, "a"));
    text[GLOB_PATTERN_MAX] = '*';
    text[GLOB_PATTERN_MAX + 1] = '\0';
    bad(text);
    for (i = 0; i < GLOB_PATTERN_MAX; i++)
        text[i] = ",{"[i % 2];
    text[GLOB_PATTERN_MAX] = '\0';
    bad(text);
    for (i = 0; i < GLOB_NEST_MAX; i++) {
        text[i] = '{';
        text[GLOB_NEST_MAX + 1 + i] = '}';
    }
    text[GLOB_NEST_MAX] = 'a';
    text[2 * GLOB_NEST_MAX + 1] = '\0';
    assert_true(match(text, "a"));
    memmove(text + 1, text, 2 * GLOB_NEST_MAX + 2);
    text[2 * GLOB_NEST_MAX + 2] = '}';
    text[2 * GLOB_NEST_MAX + 3] = '\0';
    bad(text);
    memset(text, 'a', GLOB_NAME_MAX + 1);
    text[GLOB_NAME_MAX] = '\0';
    assert_true(match("*", text));
    text[GLOB_NAME_MAX] = 'a';
    text[GLOB_NAME_MAX + 1] = '\0';
    assert_false(match("*", text));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(bad_patterns),
        cmocka_unit_test(no_pattern_takes_long),
        cmocka_unit_test(limits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
