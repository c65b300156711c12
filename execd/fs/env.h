/* The environment of a child: "NAME=value" strings in which every name occurs once. Knows nothing
 * of files or requests. Not thread-safe. */
#pragma once
#include <stddef.h>

struct env {
    char **vars; /* NULL-terminated once anything was set; what execve takes */
    size_t n;
    size_t cap;
};

enum { ENV_VARS_MAX = 4096 };

#define AUTO_ENV __attribute__((cleanup(env_free)))

void env_free(struct env *v);
/* 0, or -1 when memory is out or ENV_VARS_MAX is reached (content unchanged). */
int env_set(struct env *v, const char *name, const char *value);
/* As env_set from "NAME=value"; what has no '=' or no name is left out silently, as execve's
 * users do. */
int env_put(struct env *v, const char *assignment);
int env_put_all(struct env *v, char *const *assignments); /* of a NULL-terminated array */
void env_unset(struct env *v, const char *name);
/* NULL when it is not set; valid until the next change. */
const char *env_get(const struct env *v, const char *name);
/* 1 when name can be one: not empty, no '='. */
int env_name_ok(const char *name);
