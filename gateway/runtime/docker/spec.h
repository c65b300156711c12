/* The body of the engine's create for a sandbox. Pure. */
#pragma once
#include "gateway/runtime/docker/docker.h"

/* image: the name to use (image.h). NULL: out of memory. The caller owns the result. */
json_t *spec_body(const struct docker *d, const struct docker_parts *parts,
                  const struct runtime_spec *spec, const char *image);
