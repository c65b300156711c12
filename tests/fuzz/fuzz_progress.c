/* The engine's progress lines: whole and in pieces give the same status and error. */
#include "tests/fuzz/fuzz.h"

#include "gateway/runtime/docker/progress.h"

static void run(const uint8_t *data, size_t size, int pieces, struct progress *p)
{
    size_t at;
    size_t n;

    progress_init(p);
    for (at = 0; at < size; at += n) {
        n = pieces ? fuzz_piece(data, size, at) : size;
        progress_feed(p, (const char *)data + at, n);
    }
    progress_end(p);
    MUST(memchr(p->status, '\0', sizeof(p->status)) && memchr(p->error, '\0', sizeof(p->error)));
    MUST(p->line.len <= PROGRESS_LINE_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct progress whole;
    struct progress cut;

    run(data, size, 0, &whole);
    run(data, size, 1, &cut);
    MUST(strcmp(whole.status, cut.status) == 0 && strcmp(whole.error, cut.error) == 0);
    progress_free(&whole);
    progress_free(&cut);
    return 0;
}
