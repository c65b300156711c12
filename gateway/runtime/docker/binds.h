/* docker.sandbox_binds: what the operator mounts into every sandbox. Pure. */
#pragma once
#include "gateway/runtime/runtime.h"

struct err;

enum { BINDS_MAX = 48 };

struct binds {
    struct runtime_mount items[BINDS_MAX];
    size_t len;
    char *text[BINDS_MAX]; /* what the items' strings lie in */
};

/* list: "source:target[:ro|:rw]" each, NULL-terminated or NULL. A source with a slash in front is a
 * path on the engine's host, else a volume's name. -1: ERRC_INVALID naming the entry; *out must be
 * freed in any case. */
int binds_parse(const char *const *list, struct binds *out, struct err *e);
void binds_free(struct binds *b);
