/* Metadata of a sandbox: Kubernetes label syntax (contract/lifecycle.md 3.4). Pure. */
#pragma once
#include <jansson.h>

enum { METADATA_MAX = 1024 }; /* entries of one sandbox */

struct err;

/* metadata: object of strings, or NULL. First bad entry: SANDBOX::INVALID_METADATA_LABEL. */
int metadata_check(const json_t *metadata, struct err *e);
/* A merge patch, null deletes: a reserved key is INVALID_METADATA_LABEL here (contract 4.4). */
int metadata_check_patch(const json_t *patch, struct err *e);
/* One entry; value NULL checks only that the key is not reserved (a deletion). */
int metadata_check_entry(const char *key, const char *value, struct err *e);
