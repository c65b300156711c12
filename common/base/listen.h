/* Listening TCP sockets. Blocks only as bind(2) does. */
#pragma once
#include <stdint.h>

struct err;

/* "127.0.0.1", "0.0.0.0", "::" (also IPv4), "::1"; port 0 takes a free one. 0: *fd is the socket,
 * non-blocking and close-on-exec, and *bound_port its port. */
int listen_tcp(const char *host, uint16_t port, int backlog, int *fd, uint16_t *bound_port,
               struct err *e);
