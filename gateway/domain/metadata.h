/* Metadata of a sandbox: Kubernetes label syntax (contract/lifecycle.md 3.4). Pure. */
#pragma once
#include <jansson.h>

struct err;

/* metadata: object of strings, or NULL. First bad entry: SANDBOX::INVALID_METADATA_LABEL. */
int metadata_check(const json_t *metadata, struct err *e);
/* One entry; value NULL checks only that the key is not reserved (a deletion). */
int metadata_check_entry(const char *key, const char *value, struct err *e);
