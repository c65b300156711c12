/* Event loop of one thread over epoll(7): file descriptors, one-shot timers, and calls posted
 * from other threads. Everything but loop_post and loop_stop is for the loop's own thread. */
#pragma once
#include <stdint.h>
#include <sys/epoll.h>

struct loop;
struct err;

/* Embedded in its owner, which keeps it alive until loop_del. Zero-initialise it. */
struct loop_fd {
    int fd;
    uint32_t events; /* what was asked for; 0 when not watched */
    void (*on_event)(struct loop_fd *w, uint32_t events);
};

/* Embedded; armed while at_mono_ms != 0. on_fire may re-arm or free its owner. */
struct loop_timer {
    int64_t at_mono_ms;
    unsigned slot;
    void (*on_fire)(struct loop_timer *t);
};

/* Runs before every wait; returns the longest wait it allows in ms, -1 for no opinion. One that
 * makes work for a hook that may have run already returns 0. */
struct loop_hook {
    int (*before_wait)(void *arg);
    void *arg;
    struct loop_hook *next;
};

struct loop *loop_new(struct err *e);
void loop_free(struct loop *l);

int loop_add(struct loop *l, struct loop_fd *w, uint32_t events, struct err *e);
/* events 0 pauses: nothing is reported, not even a hang-up, until a later loop_mod. */
int loop_mod(struct loop *l, struct loop_fd *w, uint32_t events);
void loop_del(struct loop *l, struct loop_fd *w); /* safe when not watched; fd stays open */

/* -1 only when memory is out (growth of the timer heap). */
int loop_timer_set(struct loop *l, struct loop_timer *t, int64_t at_mono_ms);
void loop_timer_clear(struct loop *l, struct loop_timer *t);

void loop_hook_add(struct loop *l, struct loop_hook *h);
void loop_hook_del(struct loop *l, struct loop_hook *h);

/* Runs fn(arg) in the loop's thread, soon; callable from any thread, never blocks, keeps order.
 * The node is embedded in the caller's object and must stay alive until fn runs. */
struct loop_call {
    void (*fn)(void *arg);
    void *arg;
    struct loop_call *next;
};
void loop_post(struct loop *l, struct loop_call *c);
/* Runs what was posted so far; for a shutdown that no longer runs the loop. */
void loop_run_posted(struct loop *l);

/* Until loop_stop. */
int loop_run(struct loop *l, struct err *e);
/* One wait of at most max_ms (-1: no limit) and its events; for tests and for shutdown. */
int loop_step(struct loop *l, int max_ms, struct err *e);
void loop_stop(struct loop *l); /* any thread */
