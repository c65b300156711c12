/* The agent's proxy paths: /proxy/{port}[/rest][?query]. Pure. */
#pragma once
#include <stddef.h>
#include <stdint.h>

enum port_path_kind {
    PORT_PATH_OTHER, /* the agent's API */
    PORT_PATH_PORT,
    PORT_PATH_BAD, /* below /proxy, but without a port: refused */
};

struct port_path {
    uint16_t port;
    const char *rest; /* raw, from the '/' or '?' after the port; "" when there is none */
    size_t rest_len;
};

/* path is a raw request path with its query. *out is filled for PORT_PATH_PORT only; its rest
 * points into path. A port has one spelling only: 1 to 65535 in decimal, no leading zeros. */
enum port_path_kind port_path_parse(const char *path, size_t len, struct port_path *out);
