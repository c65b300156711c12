/* The engine's progress lines: whole and in pieces give the same status, error and
 * percentage, and no layer has more than all of its bytes. */
#include "tests/fuzz/fuzz.h"

#include "gateway/runtime/docker/progress.h"

static void check(const struct progress *p)
{
    char small[8];
    unsigned i;

    MUST(memchr(p->status, '\0', sizeof(p->status)) && memchr(p->error, '\0', sizeof(p->error)));
    MUST(p->line.len <= PROGRESS_LINE_MAX);
    MUST(p->n_layers <= PROGRESS_LAYERS);
    for (i = 0; i < p->n_layers; i++)
        MUST(p->layers[i].current >= 0 && p->layers[i].current <= p->layers[i].total);
    progress_text(p, small, sizeof(small));
    MUST(memchr(small, '\0', sizeof(small)));
}

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
    check(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct progress whole;
    struct progress cut;
    char texts[2][PROGRESS_TEXT];

    run(data, size, 0, &whole);
    run(data, size, 1, &cut);
    MUST(strcmp(whole.status, cut.status) == 0 && strcmp(whole.error, cut.error) == 0);
    progress_text(&whole, texts[0], sizeof(texts[0]));
    progress_text(&cut, texts[1], sizeof(texts[1]));
    MUST(strcmp(texts[0], texts[1]) == 0);
    progress_free(&whole);
    progress_free(&cut);
    return 0;
}
