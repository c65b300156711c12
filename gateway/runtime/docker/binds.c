#include "gateway/runtime/docker/binds.h"

#include "common/agent/wire.h"
#include "common/base/err.h"
#include "common/base/macros.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define KEY "docker.sandbox_binds"

/* Nothing may lie over these, or over what is below them. */
static const char *const reserved[] = { AGENT_HOME, "/proc", "/sys", "/dev" };

static bool is_at_or_below(const char *path, const char *top)
{
    size_t len = strlen(top);

    return strncmp(path, top, len) == 0 && (!path[len] || path[len] == '/');
}

/* Absolute, without empty, "." or ".." parts and without a slash at the end. */
static bool is_clean_path(const char *s)
{
    size_t len;

    if (*s != '/')
        return false;
    while (*s == '/') {
        s++;
        len = strcspn(s, "/");
        if (len == 0 || (len == 1 && s[0] == '.') || (len == 2 && s[0] == '.' && s[1] == '.'))
            return false;
        s += len;
    }
    return true;
}

static bool is_volume_name(const char *s)
{
    if (!isalnum((unsigned char)*s))
        return false;
    for (; *s; s++)
        if (!isalnum((unsigned char)*s) && *s != '_' && *s != '.' && *s != '-')
            return false;
    return true;
}

static bool is_free_target(const char *target)
{
    size_t i;

    for (i = 0; i < ARRAY_LEN(reserved); i++)
        if (is_at_or_below(target, reserved[i]) || is_at_or_below(reserved[i], target))
            return false;
    return true;
}

/* Cuts text at its colons. False: it has not two or three parts. */
static bool split(char *text, struct runtime_mount *m)
{
    char *target = strchr(text, ':');
    char *mode = target ? strchr(target + 1, ':') : NULL;

    if (!target)
        return false;
    *target++ = '\0';
    if (mode)
        *mode++ = '\0';
    *m = (struct runtime_mount){ .named = *text != '/',
                                 .source = text,
                                 .target = target,
                                 .read_only = mode && strcmp(mode, "ro") == 0 };
    return !mode || m->read_only || strcmp(mode, "rw") == 0;
}

static int parse_one(const char *entry, struct binds *b, struct err *e)
{
    struct runtime_mount m;
    size_t i;

    if (b->len == BINDS_MAX)
        return err_set(e, ERRC_INVALID, KEY " has more than %d entries", BINDS_MAX);
    b->text[b->len] = strdup(entry);
    if (!b->text[b->len])
        return err_nomem(e);
    if (!split(b->text[b->len], &m) ||
        (m.named ? !is_volume_name(m.source)
                 : strcmp(m.source, "/") != 0 && !is_clean_path(m.source)) ||
        !is_clean_path(m.target))
        return err_set(e, ERRC_INVALID,
                       KEY ": \"%.200s\": must be source:target, source:target:ro or "
                           "source:target:rw, with an absolute path or a volume's name as source "
                           "and an absolute path as target",
                       entry);
    if (!is_free_target(m.target))
        return err_set(e, ERRC_INVALID,
                       KEY ": \"%.200s\": nothing can be mounted over " AGENT_HOME
                           ", /proc, /sys or /dev",
                       entry);
    for (i = 0; i < b->len; i++)
        if (strcmp(b->items[i].target, m.target) == 0)
            return err_set(e, ERRC_INVALID, KEY ": %.200s is the target of two entries", m.target);
    b->items[b->len++] = m;
    return 0;
}

int binds_parse(const char *const *list, struct binds *out, struct err *e)
{
    for (; list && *list; list++)
        if (parse_one(*list, out, e) < 0)
            return -1;
    return 0;
}

void binds_free(struct binds *b)
{
    size_t i;

    for (i = 0; i < BINDS_MAX; i++)
        free(b->text[i]);
    *b = (struct binds){ 0 };
}
