/* Output that goes to the container's log by way of the agent, which keeps its end for an error
 * text. A log that is not read for a while stops the writer, never the agent; a log that is gone
 * loses the output. For the loop's thread. */
#pragma once
#include "common/base/buf.h"
#include "common/base/loop.h"

#include <stdbool.h>
#include <stddef.h>

struct err;

enum {
    LOGTAIL_MAX = 300,          /* bytes of logtail_text, without its terminator */
    LOGPIPE_HELD_MAX = 1 << 21, /* bytes taken and not yet written; a pipe holds at most half */
};

/* The last bytes of one or more pipes. */
struct logtail {
    char data[LOGTAIL_MAX];
    size_t len;
};

struct logpipe {
    struct loop *loop;
    struct loop_fd from; /* fd -1 once all writers are gone */
    struct loop_fd to;   /* fd -1: the log is gone */
    struct buf held;
    struct logtail *tail; /* NULL: nobody wants it any more */
    bool fifo;
};

/* to: 1 or 2; it stays open. Returns the end for the writer, the caller's to close. -1: err set.
 * *p is zeroed before the first call; logpipe_close undoes it, also after a failure. */
int logpipe_open(struct logpipe *p, struct loop *l, int to, struct logtail *tail, struct err *e);
/* Takes what is in the pipe at this moment. */
void logpipe_drain(struct logpipe *p);
void logpipe_close(struct logpipe *p); /* after a last attempt to write */

/* The end of the output for people: valid UTF-8 from the first whole character on, no control
 * characters but line ends and tabs, no blanks around. out holds LOGTAIL_MAX + 1 bytes. */
void logtail_text(const struct logtail *t, char *out);
void logtail_add(struct logtail *t, const char *data, size_t len);
