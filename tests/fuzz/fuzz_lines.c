/* Cuts of a program's output: they begin at the beginning of a line, and hold as many lines as asked
 * for or all there are. */
#include "tests/fuzz/fuzz.h"

#include "gateway/domain/lines.h"

static int count(const char *from, const char *end)
{
    int n = 0;

    for (; from < end; from++)
        n += *from == '\n' || from + 1 == end;
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int n = size ? 1 + data[0] % 8 : 1;
    int64_t since = size ? 1700000000000 + data[0] * 100 : 0;
    char *text = fuzz_text(size ? data + 1 : data, size ? size - 1 : 0);
    size_t len = size ? size - 1 : 0;
    const char *from = lines_last(text, len, n);

    MUST(from >= text && from <= text + len);
    MUST(from == text || from[-1] == '\n');
    MUST(from == text ? count(from, text + len) <= n : count(from, text + len) == n);
    from = lines_since(text, since);
    MUST(from >= text && from <= text + strlen(text));
    MUST(from == text || from[-1] == '\n' || !*from);
    free(text);
    return 0;
}
