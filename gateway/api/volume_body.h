/* The `volumes` of a create request (contract/lifecycle.md 5): JSON into struct volume_list. */
#pragma once
#include <jansson.h>

struct err;
struct volume_list;

/* volumes: an array or NULL. *out borrows from it. Types, one backend per volume and the defaults
 * are looked after here, all other rules in domain/volume_rules.h, which this ends with. */
int volume_body_decode(const json_t *volumes, struct volume_list *out, struct err *e);
