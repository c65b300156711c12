#include "execd/exec/units.h"

#include "common/json/utf8.h"

#include <string.h>

enum { UNITS_SCAN = 256 };

void units_init(struct units *u, bool strip)
{
    *u = (struct units){ .raw = BUF_INIT((size_t)4 * UNITS_MAX), .strip = strip };
}

void units_free(struct units *u)
{
    buf_free(&u->raw);
}

bool units_pending(const struct units *u)
{
    return u->raw.len > u->start;
}

char *units_reserve(struct units *u, size_t len)
{
    if (!units_pending(u)) {
        buf_clear(&u->raw);
        u->start = u->scanned = 0;
    } else if (u->start && u->raw.len + len >= u->raw.cap) {
        buf_consume(&u->raw, u->start);
        u->scanned -= u->start;
        u->start = 0;
    }
    return buf_reserve(&u->raw, len);
}

void units_compact(struct units *u)
{
    if (units_pending(u))
        return;
    buf_free(&u->raw);
    u->start = u->scanned = 0;
}

void units_commit(struct units *u, size_t len)
{
    u->raw.len += len;
    u->raw.data[u->raw.len] = '\0';
    if (len)
        u->release_cr = false;
}

/* Position of the first "\r" or "\n" in [from, to), or to. In steps: a far "\n" must not be looked
 * for again at each of many "\r". */
static size_t find_end(const char *s, size_t from, size_t to)
{
    const char *lf;
    const char *cr;
    size_t len;

    for (; from < to; from += len) {
        len = to - from < UNITS_SCAN ? to - from : UNITS_SCAN;
        lf = memchr(s + from, '\n', len);
        cr = memchr(s + from, '\r', lf ? (size_t)(lf - s) - from : len);
        if (cr || lf)
            return (size_t)((cr ? cr : lf) - s);
    }
    return to;
}

/* Drops the "\n" of a "\r\n" whose "\r" has ended a unit already. */
static void swallow_lf(struct units *u)
{
    if (!u->swallow_lf || !units_pending(u))
        return;
    u->swallow_lf = false;
    if (u->raw.data[u->start] == '\n')
        u->scanned = ++u->start;
}

/* A unit of len bytes of content and term bytes of terminator begins at start. 1: *out set;
 * 0: it is nothing to show (the terminator of a unit that was cut exactly before it). */
static int emit(struct units *u, size_t len, size_t term, struct unit *out)
{
    const char *at = u->raw.data + u->start;
    bool was_cut = u->cut;

    u->start += len + term;
    u->scanned = u->start;
    u->cut = false;
    *out = (struct unit){ at, u->strip ? len : len + term };
    if (!u->strip || len)
        return 1;
    *out = (struct unit){ "\n", 1 };
    return !was_cut;
}

/* The unit under way ends at a "\r" at position end. -1: it is not known yet how. */
static int emit_cr(struct units *u, size_t end, struct unit *out)
{
    bool last = end + 1 == u->raw.len;

    if (u->strip) {
        u->swallow_lf = last;
        return emit(u, end - u->start, !last && u->raw.data[end + 1] == '\n' ? 2 : 1, out);
    }
    if (last && !u->release_cr && !u->ended) {
        u->scanned = end;
        return -1;
    }
    return emit(u, end + 1 - u->start, !last && u->raw.data[end + 1] == '\n', out);
}

/* UNITS_MAX bytes without a terminator: cut where no character is torn. */
static int emit_cut(struct units *u, struct unit *out)
{
    const char *at = u->raw.data + u->start;
    size_t len = UNITS_MAX - utf8_incomplete_tail(at, UNITS_MAX);

    *out = (struct unit){ at, len };
    u->start += len;
    u->scanned = u->start;
    u->cut = true;
    return 1;
}

static int emit_tail(struct units *u, struct unit *out)
{
    *out = (struct unit){ u->raw.data + u->start, u->raw.len - u->start };
    u->start = u->scanned = u->raw.len;
    return out->len > 0;
}

/* As units_next, but -1 for "nothing yet" and 0 for "go on". */
static int step(struct units *u, struct unit *out)
{
    size_t limit;
    size_t end;
    int rc;

    swallow_lf(u);
    if (!units_pending(u))
        return -1;
    limit = u->raw.len - u->start > UNITS_MAX ? u->start + UNITS_MAX : u->raw.len;
    end = find_end(u->raw.data, u->scanned < limit ? u->scanned : limit, limit);
    if (end < limit) {
        if (u->raw.data[end] == '\r')
            return emit_cr(u, end, out);
        return emit(u, end - u->start, 1, out);
    }
    u->scanned = limit;
    if (limit - u->start >= UNITS_MAX)
        return emit_cut(u, out);
    rc = u->ended ? emit_tail(u, out) : 0;
    return rc ? rc : -1;
}

int units_next(struct units *u, struct unit *out)
{
    int rc;

    do
        rc = step(u, out);
    while (rc == 0);
    return rc > 0;
}

bool units_holds_cr(const struct units *u)
{
    return !u->strip && units_pending(u) && u->raw.data[u->raw.len - 1] == '\r';
}

void units_release_cr(struct units *u)
{
    u->release_cr = true;
}

void units_end(struct units *u)
{
    u->ended = true;
}
