#include "common/ws/handshake.h"

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/num.h"
#include "common/base/rand.h"
#include "common/http/http.h"

#include <sha1.h>
#include <string.h>
#include <strings.h>

#define WS_GUID "258EAFA5-E914-47DA-95CA-C5AB0DC85B11" /* RFC 6455 section 1.3 */

enum { KEY_BYTES = 16 };

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* out holds 4 * ceil(len / 3) + 1 bytes. */
static void base64(const unsigned char *in, size_t len, char *out)
{
    size_t i;

    for (i = 0; i < len; i += 3) {
        size_t n = len - i < 3 ? len - i : 3;
        uint32_t v = (uint32_t)in[i] << 16 | (n > 1 ? (uint32_t)in[i + 1] << 8 : 0) |
                     (n > 2 ? in[i + 2] : 0);

        *out++ = digits[v >> 18];
        *out++ = digits[v >> 12 & 63];
        *out++ = n > 1 ? digits[v >> 6 & 63] : '=';
        *out++ = n > 2 ? digits[v & 63] : '=';
    }
    *out = '\0';
}

void ws_make_key(char out[WS_KEY_TEXT])
{
    unsigned char bytes[KEY_BYTES];

    rand_bytes(bytes, sizeof(bytes));
    base64(bytes, sizeof(bytes), out);
}

void ws_accept_of(const char *key, char out[WS_ACCEPT_TEXT])
{
    unsigned char digest[SHA1_DIGEST_LENGTH];
    SHA1_CTX ctx;

    SHA1Init(&ctx);
    SHA1Update(&ctx, (const uint8_t *)key, strlen(key));
    SHA1Update(&ctx, (const uint8_t *)WS_GUID, sizeof(WS_GUID) - 1);
    SHA1Final(digest, &ctx);
    base64(digest, sizeof(digest), out);
}

/* ---- fields ---- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* Is the word an element of a comma-separated list? */
static bool lists(const char *list, size_t len, const char *word)
{
    size_t n = strlen(word);
    size_t from;
    size_t to;

    for (from = 0; from < len; from = to + 1) {
        const char *comma = memchr(list + from, ',', len - from);
        size_t end;

        to = comma ? (size_t)(comma - list) : len;
        for (; from < to && is_blank(list[from]); from++)
            ;
        for (end = to; end > from && is_blank(list[end - 1]); end--)
            ;
        if (end - from == n && strncasecmp(list + from, word, n) == 0)
            return true;
    }
    return false;
}

static bool header_lists(const struct http_req *rq, const char *name, const char *word)
{
    const char *value = http_req_header(rq, name);

    return value && lists(value, strlen(value), word);
}

/* ---- server ---- */

/* 24 characters of base64 that stand for 16 bytes. */
static bool key_ok(const char *key)
{
    return strlen(key) == WS_KEY_TEXT - 1 && strspn(key, digits) == 22 &&
           strcmp(key + 22, "==") == 0;
}

static int want_upgrade(struct http_resp *rs, struct err *e, const char *text)
{
    http_resp_header(rs, "Upgrade", "websocket");
    http_resp_header(rs, "Sec-WebSocket-Version", "13");
    return err_set(e, ERRC_UPGRADE, "%s", text);
}

int ws_accept(struct http_req *rq, struct http_resp *rs, struct err *e)
{
    const char *key = http_req_header(rq, "Sec-WebSocket-Key");
    const char *version = http_req_header(rq, "Sec-WebSocket-Version");
    char accept[WS_ACCEPT_TEXT];
    const char *kept;

    if (!header_lists(rq, "Upgrade", "websocket") || !header_lists(rq, "Connection", "upgrade"))
        return want_upgrade(rs, e,
                            "this is a WebSocket: connect with Connection: Upgrade and "
                            "Upgrade: websocket");
    if (!version || strcmp(version, "13") != 0)
        return want_upgrade(rs, e, "Sec-WebSocket-Version has to be 13");
    if (!key || !key_ok(key))
        return err_set(e, ERRC_INVALID, "Sec-WebSocket-Key has to be 16 bytes in base64");
    if (rq->body_len)
        return err_set(e, ERRC_INVALID, "a WebSocket handshake has no body");
    ws_accept_of(key, accept);
    kept = arena_strndup(&rq->arena, accept, strlen(accept));
    if (!kept)
        return err_nomem(e);
    rs->status = 101;
    http_resp_header(rs, "Upgrade", "websocket");
    http_resp_header(rs, "Sec-WebSocket-Accept", kept);
    return 0;
}

/* ---- client ---- */

static bool clean(const char *s, const char *not_in)
{
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f || strchr(not_in, *s))
            return false;
    return true;
}

int ws_put_request(const struct ws_dial *d, const char *key, struct buf *out, struct err *e)
{
    bool v6 = strchr(d->host, ':');
    size_t i;

    if (*d->target != '/' || !clean(d->target, " ") || !clean(d->host, " /"))
        return err_set(e, ERRC_INVALID, "host or path of a WebSocket cannot be sent");
    if (buf_printf(out,
                   "GET %s HTTP/1.1\r\nHost: %s%s%s:%u\r\nConnection: Upgrade\r\n"
                   "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n",
                   d->target, v6 ? "[" : "", d->host, v6 ? "]" : "", d->port, key) < 0)
        return err_set(e, ERRC_INVALID, "the request for a WebSocket is too long");
    for (i = 0; i < d->n_headers; i++) {
        const char *name = d->headers[2 * i];
        const char *value = d->headers[2 * i + 1];

        if (!*name || !clean(name, " :") || !clean(value, ""))
            return err_set(e, ERRC_INVALID, "header %zu of a WebSocket cannot be sent", i + 1);
        if (buf_printf(out, "%s: %s\r\n", name, value) < 0)
            return err_set(e, ERRC_INVALID, "the request for a WebSocket is too long");
    }
    return buf_puts(out, "\r\n") < 0 ? err_set(e, ERRC_INVALID, "the request is too long") : 0;
}

struct field {
    const char *value; /* NULL: there is none */
    size_t len;
    unsigned n; /* how many lines */
};

/* lines: after the status line, each ends in CR LF. */
static struct field find(const char *lines, size_t len, const char *name)
{
    size_t n = strlen(name);
    struct field f = { 0 };

    while (len) {
        const char *end = memmem(lines, len, "\r\n", 2);
        size_t line = end ? (size_t)(end - lines) : len;

        if (line > n && lines[n] == ':' && strncasecmp(lines, name, n) == 0) {
            f.n++;
            f.value = lines + n + 1;
            f.len = line - n - 1;
            for (; f.len && is_blank(*f.value); f.value++, f.len--)
                ;
            for (; f.len && is_blank(f.value[f.len - 1]); f.len--)
                ;
        }
        if (!end)
            break;
        len -= line + 2;
        lines = end + 2;
    }
    return f;
}

static int check_status(const char *in, size_t len, struct err *e)
{
    char status[4] = "";
    int64_t n;

    if (len < 12 || memcmp(in, "HTTP/1.1 ", 9) != 0)
        return err_set(e, ERRC_BAD_GATEWAY, "the answer to a WebSocket handshake is not HTTP/1.1");
    memcpy(status, in + 9, 3);
    if (num_parse_i64(status, 100, 999, &n) < 0 || (in[12] != ' ' && in[12] != '\r'))
        return err_set(e, ERRC_BAD_GATEWAY, "the answer to a WebSocket handshake has no status");
    if (n != 101)
        return err_set(e, ERRC_BAD_GATEWAY, "the server refused the WebSocket: HTTP %d", (int)n);
    return 0;
}

int ws_read_answer(const char *in, size_t len, const char *key, size_t *used, struct err *e)
{
    const char *end = memmem(in, len, "\r\n\r\n", 4);
    const char *lines;
    char want[WS_ACCEPT_TEXT];
    struct field accept;
    struct field f;
    size_t n;

    if (!end && len < WS_ANSWER_MAX)
        return 0;
    if (!end)
        return err_set(e, ERRC_BAD_GATEWAY, "the answer to a WebSocket handshake is too long");
    n = (size_t)(end - in) + 2;
    if (check_status(in, n, e) < 0)
        return -1;
    lines = (const char *)memmem(in, n, "\r\n", 2) + 2;
    n -= (size_t)(lines - in);
    accept = find(lines, n, "Sec-WebSocket-Accept");
    ws_accept_of(key, want);
    f = find(lines, n, "Upgrade");
    if (f.n != 1 || !lists(f.value, f.len, "websocket"))
        return err_set(e, ERRC_BAD_GATEWAY, "the server switched to another protocol");
    f = find(lines, n, "Connection");
    if (!f.n || !lists(f.value, f.len, "upgrade"))
        return err_set(e, ERRC_BAD_GATEWAY, "the server's answer lacks Connection: Upgrade");
    if (accept.n != 1 || accept.len != strlen(want) || memcmp(accept.value, want, accept.len) != 0)
        return err_set(e, ERRC_BAD_GATEWAY, "the server's Sec-WebSocket-Accept is wrong");
    if (find(lines, n, "Sec-WebSocket-Extensions").n)
        return err_set(e, ERRC_BAD_GATEWAY, "the server uses an extension that nobody asked for");
    *used = (size_t)(end - in) + 4;
    return 1;
}
