/* WebSocket frames (RFC 6455 section 5) from and to bytes. Pure: no descriptors, no clock. Compression and other
 * extensions are not offered, so the reserved bits are errors. */
#pragma once
#include "common/base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    WS_CONTINUATION = 0,
    WS_TEXT = 1,
    WS_BINARY = 2,
    WS_CLOSE = 8,
    WS_PING = 9,
    WS_PONG = 10,
};

/* RFC 6455 section 7.4.1 */
enum {
    WS_CODE_NORMAL = 1000,
    WS_CODE_GOING_AWAY = 1001,
    WS_CODE_PROTOCOL = 1002,
    WS_CODE_NONE = 1005,     /* never on the wire: the Close frame had no code */
    WS_CODE_ABNORMAL = 1006, /* never on the wire: there was no Close frame */
    WS_CODE_BAD_TEXT = 1007,
    WS_CODE_POLICY = 1008,
    WS_CODE_TOO_BIG = 1009,
    WS_CODE_INTERNAL = 1011,
};

enum {
    WS_HEAD_MAX = 14,
    WS_CONTROL_MAX = 125, /* payload of Close, Ping, Pong */
    WS_REASON_MAX = 123,
};

struct ws_parser {
    bool masked; /* frames have to be: this is the server's end */
    size_t max;  /* bytes of a message */
    unsigned char head[WS_HEAD_MAX];
    unsigned head_len; /* received of it */
    unsigned head_need;
    unsigned opcode; /* of the frame whose payload is being read */
    bool fin;
    uint64_t left; /* payload still to come */
    unsigned char mask[4];
    unsigned phase;   /* index into mask */
    unsigned message; /* WS_TEXT or WS_BINARY while one is being collected, else 0 */
    struct buf data;  /* of the message */
    char control[WS_CONTROL_MAX];
    size_t control_len;
    bool delivered; /* data was given out: begin anew */
};

enum ws_event {
    WS_EVENT_NONE,    /* all bytes are used, nothing is complete */
    WS_EVENT_MESSAGE, /* a whole message */
    WS_EVENT_PING,
    WS_EVENT_PONG,
    WS_EVENT_CLOSE,
    WS_EVENT_BAD, /* the peer breaks the rules: close with item.code; nothing may be parsed after it */
};

struct ws_item {
    bool text; /* of a message: valid UTF-8 */
    const char *
        data; /* message, payload of Ping and Pong, reason of Close; NUL-terminated but for controls; valid
                         until the next ws_parse */
    size_t len;
    unsigned code;   /* of Close (WS_CODE_NONE: it had none) or the one to close with */
    const char *why; /* of WS_EVENT_BAD: static */
};

void ws_parser_init(struct ws_parser *p, bool server, size_t message_max);
void ws_parser_free(struct ws_parser *p);
/* Looks at in, says in *used how many bytes it took (all of them with WS_EVENT_NONE) and what they completed. */
enum ws_event ws_parse(struct ws_parser *p, const char *in, size_t len, size_t *used,
                       struct ws_item *out);

/* Writes a frame's head; returns its length. mask NULL: none, else the payload is to be passed through ws_mask. */
size_t ws_head(unsigned char out[WS_HEAD_MAX], unsigned opcode, uint64_t len,
               const unsigned char mask[4]);
/* In place; at is the position of data in the payload. */
void ws_mask(char *data, size_t len, const unsigned char mask[4], size_t at);
/* May the code be on the wire? */
bool ws_code_ok(unsigned code);
