#include "execd/exec/lines.h"

#include "common/base/macros.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

/* The first version that wants kept line ends (contract/newest.md 3.2). */
static const struct {
    const char *product;
    unsigned since[3];
} clients[] = {
    { "OpenSandbox-Python-SDK", { 1, 1, 1 } }, { "OpenSandbox-CLI", { 1, 1, 1 } },
    { "OpenSandbox-JS-SDK", { 1, 0, 0 } },     { "OpenSandbox-Go-SDK", { 1, 1, 0 } },
    { "OpenSandbox-Kotlin-SDK", { 1, 1, 0 } },
};

int lines_parse(const char *s, enum lines *out)
{
    static const char *const names[] = { "auto", "keep", "strip" };
    unsigned i;

    for (i = 0; i < ARRAY_LEN(names); i++)
        if (strcasecmp(s, names[i]) == 0) {
            *out = (enum lines)i;
            return 0;
        }
    return -1;
}

/* Reads "1.2.3" (missing parts are 0) and compares; what follows a digit run is ignored. */
static bool older(const char *version, const unsigned since[3])
{
    unsigned part;
    unsigned i;

    for (i = 0; i < 3; i++) {
        part = 0;
        while (isdigit((unsigned char)*version) && part < 100000)
            part = part * 10 + (unsigned)(*version++ - '0');
        if (part != since[i])
            return part < since[i];
        if (*version == '.')
            version++;
    }
    return false;
}

static bool wants_stripped(const char *product)
{
    size_t len;
    unsigned i;

    for (i = 0; i < ARRAY_LEN(clients); i++) {
        len = strlen(clients[i].product);
        if (strncasecmp(product, clients[i].product, len) == 0 && product[len] == '/' &&
            isdigit((unsigned char)product[len + 1]))
            return older(product + len + 1, clients[i].since);
    }
    return false;
}

bool lines_strip(enum lines mode, const char *user_agent)
{
    const char *p = user_agent;

    if (mode != LINES_AUTO)
        return mode == LINES_STRIP;
    for (; p && *p; p += strspn(p, " ")) { /* products are separated by blanks */
        if (wants_stripped(p))
            return true;
        p += strcspn(p, " ");
    }
    return false;
}
