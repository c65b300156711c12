/* Patterns of a search: pattern, NUL, name. Compiled or refused with a reason; a pattern without
 * any special character matches itself and nothing else. */
#include "tests/fuzz/fuzz.h"

#include "common/base/err.h"
#include "execd/fs/glob.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    size_t len = strlen(text);
    const char *name = len < size ? text + len + 1 : "";
    struct err e = { 0 };
    struct glob *g = glob_compile(text, &e);

    MUST(g || (e.code == ERRC_INTERNAL && e.msg[0]));
    if (g) {
        bool is = glob_match(g, name);

        if (!strpbrk(text, "*?[{\\!") && strlen(name) <= GLOB_NAME_MAX)
            MUST(is == (strcmp(text, name) == 0));
    }
    glob_free(g);
    free(text);
    return 0;
}
