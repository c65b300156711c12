/* The clients of a session: being let in, what they say, how they leave. */
#include "common/base/err.h"
#include "common/http/http.h"
#include "execd/pty/internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- leaving ---- */

static void unlink_client(struct pty_client *c)
{
    struct pty *p = c->pty;

    if (c->prev)
        c->prev->next = c->next;
    else
        p->clients = c->next;
    if (c->next)
        c->next->prev = c->prev;
    if (c->how.viewer)
        p->n_viewers--;
    else if (!c->ws)
        p->entering--;
}

/* Without its holder the shell only fills the ring. */
static void client_free(struct pty_client *c)
{
    struct pty *p = c->pty;
    bool held = p->holder == c;

    unlink_client(c);
    free(c);
    if (held)
        p->holder = NULL;
    if (held && p->shell)
        shell_pause(p->shell, false); /* may end the shell, which ends p when it is deleted */
    else
        pty_unref(p);
}

void pty_client_close(struct pty_client *c, unsigned code, const char *reason, int within_ms)
{
    ws_close(c->ws, code, reason, within_ms);
    ws_forget(c->ws);
    client_free(c);
}

static void turn_away(struct pty_client *c, const char *code, const char *text, unsigned close)
{
    pty_say_error(c, code, text);
    pty_client_close(c, close, code, 0);
}

static void on_close(void *owner, unsigned code, const char *reason)
{
    (void)code, (void)reason;
    client_free(owner);
}

/* ---- what they say ---- */

static void input(struct pty_client *c, const struct pty_message *m)
{
    struct shell *sh = c->pty->shell;
    struct err e = { 0 };

    if (!sh)
        return;
    if (shell_write(sh, m->data, m->len, &e) < 0)
        turn_away(c, "STDIN_WRITE_FAILED", e.msg, WS_CODE_INTERNAL);
    else if (shell_input_full(sh))
        ws_pause(c->ws, true);
}

static void obey(struct pty_client *c, const struct pty_message *m)
{
    struct shell *sh = c->pty->shell;

    if (m->ask == PTY_ASK_INPUT)
        input(c, m);
    else if (m->ask == PTY_ASK_RESIZE && m->cols && m->rows && sh)
        shell_resize(sh, m->cols, m->rows);
    else if (m->ask == PTY_ASK_RESIZE && (!m->cols || !m->rows))
        pty_say_error(c, "INVALID_FRAME", "resize needs cols and rows, each 1 to 65535");
    else if (m->ask == PTY_ASK_SIGNAL && m->signal && sh)
        shell_signal(sh, m->signal);
}

/* -1: c is gone. */
static int refuse(struct pty_client *c)
{
    pty_say_error(c, "READ_ONLY", "a viewer cannot send input, signals or sizes");
    if (++c->refused < PTY_REFUSED_MAX)
        return 0;
    pty_client_close(c, WS_CODE_POLICY, "a viewer only looks on", 0);
    return -1;
}

static void on_message(void *owner, bool text, const char *data, size_t len)
{
    struct pty_client *c = owner;
    struct pty_message m;

    pty_parse(text, data, len, &m);
    if (m.ask == PTY_ASK_PING)
        pty_say_pong(c);
    else if (m.ask == PTY_ASK_UNKNOWN)
        pty_say_error(c, "INVALID_FRAME", "type has to be stdin, resize, signal or ping");
    else if (m.ask != PTY_ASK_NOTHING && c->how.viewer)
        (void)refuse(c);
    else
        obey(c, &m);
    json_decref(m.json);
}

static void on_room(void *owner)
{
    struct pty_client *c = owner;

    if (c->how.viewer)
        pty_client_feed(c);
    else if (c->pty->holder == c && c->pty->shell)
        shell_pause(c->pty->shell, false); /* may end the shell, and with it c */
}

static const struct ws_ops ops = { NULL, on_message, on_room, on_close };

/* ---- being let in ---- */

struct pty_client *pty_enter(struct pty *p, const struct pty_entry *how, struct err *e)
{
    struct pty_client *c;

    if (how->viewer && (!p->shell || !shell_running(p->shell))) {
        (void)err_api(e, ERRC_CONFLICT, "NOT_RUNNING",
                      "no shell runs in this session: connect without mode=viewer to start one");
        return NULL;
    }
    if (how->viewer && p->n_viewers >= PTY_VIEWERS_MAX) {
        (void)err_set(e, ERRC_BUSY, "this session has %d viewers already", PTY_VIEWERS_MAX);
        return NULL;
    }
    if (!how->viewer && !how->takeover && (p->holder || p->entering)) {
        (void)err_api(
            e, ERRC_CONFLICT, "ALREADY_CONNECTED",
            "another client is attached to this session: take over with takeover=1, or look on "
            "with mode=viewer");
        return NULL;
    }
    c = calloc(1, sizeof(*c));
    if (!c) {
        (void)err_nomem(e);
        return NULL;
    }
    c->pty = p;
    c->how = *how;
    if (how->viewer)
        p->n_viewers++;
    else
        p->entering++;
    c->next = p->clients;
    if (c->next)
        c->next->prev = c;
    p->clients = c;
    return c;
}

/* What has been said is sent before, so that there is neither a gap nor a double. -1: c is gone. */
static int greet(struct pty_client *c)
{
    if (pty_replay(c, c->how.since) < 0) {
        turn_away(c, "RUNTIME_ERROR", "out of memory", WS_CODE_INTERNAL);
        return -1;
    }
    c->at = c->pty->ring.total;
    pty_say_connected(c);
    return 0;
}

/* A shell that has ended and waits for the old client to take its output gives the rest to the new one. */
static void attach_holder(struct pty_client *c)
{
    struct pty *p = c->pty;
    struct pty_client *old = p->holder;
    struct err e = { 0 };

    if (old && !c->how.takeover) {
        turn_away(c, "ALREADY_CONNECTED", "another client is attached to this session",
                  WS_CODE_POLICY);
        return;
    }
    p->holder = c; /* before the old one leaves: its leaving must not set the shell going */
    if (old)
        pty_client_close(old, PTY_CODE_TAKEN, "TAKEN_OVER", PTY_EVICT_MS);
    if (!p->shell && pty_start_shell(p, c->how.pipe, &e) < 0)
        turn_away(c, "START_FAILED", e.msg, WS_CODE_INTERNAL);
    else if (greet(c) == 0)
        shell_pause(p->shell, false); /* may end the shell, and with it c */
}

static void on_open(void *owner, struct http_upgraded *up, int fd, const void *early, size_t len)
{
    static const struct ws_options options = { .message_max = PTY_MESSAGE_MAX,
                                               .queue_max = PTY_QUEUE_MAX };
    struct pty_client *c = owner;
    struct pty *p = c->pty;
    struct ws *ws = NULL;

    if (p->set->cut)
        http_upgraded_close(up);
    else
        ws = ws_serve(&p->set->sockets, up, fd, early, len, &options, &ops, c);
    if (!ws) {
        client_free(c);
        return;
    }
    c->ws = ws;
    if (!c->how.viewer)
        p->entering--;
    if (p->deleted || p->set->stopping)
        turn_away(c, "SESSION_GONE", "the session is gone", WS_CODE_GOING_AWAY);
    else if (!c->how.viewer)
        attach_holder(c);
    else if (!p->shell)
        turn_away(c, "NOT_RUNNING", "the shell has ended", WS_CODE_NORMAL);
    else
        (void)greet(c);
}

static void on_lost(void *owner)
{
    client_free(owner);
}

const struct http_upgrade_ops pty_upgrade_ops = { on_open, on_lost };
