#include "common/front/rules.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

void rules_put(struct rules_out *o, const char *data, size_t len)
{
    if (o->full || len > o->cap - o->len) {
        o->full = true;
        return;
    }
    memcpy(o->data + o->len, data, len);
    o->len += len;
}

void rules_puts(struct rules_out *o, const char *s)
{
    rules_put(o, s, strlen(s));
}

#define PUT_LITERAL(o, s) rules_put((o), (s), sizeof(s) - 1)

void rules_put_field(struct rules_out *o, const char *name, const char *value)
{
    rules_puts(o, name);
    PUT_LITERAL(o, ": ");
    rules_puts(o, value);
    PUT_LITERAL(o, "\r\n");
}

static void put_span(struct rules_out *o, const struct head *h, struct head_span s)
{
    rules_put(o, head_text(h, s), s.len);
}

static void put_received(struct rules_out *o, const struct head *h, const struct head_field *f)
{
    put_span(o, h, f->name);
    PUT_LITERAL(o, ": ");
    put_span(o, h, f->value);
    PUT_LITERAL(o, "\r\n");
}

/* ---- what goes ---- */

static bool name_matches(const char *name, size_t len, const char *pattern)
{
    size_t want = strlen(pattern);

    if (want && pattern[want - 1] == '*')
        return len >= want - 1 && strncasecmp(name, pattern, want - 1) == 0;
    return len == want && strncasecmp(name, pattern, len) == 0;
}

static bool listed(const struct head *h, const struct head_field *f, const char *const *drop)
{
    const char *name = head_text(h, f->name);

    for (; drop && *drop; drop++)
        if (name_matches(name, f->name.len, *drop))
            return true;
    return false;
}

/* Ends at this hop in either direction. Host and framing are not asked for. */
static bool ends_here(const struct head *h, const struct head_field *f)
{
    switch (f->id) {
    case HEAD_CONNECTION:
    case HEAD_UPGRADE:
    case HEAD_TE:
    case HEAD_HOP:
        return true;
    case HEAD_TRAILER:
        return !h->chunked;
    default:
        return head_nominated(h, f);
    }
}

/* Content-Length and Transfer-Encoding were validated: one of each goes on, and only once. */
static void put_framing(struct rules_out *o, const struct head *h, const struct head_field *f,
                        bool *done)
{
    if (!*done)
        put_received(o, h, f);
    *done = true;
}

/* ---- requests ---- */

bool rules_upgrades(const struct head *h)
{
    return h->minor == 1 && h->names_upgrade && h->upgrade.len > 0 &&
           !head_span_is(h, h->upgrade, "h2c") && !head_span_is(h, h->upgrade, "h2") &&
           !memchr(head_text(h, h->upgrade), ',', h->upgrade.len);
}

static void put_request_line(struct rules_out *o, const struct head *h,
                             const struct rules_request *r)
{
    const char *path = head_text(h, h->path);

    put_span(o, h, h->method);
    PUT_LITERAL(o, " ");
    if (r->target) {
        rules_put(o, r->target, r->target_len);
    } else {
        if (!h->path.len || *path == '?') /* http://host?query */
            PUT_LITERAL(o, "/");
        rules_put(o, path, h->path.len);
    }
    if (h->minor == 1)
        PUT_LITERAL(o, " HTTP/1.1\r\n");
    else
        PUT_LITERAL(o, " HTTP/1.0\r\n");
}

static void put_host(struct rules_out *o, const struct head *h, const struct rules_request *r)
{
    PUT_LITERAL(o, "Host: ");
    if (r->host)
        rules_puts(o, r->host);
    else
        put_span(o, h, h->host);
    PUT_LITERAL(o, "\r\n");
}

static bool drops_request_field(const struct head *h, const struct head_field *f,
                                const struct rules_request *r)
{
    if (f->id == HEAD_FORWARDED && !r->keep_forwarded)
        return true;
    if (f->id == HEAD_EXPECT && h->minor == 0)
        return true;
    if (r->peer_header && head_span_is(h, f->name, r->peer_header))
        return true;
    return ends_here(h, f) || listed(h, f, r->edit.drop);
}

static void put_request_field(struct rules_out *o, const struct head *h, const struct head_field *f,
                              const struct rules_request *r, bool *framed)
{
    switch (f->id) {
    case HEAD_HOST:
        put_host(o, h, r);
        break;
    case HEAD_CONTENT_LENGTH:
    case HEAD_TRANSFER_ENCODING:
        if (!r->no_body)
            put_framing(o, h, f, framed);
        break;
    default:
        if (!drops_request_field(h, f, r))
            put_received(o, h, f);
    }
}

static void put_hop(struct rules_out *o, const struct head *h, const struct rules_request *r)
{
    bool te = h->te_trailers && h->names_te;

    if (r->upgrade && rules_upgrades(h)) {
        PUT_LITERAL(o, "Upgrade: ");
        put_span(o, h, h->upgrade);
        if (te)
            PUT_LITERAL(o, "\r\nConnection: Upgrade, TE\r\nTE: trailers\r\n");
        else
            PUT_LITERAL(o, "\r\nConnection: Upgrade\r\n");
    } else if (te) {
        PUT_LITERAL(o, "Connection: TE\r\nTE: trailers\r\n");
    }
}

static void put_forwarded(struct rules_out *o, const struct head *h, const struct rules_request *r)
{
    if (r->keep_forwarded)
        return;
    if (r->forwarded_for)
        rules_put_field(o, "X-Forwarded-For", r->forwarded_for);
    if (r->forwarded_proto) {
        rules_put_field(o, "X-Forwarded-Proto", r->forwarded_proto);
        if (h->host.len) {
            PUT_LITERAL(o, "X-Forwarded-Host: ");
            put_span(o, h, h->host);
            PUT_LITERAL(o, "\r\n");
        }
    }
}

void rules_request(const struct head *h, const struct rules_request *r, struct rules_out *o)
{
    bool framed = false;
    size_t i;

    put_request_line(o, h, r);
    if (!h->has_host && r->host) /* HTTP/1.0 */
        put_host(o, h, r);
    for (i = 0; i < h->n_fields; i++)
        put_request_field(o, h, &h->fields[i], r, &framed);
    put_hop(o, h, r);
    put_forwarded(o, h, r);
    if (r->peer_header && r->peer_value)
        rules_put_field(o, r->peer_header, r->peer_value);
    for (i = 0; i < r->edit.n_add; i++)
        if (r->edit.add[i].value)
            rules_put_field(o, r->edit.add[i].name, r->edit.add[i].value);
    PUT_LITERAL(o, "\r\n");
}

/* ---- responses ---- */

static void put_location(struct rules_out *o, const struct head *h, const struct head_field *f,
                         const struct rules_response *r)
{
    const char *v = head_text(h, f->value);
    bool local = f->value.len && v[0] == '/' && (f->value.len == 1 || v[1] != '/');

    put_span(o, h, f->name);
    PUT_LITERAL(o, ": ");
    if (local)
        rules_put(o, r->location_prefix, r->location_prefix_len);
    put_span(o, h, f->value);
    PUT_LITERAL(o, "\r\n");
}

static void put_response_field(struct rules_out *o, const struct head *h,
                               const struct head_field *f, const struct rules_response *r,
                               bool *framed)
{
    if (f->id == HEAD_CONTENT_LENGTH || f->id == HEAD_TRANSFER_ENCODING) {
        if (!r->no_framing && !r->file_header)
            put_framing(o, h, f, framed);
        return;
    }
    if (r->file_header && head_span_is(h, f->name, r->file_header))
        return;
    if (f->id == HEAD_UPGRADE && r->upgrade) {
        put_received(o, h, f);
        return;
    }
    if (ends_here(h, f) || listed(h, f, r->drop))
        return;
    if (f->id == HEAD_LOCATION && r->location_prefix_len)
        put_location(o, h, f, r);
    else
        put_received(o, h, f);
}

void rules_response(const struct head *h, const struct rules_response *r, struct rules_out *o)
{
    const char status[3] = { (char)('0' + h->status / 100), (char)('0' + h->status / 10 % 10),
                             (char)('0' + h->status % 10) };
    char length[24];
    bool framed = false;
    unsigned i;

    PUT_LITERAL(o, "HTTP/1.1 ");
    rules_put(o, status, sizeof(status));
    PUT_LITERAL(o, " ");
    put_span(o, h, h->reason);
    PUT_LITERAL(o, "\r\n");
    for (i = 0; i < h->n_fields; i++)
        put_response_field(o, h, &h->fields[i], r, &framed);
    if (r->file_header) {
        (void)snprintf(length, sizeof(length), "%" PRIu64, r->file_length);
        rules_put_field(o, "Content-Length", length);
    }
    if (r->added_len)
        rules_put(o, r->added, r->added_len);
    if (r->connection)
        rules_put_field(o, "Connection", r->connection);
    PUT_LITERAL(o, "\r\n");
}
