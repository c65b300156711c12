/* Events of a command stream as text: one JSON object and two LF each, without "data:"
 * (contract/execd.md 5.1 to 5.3). Pure. Every function appends to out and returns 0, or -1 when
 * out is full or memory is out; what was appended before then stays.
 *
 * The texts are written here and not by jansson: a program's output passes through this once per
 * line, and building a JSON tree for each made up nine tenths of the time. */
#pragma once
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct buf;

struct event_stamp {
    int64_t wall_ms;
    uint64_t
        eid; /* number of the event among those of its execution (contract/newest.md 3.1); 0: none */
};

/* type is one of init, stdout, stderr, ping; text any bytes: what is not UTF-8 becomes U+FFFD,
 * everything outside of ASCII is escaped. At most 6 bytes per byte of text and EVENT_FRAME more. */
int event_text(struct buf *out, const char *type, const char *text, size_t len,
               struct event_stamp at);
int event_complete(struct buf *out, int64_t took_ms, struct event_stamp at);
/* traceback: n lines. */
int event_error(struct buf *out, const char *ename, const char *evalue,
                const char *const *traceback, size_t n, struct event_stamp at);
int event_count(struct buf *out, int64_t execution_count, struct event_stamp at);
/* mime: an object, type to value. text/plain goes out as text, too: clients read either. */
int event_result(struct buf *out, const json_t *mime, struct event_stamp at);

enum { EVENT_FRAME = 160 };
