#include "gateway/domain/lines.h"

#include "common/base/clock.h"

#include <string.h>

const char *lines_last(const char *text, size_t len, int n)
{
    const char *p = text + len;
    const char *nl;

    while (n > 0 && p > text) {
        nl = memrchr(text, '\n', (size_t)(p - text - 1));
        p = nl ? nl + 1 : text;
        n--;
    }
    return p;
}

/* Of a line "<RFC 3339 time> text"; -1: it has none. */
static int64_t time_of(const char *line)
{
    char word[CLOCK_TEXT];
    size_t len = strcspn(line, " \n");
    int64_t ms;

    if (len < 20 || len >= sizeof(word))
        return -1;
    memcpy(word, line, len);
    word[len] = '\0';
    return clock_parse_ms(word, &ms) < 0 ? -1 : ms;
}

const char *lines_since(const char *text, int64_t since_ms)
{
    const char *p = text;
    int64_t at;

    if (!since_ms || time_of(text) < 0)
        return text;
    while (*p) {
        at = time_of(p);
        if (at >= since_ms)
            break;
        p += strcspn(p, "\n");
        p += *p == '\n';
    }
    return p;
}
