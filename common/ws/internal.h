/* What the files of common/ws share with each other and with nobody else. */
#pragma once
#include "common/base/loop.h"
#include "common/ws/ws.h"

#include <stdint.h>

enum {
    WS_READ = 16 * 1024,
    WS_IN_MAX = 96 * 1024 /* what came with the handshake, and reads */,
    WS_LINGER_MS = 1000,
    WS_DIAL_MS = 10000
};

enum ws_state {
    WS_CONNECTING, /* client: connect(2) is under way */
    WS_SHAKING,    /* client: the request is sent */
    WS_OPEN,
    WS_CLOSING,   /* our Close is queued or sent, the peer's is awaited */
    WS_LINGERING, /* nothing more is expected: the queue goes out, then the peer's end is awaited */
    WS_DEAD,      /* the descriptor is closed; on_close is owed */
};

struct ws {
    struct ws_set *set;
    struct ws *prev;
    struct ws *next;
    struct loop_fd watch;
    struct loop_timer timer;  /* always armed, so that re-arming cannot fail */
    struct http_upgraded *up; /* NULL: the descriptor is our own */
    const struct ws_ops *ops; /* NULL: forgotten */
    void *owner;
    struct ws_options opt;
    enum ws_state state;
    bool server;
    bool paused;
    bool refused; /* on_room is owed */
    bool kicked;  /* in holds what is to be looked at without an event */
    bool shut;    /* lingering: our end is told */
    struct ws_parser parser;
    struct buf in; /* received, not parsed: while paused, or the server's answer */
    struct buf out;
    size_t sent;            /* of out */
    int64_t heard_mono_ms;  /* the last byte of the peer */
    int64_t pinged_mono_ms; /* our last ping */
    int64_t moved_mono_ms;  /* the peer took bytes, or the queue was empty */
    int64_t idle_mono_ms;   /* closing: since when the peer's turn is awaited; 0: not yet */
    int64_t cut_mono_ms;    /* 0: none */
    char key[WS_KEY_TEXT];  /* client, until the handshake is done */
    unsigned code;          /* for on_close, once dead */
    char reason[WS_REASON_MAX + 1];
};

/* ws.c */
struct ws *ws_new(struct ws_set *set, int fd, bool server, const struct ws_options *options,
                  const struct ws_ops *ops, void *owner);
/* The descriptor is closed now, on_close comes in the loop's next round. */
void ws_die(struct ws *ws, unsigned code, const char *reason);
void ws_watch(struct ws *ws);
void ws_arm(struct ws *ws);  /* the timer to what is due next */
int ws_flush(struct ws *ws); /* -1: dead */
/* Looks at what is in ws->in. */
void ws_process(struct ws *ws);

/* client.c: the two states before WS_OPEN */
void ws_on_connected(struct ws *ws);
void ws_on_answer(struct ws *ws);
