#include "execd/metrics/parse.h"

#include <stddef.h>
#include <string.h>

/* Decimal digits at *s, as many as there are; *s is left behind them. */
static bool digits(const char **s, uint64_t *out)
{
    const char *p = *s;
    uint64_t n = 0;

    if (*p < '0' || *p > '9')
        return false;
    for (; *p >= '0' && *p <= '9'; p++) {
        if (n > (UINT64_MAX - 9) / 10)
            return false;
        n = n * 10 + (uint64_t)(*p - '0');
    }
    *s = p;
    *out = n;
    return true;
}

static bool at_end(char c)
{
    return c == '\0' || c == '\n' || c == ' ' || c == '\t';
}

static const char *skip_blanks(const char *s)
{
    return s + strspn(s, " \t");
}

int metrics_parse_key(const char *text, const char *key, uint64_t *out)
{
    size_t len = strlen(key);
    const char *end;

    for (; *text; text = end + 1) {
        const char *s = text + len;

        end = strchr(text, '\n');
        if (strncmp(text, key, len) == 0 && (*s == ' ' || *s == ':')) {
            s = skip_blanks(s + 1);
            return digits(&s, out) && at_end(*s) ? 0 : -1;
        }
        if (!end)
            break;
    }
    return -1;
}

int metrics_parse_amount(const char *text, uint64_t *out)
{
    if (strncmp(text, "max", 3) == 0 && at_end(text[3])) {
        *out = METRICS_UNLIMITED;
        return 0;
    }
    return digits(&text, out) && at_end(*text) ? 0 : -1;
}

static int ratio(uint64_t quota, uint64_t period, double *cpus)
{
    if (!period)
        return -1;
    *cpus = quota == METRICS_UNLIMITED ? 0 : (double)quota / (double)period;
    return 0;
}

int metrics_parse_cpu_max(const char *text, double *cpus)
{
    uint64_t quota;
    uint64_t period;

    if (metrics_parse_amount(text, &quota) < 0)
        return -1;
    text = skip_blanks(text + strcspn(text, " \t\n"));
    return metrics_parse_amount(text, &period) < 0 ? -1 : ratio(quota, period, cpus);
}

int metrics_parse_cfs(const char *quota, const char *period, double *cpus)
{
    uint64_t q = METRICS_UNLIMITED;
    uint64_t p;

    if ((*quota != '-' && metrics_parse_amount(quota, &q) < 0) ||
        metrics_parse_amount(period, &p) < 0)
        return -1;
    return ratio(q, p, cpus);
}

int metrics_parse_busy(const char *text, uint64_t *ticks)
{
    enum { USER, NICE, SYSTEM, IDLE, IOWAIT, IRQ, SOFTIRQ, STEAL, COLUMNS };
    uint64_t sum = 0;
    uint64_t n;
    int i;

    if (strncmp(text, "cpu ", 4) != 0)
        return -1;
    text += 4;
    for (i = 0; i < COLUMNS; i++) {
        text = skip_blanks(text);
        if (!digits(&text, &n))
            break;
        if (i != IDLE && i != IOWAIT)
            sum += n; /* wraps where the kernel's own sum would */
    }
    if (i <= IDLE)
        return -1;
    *ticks = sum;
    return 0;
}

/* Is name an item of the list, which has len bytes and is separated by commas? */
static bool lists(const char *list, size_t len, const char *name)
{
    size_t want = strlen(name);
    size_t n;

    for (;; list += n + 1, len -= n + 1) {
        const char *comma = memchr(list, ',', len);

        n = comma ? (size_t)(comma - list) : len;
        if (n == want && memcmp(list, name, n) == 0)
            return true;
        if (!comma)
            return false;
    }
}

int metrics_parse_member(const char *line, const char *controller, const char **path, int *len)
{
    const char *list = strchr(line, ':');
    const char *end = list ? strchr(list + 1, ':') : NULL;

    if (!end || end[1] != '/')
        return 0;
    list++;
    if (!*controller ? end != list || strncmp(line, "0:", 2) != 0
                     : !lists(list, (size_t)(end - list), controller))
        return 0;
    *path = end + 1;
    *len = (int)strnlen(*path, METRICS_PATH);
    if ((*path)[*len - 1] == '\n')
        --*len;
    return *len < METRICS_PATH;
}

/* The next word of the line; NULL at its end. */
static const char *word(const char **s, size_t *len)
{
    const char *w = *s + strspn(*s, " ");

    *len = strcspn(w, " \n");
    *s = w + *len;
    return *len ? w : NULL;
}

static bool octal(const char *s, size_t left)
{
    return left >= 4 && s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' &&
           s[3] >= '0' && s[3] <= '7';
}

/* A path as the kernel writes it: blanks and backslashes as three octal digits. */
static bool unescape(const char *w, size_t len, char out[METRICS_PATH])
{
    size_t n = 0;
    size_t i;

    if (!w || *w != '/' || len >= METRICS_PATH)
        return false;
    for (i = 0; i < len; i++) {
        char c = w[i];

        if (octal(w + i, len - i)) {
            c = (char)((w[i + 1] - '0') << 6 | (w[i + 2] - '0') << 3 | (w[i + 3] - '0'));
            i += 3;
        }
        if (!c)
            return false;
        out[n++] = c;
    }
    out[n] = '\0';
    return true;
}

/* What follows the dash: the type of the file system, a device, options. Version 1 names its
 * controllers in them. */
static bool mounts(const char *line, const char *controller)
{
    const char *type = *controller ? "cgroup" : "cgroup2";
    size_t len;
    const char *w = word(&line, &len);

    if (!w || len != strlen(type) || memcmp(w, type, len) != 0)
        return false;
    if (!*controller)
        return true;
    if (!word(&line, &len))
        return false;
    w = word(&line, &len);
    return w && lists(w, len, controller);
}

int metrics_parse_mount(const char *line, const char *controller, struct metrics_mount *out)
{
    enum { BEFORE_ROOT = 3 };
    const char *root;
    const char *point;
    const char *w;
    size_t root_len;
    size_t point_len;
    size_t len;
    int i;

    for (i = 0; i < BEFORE_ROOT; i++)
        if (!word(&line, &len))
            return 0;
    root = word(&line, &root_len);
    point = word(&line, &point_len);
    do
        w = word(&line, &len);
    while (w && !(len == 1 && *w == '-'));
    return mounts(line, controller) && unescape(root, root_len, out->root) &&
           unescape(point, point_len, out->point);
}
