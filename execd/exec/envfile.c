#include "execd/exec/envfile.h"

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "execd/fs/env.h"
#include "execd/fs/expand.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

enum { NAME_LEN_MAX = 256, VALUE_MAX = ENVFILE_MAX };

/* One entry on its way: `raw` is the value without quotes, before expansion. */
struct entry {
    char name[NAME_LEN_MAX];
    struct buf raw;
    bool literal;
    bool ok;
};

static bool blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static const char *skip_blanks(const char *p)
{
    while (blank(*p))
        p++;
    return p;
}

static const char *line_end(const char *p)
{
    return p + strcspn(p, "\n");
}

/* The name before '='; the position behind it, or NULL when the line holds no entry. */
static const char *read_name(const char *p, char name[NAME_LEN_MAX])
{
    const char *end = line_end(p);
    const char *eq = memchr(p, '=', (size_t)(end - p));
    size_t len;

    if (!eq)
        return NULL;
    len = (size_t)(eq - p);
    while (len && blank(p[len - 1]))
        len--;
    if (!len || len >= NAME_LEN_MAX)
        return NULL;
    memcpy(name, p, len);
    name[len] = '\0';
    return eq + 1;
}

static char unescape(char c)
{
    switch (c) {
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    default:
        return c;
    }
}

/* Copies up to the closing quote; the position behind it, or NULL when there is none. */
static const char *read_quoted(const char *p, struct entry *en)
{
    char quote = *p++;

    for (; *p && *p != quote; p++) {
        char c = *p;

        if (quote == '"' && c == '\\' && p[1] && strchr("nrt\\\"", p[1]))
            c = unescape(*++p);
        if (buf_append(&en->raw, &c, 1) < 0)
            return NULL;
    }
    return *p ? p + 1 : NULL;
}

/* Reads the entry at p, a line's first character that is not blank; returns where the next line
 * begins. */
static const char *read_entry(const char *p, struct entry *en)
{
    const char *value = read_name(p, en->name);
    const char *end;
    size_t len;

    en->ok = false;
    en->literal = false;
    buf_clear(&en->raw);
    if (!value)
        return line_end(p);
    value = skip_blanks(value);
    if (*value == '"' || *value == '\'') {
        en->literal = *value == '\'';
        end = read_quoted(value, en);
        if (!end) /* never closed: only this line is lost */
            return line_end(value);
        en->ok = end + strspn(end, " \t\r") == line_end(end);
        return line_end(end);
    }
    end = line_end(value);
    len = (size_t)(end - value);
    while (len && blank(value[len - 1]))
        len--;
    en->ok = buf_append(&en->raw, value, len) == 0;
    return end;
}

static int apply_entry(const struct entry *en, const struct env *base, struct env *out)
{
    AUTO_BUF struct buf value = BUF_INIT(VALUE_MAX);
    const char *raw = en->raw.data ? en->raw.data : "";

    if (en->literal)
        return env_set(out, en->name, raw);
    if (expand_value(raw, base, &value) < 0)
        return -1;
    return env_set(out, en->name, value.data ? value.data : "");
}

int envfile_apply(const char *text, const struct env *base, struct env *out, unsigned *skipped)
{
    struct entry en = { .raw = BUF_INIT(VALUE_MAX) };
    const char *p = text;
    int rc = 0;

    *skipped = 0;
    while (*p && rc == 0) {
        p = skip_blanks(p);
        if (*p == '\n') {
            p++;
            continue;
        }
        if (!*p)
            break;
        if (*p == '#') {
            p = line_end(p);
            continue;
        }
        p = read_entry(p, &en);
        if (en.ok)
            rc = apply_entry(&en, base, out);
        else
            (*skipped)++;
    }
    buf_free(&en.raw);
    return rc;
}

/* The content of a regular file, at most ENVFILE_MAX bytes of it; NULL when it cannot be had. */
static char *read_file(const char *path)
{
    AUTO_BUF struct buf text = BUF_INIT(ENVFILE_MAX + 1);
    AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st;
    char *at;
    ssize_t n;

    if (fd < 0 && errno == ENOENT)
        return NULL;
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        log_warn("env file cannot be read", LOG_S("path", path));
        return NULL;
    }
    while (text.len < ENVFILE_MAX) {
        at = buf_reserve(&text, 4096);
        n = at ? read(fd, at, 4096) : -1;
        if (n <= 0)
            break;
        text.len += (size_t)n;
        text.data[text.len] = '\0';
    }
    return buf_take(&text);
}

int envfile_load(const char *path, const struct env *base, struct env *out, struct err *e)
{
    AUTO_FREE char *text = read_file(path);
    unsigned skipped;

    if (!text)
        return 0;
    if (envfile_apply(text, base, out, &skipped) < 0)
        return err_nomem(e);
    if (skipped)
        log_warn("env file has lines that are no entries", LOG_S("path", path),
                 LOG_N("lines", skipped));
    return 0;
}
