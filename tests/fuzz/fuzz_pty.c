/* What a client of a PTY sends: the first byte says text or binary, the rest is the message. */
#include "tests/fuzz/fuzz.h"

#include "execd/pty/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pty_message m;
    char *text;
    size_t i;

    if (!size)
        return 0;
    text = fuzz_text(data + 1, size - 1);
    pty_parse(data[0] & 1, text, size - 1, &m);
    MUST(m.len < size);
    for (i = 0; i < m.len; i++)
        MUST(m.data[i] || !(data[0] & 1)); /* jansson takes no NUL in text */
    MUST(m.ask == PTY_ASK_SIGNAL || !m.signal);
    json_decref(m.json);
    free(text);
    return 0;
}
