#include "execd/metrics/usage.h"

#include "common/base/cleanup.h"
#include "common/base/err.h"

#include <fcntl.h>
#include <sched.h>
#include <string.h>

enum {
    TEXT_MAX = 16 * 1024, /* of a file; memory.stat has about 5 KiB */
    LINES_MAX = 1 << 16,
    LEVELS_MAX = 32,
    WIDTH_MAX = 8192,
    TICK_US = 10000, /* USER_HZ is 100 in every ABI that this runs on */
    NS_PER_US = 1000,
};

/* ---- files ---- */

static int read_file(const char *path, char text[TEXT_MAX])
{
    AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    size_t len = 0;
    ssize_t n;

    if (fd < 0)
        return -1;
    while (len < TEXT_MAX - 1) {
        n = read(fd, text + len, TEXT_MAX - 1 - len);
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        len += (size_t)n;
    }
    text[len] = '\0';
    return 0;
}

static int read_proc(const struct cgroups *c, const char *name, char text[TEXT_MAX], struct err *e)
{
    char path[sizeof(c->root) + 64];

    (void)snprintf(path, sizeof(path), "%s/proc/%s", c->root, name);
    return read_file(path, text) < 0 ? err_sys(e, errno, "cannot read %s", path) : 0;
}

/* File name of the directory that is the first len bytes of the group's path. */
static int read_at(const struct cgroup *g, size_t len, const char *name, char text[TEXT_MAX])
{
    char path[METRICS_PATH + 64];

    (void)snprintf(path, sizeof(path), "%.*s/%s", (int)len, g->path, name);
    return read_file(path, text);
}

static int amount_at(const struct cgroup *g, size_t len, const char *name, uint64_t *out)
{
    char text[TEXT_MAX];

    return read_at(g, len, name, text) < 0 ? -1 : metrics_parse_amount(text, out);
}

/* The length of the directory above; 0: none that can be seen. */
static size_t above(const struct cgroup *g, size_t len)
{
    while (len > g->top && g->path[len - 1] != '/')
        len--;
    return len > g->top ? len - 1 : 0;
}

/* ---- finding ---- */

/* The process's path below what is mounted; what lies elsewhere is the mount itself, as in a
 * container that sees the host's names. */
static void place(struct cgroup *g, const char *root, const struct metrics_mount *m,
                  const char *member)
{
    size_t skip = strcmp(m->root, "/") == 0 ? 0 : strlen(m->root);
    int n = snprintf(g->path, sizeof(g->path), "%s%s", root, m->point);

    if (n < 0 || n >= METRICS_PATH) {
        g->path[0] = '\0';
        return;
    }
    g->top = (unsigned)n;
    if (strncmp(member, m->root, skip) != 0 || member[skip] != '/' || !member[skip + 1] ||
        strstr(member, "/../") || n + strlen(member + skip) >= METRICS_PATH)
        return;
    memcpy(g->path + n, member + skip, strlen(member + skip) + 1);
    if (access(g->path, X_OK) < 0)
        g->path[n] = '\0';
}

static bool find_member(const char *root, const char *controller, char member[METRICS_PATH])
{
    char name[512];
    char line[METRICS_PATH + 512];
    const char *path;
    int len;
    int i;

    (void)snprintf(name, sizeof(name), "%s/proc/self/cgroup", root);
    AUTO_FILE FILE *f = fopen(name, "re");

    for (i = 0; f && i < LINES_MAX && fgets(line, sizeof(line), f); i++)
        if (metrics_parse_member(line, controller, &path, &len) == 1) {
            memcpy(member, path, (size_t)len);
            member[len] = '\0';
            return true;
        }
    return false;
}

static bool find_mount(const char *root, const char *controller, struct metrics_mount *m)
{
    char name[512];
    char line[2 * METRICS_PATH + 512];
    int i;

    (void)snprintf(name, sizeof(name), "%s/proc/self/mountinfo", root);
    AUTO_FILE FILE *f = fopen(name, "re");

    for (i = 0; f && i < LINES_MAX && fgets(line, sizeof(line), f); i++)
        if (metrics_parse_mount(line, controller, m) == 1)
            return true;
    return false;
}

/* Version 1 where the controller is in one of its hierarchies, else version 2. */
static void find(struct cgroup *g, const char *root, const char *controller)
{
    struct metrics_mount m;
    char member[METRICS_PATH];

    g->version = 1;
    if (find_member(root, controller, member)) {
        if (find_mount(root, controller, &m))
            place(g, root, &m, member);
        return;
    }
    g->version = 2;
    if (find_member(root, "", member) && find_mount(root, "", &m))
        place(g, root, &m, member);
}

void cgroups_find(struct cgroups *c, const char *root)
{
    *c = (struct cgroups){ 0 };
    (void)snprintf(c->root, sizeof(c->root), "%s", root);
    find(&c->memory, root, "memory");
    find(&c->cpu, root, "cpu");
    find(&c->cpuacct, root, "cpuacct");
}

/* ---- CPU ---- */

static int limit_at(const struct cgroup *g, size_t len, double *cpus)
{
    char text[TEXT_MAX];
    char period[TEXT_MAX];

    if (g->version == 2)
        return read_at(g, len, "cpu.max", text) < 0 ? -1 : metrics_parse_cpu_max(text, cpus);
    return read_at(g, len, "cpu.cfs_quota_us", text) < 0 ||
                   read_at(g, len, "cpu.cfs_period_us", period) < 0
               ? -1
               : metrics_parse_cfs(text, period, cpus);
}

/* The narrowest of the quotas from the group up to the top, and of width. */
static double cpu_limit(const struct cgroup *g, unsigned width)
{
    size_t len = strlen(g->path);
    double least = width;
    double here;
    int i;

    for (i = 0; len && i < LEVELS_MAX; i++, len = above(g, len))
        if (limit_at(g, len, &here) == 0 && here > 0 && here < least)
            least = here;
    return least;
}

int usage_cpu(const struct cgroups *c, uint64_t *cpu_us, struct err *e)
{
    const struct cgroup *g = c->cpuacct.version == 1 ? &c->cpuacct : &c->cpu;
    char text[TEXT_MAX];
    uint64_t n;

    if (*g->path && g->version == 2 && read_at(g, strlen(g->path), "cpu.stat", text) == 0 &&
        metrics_parse_key(text, "usage_usec", cpu_us) == 0)
        return 0;
    if (*g->path && g->version == 1 && amount_at(g, strlen(g->path), "cpuacct.usage", &n) == 0) {
        *cpu_us = n / NS_PER_US;
        return 0;
    }
    if (read_proc(c, "stat", text, e) < 0)
        return -1;
    if (metrics_parse_busy(text, &n) < 0)
        return err_set(e, ERRC_INTERNAL, "/proc/stat does not begin with the times of all CPUs");
    *cpu_us = n * TICK_US;
    return 0;
}

unsigned usage_width(void)
{
    cpu_set_t *set = CPU_ALLOC(WIDTH_MAX);
    size_t size = CPU_ALLOC_SIZE(WIDTH_MAX);
    int n = set && sched_getaffinity(0, size, set) == 0 ? CPU_COUNT_S(size, set) : 0;

    if (set)
        CPU_FREE(set);
    return n > 0 ? (unsigned)n : 1;
}

/* ---- memory ---- */

static int machine_memory(const struct cgroups *c, struct usage *out, struct err *e)
{
    char text[TEXT_MAX];
    uint64_t total;
    uint64_t available;

    if (read_proc(c, "meminfo", text, e) < 0)
        return -1;
    if (metrics_parse_key(text, "MemTotal", &total) < 0 ||
        (metrics_parse_key(text, "MemAvailable", &available) < 0 &&
         metrics_parse_key(text, "MemFree", &available) < 0))
        return err_set(e, ERRC_INTERNAL, "/proc/meminfo has no MemTotal or no MemAvailable");
    if (available > total)
        available = total;
    out->mem_total = total << 10;
    out->mem_used = (total - available) << 10;
    return 0;
}

static uint64_t less(uint64_t from, const char *stat, const char *key)
{
    uint64_t n;

    if (metrics_parse_key(stat, key, &n) < 0)
        return from;
    return n < from ? from - n : 0;
}

/* What the kernel takes back before it kills: pages of files that are not tmpfs', and slabs. */
static int used_at(const struct cgroup *g, size_t len, uint64_t *out)
{
    bool v2 = g->version == 2;
    char stat[TEXT_MAX];
    uint64_t used;

    if (amount_at(g, len, v2 ? "memory.current" : "memory.usage_in_bytes", &used) < 0 ||
        read_at(g, len, "memory.stat", stat) < 0)
        return -1;
    used = less(used, stat, v2 ? "inactive_file" : "total_inactive_file");
    used = less(used, stat, v2 ? "active_file" : "total_active_file");
    *out = v2 ? less(used, stat, "slab_reclaimable") : used;
    return 0;
}

/* The limit in force for a directory: its own, and of version 1 also those above the visible. */
static uint64_t memory_limit(const struct cgroup *g, size_t len)
{
    char stat[TEXT_MAX];
    uint64_t limit = METRICS_UNLIMITED;
    uint64_t more;

    (void)amount_at(g, len, g->version == 2 ? "memory.max" : "memory.limit_in_bytes", &limit);
    if (g->version == 1 && read_at(g, len, "memory.stat", stat) == 0 &&
        metrics_parse_key(stat, "hierarchical_memory_limit", &more) == 0 && more < limit)
        limit = more;
    return limit;
}

/* The tightest limit from the group up to the top decides whose use counts. */
static void group_memory(const struct cgroup *g, struct usage *out)
{
    size_t len = strlen(g->path);
    size_t at = len;
    uint64_t used;
    uint64_t here;
    int i;

    for (i = 0; len && i < LEVELS_MAX; i++, len = above(g, len)) {
        here = memory_limit(g, len);
        if (here < out->mem_total) {
            out->mem_total = here;
            at = len;
        }
    }
    if (at && used_at(g, at, &used) == 0)
        out->mem_used = used;
    if (out->mem_used > out->mem_total)
        out->mem_used = out->mem_total;
}

int usage_read(const struct cgroups *c, unsigned width, struct usage *out, struct err *e)
{
    struct usage u = { 0 };

    if (machine_memory(c, &u, e) < 0 || usage_cpu(c, &u.cpu_us, e) < 0)
        return -1;
    group_memory(&c->memory, &u);
    u.cpus = cpu_limit(&c->cpu, width);
    *out = u;
    return 0;
}
