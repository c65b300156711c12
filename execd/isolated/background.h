/* Background runs of one isolated session: their output comes by a FIFO into a spool, their exit status by
 * another. The FIFOs lie in the session's directory and show inside the cage. For the loop's thread. */
#pragma once
#include "common/base/loop.h"
#include "common/base/rand.h"
#include "execd/exec/spool.h"
#include "execd/isolated/store.h"

#include <stdbool.h>
#include <stdint.h>

struct err;

enum {
    BACKGROUND_MAX = 64,   /* running in one session */
    BACKGROUND_KEPT = 256, /* of one session, running and ended */
    BACKGROUND_PATH_MAX = 192,
};

struct backgrounds;

struct background {
    struct backgrounds *set;
    char id[RAND_UUID_TEXT];
    int64_t started_ms; /* wall */
    int64_t finished_ms;
    bool running;
    int exit_code;     /* of one that ended without error */
    const char *error; /* static; NULL: none */
    struct spool *spool;
    struct loop_fd log;  /* fd -1: closed */
    struct loop_fd exit; /* fd -1: closed */
    char said[16];       /* of the exit status */
    size_t said_len;
    struct background *next; /* newer */
};

struct backgrounds {
    struct loop *loop;
    struct spools *spools;
    char dir[STORE_PATH_MAX + 8]; /* outside */
    void (*on_end)(void *owner);  /* after each one that ended by itself */
    void *owner;
    struct background *head; /* oldest */
    unsigned n;
    unsigned running;
};

/* Ready to be told to the shell, by the paths inside (background_paths). NULL: err set. */
struct background *background_add(struct backgrounds *set, struct err *e);
void background_paths(const struct background *b, char log[BACKGROUND_PATH_MAX],
                      char exit[BACKGROUND_PATH_MAX]);
const struct background *background_find(const struct backgrounds *set, const char *id);
void background_fail(struct background *b, const char *error); /* static text */
/* All that run have ended with this error; static text. */
void backgrounds_fail(struct backgrounds *set, const char *error);
void backgrounds_free(struct backgrounds *set);
