/* The resource table of a create request (contract/lifecycle.md 3.3). Pure. */
#pragma once
#include <jansson.h>
#include <stdint.h>

struct err;

enum {
    RESOURCES_MEMORY_MIN = 6 * 1024 * 1024, /* bytes: engines refuse less */
    RESOURCES_DISK_MIN = 1024 * 1024,
    RESOURCES_NANO_CPUS_MIN = 10 * 1000 * 1000, /* 0.01: engines refuse less */
    RESOURCES_GPUS_MAX = 1024,
};

struct resources {
    int64_t memory_bytes; /* 0: no limit */
    int64_t nano_cpus;
    int64_t disk_bytes;
    int gpus; /* RUNTIME_GPUS_ALL: every one */
};

/* map: object of strings or NULL. Keys: cpu, memory, gpu, and disk under any one of the names disk,
 * storage, ephemeral-storage. Decimals ("1.5Gi"), Pi and Ei are accepted in addition to the
 * contract. An unusable value and an unknown key are SANDBOX::INVALID_PARAMETER naming the key. */
int resources_parse(const json_t *map, struct resources *out, struct err *e);
/* As whole CPUs, at least 1; 0 without a limit. */
int resources_whole_cpus(const struct resources *r);
