/* Mode, owner and group as bodies ask for them: {"mode":644,"owner":"u","group":"g"}. */
#pragma once
#include <jansson.h>

struct err;
struct perms;

/* at names the object in errors. Absent and null members leave things as they are. */
int wish_decode(const json_t *v, const char *at, struct perms *out, struct err *e);
