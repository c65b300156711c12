/* The engine's multiplexed streams: whole and in pieces give the same bytes per stream. */
#include "tests/fuzz/fuzz.h"

#include "gateway/runtime/docker/frames.h"

struct tally {
    size_t bytes[4];
    uint32_t sum[4];
};

static void on_frame(void *arg, int stream, const char *data, size_t len)
{
    struct tally *t = arg;
    size_t i;

    MUST(stream >= FRAMES_STDIN && stream <= FRAMES_SYSTEM);
    for (i = 0; i < len; i++)
        t->sum[stream] = t->sum[stream] * 31 + (unsigned char)data[i];
    t->bytes[stream] += len;
}

static int run(const uint8_t *data, size_t size, int pieces, struct tally *t, bool *whole_frames)
{
    struct frames f = { 0 };
    size_t at = 0;
    size_t n;
    int rc = 0;

    for (; at < size && rc == 0; at += n) {
        n = pieces ? fuzz_piece(data, size, at) : size;
        rc = frames_feed(&f, (const char *)data + at, n, on_frame, t);
    }
    if (rc < 0)
        MUST(frames_feed(&f, "", 0, on_frame, t) < 0);
    *whole_frames = frames_at_boundary(&f);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tally whole = { 0 };
    struct tally cut = { 0 };
    bool end_whole;
    bool end_cut;
    int rc = run(data, size, 0, &whole, &end_whole);

    MUST(run(data, size, 1, &cut, &end_cut) == rc);
    if (rc == 0)
        MUST(memcmp(&whole, &cut, sizeof(whole)) == 0 && end_whole == end_cut);
    return 0;
}
