/* Chunked bodies: the same boundaries however the bytes are cut. */
#include "common/front/chunks.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void check(int ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    const char *text = (const char *)data;
    struct chunks whole = { 0 };
    struct chunks steps = { 0 };
    ssize_t all = chunks_feed(&whole, text, len);
    ssize_t n = 0;
    size_t at = 0;
    size_t step;

    while (at < len && n >= 0 && !chunks_done(&steps)) {
        step = 1 + data[at] % 5;
        step = step < len - at ? step : len - at;
        n = chunks_feed(&steps, text + at, step);
        check(n <= (ssize_t)step);
        check(n < 0 || n == (ssize_t)step || chunks_done(&steps));
        if (n >= 0)
            at += (size_t)n;
    }
    if (all < 0) {
        check(n < 0);
        return 0;
    }
    check(n >= 0 && at == (size_t)all && chunks_done(&whole) == chunks_done(&steps));
    check((size_t)all == len || chunks_done(&whole));
    return 0;
}
