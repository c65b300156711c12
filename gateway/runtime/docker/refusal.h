/* What the engine's refusal of a create or start means: whose mistake it is, in words that name what
 * to change, and whether another attempt may help. Knows the engine's error texts (Docker 20.10 to
 * 29). Pure. */
#pragma once
#include "gateway/runtime/docker/docker.h"

struct engine_reply;

enum fault {
    FAULT_NONE,
    FAULT_PARTS,  /* network or agent volume were removed under us */
    FAULT_CHANCE, /* may work a second time */
    FAULT_FINAL,
};

/* Never FAULT_NONE; err set. creating: of the create, not of the start. */
enum fault refusal_judge(const struct docker *d, const struct runtime_spec *spec,
                         const struct engine_reply *r, bool creating, struct err *e);
