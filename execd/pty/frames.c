#include "common/json/jx.h"
#include "execd/pty/internal.h"

#include <stdlib.h>
#include <string.h>

enum { OFFSET_HEAD = 9, REPLAY_FRAME_MAX = (1 << 20) - OFFSET_HEAD };

/* Answers to a client that does not read are dropped at some point; what is said once is not. */
static void say(struct pty_client *c, json_t *v, bool once)
{
    char *text = v ? jx_dump(v, false) : NULL;

    if (text && (once || ws_queued(c->ws) < PTY_QUEUE_MAX + PTY_REPLY_MAX))
        (void)ws_send(c->ws, WS_TEXT | WS_FORCE, NULL, 0, text, strlen(text));
    free(text);
    json_decref(v);
}

void pty_say_connected(struct pty_client *c)
{
    const struct pty *p = c->pty;

    say(c,
        json_pack("{s:s, s:s, s:s, s:s}", "type", "connected", "session_id", p->id, "mode",
                  shell_has_tty(p->shell) ? "pty" : "pipe", "role",
                  c->how.viewer ? "viewer" : "holder"),
        true);
}

void pty_say_exit(struct pty_client *c, int code)
{
    say(c, json_pack("{s:s, s:i}", "type", "exit", "exit_code", code), true);
}

void pty_say_error(struct pty_client *c, const char *code, const char *text)
{
    json_t *error = jx_bytes(text, strlen(text));

    say(c, json_pack("{s:s, s:s, s:o*}", "type", "error", "code", code, "error", error), false);
}

void pty_say_pong(struct pty_client *c)
{
    say(c, json_pack("{s:s}", "type", "pong"), false);
}

static void offset_head(char out[OFFSET_HEAD], uint64_t at)
{
    int i;

    out[0] = PTY_REPLAY;
    for (i = 0; i < 8; i++)
        out[1 + i] = (char)(at >> (8 * (7 - i)));
}

/* A full ring takes two frames: with its head it would be larger than the 1 MiB that clients take by default. */
int pty_replay(struct pty_client *c, uint64_t since)
{
    const struct ring *r = &c->pty->ring;
    uint64_t at = since > ring_start(r) ? since : ring_start(r);
    char head[OFFSET_HEAD];

    while (at < r->total) {
        size_t len = (size_t)(r->total - at);
        char *copy;

        if (len > REPLAY_FRAME_MAX)
            len = REPLAY_FRAME_MAX;
        copy = malloc(len);
        if (!copy)
            return -1;
        ring_copy(r, at, copy, len);
        offset_head(head, at);
        (void)ws_send(c->ws, WS_BINARY | WS_FORCE, head, sizeof(head), copy, len);
        free(copy);
        at += len;
    }
    return 0;
}

void pty_client_feed(struct pty_client *c)
{
    const struct ring *r = &c->pty->ring;
    char head[OFFSET_HEAD];

    if (c->at < ring_start(r))
        c->at = ring_start(r);
    while (c->at < r->total) {
        size_t len;
        const char *data = ring_peek(r, c->at, SHELL_CHUNK, &len);

        offset_head(head, c->at);
        if (ws_send(c->ws, WS_BINARY, head, sizeof(head), data, len) < 0)
            return;
        c->at += len;
    }
}
