/* Resource quantities and metadata labels: table-driven, limits and one past them. */
#include "tests/unit/test.h"

#include "common/base/err.h"
#include "gateway/domain/metadata.h"
#include "gateway/domain/resources.h"

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

static void unknown_resources_are_ignored(void **state)
{
    struct resources r;

    (void)state;
    assert_int_equal(parse("disk", "1", &r, NULL), 0);
    assert_int_equal(resources_parse(NULL, &r, NULL), 0);
    assert_int_equal(parse("gpu", "1", &r, NULL), -1);
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
        cmocka_unit_test(unknown_resources_are_ignored),
        cmocka_unit_test(label_syntax),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
