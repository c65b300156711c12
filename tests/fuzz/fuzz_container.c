/* What the engine tells of a container, which repeats words of images and sandboxes. */
#include "tests/fuzz/fuzz.h"

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/json/jx.h"
#include "gateway/runtime/docker/describe.h"
#include "gateway/runtime/docker/inspect.h"

enum { ROOM = 4096 };

static void describe(json_t *about)
{
    struct buf out = BUF_INIT(ROOM);
    struct err e = { 0 };
    size_t i;

    if (describe_container(about, &out, &e) < 0)
        MUST(e.code == ERRC_BAD_GATEWAY);
    MUST(out.len <= ROOM && (!out.len || out.data[out.len - 1] == '\n'));
    for (i = 0; i < out.len; i++)
        MUST((unsigned char)out.data[i] >= ' ' || out.data[i] == '\n');
    buf_free(&out);
}

static void check(const struct runtime_status *st)
{
    MUST(memchr(st->id, 0, sizeof(st->id)));
    MUST(memchr(st->place.address, 0, sizeof(st->place.address)));
    MUST(memchr(st->place.host_address, 0, sizeof(st->place.host_address)));
    MUST(st->ended_ms >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    json_t *v = jx_parse_foreign(text, size, NULL);
    struct runtime_status st;
    struct err e = { 0 };

    if (v) {
        describe(v);
        if (inspect_status(v, "n", &st, &e) == 0)
            check(&st);
        if (inspect_item(v, "n", &st, &e) == 0)
            check(&st);
    }
    json_decref(v);
    free(text);
    return 0;
}
