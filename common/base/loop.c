#include "common/base/loop.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/eventfd.h>

enum { LOOP_BATCH = 64 };

struct loop {
    int epfd;
    atomic_bool stopping;
    struct loop_fd wake;
    pthread_mutex_t guard; /* guards calls_head and calls_tail */
    struct loop_call *calls_head;
    struct loop_call **calls_tail;
    struct loop_timer **heap; /* min-heap by at_mono_ms */
    unsigned heap_len;
    unsigned heap_cap;
    struct loop_hook *hooks;
    bool hooks_added; /* since the last look: a new one must not miss its turn before the wait */
    struct epoll_event *batch; /* the events being dispatched: loop_del blanks its own */
    int batch_len;
};

void loop_run_posted(struct loop *l)
{
    struct loop_call *c;
    struct loop_call *next;
    uint64_t count;

    (void)!read(l->wake.fd, &count, sizeof(count)); /* EAGAIN only: another round took it */
    (void)pthread_mutex_lock(&l->guard);
    c = l->calls_head;
    l->calls_head = NULL;
    l->calls_tail = &l->calls_head;
    (void)pthread_mutex_unlock(&l->guard);
    for (; c; c = next) {
        next = c->next; /* fn may free the node's owner */
        c->fn(c->arg);
    }
}

static void run_calls(struct loop_fd *w, uint32_t events)
{
    (void)events;
    loop_run_posted(CONTAINER_OF(w, struct loop, wake));
}

struct loop *loop_new(struct err *e)
{
    struct loop *l = calloc(1, sizeof(*l));

    if (!l) {
        (void)err_nomem(e);
        return NULL;
    }
    (void)pthread_mutex_init(&l->guard, NULL);
    l->calls_tail = &l->calls_head;
    l->epfd = epoll_create1(EPOLL_CLOEXEC);
    l->wake.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    l->wake.on_event = run_calls;
    if (l->epfd < 0 || l->wake.fd < 0) {
        (void)err_sys(e, errno, "make event loop");
        loop_free(l);
        return NULL;
    }
    if (loop_add(l, &l->wake, EPOLLIN, e) < 0) {
        loop_free(l);
        return NULL;
    }
    return l;
}

void loop_free(struct loop *l)
{
    if (!l)
        return;
    if (l->epfd >= 0)
        (void)close(l->epfd);
    if (l->wake.fd >= 0)
        (void)close(l->wake.fd);
    (void)pthread_mutex_destroy(&l->guard);
    free(l->heap);
    free(l);
}

int loop_add(struct loop *l, struct loop_fd *w, uint32_t events, struct err *e)
{
    struct epoll_event ev = { .events = events, .data.ptr = w };

    if (epoll_ctl(l->epfd, EPOLL_CTL_ADD, w->fd, &ev) < 0)
        return err_sys(e, errno, "watch file descriptor");
    w->events = events;
    return 0;
}

int loop_mod(struct loop *l, struct loop_fd *w, uint32_t events)
{
    struct epoll_event ev = { .events = events, .data.ptr = w };

    if (w->events == events)
        return 0;
    if (!events) { /* epoll would go on to report hang-ups */
        loop_del(l, w);
        return 0;
    }
    if (epoll_ctl(l->epfd, w->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, w->fd, &ev) < 0)
        return -1;
    w->events = events;
    return 0;
}

void loop_del(struct loop *l, struct loop_fd *w)
{
    int i;

    if (!w->events)
        return;
    (void)epoll_ctl(l->epfd, EPOLL_CTL_DEL, w->fd, NULL);
    w->events = 0;
    for (i = 0; i < l->batch_len; i++)
        if (l->batch[i].data.ptr == w)
            l->batch[i].data.ptr = NULL;
}

/* ---- timers: a binary heap whose entries know their own slot ---- */

static void heap_put(struct loop *l, unsigned i, struct loop_timer *t)
{
    l->heap[i] = t;
    t->slot = i;
}

static void heap_up(struct loop *l, unsigned i)
{
    struct loop_timer *t = l->heap[i];
    unsigned parent;

    for (; i > 0; i = parent) {
        parent = (i - 1) / 2;
        if (l->heap[parent]->at_mono_ms <= t->at_mono_ms)
            break;
        heap_put(l, i, l->heap[parent]);
    }
    heap_put(l, i, t);
}

static void heap_down(struct loop *l, unsigned i)
{
    struct loop_timer *t = l->heap[i];
    unsigned kid;

    for (;; i = kid) {
        kid = 2 * i + 1;
        if (kid >= l->heap_len)
            break;
        if (kid + 1 < l->heap_len && l->heap[kid + 1]->at_mono_ms < l->heap[kid]->at_mono_ms)
            kid++;
        if (t->at_mono_ms <= l->heap[kid]->at_mono_ms)
            break;
        heap_put(l, i, l->heap[kid]);
    }
    heap_put(l, i, t);
}

int loop_timer_set(struct loop *l, struct loop_timer *t, int64_t at_mono_ms)
{
    struct loop_timer **grown;
    unsigned cap;

    loop_timer_clear(l, t);
    if (l->heap_len == l->heap_cap) {
        cap = l->heap_cap ? l->heap_cap * 2 : 16;
        grown = realloc(l->heap, cap * sizeof(struct loop_timer *));
        if (!grown)
            return -1;
        l->heap = grown;
        l->heap_cap = cap;
    }
    t->at_mono_ms = at_mono_ms > 0 ? at_mono_ms : 1;
    heap_put(l, l->heap_len, t);
    heap_up(l, l->heap_len++);
    return 0;
}

void loop_timer_clear(struct loop *l, struct loop_timer *t)
{
    struct loop_timer *last;
    unsigned i = t->slot;

    if (!t->at_mono_ms)
        return;
    t->at_mono_ms = 0;
    last = l->heap[--l->heap_len];
    if (last == t)
        return;
    heap_put(l, i, last);
    heap_up(l, i);
    heap_down(l, last->slot);
}

static void fire_timers(struct loop *l)
{
    struct loop_timer *t;
    int64_t now = clock_mono_ms();
    unsigned left = l->heap_len; /* bounded: a timer may re-arm itself without delay */

    while (left-- && l->heap_len && l->heap[0]->at_mono_ms <= now) {
        t = l->heap[0];
        loop_timer_clear(l, t);
        t->on_fire(t);
    }
}

void loop_hook_add(struct loop *l, struct loop_hook *h)
{
    h->next = l->hooks;
    l->hooks = h;
    l->hooks_added = true;
}

void loop_hook_del(struct loop *l, struct loop_hook *h)
{
    struct loop_hook **at;

    for (at = &l->hooks; *at; at = &(*at)->next)
        if (*at == h) {
            *at = h->next;
            return;
        }
}

void loop_post(struct loop *l, struct loop_call *c)
{
    uint64_t one = 1;
    bool first;

    c->next = NULL;
    (void)pthread_mutex_lock(&l->guard);
    first = !l->calls_head;
    *l->calls_tail = c;
    l->calls_tail = &c->next;
    (void)pthread_mutex_unlock(&l->guard);
    if (first)
        (void)!write(l->wake.fd, &one, sizeof(one)); /* a full counter wakes as well */
}

static int shorter(int a, int64_t b)
{
    if (b < 0)
        return a;
    return a < 0 || b < a ? (int)b : a;
}

static int wait_ms(struct loop *l, int max_ms)
{
    struct loop_hook *h;
    int64_t left;

    do {
        l->hooks_added = false;
        for (h = l->hooks; h; h = h->next)
            max_ms = shorter(max_ms, h->before_wait(h->arg));
    } while (l->hooks_added);
    if (l->heap_len) { /* after the hooks: they may arm timers */
        left = l->heap[0]->at_mono_ms - clock_mono_ms();
        left = left < 0 ? 0 : left > 1000000 ? 1000000 : left;
        max_ms = shorter(max_ms, left);
    }
    return max_ms;
}

int loop_step(struct loop *l, int max_ms, struct err *e)
{
    struct epoll_event evs[LOOP_BATCH];
    struct loop_fd *w;
    int n;
    int i;

    n = epoll_wait(l->epfd, evs, LOOP_BATCH, wait_ms(l, max_ms));
    if (n < 0 && errno != EINTR)
        return err_sys(e, errno, "epoll_wait");
    l->batch = evs;
    l->batch_len = n < 0 ? 0 : n;
    for (i = 0; i < l->batch_len; i++) {
        w = evs[i].data.ptr;
        if (w)
            w->on_event(w, evs[i].events);
    }
    l->batch_len = 0;
    l->batch = NULL;
    fire_timers(l);
    return 0;
}

int loop_run(struct loop *l, struct err *e)
{
    while (!atomic_load(&l->stopping))
        if (loop_step(l, -1, e) < 0)
            return -1;
    return 0;
}

void loop_stop(struct loop *l)
{
    uint64_t one = 1;

    atomic_store(&l->stopping, true);
    (void)!write(l->wake.fd, &one, sizeof(one));
}
