/* Strict parser of HTTP/1.x message heads. Pure: no I/O, no allocation. Zero-copy: what it finds are
 * positions in the caller's bytes, which may move between calls (base follows). Incremental: each
 * line is looked at once, however the bytes arrive. Knows framing; knows nothing of routes, proxies
 * or sockets. What is refused is refused because two readers could understand it differently. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    HEAD_MAX = 32 * 1024,       /* bytes of a whole head: 431 beyond */
    HEAD_FIELDS_MAX = 128,      /* field lines: 431 beyond */
    HEAD_TARGET_MAX = 8 * 1024, /* request target: 414 beyond */
    HEAD_METHOD_MAX = 32,       /* 501 beyond */
    HEAD_TOKENS_MAX = 64,       /* elements of all Connection fields: 400 beyond */
};

/* Fields that framing or a proxy must recognise. */
enum head_id {
    HEAD_OTHER,
    HEAD_HOST,
    HEAD_CONNECTION,
    HEAD_CONTENT_LENGTH,
    HEAD_TRANSFER_ENCODING,
    HEAD_EXPECT,
    HEAD_UPGRADE,
    HEAD_TE,
    HEAD_TRAILER,
    HEAD_HOP, /* Keep-Alive, Proxy-Connection, Proxy-Authenticate, Proxy-Authorization, HTTP2-Settings */
    HEAD_LOCATION,
    HEAD_FORWARDED, /* Forwarded, X-Forwarded-*, X-Real-IP */
    HEAD_ID_MAX_
};

struct head_span {
    uint16_t at; /* from base */
    uint16_t len;
};

struct head_field {
    struct head_span name;
    struct head_span value; /* without blanks around it */
    uint8_t id;             /* enum head_id */
};

enum head_result { HEAD_MORE, HEAD_DONE, HEAD_BAD };

struct head {
    const char *base; /* of the last head_parse */
    uint32_t len;     /* HEAD_DONE: bytes of the head, its empty line included */
    uint32_t line;    /* private: start of the line under way */
    uint32_t scan;    /* private: where the search for its end goes on */
    int error;        /* HEAD_BAD: 400, 414, 431, 501 or 505 */
    const char *why;  /* HEAD_BAD: one static sentence */
    bool response;
    bool started;  /* the first line was read */
    bool blank;    /* private: one empty line in front was skipped */
    uint8_t minor; /* HTTP/1.minor: 0 or 1 */
    int status;    /* responses */
    struct head_span reason;
    struct head_span method;
    struct head_span target;    /* raw */
    struct head_span path;      /* raw target without scheme and authority; "" when there is none */
    struct head_span authority; /* of an absolute-form target */
    struct head_span host;      /* value of Host; len 0: none (HTTP/1.0) */
    struct head_span upgrade;   /* value of the only Upgrade field; len 0: none or several */
    uint64_t length;            /* Content-Length */
    bool has_host;
    bool has_length;
    bool chunked;       /* Transfer-Encoding: chunked */
    bool close;         /* Connection: close */
    bool keep_alive;    /* Connection: keep-alive */
    bool names_upgrade; /* Connection: upgrade */
    bool names_te;      /* Connection: te */
    bool names_other;   /* Connection lists further fields: head_nominated */
    bool te_trailers;   /* TE: trailers */
    bool expect_continue;
    uint8_t n_upgrades;
    uint8_t n_tokens;
    uint8_t n_fields;
    struct head_field fields[HEAD_FIELDS_MAX];
};

void head_init(struct head *h, bool response);
/* data is everything from the first byte of the head; on the next call it has the same bytes and
 * more behind them. HEAD_DONE: what follows data + h->len is body or the next message. */
enum head_result head_parse(struct head *h, const char *data, size_t len);

/* ---- of a finished head ---- */

static inline const char *head_text(const struct head *h, struct head_span s)
{
    return h->base + s.at;
}
bool head_span_is(const struct head *h, struct head_span s, const char *text); /* any case */
bool head_method_is(const struct head *h, const char *method);                 /* exact */
/* The n-th field of that name, in any case; NULL: none. */
const struct head_field *head_find(const struct head *h, const char *name, unsigned nth);
/* Is the field listed by name in Connection, so that it ends at this hop? */
bool head_nominated(const struct head *h, const struct head_field *f);
/* Does the sender keep its connection open after this message? */
bool head_persistent(const struct head *h);
