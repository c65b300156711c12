/* Kernels of a Jupyter server (contract/execd.md 8.2), for an image that names one with JUPYTER_HOST. A kernel is
 * a session there; its id is the context's. One WebSocket stays open for its life.
 *
 * - The server may start later than the agent: it is waited for (JUPYTER_SERVER_MS).
 * - Only what answers to the execution under way is its output: not what a thread of an earlier one says.
 * - An execution ends with its idle status and its reply. A kernel that dies, is restarted (the server does so by
 *   itself) or is unknown to the server is dead, with the reason. A lost connection to a living kernel ends the
 *   execution with the error "ConnectionLost", a message beyond JUPYTER_MESSAGE_MAX with "OutputTooLarge"; the
 *   kernel keeps its state, the next execution connects anew and waits until the kernel is free.
 * - What a slow client does not take is not read from the WebSocket.
 * - The working directory is set by code in the languages where that is known, else as the server decides.
 *
 * Memory: one message in parts, one parsed: at most about four times JUPYTER_MESSAGE_MAX for a kernel. For the
 * loop's thread; nothing blocks but jupyter_free. */
#pragma once
#include "execd/code/jupyter_server.h"
#include "execd/code/kernel.h"

struct jupyter;
struct loop;

enum {
    JUPYTER_KERNELS_MAX = 128, /* those that are being removed included */
    JUPYTER_START_MS = 60000,  /* from the session to the kernel's answer */
    JUPYTER_LOST_MS = 10000,   /* how long a server that was there is looked for */
    JUPYTER_QUIET_MS = 10000,  /* between the two ends of an execution, without a message */
    JUPYTER_CUT_MS = 1000,     /* when it was interrupted: the reply is then lost as a rule */
    JUPYTER_BEGIN_MS =
        2000, /* after which code that does not end makes the server be asked for its kernel */
    JUPYTER_WATCH_MS = 10000, /* and again */
    JUPYTER_LAST_MS = 1000,   /* for removals when the agent ends */
};

extern const struct kernel_ops jupyter_ops; /* the provider is a struct jupyter */

/* host: JUPYTER_HOST, token: "" is none. What is wrong with them is an error of each kernel. NULL: out of memory. */
struct jupyter *jupyter_new(struct loop *l, const char *host, const char *token, struct err *e);
/* Is the server where the official image has it, at this port of the sandbox itself? */
bool jupyter_is_local(const struct jupyter *j, uint16_t port);
/* All kernels must have been destroyed: runs the loop until they are removed, for JUPYTER_LAST_MS at most. NULL is
 * fine. */
void jupyter_free(struct jupyter *j);
