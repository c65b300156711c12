/* Texts of the kernel: what is right gives numbers, everything else nothing. */
#include "tests/unit/test.h"

#include "execd/metrics/parse.h"

#include <string.h>

static void keys(void **state)
{
    static const char text[] =
        "anon 4096\ninactive_file 8192\nfile 1\nMemTotal:       24683772 kB\n"
        "broken x\nhuge 99999999999999999999\ncut 12";
    uint64_t n = 7;

    (void)state;
    assert_int_equal(metrics_parse_key(text, "anon", &n), 0);
    assert_int_equal(n, 4096);
    assert_int_equal(metrics_parse_key(text, "file", &n), 0); /* a whole word at a line's start */
    assert_int_equal(n, 1);
    assert_int_equal(metrics_parse_key(text, "MemTotal", &n), 0);
    assert_int_equal(n, 24683772);
    assert_int_equal(metrics_parse_key(text, "cut", &n), 0);
    n = 7;
    assert_int_equal(metrics_parse_key(text, "broken", &n), -1);
    assert_int_equal(metrics_parse_key(text, "huge", &n), -1);
    assert_int_equal(metrics_parse_key(text, "an", &n), -1);
    assert_int_equal(metrics_parse_key("", "anon", &n), -1);
    assert_int_equal(n, 7);
}

static void amounts(void **state)
{
    uint64_t n;

    (void)state;
    assert_int_equal(metrics_parse_amount("536870912\n", &n), 0);
    assert_int_equal(n, 536870912);
    assert_int_equal(metrics_parse_amount("max\n", &n), 0);
    assert_true(n == METRICS_UNLIMITED);
    assert_int_equal(metrics_parse_amount("0", &n), 0);
    assert_int_equal(metrics_parse_amount("", &n), -1);
    assert_int_equal(metrics_parse_amount("-1\n", &n), -1);
    assert_int_equal(metrics_parse_amount("maximum\n", &n), -1);
    assert_int_equal(metrics_parse_amount("12x\n", &n), -1);
}

static void quotas(void **state)
{
    double cpus;

    (void)state;
    assert_int_equal(metrics_parse_cpu_max("50000 100000\n", &cpus), 0);
    assert_true(cpus == 0.5);
    assert_int_equal(metrics_parse_cpu_max("max 100000\n", &cpus), 0);
    assert_true(cpus == 0);
    assert_int_equal(metrics_parse_cpu_max("50000 0\n", &cpus), -1);
    assert_int_equal(metrics_parse_cpu_max("50000\n", &cpus), -1);
    assert_int_equal(metrics_parse_cpu_max("", &cpus), -1);
    assert_int_equal(metrics_parse_cfs("150000\n", "100000\n", &cpus), 0);
    assert_true(cpus == 1.5);
    assert_int_equal(metrics_parse_cfs("-1\n", "100000\n", &cpus), 0);
    assert_true(cpus == 0);
    assert_int_equal(metrics_parse_cfs("x\n", "100000\n", &cpus), -1);
    assert_int_equal(metrics_parse_cfs("1\n", "\n", &cpus), -1);
}

static void busy(void **state)
{
    uint64_t n;

    (void)state;
    assert_int_equal(metrics_parse_busy("cpu  10 20 30 1000 500 1 2 3 9 9\ncpu0 1 1 1 1\n", &n), 0);
    assert_int_equal(n, 10 + 20 + 30 + 1 + 2 + 3); /* guests are in user already */
    assert_int_equal(metrics_parse_busy("cpu  10 20 30 1000\n", &n), 0); /* an old kernel */
    assert_int_equal(metrics_parse_busy("cpu  10 20\n", &n), -1);
    assert_int_equal(metrics_parse_busy("cpu0 1 2 3 4\n", &n), -1);
    assert_int_equal(metrics_parse_busy("", &n), -1);
}

static void members(void **state)
{
    const char *path;
    int len;

    (void)state;
    assert_int_equal(metrics_parse_member("4:memory:/docker/ab\n", "memory", &path, &len), 1);
    assert_int_equal(len, 10);
    assert_memory_equal(path, "/docker/ab", 10);
    assert_int_equal(metrics_parse_member("2:cpu,cpuacct:/a:b\n", "cpuacct", &path, &len), 1);
    assert_memory_equal(path, "/a:b", 4);
    assert_int_equal(metrics_parse_member("2:cpu,cpuacct:/\n", "cpua", &path, &len), 0);
    assert_int_equal(metrics_parse_member("0::/user.slice\n", "", &path, &len), 1);
    assert_int_equal(metrics_parse_member("0::/user.slice\n", "memory", &path, &len), 0);
    assert_int_equal(metrics_parse_member("9:name=systemd:/\n", "", &path, &len), 0);
    assert_int_equal(metrics_parse_member("", "", &path, &len), 0);
    assert_int_equal(metrics_parse_member("4:memory\n", "memory", &path, &len), 0);
    assert_int_equal(metrics_parse_member("4:memory:\n", "memory", &path, &len), 0);
}

static void mounts(void **state)
{
    struct metrics_mount m;

    (void)state;
    assert_int_equal(metrics_parse_mount("84 80 0:32 /docker/ab /sys/fs/cgroup/memory ro,nosuid "
                                         "master:7 shared:3 - cgroup cgroup rw,memory\n",
                                         "memory", &m),
                     1);
    assert_string_equal(m.root, "/docker/ab");
    assert_string_equal(m.point, "/sys/fs/cgroup/memory");
    assert_int_equal(
        metrics_parse_mount("31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "", &m), 1);
    assert_int_equal(
        metrics_parse_mount("31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "cpu", &m), 0);
    assert_int_equal(
        metrics_parse_mount("1 2 0:3 / /a\\040b\\134 rw - cgroup x rw,cpu\n", "cpu", &m), 1);
    assert_string_equal(m.point, "/a b\\");
    assert_int_equal(metrics_parse_mount("1 2 0:3 / /a\\000b rw - cgroup x rw,cpu\n", "cpu", &m),
                     0);
    assert_int_equal(metrics_parse_mount("1 2 0:3 / relative rw - cgroup x rw,cpu\n", "cpu", &m),
                     0);
    assert_int_equal(metrics_parse_mount("1 2 0:3 / /a rw cgroup x rw,cpu\n", "cpu", &m), 0);
    assert_int_equal(metrics_parse_mount("1 2 0:3 / /a rw -\n", "", &m), 0);
    assert_int_equal(metrics_parse_mount("1 2 0:3 / /a rw - cgroup\n", "cpu", &m), 0);
    assert_int_equal(metrics_parse_mount("\n", "cpu", &m), 0);
    assert_int_equal(metrics_parse_mount("", "", &m), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys), cmocka_unit_test(amounts), cmocka_unit_test(quotas),
        cmocka_unit_test(busy), cmocka_unit_test(members), cmocka_unit_test(mounts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
