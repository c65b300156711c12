/* Kernels of a Jupyter server come and go (contract/execd.md 8.2): from a language to a session with a kernel in
 * it, and its removal. Nothing here knows of WebSockets or of code. For the loop's thread; nothing blocks. */
#pragma once
#include "execd/code/jupyter_replies.h"
#include "execd/code/jupyter_rest.h"

struct errand;

enum {
    JUPYTER_SERVER_MS =
        30000, /* how long nobody may listen: the official image starts it beside the agent */
    JUPYTER_RETRY_MS = 200,
    JUPYTER_CALL_MS = 60000, /* for one answer; the server starts the kernel's process meanwhile */
    JUPYTER_REMOVE_MS = 30000, /* it waits until the kernel has ended */
};

struct jupyter_server {
    struct rest rest;
    struct errand *errands; /* what is under way */
    unsigned n;
};

/* Gives up what is under way. */
void jupyter_server_close(struct jupyter_server *s);

/* ids NULL: e is why (ERRC_INVALID: there is no such language). Never from inside jupyter_begin. */
typedef void (*jupyter_begun)(void *owner, const struct jupyter_ids *ids, const struct err *e);

/* A session and its kernel; cwd: where its notebook is said to be, NULL: nowhere special. While nobody listens the
 * server is waited for. NULL: out of memory. */
struct errand *jupyter_begin(struct jupyter_server *s, const char *language, const char *cwd,
                             jupyter_begun done, void *owner, struct err *e);
/* done is not called any more; what the server makes all the same is removed. NULL is fine. */
void jupyter_abandon(struct errand *t);
/* Ends a session and its kernel, in the background, within JUPYTER_REMOVE_MS; a failure goes to the log. */
void jupyter_remove(struct jupyter_server *s, const char *session);

/* What an HTTP status of the server other than 2xx means. */
int jupyter_refused(const struct jupyter_server *s, const struct rest_answer *a, struct err *e);
