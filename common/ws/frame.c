#include "common/ws/frame.h"

#include "common/json/utf8.h"

#include <string.h>

enum { KEEP_MAX = 16 * 1024 }; /* memory kept between messages */

void ws_parser_init(struct ws_parser *p, bool server, size_t message_max)
{
    *p = (struct ws_parser){ .masked = server, .max = message_max, .head_need = 2 };
    p->data = BUF_INIT(message_max);
}

void ws_parser_free(struct ws_parser *p)
{
    buf_free(&p->data);
}

bool ws_code_ok(unsigned code)
{
    if (code >= 3000)
        return code < 5000;
    return code >= 1000 && code <= 1014 && code != 1004 && code != WS_CODE_NONE &&
           code != WS_CODE_ABNORMAL;
}

static enum ws_event bad(struct ws_item *out, unsigned code, const char *why)
{
    *out = (struct ws_item){ .code = code, .why = why };
    return WS_EVENT_BAD;
}

static bool is_control(unsigned opcode)
{
    return opcode & 8;
}

/* ---- heads ---- */

static const char *check_first(const struct ws_parser *p)
{
    unsigned first = p->head[0];
    unsigned opcode = first & 0x0f;
    bool fin = first & 0x80;
    bool masked = p->head[1] & 0x80;
    unsigned len = p->head[1] & 0x7f;

    if (first & 0x70)
        return "a reserved bit is set: no extension was agreed on";
    if (masked != p->masked)
        return p->masked ? "a client has to mask its frames" : "a server must not mask its frames";
    if ((opcode > WS_BINARY && opcode < WS_CLOSE) || opcode > WS_PONG)
        return "unknown opcode";
    if (is_control(opcode) && (!fin || len > WS_CONTROL_MAX))
        return "a control frame is fragmented or longer than 125 bytes";
    if (opcode == WS_CONTINUATION && !p->message)
        return "a continuation without a beginning";
    if ((opcode == WS_TEXT || opcode == WS_BINARY) && p->message)
        return "a new message inside another one";
    return NULL;
}

static unsigned head_length(const struct ws_parser *p)
{
    unsigned len = p->head[1] & 0x7f;

    return 2 + (len == 126 ? 2 : len == 127 ? 8 : 0) + (p->masked ? 4 : 0);
}

static uint64_t big_endian(const unsigned char *at, unsigned n)
{
    uint64_t v = 0;

    while (n--)
        v = v << 8 | *at++;
    return v;
}

/* The whole head is there. */
static enum ws_event begin_frame(struct ws_parser *p, struct ws_item *out)
{
    unsigned len = p->head[1] & 0x7f;
    unsigned wide = len == 126 ? 2 : len == 127 ? 8 : 0;

    p->opcode = p->head[0] & 0x0f;
    p->fin = p->head[0] & 0x80;
    p->left = wide ? big_endian(p->head + 2, wide) : len;
    p->phase = 0;
    if (p->masked)
        memcpy(p->mask, p->head + 2 + wide, sizeof(p->mask));
    if ((wide == 2 && p->left < 126) || (wide == 8 && (p->left < 65536 || p->left >> 63)))
        return bad(out, WS_CODE_PROTOCOL, "a length is not in its shortest form");
    if (is_control(p->opcode)) {
        p->control_len = 0;
        return WS_EVENT_NONE;
    }
    if (p->opcode != WS_CONTINUATION)
        p->message = p->opcode;
    if (p->left > p->max - p->data.len)
        return bad(out, WS_CODE_TOO_BIG, "message too big");
    return WS_EVENT_NONE;
}

/* Takes bytes of the head; sets *whole when it is complete and right. */
static enum ws_event take_head(struct ws_parser *p, const char *in, size_t len, size_t *used,
                               bool *whole, struct ws_item *out)
{
    const char *why;

    while (p->head_len < p->head_need && *used < len) {
        p->head[p->head_len++] = (unsigned char)in[(*used)++];
        if (p->head_len != 2)
            continue;
        why = check_first(p);
        if (why)
            return bad(out, WS_CODE_PROTOCOL, why);
        p->head_need = head_length(p);
    }
    *whole = p->head_len == p->head_need;
    return *whole ? begin_frame(p, out) : WS_EVENT_NONE;
}

/* ---- payload ---- */

static void unmask(struct ws_parser *p, char *data, size_t len)
{
    if (p->masked)
        ws_mask(data, len, p->mask, p->phase);
    p->phase = (unsigned)(p->phase + len) & 3;
}

static int take_payload(struct ws_parser *p, const char *in, size_t n)
{
    char *at;

    if (is_control(p->opcode)) {
        at = p->control + p->control_len;
        p->control_len += n;
    } else {
        at = buf_reserve(&p->data, n);
        if (!at)
            return -1;
        p->data.len += n;
    }
    memcpy(at, in, n);
    unmask(p, at, n);
    if (!is_control(p->opcode))
        at[n] = '\0';
    p->left -= n;
    return 0;
}

static enum ws_event end_close(const struct ws_parser *p, struct ws_item *out)
{
    out->code = WS_CODE_NONE;
    if (p->control_len == 0)
        return WS_EVENT_CLOSE;
    if (p->control_len == 1)
        return bad(out, WS_CODE_PROTOCOL, "a Close frame of one byte");
    out->code = (unsigned)big_endian((const unsigned char *)p->control, 2);
    out->data = p->control + 2;
    out->len = p->control_len - 2;
    if (!ws_code_ok(out->code))
        return bad(out, WS_CODE_PROTOCOL, "a close code that must not be sent");
    if (utf8_valid_len(out->data, out->len) != out->len)
        return bad(out, WS_CODE_BAD_TEXT, "a reason that is not UTF-8");
    return WS_EVENT_CLOSE;
}

static enum ws_event end_frame(struct ws_parser *p, struct ws_item *out)
{
    p->head_len = 0;
    p->head_need = 2;
    *out = (struct ws_item){ .data = p->control, .len = p->control_len };
    if (p->opcode == WS_CLOSE)
        return end_close(p, out);
    if (is_control(p->opcode))
        return p->opcode == WS_PING ? WS_EVENT_PING : WS_EVENT_PONG;
    if (!p->fin)
        return WS_EVENT_NONE;
    out->text = p->message == WS_TEXT;
    out->data = p->data.data ? p->data.data : "";
    out->len = p->data.len;
    p->message = 0;
    p->delivered = true;
    if (out->text && utf8_valid_len(out->data, out->len) != out->len)
        return bad(out, WS_CODE_BAD_TEXT, "a text message that is not UTF-8");
    return WS_EVENT_MESSAGE;
}

static void forget_delivered(struct ws_parser *p)
{
    p->delivered = false;
    if (p->data.cap > KEEP_MAX)
        buf_free(&p->data);
    else
        buf_clear(&p->data);
}

enum ws_event ws_parse(struct ws_parser *p, const char *in, size_t len, size_t *used,
                       struct ws_item *out)
{
    enum ws_event ev;
    size_t n;
    bool whole;

    *used = 0;
    if (p->delivered)
        forget_delivered(p);
    while (*used < len) {
        if (p->head_len < p->head_need) {
            ev = take_head(p, in, len, used, &whole, out);
            if (ev != WS_EVENT_NONE)
                return ev;
            if (!whole)
                break;
        }
        n = len - *used < p->left ? len - *used : (size_t)p->left;
        if (n && take_payload(p, in + *used, n) < 0)
            return bad(out, WS_CODE_INTERNAL, "out of memory");
        *used += n;
        if (p->left)
            break;
        ev = end_frame(p, out);
        if (ev != WS_EVENT_NONE)
            return ev;
    }
    return WS_EVENT_NONE;
}

/* ---- writing ---- */

size_t ws_head(unsigned char out[WS_HEAD_MAX], unsigned opcode, uint64_t len,
               const unsigned char mask[4])
{
    unsigned wide = len < 126 ? 0 : len < 65536 ? 2 : 8;
    unsigned i;

    out[0] = (unsigned char)(0x80 | opcode);
    out[1] = (unsigned char)((mask ? 0x80 : 0) | (wide == 0   ? (unsigned)len
                                                  : wide == 2 ? 126
                                                              : 127));
    for (i = 0; i < wide; i++)
        out[2 + i] = (unsigned char)(len >> (8 * (wide - 1 - i)));
    if (mask)
        memcpy(out + 2 + wide, mask, 4);
    return 2 + wide + (mask ? 4 : 0);
}

void ws_mask(char *data, size_t len, const unsigned char mask[4], size_t at)
{
    size_t i;

    for (i = 0; i < len; i++)
        data[i] = (char)(data[i] ^ (char)mask[(at + i) & 3]);
}
