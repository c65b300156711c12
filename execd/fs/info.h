/* What the API tells of a file (contract/execd.md 10): its own status, links not followed. */
#pragma once
#include <jansson.h>

struct err;
struct stat;

/* The account files, read once for many entries. */
struct names {
    char *passwd;
    char *group;
};

#define AUTO_NAMES __attribute__((cleanup(names_free)))

int names_read(struct names *n, struct err *e);
void names_free(struct names *n);

/* NULL: out of memory. path: absolute. */
json_t *info_of(const char *path, const struct stat *st, const struct names *n);
