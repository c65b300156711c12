/* Cuts the bytes of an output stream into the units that become events (contract/execd.md 5.5,
 * newest.md 3.2). Pure: no descriptors, no clock, no JSON.
 *
 * kept:     a unit ends after "\n", after "\r\n" or after a lone "\r", and contains them.
 * stripped: the same ends without their bytes; an empty line is the unit "\n".
 * Both: a unit holds UNITS_MAX bytes at the most and is then cut between characters; what is not
 * terminated stays until units_end. Whether a "\r" is lone shows only with the next byte: the
 * caller waits a moment while units_holds_cr, then calls units_release_cr. */
#pragma once
#include "common/base/buf.h"

#include <stdbool.h>
#include <stddef.h>

enum { UNITS_MAX = 1 << 20 };

struct units {
    struct buf raw;
    size_t start;   /* of the unit under way, in raw */
    size_t scanned; /* no terminator between start and here */
    bool strip;
    bool swallow_lf; /* stripped: a "\n" here belongs to the "\r" before */
    bool cut;        /* the unit under way is the rest of one that was too long */
    bool release_cr; /* a "\r" at the end of raw counts as lone */
    bool ended;      /* what is left is the last unit */
};

struct unit {
    const char *text; /* valid until the next units_reserve */
    size_t len;
};

void units_init(struct units *u, bool strip);
void units_free(struct units *u);
/* Room for len bytes to be read into, then how many there were. NULL: out of memory. */
char *units_reserve(struct units *u, size_t len);
void units_commit(struct units *u, size_t len);
/* 1: *out is the next unit; 0: none is complete. A copy of *u taken before puts a unit back, as
 * long as nothing was reserved in between. */
int units_next(struct units *u, struct unit *out);
bool units_holds_cr(const struct units *u);
void units_release_cr(struct units *u);
void units_end(struct units *u);           /* the stream is over: the tail is a unit */
bool units_pending(const struct units *u); /* bytes are held */
void units_compact(struct units *u);       /* gives memory back when no bytes are held */
