/* Output cut into events: kept, the units are the stream byte by byte; stripped, no unit has a line end
 * but the empty line. Whole and in pieces must give the same. */
#include "tests/fuzz/fuzz.h"

#include "execd/exec/units.h"

struct tally {
    size_t units;
    size_t bytes;
    uint32_t sum;
};

static void take(struct units *u, bool strip, struct tally *t)
{
    struct unit one;

    while (units_next(u, &one)) {
        size_t i;

        MUST(one.len <= UNITS_MAX && one.len > 0);
        if (strip && !(one.len == 1 && one.text[0] == '\n'))
            MUST(!memchr(one.text, '\n', one.len) && !memchr(one.text, '\r', one.len));
        for (i = 0; i < one.len; i++)
            t->sum = t->sum * 31 + (unsigned char)one.text[i];
        t->sum = t->sum * 31 + 256;
        t->bytes += one.len;
        t->units++;
    }
}

static void run(const uint8_t *data, size_t size, bool strip, bool pieces, struct tally *t)
{
    struct units u;
    size_t at;
    size_t n;

    units_init(&u, strip);
    for (at = 0; at < size; at += n) {
        char *to;

        n = pieces ? fuzz_piece(data, size, at) : size;
        to = units_reserve(&u, n);
        MUST(to);
        memcpy(to, data + at, n);
        units_commit(&u, n);
        take(&u, strip, t);
    }
    units_end(&u);
    take(&u, strip, t);
    MUST(!units_pending(&u));
    units_compact(&u);
    units_free(&u);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int strip;

    for (strip = 0; strip < 2; strip++) {
        struct tally whole = { 0 };
        struct tally cut = { 0 };

        run(data, size, strip, false, &whole);
        run(data, size, strip, true, &cut);
        MUST(whole.units == cut.units && whole.bytes == cut.bytes && whole.sum == cut.sum);
        if (!strip)
            MUST(whole.bytes == size);
        else
            MUST(whole.bytes <= size);
    }
    return 0;
}
