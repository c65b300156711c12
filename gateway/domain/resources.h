/* The resource table of a create request (contract/lifecycle.md 3.3). Pure. */
#pragma once
#include <jansson.h>
#include <stdint.h>

struct err;

struct resources {
    int64_t memory_bytes; /* 0: no limit */
    int64_t nano_cpus;
};

/* map: object of strings or NULL. Decimals ("1.5Gi") are accepted in addition to the contract.
 * A present but unusable value is SANDBOX::INVALID_PARAMETER naming the key; unknown keys are
 * ignored. */
int resources_parse(const json_t *map, struct resources *out, struct err *e);
