/* The output of a container, whose engine name is given. */
#pragma once
#include "gateway/runtime/runtime.h"

struct engine;
struct err;

/* The logs verb of runtime.h: the end of what fits into out is kept. */
int logs_read(struct engine *en, const char *name, const struct runtime_log_query *q,
              struct buf *out, bool *cut, struct err *e);
