#include "execd/code/jupyter_channel.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/loop.h"
#include "common/base/rand.h"
#include "common/ws/ws.h"
#include "execd/code/jupyter_server.h"

#include <string.h>

struct channel {
    struct loop *loop;
    struct ws *ws; /* NULL: closed */
    const struct channel_ops *ops;
    void *owner;
    struct loop_timer nudge;
    char session[RAND_UUID_TEXT]; /* ours */
    char info[RAND_UUID_TEXT];    /* the question that opens it */
    char theirs[JUPYTER_ID_TEXT];
    bool answered;
    bool heard; /* its output reaches us */
    bool open;
    unsigned refs;
};

static void unref(struct channel *c)
{
    if (--c->refs == 0)
        free(c);
}

void channel_close(struct channel *c)
{
    if (!c)
        return;
    c->ops = NULL;
    loop_timer_clear(c->loop, &c->nudge);
    ws_forget(TAKE_PTR(c->ws));
    unref(c);
}

/* Never refused: a kernel gets one piece of code at a time. */
static int put(struct channel *c, char *text, struct err *e)
{
    if (!text)
        return err_nomem(e);
    if (c->ws)
        (void)ws_send(c->ws, WS_TEXT | WS_FORCE, NULL, 0, text, strlen(text));
    free(text);
    return 0;
}

static void ask(struct channel *c)
{
    if (put(c, jupyter_msg_info(c->session, c->info), NULL) < 0 ||
        loop_timer_set(c->loop, &c->nudge, clock_mono_ms() + CHANNEL_NUDGE_MS) < 0)
        return; /* out of memory: the owner's time ends */
}

static void on_nudge(struct loop_timer *t)
{
    ask(CONTAINER_OF(t, struct channel, nudge));
}

static void on_open(void *owner)
{
    ask(owner);
}

/* An answer to the opening question. A kernel that repeats our session says nothing about its own. */
static void on_hand(struct channel *c, const struct jupyter_msg *m)
{
    if (m->type == JUPYTER_INFO) {
        c->answered = true;
        if (strcmp(m->session, c->session) != 0 && strlen(m->session) < sizeof(c->theirs))
            (void)snprintf(c->theirs, sizeof(c->theirs), "%s", m->session);
    } else if (m->type == JUPYTER_STATUS) {
        c->heard = true;
    }
    if (c->open || !c->answered || !c->heard)
        return;
    c->open = true;
    loop_timer_clear(c->loop, &c->nudge);
    c->ops->on_open(c->owner, c->theirs);
}

static void on_message(void *owner, bool text, const char *data, size_t len)
{
    struct channel *c = owner;
    struct jupyter_msg m;
    struct err e = { 0 };

    c->refs++;
    if (jupyter_msg_parse(text, data, len, &m, &e) < 0) {
        c->ops->on_bad(c->owner, &e);
    } else if (strcmp(m.parent, c->info) == 0) {
        on_hand(c, &m);
        jupyter_msg_free(&m);
    } else if (m.type == JUPYTER_OTHER) {
        jupyter_msg_free(&m);
    } else {
        c->ops->on_message(c->owner, &m);
    }
    unref(c);
}

static void on_close(void *owner, unsigned code, const char *reason)
{
    struct channel *c = owner;
    struct err e = { 0 };

    c->ws = NULL;
    loop_timer_clear(c->loop, &c->nudge);
    if (code == WS_CODE_TOO_BIG)
        (void)err_set(&e, ERRC_TOO_LARGE, "a message of the kernel is larger than %d MiB",
                      JUPYTER_MESSAGE_MAX >> 20);
    else
        (void)err_set(&e, ERRC_BAD_GATEWAY, "%s",
                      *reason ? reason : "the Jupyter server closed the connection");
    c->ops->on_lost(c->owner, &e);
}

static const struct ws_ops ws_ops = { on_open, on_message, NULL, on_close };

static struct ws *dial(struct channel *c, struct jupyter_server *s, struct ws_set *set,
                       const char *kernel_id, struct err *e)
{
    static const struct ws_options options = { .message_max = JUPYTER_MESSAGE_MAX,
                                               .ping_ms = CHANNEL_PING_MS };
    const char *headers[] = { "Authorization", s->rest.authorization };
    char target[REST_BASE_MAX + JUPYTER_ID_TEXT + RAND_UUID_TEXT + 64];
    const struct ws_dial d = { .host = s->rest.host,
                               .port = s->rest.port,
                               .target = target,
                               .headers = headers,
                               .n_headers = *s->rest.authorization ? 1 : 0,
                               .timeout_ms = JUPYTER_CALL_MS };

    (void)snprintf(target, sizeof(target), "%s/api/kernels/%s/channels?session_id=%s", s->rest.base,
                   kernel_id, c->session);
    return ws_connect(set, &d, &options, &ws_ops, c, e);
}

struct channel *channel_open(struct jupyter_server *s, struct ws_set *set, const char *kernel_id,
                             const struct channel_ops *ops, void *owner, struct err *e)
{
    struct channel *c = calloc(1, sizeof(*c));

    if (!c) {
        (void)err_nomem(e);
        return NULL;
    }
    c->loop = s->rest.loop;
    c->ops = ops;
    c->owner = owner;
    c->refs = 1;
    c->nudge.on_fire = on_nudge;
    rand_uuid4(c->session); /* of this connection: nothing of an earlier one is repeated to us */
    rand_uuid4(c->info);
    c->ws = dial(c, s, set, kernel_id, e);
    if (!c->ws) {
        free(c);
        return NULL;
    }
    return c;
}

int channel_execute(struct channel *c, const char *id, const char *code, bool silent, struct err *e)
{
    return put(c, jupyter_msg_execute(c->session, id, code, silent), e);
}

void channel_hold(struct channel *c, bool on)
{
    if (c->ws)
        ws_pause(c->ws, on);
}
