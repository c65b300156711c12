/* Hands the claim to a held agent over HTTP (common/agent/wire.h). Knows no engine. */
#pragma once
#include "gateway/runtime/runtime.h"

/* Tells whether it is worth waiting for an agent that does not answer: 0, or -1 with e set. */
typedef int (*agent_alive_fn)(void *arg, struct err *e);

/* The one request of the claim is also the wait for readiness: it is repeated every few
 * milliseconds as long as no connection comes about (so nothing was sent), never afterwards.
 * alive (may be NULL) is asked now and then meanwhile. Errors: ERRC_FORBIDDEN refused, ERRC_INVALID
 * with DOCKER::INVALID_ENTRYPOINT and the agent's words, ERRC_CONFLICT already claimed,
 * ERRC_TIMEOUT at the deadline, ERRC_BUSY with DOCKER::SANDBOX_EXECD_START_FAILED otherwise. */
int agent_claim(const struct runtime_place *place, const json_t *claim, int deadline_ms,
                agent_alive_fn alive, void *arg, struct err *e);

/* Tells a claimed agent its deadline. One attempt, within timeout_ms. ERRC_UNSUPPORTED: an older agent,
 * which has no such route. */
int agent_tell_deadline(const struct runtime_place *place, const char *token, int64_t deadline_ms,
                        int64_t now_ms, int timeout_ms, struct err *e);
