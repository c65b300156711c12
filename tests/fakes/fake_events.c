#include "tests/fakes/fake_events.h"

#include "common/base/cleanup.h"
#include "tests/fakes/fake_docker.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { DEADLINE_S = 20 };

struct fake_events {
    pthread_mutex_t guard; /* guards all below */
    pthread_cond_t changed;
    unsigned opened;
    unsigned open;
    int newest_fd; /* -1: that one is closed */
    bool hang;
    char path[1024];
};

static void send_text(int fd, const char *text, size_t len)
{
    if (fd >= 0)
        (void)send(fd, text, len, MSG_NOSIGNAL);
}

static void enter(struct fake_events *ev, const struct fake_call *c)
{
    static const char head[] = "HTTP/1.1 200 OK\r\nApi-Version: 1.41\r\n"
                               "Content-Type: application/json\r\n"
                               "Transfer-Encoding: chunked\r\n\r\n";
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&ev->guard);

    ev->opened++;
    ev->open++;
    ev->newest_fd = c->fd;
    (void)snprintf(ev->path, sizeof(ev->path), "%s", c->path);
    if (!ev->hang)
        send_text(c->fd, head, sizeof(head) - 1);
    (void)pthread_cond_broadcast(&ev->changed);
}

static void leave(struct fake_events *ev, const struct fake_call *c)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&ev->guard);

    ev->open--;
    if (ev->newest_fd == c->fd)
        ev->newest_fd = -1;
    (void)pthread_cond_broadcast(&ev->changed);
}

static enum fake_answer on_call(void *arg, struct fake_call *c)
{
    struct fake_events *ev = arg;
    char waste[64];

    if (strcmp(c->method, "GET") != 0 || strncmp(c->path, "/events", 7) != 0)
        return FAKE_NOT_MINE;
    enter(ev, c);
    while (recv(c->fd, waste, sizeof(waste), 0) > 0)
        ;
    leave(ev, c);
    return FAKE_TAKEN;
}

struct fake_events *fake_events_new(struct fake_docker *f)
{
    struct fake_events *ev = calloc(1, sizeof(*ev));
    pthread_condattr_t attr;

    if (!ev)
        abort();
    ev->newest_fd = -1;
    (void)pthread_mutex_init(&ev->guard, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&ev->changed, &attr);
    (void)pthread_condattr_destroy(&attr);
    fake_docker_model(f, on_call, ev);
    return ev;
}

void fake_events_free(struct fake_events *ev)
{
    (void)pthread_cond_destroy(&ev->changed);
    (void)pthread_mutex_destroy(&ev->guard);
    free(ev);
}

int fake_events_wait(struct fake_events *ev, unsigned opened, char *path, size_t size)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&ev->guard);
    struct timespec until;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += DEADLINE_S;
    while (ev->opened < opened)
        if (pthread_cond_timedwait(&ev->changed, &ev->guard, &until) == ETIMEDOUT)
            return -1;
    (void)snprintf(path, size, "%s", ev->path);
    return 0;
}

int fake_events_wait_closed(struct fake_events *ev)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&ev->guard);
    struct timespec until;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += DEADLINE_S;
    while (ev->open > 0)
        if (pthread_cond_timedwait(&ev->changed, &ev->guard, &until) == ETIMEDOUT)
            return -1;
    return 0;
}

void fake_events_hang(struct fake_events *ev)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&ev->guard);

    ev->hang = true;
}

void fake_events_send(struct fake_events *ev, const char *text, size_t len)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&ev->guard);
    char size[32];

    (void)snprintf(size, sizeof(size), "%zx\r\n", len);
    send_text(ev->newest_fd, size, strlen(size));
    send_text(ev->newest_fd, text, len);
    send_text(ev->newest_fd, "\r\n", 2);
}

void fake_events_cut(struct fake_events *ev)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&ev->guard);

    if (ev->newest_fd >= 0)
        (void)shutdown(ev->newest_fd, SHUT_RDWR);
}

void fake_events_end(struct fake_events *ev)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&ev->guard);

    send_text(ev->newest_fd, "0\r\n\r\n", 5);
}
