/* Bounded job pool: a fixed number of threads and a bounded queue for what may block (engine
 * calls, SQLite, disks). Safe from any thread. */
#pragma once
#include <stddef.h>

struct jobs;
struct err;

typedef void (*job_fn)(void *arg);

/* threads >= 1, queue_max >= 1. NULL: err set. */
struct jobs *jobs_new(unsigned threads, size_t queue_max, struct err *e);
/* Hands fn(arg) to a worker. -1 with ERRC_BUSY when the queue is full or the pool is stopping;
 * then fn will not run. */
int jobs_post(struct jobs *j, job_fn fn, void *arg, struct err *e);
/* Refuses new jobs from now on, waits until the accepted ones have run, ends the threads; takes NULL.
 * For who still posts at the end of a program. One caller. */
void jobs_stop(struct jobs *j);
void jobs_free(struct jobs *j); /* stops it; takes NULL */
