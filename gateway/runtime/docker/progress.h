/* Parser of the JSON lines that the engine sends while it pulls or imports an image. Pure and
 * incremental: pieces may be cut anywhere. A line that is not JSON or too long is passed over. */
#pragma once
#include "common/base/buf.h"

#include <stdbool.h>

enum { PROGRESS_LINE_MAX = 64 << 10, PROGRESS_TEXT = 384 };

struct progress {
    struct buf line;
    bool skip;                  /* the current line is too long */
    char status[PROGRESS_TEXT]; /* latest "id: status" */
    char error[PROGRESS_TEXT];  /* "" when none was reported */
};

void progress_init(struct progress *p);
void progress_free(struct progress *p);
void progress_feed(struct progress *p, const char *data, size_t len);
/* The stream is over: a last line without a line feed counts too. */
void progress_end(struct progress *p);
