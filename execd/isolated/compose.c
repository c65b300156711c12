#include "execd/isolated/compose.h"

#include "common/base/buf.h"
#include "common/base/err.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

/* In single quotes nothing but a quote is special. */
static int put_quoted(struct buf *b, const char *text)
{
    const char *end = text + strlen(text);
    const char *quote;
    int rc = buf_puts(b, "'");

    for (; rc == 0 && (quote = memchr(text, '\'', (size_t)(end - text))); text = quote + 1)
        rc = buf_append(b, text, (size_t)(quote - text)) < 0 ? -1 : buf_puts(b, "'\\''");
    return rc < 0 || buf_puts(b, text) < 0 ? -1 : buf_puts(b, "'");
}

static bool is_name(const char *s)
{
    if (!*s || isdigit((unsigned char)*s))
        return false;
    for (; *s; s++)
        if (!isalnum((unsigned char)*s) && *s != '_')
            return false;
    return true;
}

static int put_body(struct buf *b, const struct compose_req *rq)
{
    size_t i;

    for (i = 0; i < rq->n_envs; i++)
        if (buf_puts(b, "export ") < 0 || buf_puts(b, rq->envs[2 * i]) < 0 ||
            buf_puts(b, "=") < 0 || put_quoted(b, rq->envs[2 * i + 1]) < 0 || buf_puts(b, "\n") < 0)
            return -1;
    return buf_puts(b, "eval ") < 0 || put_quoted(b, rq->code) < 0 ? -1 : buf_puts(b, "\n");
}

static int put(struct buf *b, const struct compose_req *rq)
{
    if (!rq->log && !rq->n_envs)
        return buf_puts(b, rq->code);
    if (!rq->log)
        return buf_puts(b, "(\n") < 0 || put_body(b, rq) < 0 ? -1 : buf_puts(b, ")\n");
    if (buf_printf(b, "{ (\nexec </dev/null >'%s' 2>&1\n", rq->log) < 0 || put_body(b, rq) < 0)
        return -1;
    return buf_printf(b, "); echo \"$?\" >'%s'; } &\n", rq->exit);
}

char *compose(const struct compose_req *rq, struct err *e)
{
    struct buf b = BUF_INIT(COMPOSE_MAX);
    size_t i;
    char *out;

    for (i = 0; i < rq->n_envs; i++)
        if (!is_name(rq->envs[2 * i])) {
            (void)err_set(e, ERRC_INVALID, "envs: \"%.64s\" is no name that a shell takes",
                          rq->envs[2 * i]);
            return NULL;
        }
    if (put(&b, rq) < 0) {
        buf_free(&b);
        (void)err_set(e, ERRC_INVALID, "code: longer than %d MiB once quoted, or memory is out",
                      COMPOSE_MAX >> 20);
        return NULL;
    }
    out = buf_take(&b);
    if (!out)
        (void)err_nomem(e);
    return out;
}
