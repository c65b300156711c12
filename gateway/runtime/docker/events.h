/* The watch verb: one thread that reads the engine's event stream, and opens it again for ever when
 * it breaks, from the last event it saw. */
#pragma once
#include "gateway/runtime/runtime.h"

struct events;

/* Verbs of runtime.h. */
int docker_watch(struct runtime *rt, runtime_event_fn fn, void *arg, struct err *e);
/* Interrupts a blocked read at once; not to be called by fn. Safe without watch. */
void docker_unwatch(struct runtime *rt);
