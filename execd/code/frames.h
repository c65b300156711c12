/* What a driver says (driver.py, driver.sh): one JSON object a line,
 *   {"type":"ready"}                                    once, it takes code from now on
 *   {"type":"busy"}                                     the code begins: SIGINT ends it from now on
 *   {"type":"result","count":N,"data":{MIME: text}}     the value of the last expression
 *   {"type":"display","data":{MIME: text}}              a value that was shown
 *   {"type":"error","ename":..,"evalue":..,"traceback":[..]}
 *   {"type":"idle","count":N}                           the execution is over
 * The code that runs beside a driver can say anything in its place: all of it is bounded and checked.
 * Pure: no descriptors, no clock. */
#pragma once
#include "common/base/buf.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;

enum {
    FRAMES_LINE_MAX = 4 << 20,     /* bytes; of a longer line nothing is taken */
    FRAMES_VALUES_MAX = 1 << 16,   /* JSON values in a line */
    FRAMES_TRACEBACK_MAX = 1024,   /* lines */
    FRAMES_TYPES_MAX = 64,         /* MIME types of one value */
    FRAMES_NAME_MAX = 1024,        /* bytes of ename */
    FRAMES_TEXT_MAX = 1024 * 1024, /* bytes of evalue and of a line of the traceback */
};

enum frame_type { FRAME_READY, FRAME_BUSY, FRAME_RESULT, FRAME_DISPLAY, FRAME_ERROR, FRAME_IDLE };

struct frame {
    enum frame_type type;
    int64_t count;
    const char *ename; /* these belong to value */
    const char *evalue;
    json_t *traceback;
    json_t *data;
    json_t *value;
};

/* Zero-initialise, but for line: frames_init. */
struct frames {
    struct buf line; /* what is read and not yet taken */
    size_t scanned;  /* no line end before here */
    bool skipping;   /* the rest of a line that is too long */
};

void frames_init(struct frames *f);
void frames_free(struct frames *f);
/* Room for len bytes, then how many there were. NULL: out of memory. A caller that takes all messages
 * before it reserves again is never refused for want of room. */
char *frames_reserve(struct frames *f, size_t len);
void frames_commit(struct frames *f, size_t len);
/* 1: *out is the next message, to be freed with frame_free; 0: none is complete; -1: the next one is
 * none (ERRC_INVALID) and was dropped, others may follow. */
int frames_next(struct frames *f, struct frame *out, struct err *e);
void frame_free(struct frame *fr);
