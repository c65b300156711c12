#include "execd/fs/range.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>

/* Digits at *s; a number beyond 64 bits is the largest there is. false: no digit. */
static bool number(const char **s, uint64_t *out)
{
    uint64_t v = 0;
    const char *p = *s;

    for (; isdigit((unsigned char)*p); p++)
        v = v > (UINT64_MAX - 9) / 10 ? UINT64_MAX : v * 10 + (uint64_t)(*p - '0');
    if (p == *s)
        return false;
    *s = p;
    *out = v;
    return true;
}

/* The end of the first range: the end of the header or a comma. */
static bool ends(const char *s)
{
    s += strspn(s, " \t");
    return !*s || *s == ',';
}

/* The last n bytes. */
static enum range parse_suffix(const char *s, uint64_t size, uint64_t *off, uint64_t *len)
{
    uint64_t n;

    if (!number(&s, &n) || !ends(s))
        return RANGE_BROKEN;
    if (!n || !size)
        return RANGE_BEYOND;
    *len = n < size ? n : size;
    *off = size - *len;
    return RANGE_OK;
}

enum range range_parse(const char *s, uint64_t size, uint64_t *off, uint64_t *len)
{
    uint64_t first;
    uint64_t last = UINT64_MAX;

    s += strspn(s, " \t");
    if (strncasecmp(s, "bytes=", 6) != 0)
        return RANGE_BROKEN;
    s += 6 + strspn(s + 6, " \t");
    if (*s == '-')
        return parse_suffix(s + 1, size, off, len);
    if (!number(&s, &first) || *s++ != '-')
        return RANGE_BROKEN;
    (void)number(&s, &last); /* "5-" is all the rest */
    if (!ends(s) || last < first)
        return RANGE_BROKEN;
    if (first >= size)
        return RANGE_BEYOND;
    *off = first;
    *len = (last < size - 1 ? last : size - 1) - first + 1;
    return RANGE_OK;
}
