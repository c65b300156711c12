#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/json/jx.h"
#include "common/json/utf8.h"
#include "gateway/api/api.h"
#include "gateway/sandbox.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- a writer of JSON text: a record is read far more often than changed ---- */

/* Bytes of s before the first one that a JSON string cannot hold as it is. */
static size_t plain_len(const char *s)
{
    size_t n = 0;

    while ((unsigned char)s[n] >= 0x20 && (unsigned char)s[n] < 0x7f && s[n] != '"' && s[n] != '\\')
        n++;
    return n;
}

/* What is not plain ASCII is left to the library: escapes, and bytes that are no UTF-8. */
static int put_escaped(struct buf *b, const char *s)
{
    json_t *v = jx_bytes(s, strlen(s));
    char *text = v ? json_dumps(v, JSON_ENCODE_ANY) : NULL;
    int rc = text ? buf_puts(b, text) : -1;

    free(text);
    json_decref(v);
    return rc;
}

static int put_string(struct buf *b, const char *s)
{
    size_t len = plain_len(s);

    if (s[len])
        return put_escaped(b, s);
    return buf_append(b, "\"", 1) < 0 || buf_append(b, s, len) < 0 ? -1 : buf_append(b, "\"", 1);
}

/* ,"name":"value" — before is what goes in front of the value. */
static int put_member(struct buf *b, const char *before, const char *value)
{
    return buf_puts(b, before) < 0 ? -1 : put_string(b, value);
}

static int put_date(struct buf *b, const char *before, int64_t ms)
{
    char text[CLOCK_TEXT];

    clock_format_ms(ms, text);
    return put_member(b, before, text);
}

/* Optional members are left out, never null (contract 12.2). json is "{}" when there is nothing. */
static int put_map(struct buf *b, const char *before, const char *json)
{
    if (!json[0] || !json[1] || json[1] == '}')
        return 0;
    return buf_puts(b, before) < 0 ? -1 : buf_puts(b, json);
}

static int put_status(struct buf *b, const struct sandbox *sb)
{
    if (put_member(b, ",\"status\":{\"state\":", sandbox_state_to_string(sb->state)) < 0 ||
        put_member(b, ",\"reason\":", sb->reason) < 0 ||
        put_member(b, ",\"message\":", sb->message) < 0 ||
        put_date(b, ",\"lastTransitionAt\":", sb->transition_ms) < 0)
        return -1;
    return buf_append(b, "}", 1);
}

/* What it was made from and for; an image is part of all but the answer to create (contract 3.7). */
static int put_origin(struct buf *b, const struct sandbox *sb, bool with_image)
{
    if (with_image && sb->image[0] &&
        (put_member(b, ",\"image\":{\"uri\":", sb->image) < 0 || buf_append(b, "}", 1) < 0))
        return -1;
    if (sb->snapshot_id[0] && put_member(b, ",\"snapshotId\":", sb->snapshot_id) < 0)
        return -1;
    if (!sb->platform_os[0])
        return 0;
    if (put_member(b, ",\"platform\":{\"os\":", sb->platform_os) < 0 ||
        put_member(b, ",\"arch\":", sb->platform_arch) < 0)
        return -1;
    return buf_append(b, "}", 1);
}

/* Members that only the record of a sandbox that is gone has. */
static int put_end(struct buf *b, const struct sandbox *sb)
{
    if (!sb->ended_ms)
        return 0;
    if (put_date(b, ",\"endedAt\":", sb->ended_ms) < 0)
        return -1;
    return sb->exit_code == SANDBOX_NO_EXIT_CODE ? 0
                                                 : buf_printf(b, ",\"exitCode\":%d", sb->exit_code);
}

static int put_sandbox(struct buf *b, const struct sandbox *sb, bool with_image)
{
    if (put_member(b, "{\"id\":", sb->id) < 0 || put_status(b, sb) < 0 ||
        put_date(b, ",\"createdAt\":", sb->created_ms) < 0 || buf_puts(b, ",\"entrypoint\":") < 0 ||
        buf_puts(b, sb->entrypoint) < 0 || put_origin(b, sb, with_image) < 0)
        return -1;
    if (sb->expires_ms && put_date(b, ",\"expiresAt\":", sb->expires_ms) < 0)
        return -1;
    if (put_map(b, ",\"metadata\":", sb->metadata) < 0 ||
        put_map(b, ",\"extensions\":", sb->extensions) < 0 || put_end(b, sb) < 0)
        return -1;
    return buf_append(b, "}", 1);
}

int api_reply_sandbox(struct http_resp *rs, int status, const struct sandbox *sb, bool with_image,
                      struct err *e)
{
    AUTO_BUF struct buf b = BUF_INIT(API_REPLY_MAX);

    if (put_sandbox(&b, sb, with_image) < 0)
        return err_nomem(e);
    return http_resp_json(rs, status, buf_take(&b), e);
}

static int put_pagination(struct buf *b, int64_t total, const struct api_page *at)
{
    int64_t pages = (total + at->size - 1) / at->size;

    return buf_printf(b,
                      "],\"pagination\":{\"page\":%" PRId64 ",\"pageSize\":%" PRId64
                      ",\"totalItems\":%" PRId64 ",\"totalPages\":%" PRId64 ",\"hasNextPage\":%s}}",
                      at->page, at->size, total, pages, at->page < pages ? "true" : "false");
}

int api_reply_page(struct http_resp *rs, const struct sandbox_page *p, const struct api_page *at,
                   struct err *e)
{
    AUTO_BUF struct buf b = BUF_INIT(API_REPLY_MAX);
    int rc = buf_puts(&b, "{\"items\":[");
    size_t i;

    for (i = 0; i < p->len && rc == 0; i++) {
        rc = i ? buf_append(&b, ",", 1) : 0;
        if (rc == 0)
            rc = put_sandbox(&b, &p->items[i], true);
    }
    if (rc < 0 || put_pagination(&b, p->total, at) < 0)
        return err_nomem(e);
    return http_resp_json(rs, 200, buf_take(&b), e);
}

/* ---- other answers, and bodies ---- */

int api_reply(struct http_resp *rs, int status, json_t *v, struct err *e)
{
    char *text = v ? jx_dump(v, false) : NULL;

    json_decref(v);
    return http_resp_json(rs, status, text, e);
}

/* A text that was cut within a character, by an engine or here, is put right. */
static int repair(struct buf *text)
{
    AUTO_BUF struct buf whole = BUF_INIT(3 * text->len + 1); /* U+FFFD has three bytes */

    if (!text->len || utf8_valid_len(text->data, text->len) == text->len)
        return 0;
    if (utf8_repair(text->data, text->len, &whole) < 0)
        return -1;
    buf_free(text);
    *text = whole;
    whole = BUF_INIT(0);
    return 0;
}

int api_reply_text(struct http_resp *rs, struct buf *out, struct err *e)
{
    size_t len;

    if (repair(out) < 0)
        return err_nomem(e);
    len = out->len;
    rs->content_type = "text/plain; charset=utf-8";
    if (http_resp_json(rs, 200, buf_take(out), e) < 0)
        return -1;
    rs->body_len = len; /* a program's output may hold NUL bytes */
    return 0;
}

json_t *api_body(const struct http_req *rq, struct err *e)
{
    json_t *v;

    if (!rq->body_len) {
        (void)err_set(e, ERRC_INVALID, "a JSON body is required");
        return NULL;
    }
    v = jx_parse(rq->body, rq->body_len, true, e);
    if (v && !json_is_object(v)) {
        json_decref(v);
        (void)err_set(e, ERRC_INVALID, "body: must be a JSON object");
        return NULL;
    }
    return v;
}
