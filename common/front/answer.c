#include "common/front/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct {
    int status;
    const char *reason;
    const char *code;
} statuses[] = {
    { 200, "OK", "OK" },
    { 201, "Created", "OK" },
    { 202, "Accepted", "OK" },
    { 204, "No Content", "OK" },
    { 301, "Moved Permanently", "OK" },
    { 302, "Found", "OK" },
    { 307, "Temporary Redirect", "OK" },
    { 308, "Permanent Redirect", "OK" },
    { 400, "Bad Request", "INVALID_REQUEST" },
    { 401, "Unauthorized", "UNAUTHORIZED" },
    { 403, "Forbidden", "FORBIDDEN" },
    { 404, "Not Found", "NOT_FOUND" },
    { 405, "Method Not Allowed", "METHOD_NOT_ALLOWED" },
    { 408, "Request Timeout", "REQUEST_TIMEOUT" },
    { 409, "Conflict", "CONFLICT" },
    { 413, "Content Too Large", "REQUEST_TOO_LARGE" },
    { 414, "URI Too Long", "URI_TOO_LONG" },
    { 417, "Expectation Failed", "EXPECTATION_FAILED" },
    { 421, "Misdirected Request", "MISDIRECTED_REQUEST" },
    { 429, "Too Many Requests", "TOO_MANY_REQUESTS" },
    { 431, "Request Header Fields Too Large", "HEADERS_TOO_LARGE" },
    { 500, "Internal Server Error", "INTERNAL_ERROR" },
    { 501, "Not Implemented", "NOT_IMPLEMENTED" },
    { 502, "Bad Gateway", "BAD_GATEWAY" },
    { 503, "Service Unavailable", "SERVICE_UNAVAILABLE" },
    { 504, "Gateway Timeout", "GATEWAY_TIMEOUT" },
    { 505, "HTTP Version Not Supported", "HTTP_VERSION_NOT_SUPPORTED" },
};

static unsigned find_status(int status)
{
    unsigned i;

    for (i = 0; i < ARRAY_LEN(statuses); i++)
        if (statuses[i].status == status)
            return i;
    return find_status(500);
}

/* A JSON string literal; what is no printable ASCII becomes '?'. */
static void put_json(struct rules_out *o, const char *s)
{
    char ch;

    rules_put(o, "\"", 1);
    for (; *s; s++) {
        ch = *s < ' ' || *s > '~' ? '?' : *s;
        if (ch == '"' || ch == '\\')
            rules_put(o, "\\", 1);
        rules_put(o, &ch, 1);
    }
    rules_put(o, "\"", 1);
}

static void put_error_body(struct rules_out *o, const struct front_answer *a)
{
    rules_puts(o, "{\"code\":");
    put_json(o, a->code ? a->code : statuses[find_status(a->status)].code);
    rules_puts(o, ",\"message\":");
    put_json(o, a->message ? a->message : "");
    rules_puts(o, "}");
}

/* RFC 9110, 6.6.1; the programs run in the "C" locale. */
static void put_date(struct rules_out *o)
{
    time_t now = time(NULL);
    struct tm at;
    char text[40];

    if (gmtime_r(&now, &at) && strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &at))
        rules_put_field(o, "Date", text);
}

static void put_head(struct caller *c, struct rules_out *o, const struct front_answer *a,
                     size_t body_len)
{
    char line[96];
    size_t i;

    (void)snprintf(line, sizeof(line), "HTTP/1.1 %d %s\r\n", a->status,
                   statuses[find_status(a->status)].reason);
    rules_puts(o, line);
    put_date(o);
    if (body_len)
        rules_put_field(o, "Content-Type", a->content_type ? a->content_type : "application/json");
    if (a->status != 204) {
        (void)snprintf(line, sizeof(line), "Content-Length: %zu\r\n", body_len);
        rules_puts(o, line);
    }
    if (c->block)
        rules_put(o, c->block->data, c->added_len);
    for (i = 0; i < a->n_add; i++)
        if (a->add[i].value)
            rules_put_field(o, a->add[i].name, a->add[i].value);
    if (!c->keep)
        rules_put_field(o, "Connection", "close");
    else if (!c->minor)
        rules_put_field(o, "Connection", "keep-alive");
    rules_puts(o, "\r\n");
}

/* May the rest of the request body be read and thrown away, so that the connection goes on? */
static bool can_discard(const struct caller *c)
{
    if (c->request.done)
        return true;
    return !c->expects && c->request.kind == BODY_LENGTH && c->request.left <= FRONT_DRAIN_MAX;
}

/* What is in hand of the body goes; the rest is waited for. */
static void after_answer(struct caller *c)
{
    ssize_t used;

    if (c->keep && !c->request.done && c->in) {
        used = body_take(&c->request, c->in->data + c->in->off, c->in->len - c->in->off);
        if (used > 0)
            caller_in_used(c, (size_t)used);
    }
    if (c->keep && !c->request.done) {
        c->state = CALLER_DISCARD;
        timeout_set(c->front, &c->timed, TIMEOUT_HEAD);
        caller_watch(c);
        return;
    }
    caller_next(c);
}

void answer_send(struct caller *c, const struct front_answer *a)
{
    struct front *f = c->front;
    struct rules_out head = { .data = f->out, .cap = FRONT_OUT_MAX };
    char text[1024];
    struct rules_out body = { .data = text, .cap = sizeof(text) };

    timeout_clear(&c->timed);
    c->keep = c->keep && !a->close && !f->draining && can_discard(c);
    if (a->body)
        body = (struct rules_out){ .data = (char *)a->body, .len = a->body_len };
    else if (a->status != 204)
        put_error_body(&body, a);
    put_head(c, &head, a, body.len);
    if (!c->is_head && body.len && body.len <= head.cap - head.len) {
        rules_put(&head, body.data, body.len);
        body.len = 0;
    }
    c->result.status = a->status;
    if (head.full || pending_send(&c->out, c->watch.fd, head.data, head.len) < 0 ||
        (!c->is_head && pending_send(&c->out, c->watch.fd, body.data, body.len) < 0) ||
        /* not before: a may point into the head */
        (c->state == CALLER_DECIDE && caller_rest_used(c, 0) < 0)) {
        caller_close(c);
        return;
    }
    after_answer(c);
}

void answer_error(struct caller *c, int status, const char *code, const char *message)
{
    struct front_answer a = { .status = status, .code = code, .message = message };

    answer_send(c, &a);
}

void answer_refuse(struct caller *c, int status, const char *why)
{
    struct front *f = c->front;
    struct front_answer a = { .status = status, .message = why, .close = true };

    if (status == 408)
        f->stats.slow++;
    else if (status == 414 || status == 431)
        f->stats.oversized++;
    else
        f->stats.refused++;
    c->keep = false;
    c->minor = 1;
    c->is_head = false;
    c->early = true; /* whatever follows is not a request */
    if (!c->block && f->ops->stamp) {
        c->block = block_get(f, BLOCK_SMALL);
        c->added_len = 0;
        if (c->block)
            c->added_len = f->ops->stamp(f->owner, c->block->data, FRONT_ADDED_MAX);
    }
    answer_send(c, &a);
}

void front_answer(struct front_req *rq, const struct front_answer *a)
{
    struct caller *c = CONTAINER_OF(rq, struct caller, rq);

    c->front->stats.answered++;
    answer_send(c, a);
}
