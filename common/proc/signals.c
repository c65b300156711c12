#include "common/proc/signals.h"

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/loop.h"

#include <sys/signalfd.h>
#include <sys/wait.h>

struct signals {
    struct loop *loop;
    struct loop_fd fd;
    struct child *children;
    void (*on_signal)(void *arg, int sig);
    void *arg;
};

static struct child *take_child(struct signals *s, pid_t pid)
{
    struct child **at;
    struct child *c;

    for (at = &s->children; *at; at = &(*at)->next) {
        c = *at;
        if (c->pid == pid) {
            *at = c->next;
            return c;
        }
    }
    return NULL;
}

/* One SIGCHLD may stand for many ends. */
static void reap(struct signals *s)
{
    struct child *c;
    int status;
    pid_t pid;

    for (;;) {
        pid = waitpid(-1, &status, WNOHANG);
        if (pid < 0 && errno == EINTR)
            continue;
        if (pid <= 0)
            return;
        c = take_child(s, pid);
        if (c)
            c->on_exit(c, status);
    }
}

static void on_readable(struct loop_fd *w, uint32_t events)
{
    struct signals *s = CONTAINER_OF(w, struct signals, fd);
    struct signalfd_siginfo si;

    (void)events;
    while (read(w->fd, &si, sizeof(si)) == (ssize_t)sizeof(si)) {
        if (si.ssi_signo == SIGCHLD)
            reap(s);
        else
            s->on_signal(s->arg, (int)si.ssi_signo);
    }
}

struct signals *signals_new(struct loop *l, const sigset_t *set,
                            void (*on_signal)(void *arg, int sig), void *arg, struct err *e)
{
    struct sigaction dfl = { .sa_handler = SIG_DFL };
    struct signals *s = calloc(1, sizeof(*s));
    sigset_t mask = *set;

    if (!s) {
        (void)err_nomem(e);
        return NULL;
    }
    (void)sigaction(SIGCHLD, &dfl, NULL); /* inherited as ignored, exit statuses would be lost */
    (void)sigaddset(&mask, SIGCHLD);
    (void)pthread_sigmask(SIG_BLOCK, &mask, NULL);
    s->loop = l;
    s->on_signal = on_signal;
    s->arg = arg;
    s->fd.on_event = on_readable;
    s->fd.fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    if (s->fd.fd < 0) {
        (void)err_sys(e, errno, "make signal descriptor");
        free(s);
        return NULL;
    }
    if (loop_add(l, &s->fd, EPOLLIN, e) < 0) {
        signals_free(s);
        return NULL;
    }
    return s;
}

void signals_free(struct signals *s)
{
    if (!s)
        return;
    loop_del(s->loop, &s->fd);
    (void)close(s->fd.fd);
    free(s);
}

void signals_watch_child(struct signals *s, struct child *c)
{
    c->next = s->children;
    s->children = c;
}

/* By object: once c has ended, its number may be another child's. */
void signals_unwatch_child(struct signals *s, struct child *c)
{
    struct child **at;

    for (at = &s->children; *at; at = &(*at)->next)
        if (*at == c) {
            *at = c->next;
            return;
        }
}
