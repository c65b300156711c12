#include "execd/fs/env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void env_free(struct env *v)
{
    size_t i;

    for (i = 0; i < v->n; i++)
        free(v->vars[i]);
    free(v->vars);
    *v = (struct env){ 0 };
}

static size_t find(const struct env *v, const char *name, size_t len)
{
    size_t i;

    for (i = 0; i < v->n; i++)
        if (strncmp(v->vars[i], name, len) == 0 && v->vars[i][len] == '=')
            break;
    return i;
}

static int grow(struct env *v)
{
    size_t cap = v->cap ? v->cap * 2 : 64;
    char **grown;

    if (v->n >= ENV_VARS_MAX)
        return -1;
    if (v->n + 1 < v->cap)
        return 0;
    grown = realloc(v->vars, cap * sizeof(*grown));
    if (!grown)
        return -1;
    v->vars = grown;
    v->cap = cap;
    return 0;
}

/* Takes over assignment, whose first name_len bytes are the name; frees it on failure. */
static int place(struct env *v, char *assignment, size_t name_len)
{
    size_t i;

    if (!assignment)
        return -1;
    i = find(v, assignment, name_len);
    if (i < v->n) {
        free(v->vars[i]);
        v->vars[i] = assignment;
        return 0;
    }
    if (grow(v) < 0) {
        free(assignment);
        return -1;
    }
    v->vars[v->n++] = assignment;
    v->vars[v->n] = NULL;
    return 0;
}

int env_set(struct env *v, const char *name, const char *value)
{
    size_t name_len = strlen(name);
    size_t value_len = strlen(value);
    char *s = malloc(name_len + value_len + 2);

    if (s) {
        memcpy(s, name, name_len);
        s[name_len] = '=';
        memcpy(s + name_len + 1, value, value_len + 1);
    }
    return place(v, s, name_len);
}

int env_put(struct env *v, const char *assignment)
{
    const char *eq = strchr(assignment, '=');

    if (!eq || eq == assignment)
        return 0;
    return place(v, strdup(assignment), (size_t)(eq - assignment));
}

int env_put_all(struct env *v, char *const *assignments)
{
    for (; assignments && *assignments; assignments++)
        if (env_put(v, *assignments) < 0)
            return -1;
    return 0;
}

void env_unset(struct env *v, const char *name)
{
    size_t i = find(v, name, strlen(name));

    if (i == v->n)
        return;
    free(v->vars[i]);
    memmove(&v->vars[i], &v->vars[i + 1], (v->n - i) * sizeof(*v->vars)); /* with the NULL */
    v->n--;
}

const char *env_get(const struct env *v, const char *name)
{
    size_t len = strlen(name);
    size_t i = find(v, name, len);

    return i < v->n ? v->vars[i] + len + 1 : NULL;
}

int env_name_ok(const char *name)
{
    return *name && !strchr(name, '=');
}
