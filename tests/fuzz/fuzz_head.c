/* Request and response heads: the same verdict however the bytes are cut, positions inside the input,
 * and what the rules make of an accepted head is accepted again, with the same framing. */
#include "common/front/head.h"
#include "common/front/rules.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void check(int ok)
{
    if (!ok)
        abort();
}

static void check_span(const struct head *h, struct head_span s)
{
    check((size_t)s.at + s.len <= h->len);
}

static void check_head(const struct head *h, size_t len)
{
    unsigned i;

    check(h->len <= len && h->len <= HEAD_MAX && h->n_fields <= HEAD_FIELDS_MAX);
    check(!(h->chunked && h->has_length));
    check_span(h, h->method);
    check_span(h, h->target);
    check_span(h, h->path);
    check_span(h, h->host);
    check_span(h, h->reason);
    for (i = 0; i < h->n_fields; i++) {
        check_span(h, h->fields[i].name);
        check_span(h, h->fields[i].value);
        check(!memchr(head_text(h, h->fields[i].value), '\n', h->fields[i].value.len));
        (void)head_nominated(h, &h->fields[i]);
    }
}

/* As head_parse of everything, but in steps that the input itself chooses. */
static enum head_result parse_in_steps(struct head *h, const char *data, size_t len, bool response)
{
    enum head_result r = HEAD_MORE;
    char *copy;
    size_t n = 0;

    head_init(h, response);
    while (r == HEAD_MORE && n < len) {
        n += 1 + (unsigned char)data[n] % 7 * (len / 64 + 1);
        n = n < len ? n : len;
        copy = malloc(n); /* exact: reading past the end is seen */
        check(copy != NULL);
        memcpy(copy, data, n);
        r = head_parse(h, copy, n);
        free(copy);
        h->base = data;
    }
    return r;
}

static void check_rewritten(const struct head *h)
{
    static const char *const drop[] = { "cookie", "x-*", NULL };
    static const struct rules_request rq = { .edit = { .drop = drop },
                                             .upgrade = true,
                                             .forwarded_for = "1.2.3.4",
                                             .forwarded_proto = "http",
                                             .peer_header = "peer",
                                             .peer_value = "1.2.3.4" };
    static const struct rules_response rs = { .drop = drop,
                                              .location_prefix = "/p",
                                              .location_prefix_len = 2 };
    static char out[2 * HEAD_MAX];
    static struct head again;
    struct rules_out o = { .data = out, .cap = sizeof(out) };

    if (h->response)
        rules_response(h, &rs, &o);
    else
        rules_request(h, &rq, &o);
    check(!o.full);
    head_init(&again, h->response);
    if (head_parse(&again, out, o.len) == HEAD_BAD) {
        /* only our own additions may make it too long */
        check(again.error == 431 || again.error == 414);
        return;
    }
    check(again.len == o.len);
    check(again.chunked == (h->chunked && (h->minor == 1 || !h->response)));
    check(again.has_length == h->has_length && again.length == h->length);
    check(!again.names_other);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static struct head whole;
    static struct head steps;
    const char *text = (const char *)data;
    enum head_result r;
    bool response;

    if (len < 1)
        return 0;
    response = text[0] == 'H'; /* of "HTTP/1.1 200 OK" */
    head_init(&whole, response);
    r = head_parse(&whole, text, len);
    check(parse_in_steps(&steps, text, len, response) == r);
    if (r == HEAD_BAD) {
        check(whole.error == steps.error && whole.error >= 400 && whole.why);
    } else if (r == HEAD_DONE) {
        check(whole.len == steps.len && whole.n_fields == steps.n_fields);
        check_head(&whole, len);
        check_rewritten(&whole);
    }
    return 0;
}
