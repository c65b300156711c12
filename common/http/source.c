/* Request bodies that come from a source. The bytes go from there to the route's sink within one job, which ends when
 * there is nothing more for now: a slow client holds no thread. */
#include "common/http/internal.h"

#include "common/base/macros.h"

#include <stdlib.h>
#include <sys/epoll.h>

enum {
    SOURCE_BLOCK = 256 * 1024, /* read at once, bytes */
    SOURCE_ROUNDS = 16,        /* blocks in a row before other jobs get their turn */
};

static void on_source(struct loop_fd *w, uint32_t events);
static void pump(struct exchange *x);

/* In the pool. Without memory for a block the body is not read to its end. */
static void pump_job(void *arg)
{
    struct exchange *x = arg;
    struct http_source *src = &x->source->source;
    char *block = malloc(SOURCE_BLOCK);
    struct err e = { 0 };
    int rounds = SOURCE_ROUNDS;
    ssize_t n = -1;

    if (!block)
        (void)err_nomem(&e);
    while (block && rounds-- && (n = src->read(src->arg, block, SOURCE_BLOCK, &e)) > 0)
        if (!x->answered) /* else it is dropped: its sender reads no answer before the end */
            exchange_sink(x, block, (size_t)n);
    free(block);
    x->source_over = n == 0 || n == -1;
    x->source_dry = n == -2;
    if (n == -1 && !x->answered) {
        x->answered = x->failed = true;
        x->err = e;
    }
    loop_post(x->server->loop, &x->done);
}

/* The connection stays suspended: it counts as deferred, so that http_server_free finds it. */
static void wait_for_more(struct exchange *x)
{
    x->source_watch = (struct loop_fd){ .fd = x->source->source.fd, .on_event = on_source };
    if (loop_add(x->server->loop, &x->source_watch, EPOLLIN, &x->err) == 0) {
        http_defer(&x->rq);
        x->suspended = true;
        return;
    }
    x->source_over = x->answered = x->failed = true;
    server_resume(x->server, x->conn);
}

static void pumped(void *arg)
{
    struct exchange *x = arg;

    if (x->source_over)
        server_resume(x->server, x->conn);
    else if (x->source_dry)
        wait_for_more(x);
    else
        pump(x);
}

static void pump(struct exchange *x)
{
    if (exchange_post(x, pump_job, pumped))
        return;
    x->source_over = true; /* no place in the pool: exchange_post has put the error */
    server_resume(x->server, x->conn);
}

static void on_source(struct loop_fd *w, uint32_t events)
{
    struct exchange *x = CONTAINER_OF(w, struct exchange, source_watch);

    (void)events;
    loop_del(x->server->loop, w);
    exchange_undefer(x);
    x->suspended = false;
    pump(x);
}

void source_pump(struct exchange *x)
{
    MHD_suspend_connection(x->conn);
    pump(x);
}

void source_close(struct exchange *x)
{
    if (!x->source)
        return;
    loop_del(x->server->loop, &x->source_watch);
    lend_free(x->source);
    x->source = NULL;
}
