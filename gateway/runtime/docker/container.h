/* Verbs on one container by its engine name. Safe from any thread; all block. */
#pragma once
#include "gateway/runtime/runtime.h"

struct engine;
struct err;

enum { CONTAINER_PATH = 512, CONTAINER_TAIL = 240 };

/* Kills and removes it with its anonymous volumes, waiting while somebody else is removing it.
 * Idempotent: 0 when it is gone. */
int container_remove(struct engine *en, const char *name, int timeout_ms, struct err *e);
/* TERM, up to grace_ms, KILL; a frozen one is thawed first, else it could not act on the TERM. 0 also
 * when it does not run or is gone. */
int container_stop(struct engine *en, const char *name, int grace_ms, struct err *e);
/* ERRC_NOT_FOUND when there is none. timeout_ms 0: the engine client's. network: inspect.h. */
int container_status(struct engine *en, const char *name, const char *network, int timeout_ms,
                     struct runtime_status *out, struct err *e);
/* The engine's whole description. ERRC_NOT_FOUND when there is none. The caller owns *out. */
int container_about(struct engine *en, const char *name, int timeout_ms, json_t **out,
                    struct err *e);
/* The end of its output as one line of UTF-8 text; "" when there is none or it cannot be had. */
void container_tail(struct engine *en, const char *name, int timeout_ms, char out[CONTAINER_TAIL]);
