#include "common/base/num.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int num_parse_i64(const char *s, int64_t min, int64_t max, int64_t *out)
{
    const char *p = s;
    char *end;
    intmax_t v;

    if (*p == '-' && min < 0)
        p++;
    if (!isdigit((unsigned char)*p))
        return -1;
    errno = 0;
    v = strtoimax(s, &end, 10);
    if (errno || *end || v < min || v > max)
        return -1;
    *out = v;
    return 0;
}

int num_parse_double(const char *s, double *out)
{
    char *end;
    double v;

    /* strtod also takes blanks, hex, inf and nan; the programs run in the "C" locale */
    if (!*s || *s == '+' || strspn(s, "0123456789.eE+-") != strlen(s))
        return -1;
    errno = 0;
    v = strtod(s, &end);
    if (errno || *end || !isfinite(v))
        return -1;
    *out = v;
    return 0;
}
