/* Whether work that takes long is still wanted. */
#pragma once
#include <stdbool.h>

struct err;

struct watch {
    bool (*over)(const void *arg); /* NULL: it always is */
    const void *arg;
};

/* -1 with err set when it is not. */
int watch_look(const struct watch *w, struct err *e);
