/* What the sandbox uses and may use, from its cgroups (version 1, version 2 or both), else from the
 * machine (contract/execd.md 11, pains M1). Reads files, keeps none open. */
#pragma once
#include "execd/metrics/parse.h"

struct err;

/* A directory of a hierarchy. "": there is none. */
struct cgroup {
    char path[METRICS_PATH];
    unsigned top;     /* length of the mount point: what lies above is not visible */
    unsigned version; /* 1 or 2 */
};

struct cgroups {
    char root[256]; /* what every path begins with: "" but in tests */
    struct cgroup memory;
    struct cgroup cpu;     /* the limit; of version 2 the time as well */
    struct cgroup cpuacct; /* version 1: the time */
};

struct usage {
    double cpus;        /* how many may be used: the quota, else those of the affinity */
    uint64_t cpu_us;    /* CPU time so far; of all CPUs where there is no cgroup */
    uint64_t mem_total; /* bytes: the limit, at most what the machine has */
    uint64_t mem_used;  /* without what can be reclaimed; <= mem_total */
};

/* Finds the directories of the calling process. What is missing is left "". */
void cgroups_find(struct cgroups *c, const char *root);
/* width: CPUs that the process may run on. -1: err names the file that cannot be read. */
int usage_read(const struct cgroups *c, unsigned width, struct usage *out, struct err *e);
/* CPU time alone. */
int usage_cpu(const struct cgroups *c, uint64_t *cpu_us, struct err *e);
/* CPUs that the calling process may run on, at least 1. */
unsigned usage_width(void);
