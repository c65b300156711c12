/* An entrypoint that is a command line. Words put between single quotes are the same words again. */
#include "tests/fuzz/fuzz.h"

#include "common/base/buf.h"
#include "common/base/err.h"
#include "gateway/domain/words.h"

static void quote(struct buf *b, const char *word)
{
    MUST(buf_puts(b, " '") == 0);
    for (; *word; word++)
        MUST((*word == '\'' ? buf_puts(b, "'\\''") : buf_append(b, word, 1)) == 0);
    MUST(buf_puts(b, "'") == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO_BUF struct buf line = BUF_INIT(1 << 22);
    char *s = fuzz_text(data, size);
    json_t *text = json_string(s);
    json_t *words = NULL;
    json_t *again;
    json_t *word;
    struct err e = { 0 };
    size_t i;

    if (text) { /* else: not UTF-8, which no request can hold */
        words = words_split(s, &e);
        MUST(words || (e.code == ERRC_INVALID && e.msg[0]));
    }
    json_array_foreach(words, i, word) {
        quote(&line, json_string_value(word));
    }
    if (words) {
        again = words_split(line.data, &e);
        MUST(again && json_equal(words, again));
        json_decref(again);
    }
    json_decref(words);
    json_decref(text);
    free(s);
    return 0;
}
