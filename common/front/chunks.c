#include "common/front/chunks.h"

enum state {
    S_SIZE,
    S_BLANK, /* between size and extension: only ';' ends it */
    S_EXT,
    S_SIZE_LF,
    S_DATA,
    S_DATA_CR,
    S_DATA_LF,
    S_TRAILER, /* at the start of a trailer line */
    S_NAME,
    S_VALUE,
    S_VALUE_LF,
    S_END_LF,
    S_DONE,
};

static int hex_digit(unsigned char ch)
{
    if (ch >= '0' && ch <= '9')
        return ch - '0';
    ch |= 0x20;
    return ch >= 'a' && ch <= 'f' ? ch - 'a' + 10 : -1;
}

static bool is_text(unsigned char ch)
{
    return ch == '\t' || (ch >= ' ' && ch != 0x7f);
}

static bool is_name(unsigned char ch)
{
    static const char extra[] = "!#$%&'*+-.^_`|~";
    unsigned i;

    if ((ch >= '0' && ch <= '9') || ((ch | 0x20) >= 'a' && (ch | 0x20) <= 'z'))
        return true;
    for (i = 0; i < sizeof(extra) - 1; i++)
        if (ch == (unsigned char)extra[i])
            return true;
    return false;
}

static int step_size(struct chunks *c, unsigned char ch)
{
    int digit = hex_digit(ch);

    if (digit >= 0) {
        c->left = c->left << 4 | (uint64_t)digit;
        return ++c->count > CHUNKS_DIGITS_MAX ? -1 : S_SIZE;
    }
    if (!c->count)
        return -1;
    c->count = 0;
    if (ch == '\r')
        return S_SIZE_LF;
    if (ch == ';')
        return S_EXT;
    return ch == ' ' || ch == '\t' ? S_BLANK : -1;
}

static int step_ext(struct chunks *c, unsigned char ch)
{
    if (++c->count > CHUNKS_EXT_MAX)
        return -1;
    if (c->state == S_BLANK)
        return ch == ';' ? S_EXT : ch == ' ' || ch == '\t' ? S_BLANK : -1;
    if (ch == '\r')
        return S_SIZE_LF;
    return is_text(ch) ? S_EXT : -1;
}

static int step_trailer(struct chunks *c, unsigned char ch)
{
    if (++c->count > CHUNKS_TRAILER_MAX)
        return -1;
    switch (c->state) {
    case S_TRAILER:
        return ch == '\r' ? S_END_LF : is_name(ch) ? S_NAME : -1;
    case S_NAME:
        return ch == ':' ? S_VALUE : is_name(ch) ? S_NAME : -1;
    case S_VALUE:
        return ch == '\r' ? S_VALUE_LF : is_text(ch) ? S_VALUE : -1;
    case S_VALUE_LF:
        return ch == '\n' ? S_TRAILER : -1;
    default: /* S_END_LF */
        return ch == '\n' ? S_DONE : -1;
    }
}

/* The state after ch, or -1. */
static int step(struct chunks *c, unsigned char ch)
{
    switch (c->state) {
    case S_SIZE:
        return step_size(c, ch);
    case S_BLANK:
    case S_EXT:
        return step_ext(c, ch);
    case S_SIZE_LF:
        c->count = 0;
        return ch != '\n' ? -1 : c->left ? S_DATA : S_TRAILER;
    case S_DATA_CR:
        return ch == '\r' ? S_DATA_LF : -1;
    case S_DATA_LF:
        return ch == '\n' ? S_SIZE : -1;
    default:
        return step_trailer(c, ch);
    }
}

ssize_t chunks_feed(struct chunks *c, const char *data, size_t len)
{
    size_t at = 0;
    size_t n;
    int next;

    while (at < len && c->state != S_DONE) {
        if (c->state == S_DATA) {
            n = len - at < c->left ? len - at : (size_t)c->left;
            at += n;
            c->left -= n;
            if (!c->left)
                c->state = S_DATA_CR;
            continue;
        }
        next = step(c, (unsigned char)data[at++]);
        if (next < 0)
            return -1;
        c->state = (uint8_t)next;
    }
    return (ssize_t)at;
}

bool chunks_done(const struct chunks *c)
{
    return c->state == S_DONE;
}

size_t chunks_data(const struct chunks *c, size_t len)
{
    if (c->state != S_DATA)
        return 0;
    return len < c->left ? len : (size_t)c->left;
}
