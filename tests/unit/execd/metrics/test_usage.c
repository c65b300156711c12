/* Trees of files as the kernel shows them: cgroups of version 1 and 2, nested, without limits, none. */
#include "tests/unit/test.h"

#include "common/base/err.h"
#include "execd/metrics/sampler.h"
#include "execd/metrics/usage.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB (1024 * 1024)

static char root[] = "/tmp/test_usage.XXXXXX";

static void put(const char *path, const char *text)
{
    char full[512];
    char *slash;
    FILE *f;

    (void)snprintf(full, sizeof(full), "%s/%s", root, path);
    for (slash = strchr(full + sizeof(root), '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(full, 0755);
        *slash = '/';
    }
    f = fopen(full, "w");
    assert_non_null(f);
    (void)fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st, (void)kind;
    return ftw->level ? remove(path) : 0;
}

static int setup(void **state)
{
    (void)state;
    put("proc/meminfo", "MemTotal: 2097152 kB\nMemFree: 1024 kB\nMemAvailable: 1048576 kB\n");
    put("proc/stat", "cpu  100 0 50 9999 1 0 0 0 0 0\n");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static struct usage look(unsigned width)
{
    struct cgroups c;
    struct usage u = { 0 };
    struct err e = { 0 };
    uint64_t cpu_us;

    cgroups_find(&c, root);
    if (usage_read(&c, width, &u, &e) < 0)
        fail_msg("%s", e.msg);
    assert_int_equal(usage_cpu(&c, &cpu_us, &e), 0);
    assert_int_equal(cpu_us, u.cpu_us);
    return u;
}

static void machine(void **state)
{
    struct usage u = look(4);

    (void)state;
    assert_true(u.cpus == 4);
    assert_int_equal(u.cpu_us, 1500000);
    assert_int_equal(u.mem_total, 2048LL * MIB);
    assert_int_equal(u.mem_used, 1024LL * MIB);
}

#define V2_MOUNT "31 23 0:28 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw\n"

/* As in a container with its own cgroup namespace. */
static void version_2(void **state)
{
    struct usage u;

    (void)state;
    put("proc/self/cgroup", "0::/\n");
    put("proc/self/mountinfo", "30 23 0:27 / / rw - overlay o rw\n" V2_MOUNT);
    put("sys/fs/cgroup/memory.max", "536870912\n");
    put("sys/fs/cgroup/memory.current", "314572800\n");
    put("sys/fs/cgroup/memory.stat",
        "anon 1\nfile 3\nactive_file 104857600\ninactive_file 52428800\nslab_reclaimable 1048576\n");
    put("sys/fs/cgroup/cpu.max", "150000 100000\n");
    put("sys/fs/cgroup/cpu.stat", "usage_usec 123456\nuser_usec 1\n");
    u = look(4);
    assert_true(u.cpus == 1.5);
    assert_int_equal(u.cpu_us, 123456);
    assert_int_equal(u.mem_total, 512LL * MIB);
    assert_int_equal(u.mem_used, (300 - 100 - 50 - 1) * MIB);

    put("sys/fs/cgroup/memory.max", "max\n"); /* no limits: the machine's size, the own use */
    put("sys/fs/cgroup/cpu.max", "max 100000\n");
    u = look(2);
    assert_true(u.cpus == 2);
    assert_int_equal(u.mem_total, 2048LL * MIB);
    assert_int_equal(u.mem_used, 149LL * MIB);
}

/* The limit is on a directory above: what all below it use counts. */
static void nested_version_2(void **state)
{
    struct usage u;

    (void)state;
    put("proc/self/cgroup", "0::/box/init\n");
    put("proc/self/mountinfo", V2_MOUNT);
    put("sys/fs/cgroup/box/init/memory.max", "max\n");
    put("sys/fs/cgroup/box/init/memory.current", "1048576\n");
    put("sys/fs/cgroup/box/init/memory.stat", "inactive_file 0\n");
    put("sys/fs/cgroup/box/init/cpu.max", "max 100000\n");
    put("sys/fs/cgroup/box/init/cpu.stat", "usage_usec 5\n");
    put("sys/fs/cgroup/box/memory.max", "268435456\n");
    put("sys/fs/cgroup/box/memory.current", "104857600\n");
    put("sys/fs/cgroup/box/memory.stat", "inactive_file 1048576\n");
    put("sys/fs/cgroup/box/cpu.max", "50000 100000\n");
    u = look(4);
    assert_true(u.cpus == 0.5);
    assert_int_equal(u.cpu_us, 5);
    assert_int_equal(u.mem_total, 256LL * MIB);
    assert_int_equal(u.mem_used, 99LL * MIB);
}

/* As in a container of version 1, which sees the host's names: hybrid, with an empty version 2. */
static void version_1(void **state)
{
    struct usage u;

    (void)state;
    put("proc/self/cgroup", "3:memory:/docker/ab\n2:cpuacct,cpu:/docker/ab\n0::/docker/ab\n");
    put("proc/self/mountinfo",
        "81 80 0:29 /docker/ab /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
        "84 80 0:32 /docker/ab /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n" V2_MOUNT);
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("sys/fs/cgroup/memory/memory.usage_in_bytes", "209715200\n");
    put("sys/fs/cgroup/memory/memory.stat",
        "inactive_file 1\nhierarchical_memory_limit 536870912\ntotal_inactive_file 52428800\n"
        "total_active_file 52428800\n");
    put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "200000\n");
    put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    put("sys/fs/cgroup/cpu,cpuacct/cpuacct.usage", "7000123\n");
    u = look(8);
    assert_true(u.cpus == 2);
    assert_int_equal(u.cpu_us, 7000);
    assert_int_equal(u.mem_total, 512LL * MIB);
    assert_int_equal(u.mem_used, 100LL * MIB);

    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "104857600\n"); /* the tighter one counts */
    put("sys/fs/cgroup/memory/memory.usage_in_bytes", "309715200\n");
    put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    u = look(1);
    assert_true(u.cpus == 1);
    assert_int_equal(u.mem_total, 100LL * MIB);
    assert_int_equal(u.mem_used, 100LL * MIB); /* never more than there is */
}

/* Rubbish in the files is as good as none; a machine that says nothing is an error. */
static void broken(void **state)
{
    struct cgroups c;
    struct usage u;
    struct err e = { 0 };

    (void)state;
    put("proc/self/cgroup", "0::/../../etc\nrubbish\n");
    put("proc/self/mountinfo", V2_MOUNT);
    put("sys/fs/cgroup/memory.max", "-5\n");
    put("sys/fs/cgroup/memory.current", "\n");
    put("sys/fs/cgroup/cpu.max", "1 0\n");
    put("sys/fs/cgroup/cpu.stat", "\n");
    u = look(3);
    assert_true(u.cpus == 3);
    assert_int_equal(u.mem_used, 1024LL * MIB);
    assert_int_equal(u.cpu_us, 1500000);

    cgroups_find(&c, root);
    put("proc/meminfo", "MemTotal: 5 kB\n");
    assert_int_equal(usage_read(&c, 1, &u, &e), -1);
    assert_contains(e.msg, "MemAvailable");
    put("proc/stat", "intr 5\n");
    assert_int_equal(usage_cpu(&c, &u.cpu_us, &e), -1);
    cgroups_find(&c, "/no/such/place");
    assert_int_equal(usage_read(&c, 1, &u, &e), -1);
    assert_contains(e.msg, "/no/such/place/proc/meminfo");
}

static void percentages(void **state)
{
    struct sampler s = { 0 };

    (void)state;
    assert_true(sampler_percent(&s, 1000, 5, 1) == 0);
    sampler_add(&s, 1000, 1000000);
    assert_true(sampler_percent(&s, 1000, 1000000, 1) == 0); /* at the same moment */
    assert_true(sampler_percent(&s, 1100, 1050000, 1) == 50);
    assert_true(sampler_percent(&s, 2000, 1500000, 1) == 50);
    assert_true(sampler_percent(&s, 2000, 1500000, 2) == 25);
    assert_true(sampler_percent(&s, 2000, 1500000, 0.5) == 100);
    assert_true(sampler_percent(&s, 2000, 9000000, 1) == 100); /* never more */
    assert_true(sampler_percent(&s, 2000, 900000, 1) == 0);    /* a counter that went back */
    sampler_add(&s, 2000, 1500000);
    sampler_add(&s, 2100, 1600000);                          /* too soon to be kept */
    assert_true(sampler_percent(&s, 2200, 1740000, 1) > 61); /* since 1000 */
    assert_true(sampler_percent(&s, 2200, 1740000, 1) < 62);
    assert_true(sampler_percent(&s, 2500, 1550000, 1) == 10); /* since 2000 */
}

static void width(void **state)
{
    (void)state;
    assert_true(usage_width() >= 1 && usage_width() <= (unsigned)sysconf(_SC_NPROCESSORS_CONF));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(machine, setup, teardown),
        cmocka_unit_test_setup_teardown(version_2, setup, teardown),
        cmocka_unit_test_setup_teardown(nested_version_2, setup, teardown),
        cmocka_unit_test_setup_teardown(version_1, setup, teardown),
        cmocka_unit_test_setup_teardown(broken, setup, teardown),
        cmocka_unit_test(percentages),
        cmocka_unit_test(width),
    };
    int failed;

    if (!mkdtemp(root))
        return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)rmdir(root);
    return failed;
}
