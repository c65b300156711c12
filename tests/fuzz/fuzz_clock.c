/* RFC 3339 times: what is accepted is within the years 0001 to 9999 give or take a day, and what is
 * formatted parses to the same time. */
#include "tests/fuzz/fuzz.h"

#include "common/base/clock.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *s = fuzz_text(data, size);
    char text[CLOCK_TEXT];
    int64_t ms = 42;
    int64_t back = 0;

    if (clock_parse_ms(s, &ms) == 0) {
        MUST(ms >= -62135596800000 - 86400000 && ms < 253402300800000 + 86400000);
        clock_format_ms(ms, text);
        MUST(!*text || (clock_parse_ms(text, &back) == 0 && back == ms));
    } else {
        MUST(ms == 42);
    }
    if (size >= sizeof(ms)) {
        memcpy(&ms, data, sizeof(ms));
        clock_format_ms(ms, text);
        MUST(!*text || (clock_parse_ms(text, &back) == 0 && back == ms));
        clock_format_ts(ms, (long)(size % 1000000000), text);
    }
    free(s);
    return 0;
}
