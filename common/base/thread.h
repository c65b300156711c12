/* Threads and timed waits, begun in one way: signals belong to the main thread's signalfd, so every other
 * thread starts with all of them blocked; waits follow the monotonic clock. Safe from any thread. */
#pragma once
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* 0, or an errno value: no thread was started. detached: nobody joins it, out may be NULL. */
int thread_start(pthread_t *out, bool detached, void *(*fn)(void *arg), void *arg);

/* A condition for thread_wait_until. */
void thread_cond_init(pthread_cond_t *c);
/* Waits with the mutex held, as pthread_cond_wait, also for no reason. false: the time (of
 * clock_mono_ms) is over. */
bool thread_wait_until(pthread_cond_t *c, pthread_mutex_t *held, int64_t until_mono_ms);
