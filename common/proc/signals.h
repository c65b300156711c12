/* Signals and children as events of the loop. All functions are for the loop's thread.
 * signals_new blocks the signals it watches for the whole process: call it before threads start. */
#pragma once
#include <signal.h>
#include <sys/types.h>

struct err;
struct loop;
struct signals;

/* on_signal gets every signal of the set but SIGCHLD, which is always watched and drives the
 * reaping below. */
struct signals *signals_new(struct loop *l, const sigset_t *set,
                            void (*on_signal)(void *arg, int sig), void *arg, struct err *e);
void signals_free(struct signals *s);

/* A child whose end its owner wants to know; embedded in the owner. Children nobody watches
 * (orphans adopted by PID 1) are collected silently. */
struct child {
    pid_t pid;
    void (*on_exit)(struct child *c, int status); /* wait(2) status; already unwatched */
    struct child *next;
};

/* Watch right after spawn, before returning to the loop. */
void signals_watch_child(struct signals *s, struct child *c);
void signals_unwatch_child(struct signals *s, struct child *c); /* safe when not watched */
