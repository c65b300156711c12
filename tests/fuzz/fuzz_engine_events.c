/* The engine's event stream: whole and in pieces give the same news, and broken streams leave nothing
 * behind. */
#include "tests/fuzz/fuzz.h"

#include "gateway/runtime/docker/event_feed.h"

#include <stdio.h>

#define INSTANCE "i"
#define KNOWN                                                                                      \
    "{\"Type\":\"container\",\"Action\":\"start\",\"Actor\":{\"Attributes\":{\"sandgate.id\":"     \
    "\"a\",\"sandgate.instance\":\"i\",\"sandgate.role\":\"sandbox\",\"name\":\"sandbox-a\"}},"    \
    "\"timeNano\":7}"

enum { SEEN_MAX = 1 << 20 };

static void on_news(void *arg, const struct runtime_event *ev, int64_t at_ns)
{
    MUST(memchr(ev->id, '\0', sizeof(ev->id)));
    MUST(ev->kind == RUNTIME_EVENT_SYNC ? at_ns == 0 : at_ns > 0);
    (void)buf_printf(arg, "%d %s %lld %d\n", (int)ev->kind, ev->id, (long long)at_ns,
                     ev->exit_code);
}

static void run(const uint8_t *data, size_t size, int pieces, struct buf *seen)
{
    struct event_feed f;
    size_t at;
    size_t n;

    event_feed_init(&f, INSTANCE);
    for (at = 0; at < size; at += n) {
        n = pieces ? fuzz_piece(data, size, at) : size;
        event_feed_put(&f, (const char *)data + at, n, on_news, seen);
        MUST(f.object.len <= EVENT_FEED_OBJECT_MAX);
    }
    event_feed_reset(&f);
    (void)buf_puts(seen, "end ");
    at = seen->len;
    event_feed_put(&f, KNOWN, sizeof(KNOWN) - 1, on_news, seen);
    MUST(at == seen->len || strcmp(seen->data + at, "0 a 7 0\n") == 0);
    event_feed_free(&f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf whole = BUF_INIT(SEEN_MAX);
    struct buf cut = BUF_INIT(SEEN_MAX);

    run(data, size, 0, &whole);
    run(data, size, 1, &cut);
    MUST(whole.len == cut.len && memcmp(whole.data, cut.data, whole.len) == 0);
    buf_free(&whole);
    buf_free(&cut);
    return 0;
}
