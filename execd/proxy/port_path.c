#include "execd/proxy/port_path.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

static bool ends(const char *p, const char *end)
{
    return p == end || *p == '/' || *p == '?';
}

enum port_path_kind port_path_parse(const char *path, size_t len, struct port_path *out)
{
    static const char mount[] = "/proxy";
    const char *end = path + len;
    const char *p = path + sizeof(mount) - 1;
    unsigned port = 0;

    if (len < sizeof(mount) - 1 || memcmp(path, mount, sizeof(mount) - 1) != 0 || !ends(p, end))
        return PORT_PATH_OTHER;
    if (p == end || *p++ != '/' || p == end || *p == '0')
        return PORT_PATH_BAD;
    for (; p < end && isdigit((unsigned char)*p) && port <= UINT16_MAX; p++)
        port = port * 10 + (unsigned)(*p - '0');
    if (!port || port > UINT16_MAX || !ends(p, end))
        return PORT_PATH_BAD;
    *out = (struct port_path){ (uint16_t)port, p, (size_t)(end - p) };
    return PORT_PATH_PORT;
}
