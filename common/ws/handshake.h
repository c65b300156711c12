/* The opening handshake (RFC 6455 section 4) of both sides. Pure: no descriptors. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf;
struct err;
struct http_req;
struct http_resp;

enum {
    WS_KEY_TEXT = 25,          /* 16 random bytes in base64, and the terminator */
    WS_ACCEPT_TEXT = 29,       /* 20 bytes of SHA-1 */
    WS_ANSWER_MAX = 16 * 1024, /* head of a server's answer */
};

void ws_make_key(char out[WS_KEY_TEXT]);
void ws_accept_of(const char *key, char out[WS_ACCEPT_TEXT]);

/* Server: 0 when rq asks for a WebSocket as it should; rs then has status 101 and its headers, rs->upgrade is the
 * caller's to set. -1: 400, or 426 (with the headers that it wants) when no upgrade or another version was asked
 * for. A subprotocol is never chosen. */
int ws_accept(struct http_req *rq, struct http_resp *rs, struct err *e);

struct ws_dial {
    const char *host; /* an IPv4 or IPv6 address, or "localhost"; also the value of Host */
    uint16_t port;
    const char *target; /* path and query, percent-encoded; begins with '/' */
    const char *const
        *headers; /* n_headers pairs of name and value, besides those of the handshake */
    size_t n_headers;
    int timeout_ms; /* until the handshake is done; 0: 10 s */
};

/* Client: appends the request. -1: ERRC_INVALID (line ends or controls in what was given), or out is full. */
int ws_put_request(const struct ws_dial *d, const char *key, struct buf *out, struct err *e);
/* Looks at what the server has sent so far. 1: the handshake is done, *used bytes belong to it; 0: more is needed;
 * -1: refused or broken, err says what came. */
int ws_read_answer(const char *in, size_t len, const char *key, size_t *used, struct err *e);
