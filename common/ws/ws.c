#include "common/ws/internal.h"

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/macros.h"
#include "common/base/rand.h"
#include "common/http/http.h"
#include "common/json/utf8.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    READ_ROUNDS = 4,
    CONTROL_RESERVE = 4096, /* Pongs beyond the queue's maximum; more are not sent */
    MESSAGE_MAX = 1 << 20,
    QUEUE_MAX = 256 << 10,
    PING_MS = 30000,
    DEAD_MS = 60000,
    WRITE_MS = 10000,
    CLOSE_MS = 5000,
};

static size_t pending(const struct ws *ws)
{
    return ws->out.len - ws->sent;
}

/* ---- life ---- */

static void on_event(struct loop_fd *w, uint32_t events);
static void on_timer(struct loop_timer *t);

static void set_default(int *value, int other)
{
    if (!*value)
        *value = other;
}

static void close_fd(struct ws *ws)
{
    if (ws->watch.fd < 0)
        return;
    loop_del(ws->set->loop, &ws->watch);
    if (ws->up)
        http_upgraded_close(ws->up);
    else
        (void)close(ws->watch.fd);
    ws->watch.fd = -1;
}

static void destroy(struct ws *ws)
{
    struct ws_set *set = ws->set;

    close_fd(ws);
    loop_timer_clear(set->loop, &ws->timer);
    if (ws->prev)
        ws->prev->next = ws->next;
    else
        set->head = ws->next;
    if (ws->next)
        ws->next->prev = ws->prev;
    ws_parser_free(&ws->parser);
    buf_free(&ws->in);
    buf_free(&ws->out);
    free(ws);
}

struct ws *ws_new(struct ws_set *set, int fd, bool server, const struct ws_options *options,
                  const struct ws_ops *ops, void *owner)
{
    struct ws *ws = calloc(1, sizeof(*ws));
    int64_t now = clock_mono_ms();

    if (!ws)
        return NULL;
    if (options)
        ws->opt = *options;
    if (!ws->opt.message_max)
        ws->opt.message_max = MESSAGE_MAX;
    if (!ws->opt.queue_max)
        ws->opt.queue_max = QUEUE_MAX;
    set_default(&ws->opt.ping_ms, PING_MS);
    set_default(&ws->opt.dead_ms, DEAD_MS);
    set_default(&ws->opt.write_ms, WRITE_MS);
    set_default(&ws->opt.close_ms, CLOSE_MS);
    ws->set = set;
    ws->server = server;
    ws->state = WS_OPEN;
    ws->watch.fd = fd;
    ws->watch.on_event = on_event;
    ws->timer.on_fire = on_timer;
    ws->ops = ops;
    ws->owner = owner;
    ws->in = BUF_INIT(WS_IN_MAX);
    ws->out = BUF_INIT(SIZE_MAX / 4); /* bounded by ws_send */
    ws_parser_init(&ws->parser, server, ws->opt.message_max);
    ws->heard_mono_ms = ws->pinged_mono_ms = ws->moved_mono_ms = now;
    if (loop_timer_set(set->loop, &ws->timer, now + ws->opt.ping_ms) < 0) {
        free(ws);
        return NULL;
    }
    ws->next = set->head;
    if (ws->next)
        ws->next->prev = ws;
    set->head = ws;
    return ws;
}

void ws_set_free(struct ws_set *set)
{
    while (set->head)
        destroy(set->head);
}

/* Reasons of ours and of the peer's are valid UTF-8; a cut must not fall into a character. */
static void set_reason(struct ws *ws, const char *text, size_t len)
{
    if (len > WS_REASON_MAX)
        len = utf8_valid_len(text, WS_REASON_MAX);
    memcpy(ws->reason, text, len);
    ws->reason[len] = '\0';
}

void ws_die(struct ws *ws, unsigned code, const char *reason)
{
    if (ws->state == WS_DEAD)
        return;
    close_fd(ws);
    ws->state = WS_DEAD;
    ws->code = code;
    set_reason(ws, reason, strlen(reason));
    (void)loop_timer_set(ws->set->loop, &ws->timer, clock_mono_ms());
}

/* From an event only: the owner may have anything under way when it calls us. */
static void tell_close(struct ws *ws, unsigned code, const char *reason)
{
    const struct ws_ops *ops = ws->ops;

    ws->ops = NULL;
    if (ops)
        ops->on_close(ws->owner, code, reason);
}

void ws_watch(struct ws *ws)
{
    uint32_t events = EPOLLRDHUP;

    if (ws->state == WS_DEAD)
        return;
    if (!ws->paused || ws->state == WS_LINGERING)
        events |= EPOLLIN;
    if (pending(ws) || ws->state == WS_CONNECTING)
        events |= EPOLLOUT;
    if (loop_mod(ws->set->loop, &ws->watch, events) < 0)
        ws_die(ws, WS_CODE_ABNORMAL, "the connection cannot be watched");
}

/* ---- sending ---- */

/* Nothing waits any longer. */
static void drained(struct ws *ws)
{
    int64_t now = clock_mono_ms();

    ws->sent = 0;
    if (ws->out.cap > WS_READ)
        buf_free(&ws->out);
    else
        buf_clear(&ws->out);
    if (ws->refused) { /* no event may tell of it */
        ws->kicked = true;
        ws_arm(ws);
    }
    if (ws->state == WS_CLOSING && !ws->idle_mono_ms) {
        ws->idle_mono_ms = now;
        ws_arm(ws);
    }
    if (ws->state == WS_LINGERING && !ws->shut) {
        ws->shut = true;
        ws->idle_mono_ms = now;
        (void)shutdown(ws->watch.fd, SHUT_WR);
        ws_arm(ws);
    }
}

int ws_flush(struct ws *ws)
{
    ssize_t n;

    while (pending(ws)) {
        n = send(ws->watch.fd, ws->out.data + ws->sent, pending(ws), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) {
            ws_die(ws, WS_CODE_ABNORMAL, "the connection is broken");
            return -1;
        }
        ws->sent += (size_t)n;
        ws->moved_mono_ms = clock_mono_ms();
    }
    if (!pending(ws))
        drained(ws);
    else if (ws->timer.at_mono_ms > ws->moved_mono_ms + ws->opt.write_ms)
        ws_arm(ws);
    ws_watch(ws);
    return ws->state == WS_DEAD ? -1 : 0;
}

static int put(struct ws *ws, unsigned opcode, const void *head, size_t head_len, const void *data,
               size_t len)
{
    unsigned char frame[WS_HEAD_MAX];
    unsigned char mask[4];
    size_t n;
    char *at;

    if (!ws->server)
        rand_bytes(mask, sizeof(mask));
    n = ws_head(frame, opcode, head_len + len, ws->server ? NULL : mask);
    if (ws->sent && ws->out.len + n + head_len + len > ws->out.cap) {
        buf_consume(&ws->out, ws->sent);
        ws->sent = 0;
    }
    if (!pending(ws))
        ws->moved_mono_ms = clock_mono_ms();
    at = buf_reserve(&ws->out, n + head_len + len);
    if (!at) {
        ws_die(ws, WS_CODE_ABNORMAL, "out of memory");
        return -1;
    }
    memcpy(at, frame, n);
    if (head_len)
        memcpy(at + n, head, head_len);
    if (len)
        memcpy(at + n + head_len, data, len);
    if (!ws->server)
        ws_mask(at + n, head_len + len, mask, 0);
    ws->out.len += n + head_len + len;
    return 0;
}

size_t ws_queued(const struct ws *ws)
{
    return pending(ws);
}

size_t ws_room(const struct ws *ws)
{
    return pending(ws) < ws->opt.queue_max ? ws->opt.queue_max - pending(ws) : 0;
}

int ws_send(struct ws *ws, unsigned kind, const void *head, size_t head_len, const void *data,
            size_t len)
{
    if (ws->state != WS_OPEN)
        return 0;
    if (!(kind & WS_FORCE) && pending(ws) && pending(ws) + head_len + len > ws->opt.queue_max) {
        ws->refused = true;
        return -1;
    }
    if (put(ws, kind & 0x0f, head, head_len, data, len) == 0)
        (void)ws_flush(ws);
    return 0;
}

static void send_control(struct ws *ws, unsigned opcode, const char *data, size_t len)
{
    if (pending(ws) > ws->opt.queue_max + CONTROL_RESERVE)
        return; /* the next one is as good */
    if (put(ws, opcode, NULL, 0, data, len) == 0)
        (void)ws_flush(ws);
}

static void send_close(struct ws *ws, unsigned code, const char *reason, size_t len)
{
    char data[WS_CONTROL_MAX] = { (char)(code >> 8), (char)code };

    if (code == WS_CODE_NONE) {
        (void)put(ws, WS_CLOSE, NULL, 0, NULL, 0);
        return;
    }
    if (len > WS_REASON_MAX)
        len = utf8_valid_len(reason, WS_REASON_MAX);
    (void)put(ws, WS_CLOSE, data, 2, reason, len);
}

/* ---- closing ---- */

void ws_close(struct ws *ws, unsigned code, const char *reason, int within_ms)
{
    if (within_ms)
        ws->cut_mono_ms = clock_mono_ms() + within_ms;
    if (ws->state == WS_CONNECTING || ws->state == WS_SHAKING) {
        ws_die(ws, WS_CODE_ABNORMAL, reason);
        return;
    }
    if (ws->state == WS_OPEN) {
        ws->state = WS_CLOSING;
        ws_pause(ws, false);
        send_close(ws, code, reason, strlen(reason));
        (void)ws_flush(ws);
    }
    if (ws->state != WS_DEAD)
        ws_arm(ws);
}

void ws_forget(struct ws *ws)
{
    if (!ws)
        return;
    ws->ops = NULL;
    ws_close(ws, WS_CODE_GOING_AWAY, "", 0);
}

/* Both have said Close, or the peer is not listened to any longer. */
static void linger(struct ws *ws)
{
    if (ws->state == WS_DEAD)
        return;
    ws->state = WS_LINGERING;
    (void)ws_flush(ws);
}

static void on_close_frame(struct ws *ws, const struct ws_item *item)
{
    set_reason(ws, item->data ? item->data : "", item->len);
    if (ws->state == WS_OPEN)
        send_close(ws, item->code, "", 0);
    linger(ws);
    tell_close(ws, item->code, ws->reason);
}

static void on_bad(struct ws *ws, const struct ws_item *item)
{
    if (ws->state == WS_OPEN)
        send_close(ws, item->code, item->why, strlen(item->why));
    linger(ws);
    tell_close(ws, item->code, item->why);
}

/* ---- receiving ---- */

static bool listening(const struct ws *ws)
{
    return (ws->state == WS_OPEN && !ws->paused) || ws->state == WS_CLOSING;
}

void ws_process(struct ws *ws)
{
    size_t at = 0;
    size_t used;

    while (at < ws->in.len && listening(ws)) {
        struct ws_item item;
        enum ws_event ev = ws_parse(&ws->parser, ws->in.data + at, ws->in.len - at, &used, &item);

        at += used;
        if (ev == WS_EVENT_CLOSE)
            on_close_frame(ws, &item);
        else if (ev == WS_EVENT_BAD)
            on_bad(ws, &item);
        else if (ev == WS_EVENT_MESSAGE && ws->state == WS_OPEN && ws->ops)
            ws->ops->on_message(ws->owner, item.text, item.data, item.len);
        else if (ev == WS_EVENT_PING && ws->state == WS_OPEN)
            send_control(ws, WS_PONG, item.data, item.len);
    }
    if (ws->state == WS_LINGERING || ws->state == WS_DEAD)
        at = ws->in.len;
    buf_consume(&ws->in, at);
    if (!ws->in.len)
        buf_free(&ws->in);
}

/* Servers send small messages with Nagle's algorithm on: each waits for the acknowledgement of the one before, which
 * the kernel would hold back for 40 ms. It forgets the wish, so it is said with each read. */
static void acknowledge(const struct ws *ws)
{
    int one = 1;

    if (!ws->server)
        (void)setsockopt(ws->watch.fd, IPPROTO_TCP, TCP_QUICKACK, &one, sizeof(one));
}

static void receive(struct ws *ws)
{
    int round;

    for (round = 0; round < READ_ROUNDS && ws->state != WS_DEAD; round++) {
        char *at = buf_reserve(&ws->in, WS_READ);
        ssize_t n;

        if (!at) {
            ws_die(ws, WS_CODE_ABNORMAL, "out of memory");
            return;
        }
        n = recv(ws->watch.fd, at, WS_READ, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        if (n <= 0) {
            ws_die(ws, WS_CODE_ABNORMAL, "the connection ended without a Close frame");
            break;
        }
        ws->in.len += (size_t)n;
        ws->heard_mono_ms = clock_mono_ms();
        if (ws->state == WS_SHAKING)
            ws_on_answer(ws);
        else
            ws_process(ws);
        if (ws->paused || n < WS_READ)
            break;
    }
    if (!ws->in.len)
        buf_free(&ws->in);
    if (ws->state != WS_DEAD)
        acknowledge(ws);
    ws_watch(ws);
}

static void tell_room(struct ws *ws)
{
    if (!ws->refused || ws_room(ws) < ws->opt.queue_max / 2)
        return;
    ws->refused = false;
    if (ws->ops && ws->ops->on_room)
        ws->ops->on_room(ws->owner);
}

static void on_event(struct loop_fd *w, uint32_t events)
{
    struct ws *ws = CONTAINER_OF(w, struct ws, watch);

    if (ws->state == WS_CONNECTING) {
        ws_on_connected(ws);
        return;
    }
    if (events & EPOLLOUT && ws_flush(ws) < 0)
        return;
    tell_room(ws);
    if (ws->state == WS_DEAD || !(events & ~(uint32_t)EPOLLOUT))
        return;
    if (ws->paused && ws->state == WS_OPEN) /* it is not read: this is an end or an error */
        ws_die(ws, WS_CODE_ABNORMAL, "the connection ended without a Close frame");
    else
        receive(ws);
}

void ws_pause(struct ws *ws, bool on)
{
    if (ws->paused == on || ws->state == WS_DEAD)
        return;
    ws->paused = on;
    if (!on) {
        ws->heard_mono_ms = clock_mono_ms();
        ws->kicked = ws->in.len > 0;
        ws_arm(ws);
    }
    ws_watch(ws);
}

/* ---- time ---- */

/* What ends it by now; *at becomes the earliest moment at which something is due. */
static const char *overdue(const struct ws *ws, int64_t now, int64_t *at)
{
    bool waits = ws->state == WS_CLOSING || ws->state == WS_LINGERING;
    const struct {
        bool on;
        int64_t at;
        const char *why;
    } rows[] = {
        { ws->cut_mono_ms, ws->cut_mono_ms, "the connection took too long to close" },
        { pending(ws), ws->moved_mono_ms + ws->opt.write_ms, "the peer does not read" },
        { ws->state == WS_OPEN && !ws->paused, ws->heard_mono_ms + ws->opt.dead_ms,
          "the peer does not answer" },
        { waits && ws->idle_mono_ms,
          ws->idle_mono_ms + (ws->state == WS_CLOSING ? ws->opt.close_ms : WS_LINGER_MS),
          "the peer does not close" },
    };
    size_t i;

    for (i = 0; i < ARRAY_LEN(rows); i++) {
        if (!rows[i].on)
            continue;
        if (rows[i].at <= now)
            return rows[i].why;
        if (rows[i].at < *at)
            *at = rows[i].at;
    }
    return NULL;
}

void ws_arm(struct ws *ws)
{
    int64_t now = clock_mono_ms();
    int64_t at = ws->pinged_mono_ms + ws->opt.ping_ms;

    if (ws->state == WS_DEAD || ws->kicked || overdue(ws, now, &at))
        at = now;
    (void)loop_timer_set(ws->set->loop, &ws->timer, at);
}

static void on_timer(struct loop_timer *t)
{
    struct ws *ws = CONTAINER_OF(t, struct ws, timer);
    int64_t now = clock_mono_ms();
    int64_t at = INT64_MAX;
    const char *why = ws->state == WS_DEAD ? NULL : overdue(ws, now, &at);

    if (why)
        ws_die(ws, WS_CODE_ABNORMAL, why);
    if (ws->state == WS_DEAD) {
        tell_close(ws, ws->code, ws->reason);
        destroy(ws);
        return;
    }
    if (ws->kicked) {
        ws->kicked = false;
        tell_room(ws);
        ws_process(ws);
        ws_watch(ws);
    }
    if (now - ws->pinged_mono_ms >= ws->opt.ping_ms) {
        ws->pinged_mono_ms = now;
        if (ws->state == WS_OPEN)
            send_control(ws, WS_PING, NULL, 0);
        if (ws->state == WS_OPEN && ws->paused) /* the peer's Pings are not read */
            send_control(ws, WS_PONG, NULL, 0);
    }
    ws_arm(ws);
}

/* ---- the server's end ---- */

struct ws *ws_adopt(struct ws_set *set, int fd, bool server, const struct ws_options *options,
                    const struct ws_ops *ops, void *owner)
{
    struct ws *ws = ws_new(set, fd, server, options, ops, owner);

    if (!ws) {
        (void)close(fd);
        return NULL;
    }
    if (loop_add(set->loop, &ws->watch, EPOLLIN | EPOLLRDHUP, NULL) < 0) {
        destroy(ws);
        return NULL;
    }
    return ws;
}

struct ws *ws_serve(struct ws_set *set, struct http_upgraded *up, int fd, const void *early,
                    size_t early_len, const struct ws_options *options, const struct ws_ops *ops,
                    void *owner)
{
    struct ws *ws = ws_new(set, fd, true, options, ops, owner);

    if (!ws) {
        http_upgraded_close(up);
        return NULL;
    }
    ws->up = up;
    if (loop_add(set->loop, &ws->watch, EPOLLIN | EPOLLRDHUP, NULL) < 0 ||
        (early_len && buf_append(&ws->in, early, early_len) < 0)) {
        destroy(ws);
        return NULL;
    }
    ws->kicked = early_len > 0;
    ws_arm(ws);
    return ws;
}
