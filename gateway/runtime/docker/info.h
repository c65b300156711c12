/* What the configuration asks of the engine and only the engine can tell: that the secure runtime is
 * there, that AppArmor works. */
#pragma once
#include "gateway/runtime/runtime.h"

struct engine;
struct err;

/* One call when there is something to ask, none else. -1 with DOCKER::INITIALIZATION_ERROR: what is
 * missing and which key of the configuration wants it. */
int info_check(const struct runtime_config *cfg, struct engine *en, struct err *e);
