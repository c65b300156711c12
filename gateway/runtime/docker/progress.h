/* Parser of the JSON lines that the engine sends while it pulls or imports an image. Pure and
 * incremental: pieces may be cut anywhere. A line that is not JSON or too long is passed over. */
#pragma once
#include "common/base/buf.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    PROGRESS_LINE_MAX = 64 << 10,
    PROGRESS_TEXT = 384,
    PROGRESS_LAYERS = 128, /* an image has at most 127; more are not counted */
    PROGRESS_ID = 16,      /* the engine sends 12 digits */
};

/* What the engine told of one layer's download, in bytes. */
struct progress_layer {
    char id[PROGRESS_ID];
    int64_t current; /* 0..total */
    int64_t total;
};

struct progress {
    struct buf line;
    bool skip;                  /* the current line is too long */
    char status[PROGRESS_TEXT]; /* latest "id: status" */
    char error[PROGRESS_TEXT];  /* "" when none was reported */
    struct progress_layer layers[PROGRESS_LAYERS];
    unsigned n_layers;
};

void progress_init(struct progress *p);
void progress_free(struct progress *p);
void progress_feed(struct progress *p, const char *data, size_t len);
/* The stream is over: a last line without a line feed counts too. */
void progress_end(struct progress *p);
/* "42% of 118 MB" over the layers whose size is known, else the latest status; cut to size, valid
 * UTF-8, "" when nothing was told yet. */
void progress_text(const struct progress *p, char *out, size_t size);
