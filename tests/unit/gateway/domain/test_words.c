/* Command lines split into words as a shell does. */
#include "tests/unit/test.h"

#include "common/base/err.h"
#include "gateway/domain/words.h"

#include <string.h>

static void splits_like_a_shell(void **state)
{
    static const char *const rows[][2] = {
        { "sleep 100", "[\"sleep\",\"100\"]" },
        { "  a\t b\r\nc ", "[\"a\",\"b\",\"c\"]" },
        { "sh -c 'echo \"$A\" \\x; wait'", "[\"sh\",\"-c\",\"echo \\\"$A\\\" \\\\x; wait\"]" },
        { "a\"b c\"'d e'f", "[\"ab cd ef\"]" },
        { "\"a \\\" \\\\ \\n\"", "[\"a \\\" \\\\ \\\\n\"]" },
        { "a\\ b \\'", "[\"a b\",\"'\"]" },
        { "a '' \"\" b", "[\"a\",\"\",\"\",\"b\"]" },
        { "a # b; c | $(d)", "[\"a\",\"#\",\"b;\",\"c\",\"|\",\"$(d)\"]" },
        { "/bin/z\xc3\xa9ro \xe2\x82\xac", "[\"/bin/z\xc3\xa9ro\",\"\xe2\x82\xac\"]" },
    };
    struct err e = { 0 };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        json_t *words = words_split(rows[i][0], &e);
        char *text = words ? json_dumps(words, JSON_COMPACT) : NULL;

        assert_non_null(text);
        assert_string_equal(text, rows[i][1]);
        free(text);
        json_decref(words);
    }
}

static void says_what_is_wrong(void **state)
{
    static const char *const rows[][2] = {
        { "a 'b", "' is not closed" }, { "a \"b", "\" is not closed" },
        { "a \"b\\", "not closed" },   { "a b\\", "ends with" },
        { "   ", "no word" },          { "", "no word" },
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct err e = { 0 };

        assert_null(words_split(rows[i][0], &e));
        assert_int_equal(e.code, ERRC_INVALID);
        assert_contains(e.msg, rows[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits_like_a_shell),
        cmocka_unit_test(says_what_is_wrong),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
