#include "gateway/runtime/docker/logs.h"

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/json/utf8.h"
#include "gateway/runtime/docker/container.h"
#include "gateway/runtime/docker/engine.h"
#include "gateway/runtime/docker/frames.h"

#include <string.h>

enum {
    LOGS_MS = 30000,
    PIECE = 64 << 10,
    REPAIRED = 3, /* a byte becomes at most the three of U+FFFD */
    TEXT_MAX = 200,
};

#define QUERY_FAILED "DOCKER::SANDBOX_QUERY_FAILED"

/* The last `room` bytes of a stream of any length. */
struct end {
    struct frames frames;
    struct buf raw; /* up to twice the room: it is moved down once per room */
    size_t room;
    bool cut;
    bool full;              /* memory is out */
    char trouble[TEXT_MAX]; /* what the engine itself says between the output */
};

static void keep(struct end *t, const char *data, size_t len)
{
    if (len > t->room) {
        data += len - t->room;
        len = t->room;
        t->cut = true;
    }
    if (t->raw.len + len > t->raw.max) {
        buf_consume(&t->raw, t->raw.len + len - t->room);
        t->cut = true;
    }
    if (buf_append(&t->raw, data, len) < 0)
        t->full = true;
}

static void on_frame(void *arg, int stream, const char *data, size_t len)
{
    struct end *t = arg;

    if (stream != FRAMES_SYSTEM)
        keep(t, data, len);
    else if (!t->trouble[0])
        (void)snprintf(t->trouble, sizeof(t->trouble), "%.*s", (int)len, data);
}

static int on_bytes(void *arg, const char *data, size_t len)
{
    struct end *t = arg;

    return frames_feed(&t->frames, data, len, on_frame, t) < 0 || t->full ? -1 : 0;
}

/* From there to the beginning of a character, unless it is not text anyway. */
static size_t to_character(const char *s, size_t len, size_t from)
{
    size_t at = from;

    while (at < len && at < from + 4 && ((unsigned char)s[at] & 0xc0) == 0x80)
        at++;
    return at < from + 4 ? at : from;
}

static int hand_over(const struct end *t, struct buf *out, bool *cut, struct err *e)
{
    AUTO_BUF struct buf text = BUF_INIT(REPAIRED * t->raw.len + 1);
    bool was_cut = t->cut || t->raw.len > t->room;
    size_t from = t->raw.len > t->room ? t->raw.len - t->room : 0;

    if (was_cut)
        from = to_character(t->raw.data, t->raw.len, from);
    if (t->raw.len && utf8_repair(t->raw.data + from, t->raw.len - from, &text) < 0)
        return err_nomem(e);
    from = 0;
    if (text.len > t->room) { /* repairing made it longer */
        from = to_character(text.data, text.len, text.len - t->room);
        was_cut = true;
    }
    if (text.len && buf_append(out, text.data + from, text.len - from) < 0)
        return err_nomem(e);
    *cut = was_cut;
    return 0;
}

/* A line is a byte at least: more lines than there is room for, and one, are of no use. */
static int make_path(const char *name, const struct runtime_log_query *q, size_t room, char *out,
                     size_t size)
{
    size_t tail = q->tail > 0 && (size_t)q->tail <= room ? (size_t)q->tail : room + 1;
    char since[40] = "";

    if (q->since_ms > 0)
        (void)snprintf(since, sizeof(since), "&since=%lld.%03d000000",
                       (long long)(q->since_ms / 1000), (int)(q->since_ms % 1000));
    return snprintf(out, size, "/containers/%s/logs?stdout=1&stderr=1&tail=%zu%s%s", name, tail,
                    since, q->timestamps ? "&timestamps=1" : "") < (int)size
               ? 0
               : -1;
}

static int check_reply(const struct end *t, const struct engine_reply *r, const char *name,
                       struct err *e)
{
    char text[TEXT_MAX];

    /* 409: it is being removed */
    if (r->status == 404 || r->status == 409)
        return err_api(e, ERRC_NOT_FOUND, "DOCKER::SANDBOX_NOT_FOUND", "%s not found", name);
    if (r->status != 200)
        return err_api(e, ERRC_INTERNAL, QUERY_FAILED, "the output of %s cannot be read: %s", name,
                       engine_text(r, text, sizeof(text)));
    if (t->trouble[0])
        return err_api(e, ERRC_INTERNAL, QUERY_FAILED, "the output of %s cannot be read: %s", name,
                       t->trouble);
    if (!frames_at_boundary(&t->frames))
        return err_api(e, ERRC_BAD_GATEWAY, QUERY_FAILED,
                       "the container engine sent half of the output of %s", name);
    return 0;
}

static void end_free(struct end *t)
{
    buf_free(&t->raw);
}

int logs_read(struct engine *en, const char *name, const struct runtime_log_query *q,
              struct buf *out, bool *cut, struct err *e)
{
    AUTO(end_free) struct end t = { .room = out->max - out->len };
    char path[CONTAINER_PATH];
    struct engine_call c = {
        .method = "GET", .path = path, .timeout_ms = LOGS_MS, .sink = on_bytes, .sink_arg = &t
    };
    AUTO_REPLY struct engine_reply r = { 0 };

    t.raw = BUF_INIT(2 * t.room + PIECE);
    if (make_path(name, q, t.room, path, sizeof(path)) < 0)
        return err_set(e, ERRC_INVALID, "the container's name is too long");
    if (engine_send(en, &c, &r, e) < 0)
        return t.full ? err_nomem(e) : -1;
    if (check_reply(&t, &r, name, e) < 0)
        return -1;
    return hand_over(&t, out, cut, e);
}
