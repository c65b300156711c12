/* Resource quantities, metadata labels, platforms, names: table-driven, limits and one past them. */
#include "tests/unit/test.h"

#include "common/base/err.h"
#include "gateway/domain/claim.h"
#include "gateway/domain/metadata.h"
#include "gateway/domain/platform.h"
#include "gateway/domain/resources.h"
#include "gateway/runtime/runtime.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static int parse(const char *key, const char *value, struct resources *r, struct err *e)
{
    json_t *map = json_pack("{s:s}", key, value);
    int rc = resources_parse(map, r, e);

    json_decref(map);
    return rc;
}

static void memory_units(void **state)
{
    static const struct {
        const char *text;
        int64_t bytes; /* 0: refused */
    } rows[] = {
        { "512Mi", 536870912 },
        { "512M", 512000000 },
        { "2Gi", 2147483648 },
        { "2g", 2000000000 },
        { "1.5Gi", 1610612736 },
        { " 64mb ", 64000000 },
        { "6291456", 6291456 },
        { "6291455", 0 },
        { "1Ti", 1099511627776 },
        { "-1Gi", 0 },
        { "inf", 0 },
        { "1Q", 0 },
        { "512MiB", 0 },
        { "", 0 },
        { "0", 0 },
        { "Gi", 0 },
        { "1 2Gi", 0 },
        { "1e3Mi", 0 },
        { "0.5Pi", 562949953421312 },
        { "1Pi", 1125899906842624 },
        { "2PB", 2000000000000000 },
        { "7Ei", 8070450532247928832 },
        { "8Ei", 0 },
        { "99999999999Ti", 0 },
        { "1..5Gi", 0 },
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct resources r = { 0 };
        struct err e;
        int rc = parse("memory", rows[i].text, &r, &e);

        if ((rc == 0) != (rows[i].bytes != 0) || r.memory_bytes != rows[i].bytes)
            fail_msg("memory '%s': rc %d, %lld bytes", rows[i].text, rc, (long long)r.memory_bytes);
        if (rc < 0) {
            assert_string_equal(e.api_code, "SANDBOX::INVALID_PARAMETER");
            assert_contains(e.msg, "resourceLimits.memory");
        }
    }
}

static void cpu_quantities(void **state)
{
    static const struct {
        const char *text;
        int64_t nano;
    } rows[] = {
        { "500m", 500000000 },
        { "0.5", 500000000 },
        { "2", 2000000000 },
        { "1e1", 10000000000 },
        { "NaN", 0 },
        { "0", 0 },
        { "-1", 0 },
        { "0.0000000001", 0 },
        { "0.01", 10000000 },
        { "10m", 10000000 },
        { "9.9m", 0 },
        { "0.00999", 0 },
        { "", 0 },
        { "m", 0 },
        { "1e300", 0 },
        { "1 ", 0 },
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct resources r = { 0 };
        int rc = parse("cpu", rows[i].text, &r, NULL);

        if ((rc == 0) != (rows[i].nano != 0) || r.nano_cpus != rows[i].nano)
            fail_msg("cpu '%s': rc %d, %lld", rows[i].text, rc, (long long)r.nano_cpus);
    }
}

static void disk_has_three_names_and_one_value(void **state)
{
    static const char *const names[] = { "disk", "storage", "ephemeral-storage" };
    struct resources r;
    struct err e;
    json_t *two;
    size_t i;

    (void)state;
    for (i = 0; i < 3; i++) {
        assert_int_equal(parse(names[i], "1Mi", &r, &e), 0);
        assert_int_equal(r.disk_bytes, RESOURCES_DISK_MIN);
        assert_int_equal(parse(names[i], "1048575", &r, &e), -1);
        assert_contains(e.msg, names[i]);
        two = json_pack("{s:s, s:s}", names[i], "1Gi", names[(i + 1) % 3], "1Gi");
        assert_int_equal(resources_parse(two, &r, &e), -1);
        assert_contains(e.msg, names[(i + 1) % 3]);
        json_decref(two);
    }
}

static void gpus_are_a_number_or_all(void **state)
{
    static const char *const bad[] = { "0", "-1", "1.5", "", " 1", "1025", "some" };
    struct resources r;
    struct err e;
    size_t i;

    (void)state;
    assert_int_equal(parse("gpu", "1", &r, &e), 0);
    assert_int_equal(r.gpus, 1);
    assert_int_equal(parse("gpu", "1024", &r, &e), 0);
    assert_int_equal(r.gpus, RESOURCES_GPUS_MAX);
    assert_int_equal(parse("gpu", "all", &r, &e), 0);
    assert_int_equal(r.gpus, RUNTIME_GPUS_ALL);
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(parse("gpu", bad[i], &r, &e), -1);
        assert_contains(e.msg, "resourceLimits.gpu");
    }
}

static void unknown_resources_are_named(void **state)
{
    struct resources r;
    struct err e;

    (void)state;
    assert_int_equal(resources_parse(NULL, &r, NULL), 0);
    assert_int_equal(parse("foo", "2", &r, &e), -1);
    assert_string_equal(e.api_code, "SANDBOX::INVALID_PARAMETER");
    assert_contains(e.msg, "resourceLimits.foo");
    assert_contains(e.msg, "cpu, memory, gpu or disk");
}

static void parts_of_a_cpu_count_as_one(void **state)
{
    (void)state;
    assert_int_equal(resources_whole_cpus(&(struct resources){ 0 }), 0);
    assert_int_equal(resources_whole_cpus(&(struct resources){ .nano_cpus = 1 }), 1);
    assert_int_equal(resources_whole_cpus(&(struct resources){ .nano_cpus = 1000000000 }), 1);
    assert_int_equal(resources_whole_cpus(&(struct resources){ .nano_cpus = 1000000001 }), 2);
    assert_int_equal(resources_whole_cpus(&(struct resources){ .nano_cpus = INT64_MAX }),
                     INT32_MAX);
}

static void platform_words(void **state)
{
    static const struct {
        const char *os;
        const char *arch;
        const char *text; /* NULL: accepted as linux, amd64 */
    } rows[] = {
        { "linux", "amd64", NULL },
        { " Linux ", "AMD64\n", NULL },
        { "plan9", "amd64", "platform.os" },
        { "", "amd64", "platform.os" },
        { "linux", "riscv64", "platform.arch" },
        { "linux", "", "platform.arch" },
        { "linux x", "amd64", "platform.os" },
        { "windows", "amd64", "windows is not supported" },
        { "windows", "mips", "platform.arch" },
    };
    const char *os = NULL;
    const char *arch = NULL;
    struct err e;
    size_t i;

    (void)state;
    assert_int_equal(platform_check(&os, &arch, &e), 0);
    assert_null(os);
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        os = rows[i].os;
        arch = rows[i].arch;
        if (!rows[i].text) {
            assert_int_equal(platform_check(&os, &arch, &e), 0);
            assert_string_equal(os, "linux");
            assert_string_equal(arch, "amd64");
            continue;
        }
        assert_int_equal(platform_check(&os, &arch, &e), -1);
        assert_string_equal(e.api_code, "SANDBOX::INVALID_PARAMETER");
        assert_contains(e.msg, rows[i].text);
    }
}

static void environment_names(void **state)
{
    static const struct {
        const char *key;
        bool ok;
    } rows[] = {
        { "A", true },
        { "a.b", true },
        { "", false },
        { "A=B", false },
        { "OPENSANDBOX_LIFECYCLE", false },
        { "OPENSANDBOX_ID", true },
        { "OPENSANDBOX_EGRESS_LOG_LEVEL", true },
        { "OPENSANDBOX_EGRESS_POLICY_FILE", true },
        { "OPENSANDBOX_EGRESS_TOKEN", false },
        { "OPENSANDBOX_EGRESS_", false },
    };
    struct err e;
    json_t *env;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        env = json_pack("{s:s}", rows[i].key, "1");
        if ((claim_check_env(env, &e) == 0) != rows[i].ok)
            fail_msg("env '%s'", rows[i].key);
        if (!rows[i].ok) {
            assert_string_equal(e.api_code, "SANDBOX::INVALID_PARAMETER");
            assert_contains(e.msg, rows[i].key);
        }
        json_decref(env);
    }
    env = json_pack("{s:n}", "OPENSANDBOX_EGRESS_TOKEN"); /* null: not given */
    assert_int_equal(claim_check_env(env, &e), 0);
    json_decref(env);
}

/* A variable that no program could be started with is said to be it, not the program. */
static void a_variable_has_a_limit(void **state)
{
    char *value = calloc(1, CLAIM_VARIABLE_MAX + 1);
    struct err e;
    json_t *env;

    (void)state;
    memset(value, 'x', CLAIM_VARIABLE_MAX - strlen("A="));
    env = json_pack("{s:s}", "A", value);
    assert_int_equal(claim_check_env(env, &e), 0);
    json_decref(env);
    env = json_pack("{s:s}", "AB", value);
    assert_int_equal(claim_check_env(env, &e), -1);
    assert_string_equal(e.api_code, "SANDBOX::INVALID_PARAMETER");
    assert_contains(e.msg, "env.AB: ");
    json_decref(env);
    free(value);
}

static void label_syntax(void **state)
{
    char name63[64];
    char name64[65];
    char value63[64];
    char value64[65];
    struct {
        const char *key;
        const char *value;
        bool ok;
    } rows[] = {
        { "app", "demo", true },
        { "app", "", true },
        { "a.b-c_D", "x.y-z_1", true },
        { "example.com/app", "1", true },
        { "Example.com/app", "1", false },
        { "-x.com/app", "1", false },
        { "x-.com/app", "1", false },
        { "a..b/app", "1", false },
        { "/app", "1", false },
        { "a/b/c", "1", false },
        { "", "1", false },
        { "-a", "1", false },
        { "a-", "1", false },
        { "app", "two words", false },
        { "app", "-x", false },
        { "app", "caf\xc3\xa9", false },
        { "opensandbox.io/id", "x", false },
        { "opensandbox.io", "x", true },
        { name63, value63, true },
        { name64, "v", false },
        { "k", value64, false },
    };
    size_t i;

    (void)state;
    memset(name63, 'a', 63);
    memset(name64, 'a', 64);
    name63[63] = name64[64] = '\0';
    memcpy(value63, name63, 64);
    memcpy(value64, name64, 65);
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int rc = metadata_check_entry(rows[i].key, rows[i].value, NULL);

        if ((rc == 0) != rows[i].ok)
            fail_msg("'%s' = '%s' gave %d", rows[i].key, rows[i].value, rc);
    }
    /* a deletion is not checked for syntax, only for the reserved prefix */
    assert_int_equal(metadata_check_entry("not a label", NULL, NULL), 0);
    assert_int_equal(metadata_check_entry("opensandbox.io/x", NULL, NULL), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_units),
        cmocka_unit_test(cpu_quantities),
        cmocka_unit_test(disk_has_three_names_and_one_value),
        cmocka_unit_test(gpus_are_a_number_or_all),
        cmocka_unit_test(unknown_resources_are_named),
        cmocka_unit_test(parts_of_a_cpu_count_as_one),
        cmocka_unit_test(platform_words),
        cmocka_unit_test(environment_names),
        cmocka_unit_test(a_variable_has_a_limit),
        cmocka_unit_test(label_syntax),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
