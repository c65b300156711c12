/* A container in lines for a person, from what the engine tells about it. Pure. */
#pragma once
#include <jansson.h>

struct buf;
struct err;

/* about: reply of GET /containers/{id}/json. Appends "name: value" lines as far as they fit; values
 * of environment variables whose names sound secret are "***". -1: ERRC_BAD_GATEWAY, not such a
 * reply. */
int describe_container(json_t *about, struct buf *out, struct err *e);
