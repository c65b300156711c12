#include "common/front/head.h"

#include "common/base/macros.h"

#include <string.h>
#include <strings.h>

/* ---- classes of bytes ---- */

enum { C_TOKEN = 1, C_VALUE = 2, C_TARGET = 4, C_HOST = 8, C_DIGIT = 16 };

#define ALNUM (C_TOKEN | C_VALUE | C_TARGET | C_HOST)

/* RFC 9110 tchar, field-vchar with blanks and obs-text, what may stand in a request target (no '#':
 * a fragment is never sent), and the characters of uri-host with port. */
/* clang-format off */
static const uint8_t classes[256] = {
    ['\t'] = C_VALUE, [' '] = C_VALUE,
    ['!'] = ALNUM, ['"'] = C_VALUE | C_TARGET, ['#'] = C_TOKEN | C_VALUE, ['$'] = ALNUM,
    ['%'] = ALNUM, ['&'] = ALNUM, ['\''] = ALNUM,
    ['('] = C_VALUE | C_TARGET | C_HOST, [')'] = C_VALUE | C_TARGET | C_HOST,
    ['*'] = ALNUM, ['+'] = ALNUM, [','] = C_VALUE | C_TARGET, ['-'] = ALNUM, ['.'] = ALNUM,
    ['/'] = C_VALUE | C_TARGET,
    ['0' ... '9'] = ALNUM | C_DIGIT,
    [':'] = C_VALUE | C_TARGET | C_HOST, [';'] = C_VALUE | C_TARGET | C_HOST,
    ['<'] = C_VALUE | C_TARGET, ['='] = C_VALUE | C_TARGET | C_HOST, ['>'] = C_VALUE | C_TARGET,
    ['?'] = C_VALUE | C_TARGET, ['@'] = C_VALUE | C_TARGET,
    ['A' ... 'Z'] = ALNUM,
    ['['] = C_VALUE | C_TARGET | C_HOST, ['\\'] = C_VALUE | C_TARGET,
    [']'] = C_VALUE | C_TARGET | C_HOST, ['^'] = C_TOKEN | C_VALUE | C_TARGET,
    ['_'] = ALNUM, ['`'] = C_TOKEN | C_VALUE | C_TARGET,
    ['a' ... 'z'] = ALNUM,
    ['{'] = C_VALUE | C_TARGET, ['|'] = C_TOKEN | C_VALUE | C_TARGET, ['}'] = C_VALUE | C_TARGET,
    ['~'] = ALNUM,
    [0x80 ... 0xff] = C_VALUE | C_TARGET, /* raw UTF-8 in a target is wrong but common */
};
/* clang-format on */

static size_t run_of(const char *s, size_t len, unsigned mask)
{
    size_t i = 0;

    while (i < len && classes[(unsigned char)s[i]] & mask)
        i++;
    return i;
}

static bool text_is(const char *s, size_t len, const char *text)
{
    return strlen(text) == len && strncasecmp(s, text, len) == 0;
}

static enum head_result refuse(struct head *h, int status, const char *why)
{
    h->error = status;
    h->why = why;
    return HEAD_BAD;
}

static struct head_span span(const struct head *h, const char *s, size_t len)
{
    return (struct head_span){ (uint16_t)(s - h->base), (uint16_t)len };
}

/* ---- first line ---- */

/* "HTTP/1.x": 0, or the status that refuses it. */
static int parse_version(struct head *h, const char *s, size_t len)
{
    if (len != 8 || memcmp(s, "HTTP/", 5) != 0 || s[6] != '.' ||
        !(classes[(unsigned char)s[5]] & C_DIGIT) || !(classes[(unsigned char)s[7]] & C_DIGIT))
        return 400;
    if (s[5] != '1' || s[7] > '1')
        return 505;
    h->minor = (uint8_t)(s[7] - '0');
    return 0;
}

static enum head_result parse_absolute(struct head *h, const char *t, size_t len, size_t scheme)
{
    const char *a = t + scheme;
    size_t left = len - scheme;
    size_t n = 0;

    while (n < left && a[n] != '/' && a[n] != '?')
        n++;
    if (!n)
        return refuse(h, 400, "the request target names no host");
    h->authority = span(h, a, n);
    h->path = span(h, a + n, left - n);
    return HEAD_MORE;
}

static enum head_result parse_target(struct head *h)
{
    const char *t = head_text(h, h->target);
    size_t len = h->target.len;

    if (head_method_is(h, "CONNECT"))
        return refuse(h, 501, "CONNECT is not supported");
    h->path = h->target;
    if (t[0] == '/')
        return HEAD_MORE;
    if (len == 1 && t[0] == '*' && head_method_is(h, "OPTIONS"))
        return HEAD_MORE;
    if (len > 7 && strncasecmp(t, "http://", 7) == 0)
        return parse_absolute(h, t, len, 7);
    if (len > 8 && strncasecmp(t, "https://", 8) == 0)
        return parse_absolute(h, t, len, 8);
    return refuse(h, 400, "the request target is not a path");
}

static enum head_result parse_request_line(struct head *h, const char *s, size_t len)
{
    size_t method = run_of(s, len, C_TOKEN);
    size_t target;
    const char *v;
    int bad;

    if (method > HEAD_METHOD_MAX)
        return refuse(h, 501, "the method is not known");
    if (!method || method == len || s[method] != ' ')
        return refuse(h, 400, "the request line is malformed");
    h->method = span(h, s, method);
    s += method + 1;
    len -= method + 1;
    target = run_of(s, len, C_TARGET);
    if (target > HEAD_TARGET_MAX)
        return refuse(h, 414, "the request target is too long");
    if (!target || target == len || s[target] != ' ')
        return refuse(h, 400, "the request line is malformed");
    v = s + target + 1;
    bad = parse_version(h, v, len - target - 1);
    if (bad == 505)
        return refuse(h, 505, "only HTTP/1.1 and HTTP/1.0 are spoken here");
    if (bad)
        return refuse(h, 400, "the request line is malformed");
    h->target = span(h, s, target);
    return parse_target(h);
}

static enum head_result parse_status_line(struct head *h, const char *s, size_t len)
{
    size_t i;

    if (len < 12 || parse_version(h, s, 8) || s[8] != ' ' || run_of(s + 9, 3, C_DIGIT) != 3 ||
        s[9] == '0' || (len > 12 && s[12] != ' '))
        return refuse(h, 400, "the status line is malformed");
    for (i = 9; i < 12; i++)
        h->status = h->status * 10 + (s[i] - '0');
    if (len > 13) {
        if (run_of(s + 13, len - 13, C_VALUE) != len - 13)
            return refuse(h, 400, "the status line has control characters");
        h->reason = span(h, s + 13, len - 13);
    }
    return HEAD_MORE;
}

/* ---- fields ---- */

static const struct {
    const char *name;
    uint8_t len;
    uint8_t id;
} known[] = {
    { "te", 2, HEAD_TE },
    { "host", 4, HEAD_HOST },
    { "expect", 6, HEAD_EXPECT },
    { "upgrade", 7, HEAD_UPGRADE },
    { "trailer", 7, HEAD_TRAILER },
    { "location", 8, HEAD_LOCATION },
    { "forwarded", 9, HEAD_FORWARDED },
    { "x-real-ip", 9, HEAD_FORWARDED },
    { "keep-alive", 10, HEAD_HOP },
    { "connection", 10, HEAD_CONNECTION },
    { "content-length", 14, HEAD_CONTENT_LENGTH },
    { "http2-settings", 14, HEAD_HOP },
    { "proxy-connection", 16, HEAD_HOP },
    { "transfer-encoding", 17, HEAD_TRANSFER_ENCODING },
    { "proxy-authenticate", 18, HEAD_HOP },
    { "proxy-authorization", 19, HEAD_HOP },
};

static uint8_t classify(const char *name, size_t len)
{
    size_t i;

    for (i = 0; i < ARRAY_LEN(known) && known[i].len <= len; i++)
        if (known[i].len == len && strncasecmp(known[i].name, name, len) == 0)
            return known[i].id;
    if (len > 12 && strncasecmp(name, "x-forwarded-", 12) == 0)
        return HEAD_FORWARDED;
    return HEAD_OTHER;
}

static enum head_result take_length(struct head *h, const char *v, size_t len)
{
    uint64_t n = 0;
    size_t i;

    if (!len || len > 18 || run_of(v, len, C_DIGIT) != len)
        return refuse(h, 400, "Content-Length is not a number");
    for (i = 0; i < len; i++)
        n = n * 10 + (uint64_t)(v[i] - '0');
    if (h->has_length && n != h->length)
        return refuse(h, 400, "there are several Content-Length fields");
    h->has_length = true;
    h->length = n;
    return HEAD_MORE;
}

/* Only chunked alone: whatever else stands there, some reader frames it differently. */
static enum head_result take_coding(struct head *h, const char *v, size_t len)
{
    if (h->chunked)
        return refuse(h, 400, "there are several transfer codings");
    if (text_is(v, len, "chunked")) {
        h->chunked = true;
        return HEAD_MORE;
    }
    if (len > 8 && strncasecmp(v + len - 7, "chunked", 7) == 0 &&
        run_of(v, len, C_TOKEN) < len - 7 && (v[len - 8] == ' ' || v[len - 8] == ','))
        return refuse(h, 501, "no transfer coding besides chunked is supported");
    return refuse(h, 400, "the transfer coding does not end in chunked");
}

static enum head_result take_host(struct head *h, struct head_span value)
{
    const char *v = head_text(h, value);

    if (h->has_host)
        return refuse(h, 400, "there are several Host fields");
    if (!value.len || run_of(v, value.len, C_HOST) != value.len)
        return refuse(h, 400, "Host is not valid");
    h->has_host = true;
    h->host = value;
    return HEAD_MORE;
}

/* The next element of a comma-separated list without the blanks around it; false at the end. */
static bool next_element(const char **s, size_t *left, const char **elem, size_t *len)
{
    size_t n = 0;

    while (*left && (**s == ' ' || **s == '\t' || **s == ','))
        ++*s, --*left;
    if (!*left)
        return false;
    while (n < *left && (*s)[n] != ',')
        n++;
    *elem = *s;
    *len = n;
    *s += n;
    *left -= n;
    while (*len && ((*elem)[*len - 1] == ' ' || (*elem)[*len - 1] == '\t'))
        --*len;
    return true;
}

static enum head_result take_connection(struct head *h, const char *v, size_t left)
{
    const char *elem;
    size_t len;

    while (next_element(&v, &left, &elem, &len)) {
        if (run_of(elem, len, C_TOKEN) != len)
            return refuse(h, 400, "Connection is not a list of names");
        if (++h->n_tokens > HEAD_TOKENS_MAX)
            return refuse(h, 400, "Connection lists too many names");
        if (text_is(elem, len, "close"))
            h->close = true;
        else if (text_is(elem, len, "keep-alive"))
            h->keep_alive = true;
        else if (text_is(elem, len, "upgrade"))
            h->names_upgrade = true;
        else if (text_is(elem, len, "te"))
            h->names_te = true;
        else
            h->names_other = true;
    }
    return HEAD_MORE;
}

static void take_te(struct head *h, const char *v, size_t left)
{
    const char *elem;
    size_t len;

    while (next_element(&v, &left, &elem, &len))
        if (text_is(elem, len, "trailers"))
            h->te_trailers = true;
}

static enum head_result take_field(struct head *h, const struct head_field *f)
{
    const char *v = head_text(h, f->value);

    switch (f->id) {
    case HEAD_HOST:
        return h->response ? HEAD_MORE : take_host(h, f->value);
    case HEAD_CONNECTION:
        return take_connection(h, v, f->value.len);
    case HEAD_CONTENT_LENGTH:
        return take_length(h, v, f->value.len);
    case HEAD_TRANSFER_ENCODING:
        return take_coding(h, v, f->value.len);
    case HEAD_EXPECT:
        h->expect_continue |= text_is(v, f->value.len, "100-continue");
        return HEAD_MORE;
    case HEAD_UPGRADE:
        h->upgrade = ++h->n_upgrades == 1 ? f->value : (struct head_span){ 0 };
        return HEAD_MORE;
    case HEAD_TE:
        take_te(h, v, f->value.len);
        return HEAD_MORE;
    default:
        return HEAD_MORE;
    }
}

static enum head_result parse_field(struct head *h, const char *s, size_t len)
{
    struct head_field *f;
    size_t name = run_of(s, len, C_TOKEN);
    const char *v;
    size_t left;

    if (s[0] == ' ' || s[0] == '\t')
        return refuse(h, 400, "a header field is folded over two lines");
    if (!name || name == len || s[name] != ':')
        return refuse(h, 400, "a header field has an invalid name");
    if (h->n_fields == HEAD_FIELDS_MAX)
        return refuse(h, 431, "there are too many header fields");
    v = s + name + 1;
    left = len - name - 1;
    if (run_of(v, left, C_VALUE) != left)
        return refuse(h, 400, "a header field has control characters");
    while (left && (*v == ' ' || *v == '\t'))
        v++, left--;
    while (left && (v[left - 1] == ' ' || v[left - 1] == '\t'))
        left--;
    f = &h->fields[h->n_fields++];
    f->name = span(h, s, name);
    f->value = span(h, v, left);
    f->id = classify(s, name);
    return f->id == HEAD_OTHER ? HEAD_MORE : take_field(h, f);
}

/* ---- the whole ---- */

static bool same_authority(const struct head *h)
{
    return h->authority.len == h->host.len &&
           strncasecmp(head_text(h, h->authority), head_text(h, h->host), h->host.len) == 0;
}

static enum head_result finish(struct head *h)
{
    if (h->chunked && h->has_length)
        return refuse(h, 400, "there are both Content-Length and Transfer-Encoding");
    if (h->chunked && h->minor == 0)
        return refuse(h, 400, "HTTP/1.0 has no Transfer-Encoding");
    if (h->response)
        return HEAD_DONE;
    if (h->minor == 1 && !h->has_host)
        return refuse(h, 400, "there is no Host field");
    if (h->authority.len && h->has_host && !same_authority(h))
        return refuse(h, 400, "Host differs from the request target");
    return HEAD_DONE;
}

static enum head_result parse_line(struct head *h, const char *s, size_t len)
{
    if (len && h->started)
        return parse_field(h, s, len);
    if (!len && h->started)
        return finish(h);
    if (!len) { /* some clients end a body with a line too many */
        if (h->blank || h->response)
            return refuse(h, 400, "there is no request line");
        h->blank = true;
        return HEAD_MORE;
    }
    h->started = true;
    return h->response ? parse_status_line(h, s, len) : parse_request_line(h, s, len);
}

void head_init(struct head *h, bool response)
{
    memset(h, 0, offsetof(struct head, fields));
    h->response = response;
}

/* No line end yet: may there still be one within the limits? */
static enum head_result wait_for_more(struct head *h, size_t len)
{
    if (!h->started && !h->response &&
        len - h->line > HEAD_TARGET_MAX + HEAD_METHOD_MAX + sizeof("  HTTP/1.1\r"))
        return refuse(h, 414, "the request target is too long");
    if (len >= HEAD_MAX)
        return refuse(h, 431, "the header fields are too long");
    h->scan = (uint32_t)len;
    return HEAD_MORE;
}

enum head_result head_parse(struct head *h, const char *data, size_t len)
{
    size_t seen = len < HEAD_MAX ? len : HEAD_MAX;
    const char *nl;
    enum head_result r;
    size_t at;

    h->base = data;
    for (;;) {
        nl = memchr(data + h->scan, '\n', seen - h->scan);
        if (!nl)
            return wait_for_more(h, seen);
        at = (size_t)(nl - data);
        if (at == h->line || nl[-1] != '\r')
            return refuse(h, 400, "a line does not end in CR LF");
        r = parse_line(h, data + h->line, at - 1 - h->line);
        h->line = h->scan = (uint32_t)at + 1;
        if (r == HEAD_DONE)
            h->len = h->line;
        if (r != HEAD_MORE)
            return r;
    }
}

/* ---- questions ---- */

bool head_span_is(const struct head *h, struct head_span s, const char *text)
{
    return text_is(head_text(h, s), s.len, text);
}

bool head_method_is(const struct head *h, const char *method)
{
    return strlen(method) == h->method.len &&
           memcmp(head_text(h, h->method), method, h->method.len) == 0;
}

const struct head_field *head_find(const struct head *h, const char *name, unsigned nth)
{
    unsigned i;

    for (i = 0; i < h->n_fields; i++)
        if (head_span_is(h, h->fields[i].name, name) && nth-- == 0)
            return &h->fields[i];
    return NULL;
}

bool head_nominated(const struct head *h, const struct head_field *f)
{
    const char *name = head_text(h, f->name);
    const char *v;
    const char *elem;
    size_t left;
    size_t len;
    unsigned i;

    if (!h->names_other)
        return false;
    for (i = 0; i < h->n_fields; i++) {
        if (h->fields[i].id != HEAD_CONNECTION)
            continue;
        v = head_text(h, h->fields[i].value);
        left = h->fields[i].value.len;
        while (next_element(&v, &left, &elem, &len))
            if (len == f->name.len && strncasecmp(elem, name, len) == 0)
                return true;
    }
    return false;
}

bool head_persistent(const struct head *h)
{
    return !h->close && (h->minor == 1 || h->keep_alive);
}
