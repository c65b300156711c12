/* What a person asks when a sandbox does not do what it should: its output, what happened to it, what
 * it is made of. For sandboxes that exist and for those that ended. Knows no HTTP. All functions
 * block, append to out as far as it fits, and answer DOCKER::SANDBOX_NOT_FOUND only for ids of which
 * nothing is known. Nothing secret is in the text but what the sandbox's program wrote itself. */
#pragma once
#include "gateway/sandbox.h"

#include <stdbool.h>

struct buf;
struct err;
struct lifecycle;

enum { DIAGNOSTICS_MAX = 1 << 20 }; /* bytes of one text */

enum diagnostics_events {
    DIAGNOSTICS_RUNTIME = 1,   /* news of the engine */
    DIAGNOSTICS_LIFECYCLE = 2, /* decisions of the server */
    DIAGNOSTICS_ALL = 3,
};

struct diagnostics_logs {
    int tail;         /* lines from the end; > 0 */
    int64_t since_ms; /* wall; 0: from the beginning */
};

/* The last output, each line with its time; *cut when there was more. out is empty when there is
 * none. */
int diagnostics_logs(struct lifecycle *lc, const char *id, const struct diagnostics_logs *q,
                     struct buf *out, bool *cut, struct err *e);
/* A line for each of the newest up to max events, oldest of them first. */
int diagnostics_events(struct lifecycle *lc, const char *id, enum diagnostics_events which, int max,
                       struct buf *out, bool *cut, struct err *e);
/* The record and what the runtime says about it. Values whose name says that they are secret are
 * masked. */
int diagnostics_inspect(struct lifecycle *lc, const char *id, struct buf *out, struct err *e);
/* All of the above; what cannot be had is said in its place. */
int diagnostics_summary(struct lifecycle *lc, const char *id, int tail, int max_events,
                        struct buf *out, struct err *e);
