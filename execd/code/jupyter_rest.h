/* One request and its answer at a time with a Jupyter server's REST API, over a connection of its own. The heads
 * are read by common/front/head, chunked bodies by common/front/chunks: no framing is parsed here. The server is
 * named by address, since a static program cannot resolve names. For the loop's thread; nothing blocks. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf;
struct err;
struct loop;
struct rest_call;

enum {
    REST_BASE_MAX = 256,       /* path of JUPYTER_HOST */
    REST_TOKEN_MAX = 1024,     /* bytes of JUPYTER_TOKEN */
    REST_ANSWER_MAX = 1 << 20, /* bytes of an answer's body; kernelspecs are a few kilobytes each */
    REST_URL_TEXT = 512,
};

/* Where the server is, and what opens it. */
struct rest {
    struct loop *loop;
    char host[64]; /* an IPv4 or IPv6 address */
    uint16_t port;
    char base[REST_BASE_MAX];               /* "" or "/path" without a slash at its end */
    char authorization[REST_TOKEN_MAX + 8]; /* value of the header; "": none is sent */
    char url[REST_URL_TEXT];                /* for messages: without anything secret */
};

/* "http://HOST[:PORT][/PATH]", HOST an address or "localhost"; token "" is none. -1: ERRC_INVALID, err says what
 * JUPYTER_HOST or JUPYTER_TOKEN has to be. */
int rest_init(struct rest *r, struct loop *l, const char *url, const char *token, struct err *e);

struct rest_answer {
    int status;       /* of HTTP */
    const char *body; /* NUL-terminated, valid during the call */
    size_t len;
};

/* The last call about a request, never from inside rest_call: what came, or (a NULL) why nothing did:
 * ERRC_BUSY when nothing listens there, else ERRC_TIMEOUT or ERRC_BAD_GATEWAY. */
typedef void (*rest_done)(void *owner, const struct rest_answer *a, const struct err *e);

/* path: behind the base, begins with '/', percent-encoded. body: JSON, copied; NULL: none. NULL: out of memory. */
struct rest_call *rest_call(struct rest *r, const char *method, const char *path, const char *body,
                            int timeout_ms, rest_done done, void *owner, struct err *e);
/* No call of done comes any more; what was sent was sent. NULL is fine. */
void rest_cancel(struct rest_call *c);
