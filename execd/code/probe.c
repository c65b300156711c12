#include "execd/code/probe.h"

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/listen.h"
#include "common/base/loop.h"

#include <sys/socket.h>

enum { BACKLOG = 64 };

struct probe {
    struct loop *loop;
    struct loop_fd watch;
};

static void on_connection(struct loop_fd *w, uint32_t events)
{
    int fd = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    (void)events;
    if (fd >= 0)
        (void)close(fd);
}

struct probe *probe_new(struct loop *l, uint16_t port, struct err *e)
{
    struct probe *p = calloc(1, sizeof(*p));
    uint16_t bound;

    if (!p) {
        (void)err_nomem(e);
        return NULL;
    }
    p->loop = l;
    p->watch.on_event = on_connection;
    if (listen_tcp("127.0.0.1", port, BACKLOG, &p->watch.fd, &bound, e) < 0) {
        free(p);
        return NULL;
    }
    if (loop_add(l, &p->watch, EPOLLIN, e) < 0) {
        probe_free(p);
        return NULL;
    }
    return p;
}

void probe_free(struct probe *p)
{
    if (!p)
        return;
    loop_del(p->loop, &p->watch);
    (void)close(p->watch.fd);
    free(p);
}
