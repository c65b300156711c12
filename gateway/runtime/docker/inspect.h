/* What the engine tells about a container, as the runtime's own structures. Pure. */
#pragma once
#include "gateway/runtime/runtime.h"

/* From GET /containers/{id}/json. network is the key of NetworkSettings.Networks. place is filled
 * as far as it is known: an ended container has none. -1: ERRC_BAD_GATEWAY, not such a reply. */
int inspect_status(json_t *about, const char *network, struct runtime_status *out, struct err *e);

/* From one item of GET /containers/json. -1: not a sandbox of ours (ERRC_INVALID). */
int inspect_item(json_t *item, const char *network, struct runtime_status *out, struct err *e);
