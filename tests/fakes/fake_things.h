/* What the fake engine holds, and its answers to the calls that act on it. No thread, no socket: the caller
 * of every function holds the lock. */
#pragma once
#include "common/base/buf.h"

#include <jansson.h>
#include <stdbool.h>

enum { THINGS = 1024, BODY_MAX = 8 << 20 };

struct thing {
    char name[320];
    char image[320];
    char state[16];
    char arch[16]; /* images */
    char ip[24];
    int exit_code;
    bool filled; /* volumes */
    bool spoiled;
    json_t *labels;
    json_t *cmd;        /* containers; NULL: none */
    struct buf content; /* images made by import */
};

struct things {
    struct thing images[THINGS];
    size_t n_images;
    struct thing containers[THINGS];
    size_t n_containers;
    struct thing volumes[THINGS];
    size_t n_volumes;
    struct thing networks[8];
    size_t n_networks;
    unsigned next_ip;
};

/* One call being answered. */
struct ask {
    char method[16];
    char version[16];
    char path[1024]; /* without version */
    struct buf body;
    int status;
    struct buf reply;
};

/* In a list of n; NULL: none is called so. */
struct thing *things_find(struct thing *list, size_t n, const char *name, size_t len);
struct thing *things_add(struct thing *list, size_t *n, size_t max, const char *name);
void things_take_out(struct thing *list, size_t *n, struct thing *t);
void things_clean(struct thing *t); /* frees what it holds */

/* Carries the call out, as far as a unit test looks, and fills status and reply. */
void things_answer(struct things *f, struct ask *a);

/* Fill status and reply. */
void ask_say(struct ask *a, int status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void ask_say_bytes(struct ask *a, int status, const char *body, size_t len);
