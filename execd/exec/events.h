/* Events of a command stream as text: one JSON object and two LF each, without "data:"
 * (contract/execd.md 5.1 to 5.3). Pure. Every function appends to out and returns 0, or -1 when
 * out is full or memory is out; what was appended before then stays.
 *
 * The texts are written here and not by jansson: a program's output passes through this once per
 * line, and building a JSON tree for each made up nine tenths of the time. */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct buf;

/* type is one of init, status, stdout, stderr, ping; text any bytes: what is not UTF-8 becomes
 * U+FFFD, everything outside of ASCII is escaped. */
int event_text(struct buf *out, const char *type, const char *text, size_t len, int64_t now_ms);
int event_complete(struct buf *out, int64_t took_ms, int64_t now_ms);
/* detail: further lines of the traceback, NULL for none; the first is always traceback. */
int event_error(struct buf *out, const char *ename, const char *evalue, const char *traceback,
                const char *detail, int64_t now_ms);
