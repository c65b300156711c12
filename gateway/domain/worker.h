/* A background thread that does rounds of work: run, wait as long as the round said, or until
 * kicked, run again. */
#pragma once
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct err;

struct worker {
    int64_t (*round)(void *arg); /* returns ms until the next round */
    void *arg;
    pthread_t thread;
    bool started;
    pthread_mutex_t guard; /* guards the two below */
    pthread_cond_t wake;
    bool kicked;
    bool stopping;
};

void worker_init(struct worker *w, int64_t (*round)(void *arg), void *arg);
int worker_start(struct worker *w, struct err *e);
void worker_kick(struct worker *w); /* any thread */
void worker_stop(struct worker *w); /* waits for a running round; safe when never started */
