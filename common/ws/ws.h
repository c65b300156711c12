/* WebSocket connections on a loop, the server's and the client's end alike (RFC 6455). Everything here is for the
 * loop's thread, nothing blocks. What waits to be sent is bounded: ws_send refuses, on_room follows.
 *
 * A connection frees itself when it is over. Its owner may use it until on_close has been called or until its own
 * ws_forget, whichever is first; what remains (sending what is queued, the peer's Close) goes on without it. */
#pragma once
#include "common/ws/frame.h"
#include "common/ws/handshake.h"

#include <stdbool.h>
#include <stddef.h>

struct err;
struct http_upgraded;
struct loop;
struct ws;

/* All connections of an owner, for the final cut. */
struct ws_set {
    struct loop *loop;
    struct ws *head;
};

struct ws_ops {
    /* Client: the handshake is done. NULL on a server. */
    void (*on_open)(void *owner);
    /* data is valid during the call and NUL-terminated; text is valid UTF-8. */
    void (*on_message)(void *owner, bool text, const char *data, size_t len);
    /* There is room again after a refused ws_send. NULL: nobody asks. */
    void (*on_room)(void *owner);
    /* The last call. The peer closes (its code, WS_CODE_NONE when it gave none), broke a rule (the code it was
     * closed with) or is gone (WS_CODE_ABNORMAL); reason is text for people. */
    void (*on_close)(void *owner, unsigned code, const char *reason);
};

/* Zero members have these defaults. */
struct ws_options {
    size_t message_max; /* of the peer's messages, bytes: 1 MiB; larger ones are closed with 1009 */
    size_t queue_max;   /* bytes that wait to be sent: 256 KiB */
    int ping_ms;        /* between our pings: 30 s */
    int dead_ms;        /* without a byte of the peer (not counted while paused): 60 s */
    int write_ms;       /* without a byte that the peer takes: 10 s */
    int close_ms;       /* for the peer's answer to our Close: 5 s */
};

enum { WS_FORCE = 256 }; /* ws_send: although the queue is full; for what is said once */

/* Takes over an upgraded connection (http_upgrade_ops.on_open). NULL: out of memory, it is closed. */
struct ws *ws_serve(struct ws_set *set, struct http_upgraded *up, int fd, const void *early,
                    size_t early_len, const struct ws_options *options, const struct ws_ops *ops,
                    void *owner);
/* Connects to a server; d is used during the call only. on_open or on_close follows. NULL: err set. */
struct ws *ws_connect(struct ws_set *set, const struct ws_dial *d, const struct ws_options *options,
                      const struct ws_ops *ops, void *owner, struct err *e);
/* Takes over a connected socket on which the handshake is done, for either end. NULL: out of memory, fd is closed. */
struct ws *ws_adopt(struct ws_set *set, int fd, bool server, const struct ws_options *options,
                    const struct ws_ops *ops, void *owner);

/* Sends one message: kind is WS_TEXT or WS_BINARY, perhaps with WS_FORCE; head_len bytes of head go before data.
 * 0, or -1: the queue is full. One message larger than the queue is taken when that is empty; what is sent to a
 * connection that is closing or gone is swallowed. */
int ws_send(struct ws *ws, unsigned kind, const void *head, size_t head_len, const void *data,
            size_t len);
size_t ws_queued(const struct ws *ws); /* bytes that wait to be sent */
size_t ws_room(const struct ws *ws);   /* bytes that are not refused now; 0: none */
/* No message comes while paused; neither does the peer's Close. With each of our Pings goes an unasked Pong (RFC
 * 6455 section 5.5.3) then, so that a peer that waits for answers to its own does not give us up. */
void ws_pause(struct ws *ws, bool on);
/* Sends what is queued, then Close; messages that come meanwhile are dropped. reason: valid UTF-8, cut at
 * WS_REASON_MAX bytes. within_ms: cut after that, whatever is not through; 0: the options' times decide. */
void ws_close(struct ws *ws, unsigned code, const char *reason, int within_ms);
/* No more calls of ops. A connection that is not closing yet is closed with 1001. NULL is fine. */
void ws_forget(struct ws *ws);
/* Cuts all connections without a call of ops. */
void ws_set_free(struct ws_set *set);
