#include "execd/fs/expand.h"

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "execd/fs/env.h"

#include <ctype.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>

enum { NAME_MAX_LEN = 256, MISSING_MAX = 32, PATH_LEN_MAX = 4 * PATH_MAX };

/* The names of an expansion that are not set; sorted, each once. */
struct missing {
    char names[MISSING_MAX][NAME_MAX_LEN];
    unsigned n;
};

static size_t name_len(const char *s)
{
    size_t n = 0;

    if (!isalpha((unsigned char)*s) && *s != '_')
        return 0;
    while (isalnum((unsigned char)s[n]) || s[n] == '_')
        n++;
    return n < NAME_MAX_LEN ? n : 0;
}

/* Reads a reference at s (which is at '$'): its name and the length of all of it. */
static bool reference(const char *s, char name[NAME_MAX_LEN], size_t *len)
{
    bool braced = s[1] == '{';
    size_t n = name_len(s + 1 + braced);

    if (!n || (braced && s[2 + n] != '}'))
        return false;
    memcpy(name, s + 1 + braced, n);
    name[n] = '\0';
    *len = 1 + n + 2 * (size_t)braced;
    return true;
}

static void note_missing(struct missing *m, const char *name)
{
    unsigned i = 0;
    int order = 1;

    while (i < m->n && (order = strcmp(m->names[i], name)) < 0)
        i++;
    if ((i < m->n && order == 0) || m->n == MISSING_MAX)
        return;
    memmove(m->names[i + 1], m->names[i], (m->n - i) * sizeof(m->names[0]));
    memcpy(m->names[i], name, strlen(name) + 1);
    m->n++;
}

static int expand(const char *s, const struct env *vars, struct buf *out, struct missing *m)
{
    char name[NAME_MAX_LEN];
    const char *value;
    size_t len;

    while (*s) {
        len = strcspn(s, "$");
        if (buf_append(out, s, len) < 0)
            return -1;
        s += len;
        if (!*s)
            break;
        if (!reference(s, name, &len)) {
            if (buf_append(out, s++, 1) < 0)
                return -1;
            continue;
        }
        s += len;
        value = env_get(vars, name);
        if (!value && m)
            note_missing(m, name);
        if (value && buf_puts(out, value) < 0)
            return -1;
    }
    return 0;
}

int expand_value(const char *s, const struct env *vars, struct buf *out)
{
    return expand(s, vars, out, NULL);
}

static int refuse_missing(const struct missing *m, const char *path, struct err *e)
{
    AUTO_BUF struct buf names = BUF_INIT(1024);
    unsigned i;

    for (i = 0; i < m->n; i++)
        (void)buf_printf(&names, "%s%s", i ? ", " : "", m->names[i]); /* cut when too many */
    return err_set(e, ERRC_INVALID, "path %.200s uses variables that are not set: %s", path,
                   names.data ? names.data : "");
}

int expand_path(const char *path, const struct env *vars, char **out, struct err *e)
{
    AUTO_BUF struct buf plain = BUF_INIT(PATH_LEN_MAX);
    AUTO_BUF struct buf full = BUF_INIT(PATH_LEN_MAX);
    AUTO_FREE struct missing *m = calloc(1, sizeof(*m));
    const char *home = env_get(vars, "HOME");
    const char *rest;
    bool tilde;

    if (!m)
        return err_nomem(e);
    if (buf_reserve(&plain, 0) == NULL)
        return err_nomem(e);
    if (expand(path, vars, &plain, m) < 0)
        return err_set(e, ERRC_INVALID, "path is longer than %d bytes", PATH_LEN_MAX);
    if (m->n)
        return refuse_missing(m, path, e);
    tilde = plain.data[0] == '~' && (plain.data[1] == '/' || !plain.data[1]);
    rest = plain.data + tilde;
    if ((tilde && buf_puts(&full, home && *home ? home : "/") < 0) || buf_puts(&full, rest) < 0)
        return err_set(e, ERRC_INVALID, "path is longer than %d bytes", PATH_LEN_MAX);
    *out = buf_take(&full);
    return *out ? 0 : err_nomem(e);
}
