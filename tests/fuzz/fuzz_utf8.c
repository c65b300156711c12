/* UTF-8: a repair is valid and leaves valid text alone; an incomplete tail is at most three bytes and
 * begins where the valid prefix ends. */
#include "tests/fuzz/fuzz.h"

#include "common/base/buf.h"
#include "common/json/jx.h"
#include "common/json/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *s = (const char *)data;
    struct buf b = BUF_INIT(4 * size + 16);
    size_t ok = utf8_valid_len(s, size);
    size_t tail = utf8_incomplete_tail(s, size);
    json_t *v;

    MUST(ok <= size && utf8_valid_len(s, ok) == ok);
    MUST(tail <= 3 && tail <= size);
    if (tail)
        MUST(ok <= size - tail);
    MUST(utf8_repair(s, size, &b) == 0);
    MUST(utf8_valid_len(b.data, b.len) == b.len);
    if (ok == size)
        MUST(b.len == size && (!size || memcmp(b.data, s, size) == 0));
    v = jx_bytes(s, size);
    MUST(v && json_string_length(v) == b.len);
    json_decref(v);
    buf_free(&b);
    return 0;
}
