/* WebSocket: frames of both roles give the same events however they are cut, keep to the limits, and what we write
 * is what we read; the answer to a handshake never makes us read past its end. */
#include "tests/fuzz/fuzz.h"

#include "common/base/err.h"
#include "common/ws/frame.h"
#include "common/ws/handshake.h"

enum { MAX = 300 };

static uint64_t mix(uint64_t h, const void *data, size_t len)
{
    const unsigned char *p = data;

    while (len--)
        h = (h ^ *p++) * 1099511628211u;
    return h;
}

static void look(enum ws_event ev, const struct ws_item *item, uint64_t *seen)
{
    if (ev == WS_EVENT_NONE)
        return;
    *seen = mix(*seen, &ev, sizeof(ev));
    if (ev == WS_EVENT_BAD) {
        MUST(item->why && ws_code_ok(item->code));
        *seen = mix(*seen, &item->code, sizeof(item->code));
        return;
    }
    MUST(item->len <= (ev == WS_EVENT_MESSAGE ? MAX : WS_CONTROL_MAX));
    if (ev == WS_EVENT_MESSAGE)
        MUST(item->data[item->len] == '\0');
    if (ev == WS_EVENT_CLOSE)
        MUST(item->code == WS_CODE_NONE || ws_code_ok(item->code));
    *seen = mix(*seen, item->data, item->len);
}

/* A fingerprint of all events. */
static uint64_t run(const uint8_t *data, size_t size, bool server, bool pieces)
{
    struct ws_parser p;
    uint64_t seen = 14695981039346656037u;
    size_t at = 0;

    ws_parser_init(&p, server, MAX);
    while (at < size) {
        size_t n = pieces ? fuzz_piece(data, size, at) : size - at;
        char *copy = fuzz_text(data + at, n); /* so that a read past the end shows */
        struct ws_item item = { 0 };
        size_t used;
        enum ws_event ev = ws_parse(&p, copy, n, &used, &item);

        MUST(used <= n && (ev != WS_EVENT_NONE || used == n));
        look(ev, &item, &seen);
        free(copy);
        at += used;
        if (ev == WS_EVENT_BAD)
            break;
    }
    ws_parser_free(&p);
    return seen;
}

static void back_and_forth(const uint8_t *data, size_t size, bool masked)
{
    static const unsigned char mask[4] = { 9, 200, 3, 77 };
    unsigned char head[WS_HEAD_MAX];
    size_t n = ws_head(head, WS_BINARY, size, masked ? mask : NULL);
    char *frame = malloc(n + size);
    struct ws_parser p;
    struct ws_item item;
    size_t used;

    MUST(frame);
    memcpy(frame, head, n);
    memcpy(frame + n, data, size);
    if (masked)
        ws_mask(frame + n, size, mask, 0);
    ws_parser_init(&p, masked, size);
    MUST(ws_parse(&p, frame, n + size, &used, &item) == WS_EVENT_MESSAGE && used == n + size);
    MUST(item.len == size && memcmp(item.data, data, size) == 0);
    ws_parser_free(&p);
    free(frame);
}

static void answer(const uint8_t *data, size_t size)
{
    char *copy = malloc(size ? size : 1);
    struct err e;
    size_t used = 0;

    MUST(copy);
    if (size)
        memcpy(copy, data, size);
    if (ws_read_answer(copy, size, "dGhlIHNhbXBsZSBub25jZQ==", &used, &e) > 0)
        MUST(used > 0 && used <= size);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    MUST(run(data, size, true, false) == run(data, size, true, true));
    MUST(run(data, size, false, false) == run(data, size, false, true));
    if (size && size < 4096) {
        back_and_forth(data, size, true);
        back_and_forth(data, size, false);
    }
    answer(data, size);
    return 0;
}
