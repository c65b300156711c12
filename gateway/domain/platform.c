#include "gateway/domain/platform.h"

#include "common/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

#define SB_INVALID "SANDBOX::INVALID_PARAMETER"

/* Its canonical spelling, NULL when it is neither: blanks around it and case do not count. */
static const char *one_of(const char *s, const char *const words[2])
{
    static const char blanks[] = " \t\r\n";
    size_t len;
    int i;

    s += strspn(s, blanks);
    len = strcspn(s, blanks);
    for (i = 0; i < 2; i++)
        if (strlen(words[i]) == len && strncasecmp(s, words[i], len) == 0 &&
            !s[len + strspn(s + len, blanks)])
            return words[i];
    return NULL;
}

int platform_check(const char **os, const char **arch, struct err *e)
{
    static const char *const systems[2] = { "linux", "windows" };
    static const char *const archs[2] = { "amd64", "arm64" };

    if (!*os)
        return 0;
    *os = one_of(*os, systems);
    if (!*os)
        return err_api(e, ERRC_INVALID, SB_INVALID, "platform.os: must be linux");
    *arch = one_of(*arch, archs);
    if (!*arch)
        return err_api(e, ERRC_INVALID, SB_INVALID, "platform.arch: must be amd64 or arm64");
    if (*os == systems[1])
        return err_api(e, ERRC_INVALID, SB_INVALID,
                       "platform.os: windows is not supported; use linux");
    return 0;
}
