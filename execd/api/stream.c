/* Responses that are streams of events (contract/execd.md 5). */
#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "execd/api/api.h"
#include "execd/exec/events.h"

#include <string.h>

enum { REPLY_MAX = 16 * 1024 };

static void stream_headers(struct http_resp *rs)
{
    rs->content_type = "text/event-stream";
    http_resp_header(rs, "Cache-Control", "no-cache");
    http_resp_header(rs, "X-Accel-Buffering", "no");
}

void stream_begin(struct http_resp *rs, struct http_stream *stream)
{
    stream_headers(rs);
    rs->stream = stream;
}

int stream_short(const char *id, const char *failure, struct http_resp *rs, struct err *e)
{
    AUTO_BUF struct buf b = BUF_INIT(REPLY_MAX);
    struct event_stamp now = { clock_wall_ms(), 0 };

    if (event_text(&b, "init", id, strlen(id), now) < 0 ||
        event_text(&b, "ping", "pong", 4, now) < 0)
        return err_nomem(e);
    if (failure ? event_error(&b, "CommandExecError", failure, &failure, 1, now) < 0
                : event_complete(&b, 0, now) < 0)
        return err_nomem(e);
    stream_headers(rs);
    rs->body_len = b.len;
    rs->body = buf_take(&b);
    return rs->body ? 0 : err_nomem(e);
}
