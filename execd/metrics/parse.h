/* The small texts of /proc and of cgroups, versions 1 and 2. Pure: what a file holds goes in, numbers
 * come out. Everything is foreign: a sandbox may have mounted its own files there. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum { METRICS_PATH = 4096 };

#define METRICS_UNLIMITED UINT64_MAX

/* The number behind key in lines of "key number" or "key: number unit" (memory.stat, cpu.stat,
 * meminfo). 0, or -1 when there is none. */
int metrics_parse_key(const char *text, const char *key, uint64_t *out);
/* One number, or "max" for METRICS_UNLIMITED. -1: neither. */
int metrics_parse_amount(const char *text, uint64_t *out);
/* cpu.max: "QUOTA PERIOD" or "max PERIOD". CPUs that may be used, 0 for no limit; -1: unreadable. */
int metrics_parse_cpu_max(const char *text, double *cpus);
/* cpu.cfs_quota_us and cpu.cfs_period_us of version 1; a negative quota is no limit. As above. */
int metrics_parse_cfs(const char *quota, const char *period, double *cpus);
/* First line of /proc/stat: ticks in which all CPUs together did something. -1: unreadable. */
int metrics_parse_busy(const char *text, uint64_t *ticks);
/* A line of /proc/self/cgroup. 1 when it is about the controller ("" for version 2's only line):
 * path points into line and ends at its newline, len is its length. 0: about something else. */
int metrics_parse_member(const char *line, const char *controller, const char **path, int *len);

struct metrics_mount {
    char root[METRICS_PATH];  /* of the hierarchy, that is mounted */
    char point[METRICS_PATH]; /* where */
};

/* A line of /proc/self/mountinfo. 1 when it mounts the controller's hierarchy ("": version 2). */
int metrics_parse_mount(const char *line, const char *controller, struct metrics_mount *out);
