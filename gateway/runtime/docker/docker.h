/* The Docker backend of runtime.h, and what its files share. */
#pragma once
#include "gateway/runtime/docker/binds.h"
#include "gateway/runtime/runtime.h"

#include <pthread.h>
#include <stdatomic.h>

struct engine;
struct events;
struct network;
struct pulls;

/* cfg is copied; its strings are borrowed. The engine need not answer yet. */
int docker_open(const struct runtime_config *cfg, struct runtime **out, struct err *e);

/* ---- inside of gateway/runtime/docker only ---- */

enum { DOCKER_VOLUME = 96, DOCKER_NAME = 64, DOCKER_PATH = 512 };

/* What every sandbox mounts and joins, at one moment. */
struct docker_parts {
    unsigned generation; /* grows with every preparation; 0: nothing is prepared */
    char volume[DOCKER_VOLUME];
};

struct docker {
    struct runtime rt; /* first member */
    struct runtime_config cfg;
    struct engine *engine;
    struct network *network;
    struct pulls *pulls;
    struct binds binds;
    char *seccomp;      /* "seccomp=<JSON>"; NULL: the engine's default */
    atomic_bool warned; /* a warning of the engine was logged */
    pthread_mutex_t guard;
    struct docker_parts parts; /* guarded; held while it is prepared, so that one thread does it */
    unsigned breaks;           /* guarded; engine_breaks before the preparation */
    struct events *events;     /* NULL: nobody watches */
    atomic_bool load_refused;  /* snapshot.c said so in the log */
};

/* Test hook: the process may die at any step (design decision 5). */
static inline void crash_step(const struct runtime_config *cfg, const char *step)
{
    if (cfg->crash)
        (void)cfg->crash(step);
}

/* Copies the parts, preparing them first when none are or when those of generation `missing`
 * turned out to be gone. */
int docker_parts_get(struct docker *d, unsigned missing, struct docker_parts *out, struct err *e);

/* create.c: the start_held verb. */
int docker_start_held(struct runtime *rt, const struct runtime_spec *spec,
                      struct runtime_place *place, struct err *e);
/* remove with a deadline of its own; 0 when it is gone. */
int docker_remove_within(struct docker *d, const char *id, int timeout_ms, struct err *e);
/* When the container has ended or does so within wait_ms, rewrites e to say so, with its exit status
 * and last output; keeps e's codes. Returns -1. e must not be NULL. */
int docker_explain(struct docker *d, const char *id, int wait_ms, struct err *e);
