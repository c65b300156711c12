/* multipart/form-data: first line the Content-Type, the rest the body. Whole and in pieces must give the
 * same parts. */
#include "tests/fuzz/fuzz.h"

#include "common/base/err.h"
#include "common/http/multipart.h"

struct tally {
    unsigned parts;
    unsigned ends;
    size_t bytes;
    uint32_t sum;
};

static void add(struct tally *t, const char *s, size_t len)
{
    size_t i;

    for (i = 0; i < len; i++)
        t->sum = t->sum * 31 + (unsigned char)s[i];
}

static int on_part(void *arg, const struct multipart_part *p, struct err *e)
{
    struct tally *t = arg;

    (void)e;
    MUST(p->name && strlen(p->name) <= MULTIPART_NAME_MAX);
    MUST(t->parts == t->ends);
    t->parts++;
    add(t, p->name, strlen(p->name));
    if (p->filename)
        add(t, p->filename, strlen(p->filename));
    if (p->content_type)
        add(t, p->content_type, strlen(p->content_type));
    return 0;
}

static int on_data(void *arg, const char *data, size_t len, struct err *e)
{
    struct tally *t = arg;

    (void)e;
    MUST(t->parts == t->ends + 1);
    t->bytes += len;
    add(t, data, len);
    return 0;
}

static int on_end(void *arg, struct err *e)
{
    struct tally *t = arg;

    (void)e;
    t->ends++;
    MUST(t->ends == t->parts);
    return 0;
}

/* -1: refused. */
static int parse(const char *type, const uint8_t *data, size_t size, int pieces, struct tally *t)
{
    static const struct multipart_ops ops = { on_part, on_data, on_end };
    struct err e = { 0 };
    struct multipart *m = multipart_new(type, 5, &ops, t, &e);
    size_t at = 0;
    size_t n;
    int rc = 0;

    if (!m) {
        MUST(e.code == ERRC_INVALID);
        return -1;
    }
    for (; at < size && rc == 0; at += n) {
        n = pieces ? fuzz_piece(data, size, at) : size;
        rc = multipart_push(m, (const char *)data + at, n, &e);
    }
    if (rc == 0)
        rc = multipart_finish(m, &e);
    MUST(rc == 0 || e.msg[0]);
    multipart_free(m);
    MUST(t->parts <= 5 && t->bytes <= size);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nl = size ? memchr(data, '\n', size) : NULL;
    struct tally whole = { 0 };
    struct tally cut = { 0 };
    size_t head;
    char *type;
    int rc;

    if (!nl)
        return 0;
    head = (size_t)(nl - data);
    type = fuzz_text(data, head);
    rc = parse(type, nl + 1, size - head - 1, 0, &whole);
    MUST(parse(type, nl + 1, size - head - 1, 1, &cut) == rc);
    if (rc == 0)
        MUST(whole.parts == cut.parts && whole.bytes == cut.bytes && whole.sum == cut.sum);
    free(type);
    return 0;
}
