#include "execd/exec/leftover.h"

#include "common/base/cleanup.h"
#include "common/base/loop.h"
#include "execd/exec/spool.h"

#include <errno.h>

struct leftover {
    struct leftovers *set;
    struct loop_fd watch;
    struct spool *spool;
    struct leftover *prev;
    struct leftover *next;
};

static void drop(struct leftover *lo)
{
    if (lo->prev)
        lo->prev->next = lo->next;
    else
        lo->set->head = lo->next;
    if (lo->next)
        lo->next->prev = lo->prev;
    lo->set->n--;
    loop_del(lo->set->loop, &lo->watch);
    (void)close(lo->watch.fd);
    spool_unref(lo->spool);
    free(lo);
}

static void on_readable(struct loop_fd *w, uint32_t events)
{
    struct leftover *lo = CONTAINER_OF(w, struct leftover, watch);
    char data[4096];
    ssize_t n = read(w->fd, data, sizeof(data));

    (void)events;
    if (n > 0 && lo->spool)
        spool_append(lo->spool, data, (size_t)n);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        drop(lo);
}

void leftover_add(struct leftovers *ls, int fd, struct spool *spool)
{
    struct leftover *lo = ls->n < LEFTOVERS_MAX ? calloc(1, sizeof(*lo)) : NULL;

    if (!lo) {
        (void)close(fd); /* the writer gets SIGPIPE: the price of a bound */
        return;
    }
    lo->set = ls;
    lo->watch.fd = fd;
    lo->watch.on_event = on_readable;
    lo->spool = spool ? spool_ref(spool) : NULL;
    lo->next = ls->head;
    if (lo->next)
        lo->next->prev = lo;
    ls->head = lo;
    ls->n++;
    if (loop_add(ls->loop, &lo->watch, EPOLLIN, NULL) < 0)
        drop(lo);
}

void leftovers_free(struct leftovers *ls)
{
    while (ls->head)
        drop(ls->head);
}
