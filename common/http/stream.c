#include "common/http/internal.h"

#include <stdlib.h>
#include <string.h>

/* libmicrohttpd's own block per streamed response */
enum { STREAM_BLOCK = 16 * 1024 };

struct http_stream {
    struct http_server *server;
    struct MHD_Connection *conn; /* NULL before the response is queued and after it is over */
    struct http_stream *prev;
    struct http_stream *next;
    struct peer *peer;        /* of conn; may be NULL */
    struct loop_call dropped; /* see http_stream_release */
    const struct http_stream_ops *ops;
    void *owner; /* NULL after release */
    struct buf buf;
    size_t sent; /* consumed prefix of buf */
    size_t max;
    unsigned refs;
    bool suspended;
    bool refused; /* a write was refused: on_drain is owed */
    bool ended;
    bool aborted;
    bool closed;
};

struct http_stream *http_stream_new(struct http_server *s, size_t max,
                                    const struct http_stream_ops *ops, void *owner)
{
    struct http_stream *st = calloc(1, sizeof(*st));

    if (!st)
        return NULL;
    st->server = s;
    st->ops = ops;
    st->owner = owner;
    st->max = max;
    st->buf = BUF_INIT(SIZE_MAX / 4); /* bounded by max below */
    st->refs = 1;
    return st;
}

struct http_stream *stream_next(const struct http_stream *st)
{
    return st->next;
}

static void unref(struct http_stream *st)
{
    if (--st->refs)
        return;
    buf_free(&st->buf);
    free(st);
}

static void wake(struct http_stream *st)
{
    if (!st->suspended)
        return;
    st->suspended = false;
    server_resume(st->server, st->conn); /* takes effect in the loop's next before_wait */
}

static size_t pending(const struct http_stream *st)
{
    return st->buf.len - st->sent;
}

int http_stream_write(struct http_stream *st, const void *data, size_t len)
{
    if (st->closed || st->ended || st->aborted)
        return 0;
    if (pending(st) && pending(st) + len > st->max) {
        st->refused = true;
        return -1;
    }
    if (st->sent && st->buf.len + len > st->buf.cap) { /* make room before growing */
        buf_consume(&st->buf, st->sent);
        st->sent = 0;
    }
    if (buf_append(&st->buf, data, len) < 0) {
        http_stream_abort(st); /* out of memory: a gap must not look like success */
        return 0;
    }
    wake(st);
    return 0;
}

bool http_stream_closed(const struct http_stream *st)
{
    return st->closed;
}

void http_stream_end(struct http_stream *st)
{
    st->ended = true;
    wake(st);
}

void http_stream_abort(struct http_stream *st)
{
    st->aborted = true;
    wake(st);
}

static void drop(void *arg)
{
    unref(arg);
}

/* A handler may end and release a stream at once: the response that takes its own reference is
 * queued after the handler, so ours goes in the loop's next round. */
void http_stream_release(struct http_stream *st)
{
    if (!st)
        return;
    st->owner = NULL;
    if (!st->ended)
        http_stream_abort(st);
    if (st->conn || st->closed) {
        unref(st);
        return;
    }
    st->dropped = (struct loop_call){ .fn = drop, .arg = st };
    loop_post(st->server->loop, &st->dropped);
}

/* libmicrohttpd asks for the next bytes of the body. */
static ssize_t next_bytes(void *cls, uint64_t pos, char *out, size_t max)
{
    struct http_stream *st = cls;
    size_t n = pending(st) < max ? pending(st) : max;

    (void)pos;
    if (st->aborted)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    if (!n && st->ended)
        return MHD_CONTENT_READER_END_OF_STREAM;
    if (!n && st->peer && st->peer->gone)
        return MHD_CONTENT_READER_END_WITH_ERROR; /* nobody waits for more */
    if (!n) {
        st->suspended = true;
        MHD_suspend_connection(st->conn);
        return 0;
    }
    memcpy(out, st->buf.data + st->sent, n);
    st->sent += n;
    if (!pending(st)) {
        st->sent = 0;
        if (st->buf.cap > STREAM_BLOCK)
            buf_free(&st->buf); /* idle streams hold no large buffers */
        else
            buf_clear(&st->buf);
    }
    if (st->refused && pending(st) <= st->max / 2) {
        st->refused = false;
        if (st->owner && st->ops->on_drain)
            st->ops->on_drain(st->owner);
    }
    return (ssize_t)n;
}

struct MHD_Response *stream_response(struct http_stream *st, struct MHD_Connection *conn)
{
    struct MHD_Response *r =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, next_bytes, st, NULL);

    if (!r)
        return NULL;
    st->conn = conn;
    st->peer = server_peer(conn);
    if (st->peer)
        st->peer->stream = st;
    st->refs++;
    st->next = st->server->streams;
    if (st->next)
        st->next->prev = st;
    st->server->streams = st;
    return r;
}

void stream_conn_gone(struct http_stream *st)
{
    bool queued = st->conn; /* false: no response could be made of it, its owner holds the only
                             * reference */

    if (queued) {
        if (st->prev)
            st->prev->next = st->next;
        else
            st->server->streams = st->next;
        if (st->next)
            st->next->prev = st->prev;
        st->conn = NULL;
        if (st->peer)
            st->peer->stream = NULL;
        st->peer = NULL;
    }
    st->suspended = false;
    st->closed = true;
    if (st->owner && st->ops->on_close)
        st->ops->on_close(st->owner);
    if (queued)
        unref(st);
}
