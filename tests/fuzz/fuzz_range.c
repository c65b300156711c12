/* Range headers: what is accepted lies within its bounds. */
#include "tests/fuzz/fuzz.h"

#include "execd/fs/range.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint64_t sizes[] = { 0, 1, 10, 1000, UINT32_MAX, INT64_MAX };
    char *s = fuzz_text(data, size);
    size_t i;

    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        uint64_t off = 0;
        uint64_t len = 0;

        if (range_parse(s, sizes[i], &off, &len) == RANGE_OK)
            MUST(len > 0 && off < sizes[i] && len <= sizes[i] - off);
    }
    free(s);
    return 0;
}
