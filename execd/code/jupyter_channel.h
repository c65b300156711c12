/* The WebSocket to one kernel of a Jupyter server: opened, shaken hands with the kernel itself, read, closed.
 * Nothing here knows of executions. For the loop's thread; nothing blocks. */
#pragma once
#include "execd/code/jupyter_msg.h"

struct channel;
struct jupyter_server;
struct ws_set;

enum {
    CHANNEL_NUDGE_MS =
        1000, /* a kernel whose output is not yet connected may miss the first question */
    CHANNEL_PING_MS = 10000, /* servers give up a peer that says nothing for 30 s */
};

struct channel_ops {
    /* The kernel has answered, on the way of its output as well. session: of its process; "": not known. */
    void (*on_open)(void *owner, const char *session);
    /* Any other message; the owner frees it. Also before on_open. */
    void (*on_message)(void *owner, struct jupyter_msg *m);
    void (*on_bad)(void *owner, const struct err *e); /* a message that is none */
    /* It is closed; only channel_close is left. ERRC_TOO_LARGE: a message of more than JUPYTER_MESSAGE_MAX. */
    void (*on_lost)(void *owner, const struct err *why);
};

/* NULL: err set. */
struct channel *channel_open(struct jupyter_server *s, struct ws_set *set, const char *kernel_id,
                             const struct channel_ops *ops, void *owner, struct err *e);
/* id: of the message, by which answers are known. -1: out of memory. */
int channel_execute(struct channel *c, const char *id, const char *code, bool silent,
                    struct err *e);
/* No message comes while it is on. */
void channel_hold(struct channel *c, bool on);
void channel_close(struct channel *c); /* takes NULL */
