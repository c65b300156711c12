/* Kernel messages of a Jupyter server's WebSocket, the default subprotocol (contract/execd.md 8.2): JSON in text
 * messages; in binary ones the JSON is the first of some buffers. Built and parsed here, nothing else: no
 * descriptors, no clock. What runs in a kernel can say anything in its place: all of it is bounded and checked. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;

enum {
    JUPYTER_MESSAGE_MAX =
        16 << 20,                 /* bytes; the kernel sends what one print writes as one message */
    JUPYTER_VALUES_MAX = 1 << 18, /* JSON values in a message */
    JUPYTER_TEXT_MAX = 256 << 10, /* bytes of evalue, the rest is cut */
    JUPYTER_ID_TEXT = 64,         /* ids of sessions, kernels and messages, with the terminator */
};

enum jupyter_type {
    JUPYTER_OTHER, /* of no interest */
    JUPYTER_STREAM,
    JUPYTER_RESULT,
    JUPYTER_DISPLAY, /* shown, or what was shown changes */
    JUPYTER_ERROR,
    JUPYTER_INPUT, /* the code begins */
    JUPYTER_STATUS,
    JUPYTER_REPLY, /* to an execute_request */
    JUPYTER_INFO,  /* kernel_info_reply */
};

enum jupyter_state {
    JUPYTER_STATE_OTHER,
    JUPYTER_STATE_BUSY,
    JUPYTER_STATE_IDLE,
    JUPYTER_STATE_RESTARTING, /* the server starts another process for the kernel */
    JUPYTER_STATE_DEAD,
};

enum jupyter_outcome { JUPYTER_OK, JUPYTER_FAILED, JUPYTER_ABORTED };

/* Pointers are never NULL unless said, and belong to value. */
struct jupyter_msg {
    enum jupyter_type type;
    enum jupyter_state state;     /* of a status */
    enum jupyter_outcome outcome; /* of a reply */
    const char *parent;           /* id of the message it is about; "": of none */
    const char *session;          /* of who sent it: a kernel's process has its own */
    bool is_stderr;               /* of a stream */
    const char *text;
    size_t text_len;
    int64_t count;      /* 0: none */
    const json_t *data; /* MIME types of result and display */
    const char *ename;  /* of an error, and of a reply that is one */
    const char *evalue;
    json_t *traceback; /* array; NULL: none */
    json_t *value;
};

/* data: of the WebSocket's message, text or not. -1: ERRC_INVALID, nothing to free. */
int jupyter_msg_parse(bool text, const char *data, size_t len, struct jupyter_msg *out,
                      struct err *e);
void jupyter_msg_free(struct jupyter_msg *m); /* takes a zeroed one */

/* Both: the text of a message, which the caller frees. NULL: out of memory. silent: of no number and no history. */
char *jupyter_msg_execute(const char *session, const char *id, const char *code, bool silent);
char *jupyter_msg_info(const char *session, const char *id);
/* Code that makes path the working directory of a kernel of that language; the caller frees. 0: *out NULL when
 * nothing is known for the language. -1: out of memory. */
int jupyter_msg_chdir(const char *language, const char *path, char **out);
