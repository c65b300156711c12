/* The network of the sandboxes (design decision 10): an own bridge per gateway instance with
 * traffic between sandboxes off and the host closed, or the one that network_mode names.
 * prepare and the readers may run in different threads; prepare is serialised by the caller. */
#pragma once
#include "gateway/runtime/runtime.h"

struct engine;
struct network;

/* cfg->network_mode is checked; the engine is not asked yet. NULL: err set. */
struct network *network_new(const struct runtime_config *cfg, struct err *e);
void network_free(struct network *n); /* takes NULL */

/* Finds or makes the network, reads its address ranges, closes the host. Idempotent. A named
 * network that does not exist is ERRC_INVALID with SANDBOX::INVALID_PARAMETER. */
int network_prepare(struct network *n, struct engine *en, struct err *e);
/* Sets the rules that close the host again when they are older than a minute: a reload of the host's
 * firewall may have dropped them. Safe from any thread. */
void network_keep_closed(struct network *n);
/* Removes our own network and its rules: an engine has address ranges for about thirty networks.
 * Best effort; only for when no sandbox of this instance is left. */
void network_drop(struct network *n, struct engine *en, int timeout_ms);
/* Value of HostConfig.NetworkMode and key of NetworkSettings.Networks; constant. */
const char *network_name(const struct network *n);
/* True when addr (text) lies in the network and is not the host's own end. Takes a lock that is
 * never held over a call. */
bool network_has(struct network *n, const char *addr);
