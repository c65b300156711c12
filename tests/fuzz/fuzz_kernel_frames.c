/* Messages of a kernel's driver: whole and in pieces they are the same ones, whatever the code put in. */
#include "tests/fuzz/fuzz.h"

#include "common/base/err.h"
#include "execd/code/frames.h"

#include <string.h>

struct tally {
    unsigned good;
    unsigned bad;
    uint64_t sum;
};

static void look(const struct frame *fr, struct tally *t)
{
    MUST(fr->value && fr->count >= 0);
    MUST(fr->type != FRAME_ERROR || (fr->ename && fr->evalue && json_is_array(fr->traceback)));
    MUST((fr->type != FRAME_RESULT && fr->type != FRAME_DISPLAY) || json_is_object(fr->data));
    t->good++;
    t->sum =
        t->sum * 31 + (uint64_t)fr->type * 7 + (uint64_t)fr->count + json_object_size(fr->data);
}

static void run(const uint8_t *data, size_t size, int pieces, struct tally *t)
{
    struct frames f;
    size_t at = 0;
    size_t n;

    frames_init(&f);
    for (; at < size; at += n) {
        struct frame fr;
        struct err e = { 0 };
        char *room;
        int rc;

        n = pieces ? fuzz_piece(data, size, at) : size;
        room = frames_reserve(&f, n);
        MUST(room);
        memcpy(room, data + at, n);
        frames_commit(&f, n);
        while ((rc = frames_next(&f, &fr, &e)) != 0) {
            if (rc > 0) {
                look(&fr, t);
                frame_free(&fr);
            } else {
                MUST(e.code == ERRC_INVALID && e.msg[0]);
                t->bad++;
            }
        }
    }
    frames_free(&f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tally whole = { 0 };
    struct tally cut = { 0 };

    run(data, size, 0, &whole);
    run(data, size, 1, &cut);
    MUST(whole.good == cut.good && whole.bad == cut.bad && whole.sum == cut.sum);
    return 0;
}
