#include "gateway/domain/resources.h"

#include "common/base/err.h"
#include "common/base/macros.h"
#include "common/base/num.h"
#include "gateway/runtime/runtime.h"

#include <ctype.h>
#include <math.h>
#include <string.h>
#include <strings.h>

enum { NUMBER_MAX = 32 };

static int bad(const char *key, const char *value, const char *want, struct err *e)
{
    return err_api(e, ERRC_INVALID, "SANDBOX::INVALID_PARAMETER",
                   "resourceLimits.%s: '%.80s' is not valid; use %s", key, value, want);
}

/* Splits "1.5Gi" into 1.5 and its unit "Gi", blanks around it ignored. */
static int split(const char *s, double *number, char unit[8])
{
    char digits[NUMBER_MAX];
    size_t n;
    size_t len;

    while (isspace((unsigned char)*s))
        s++;
    n = strspn(s, "0123456789.");
    if (!n || n >= sizeof(digits))
        return -1;
    memcpy(digits, s, n);
    digits[n] = '\0';
    s += n;
    len = strcspn(s, " \t\r\n");
    if (len >= 8 || s[len + strspn(s + len, " \t\r\n")])
        return -1;
    memcpy(unit, s, len);
    unit[len] = '\0';
    return num_parse_double(digits, number);
}

static double byte_unit(const char *unit)
{
    static const struct {
        const char *name;
        double bytes;
    } units[] = {
        { "", 1 },
        { "b", 1 },
        { "k", 1e3 },
        { "kb", 1e3 },
        { "ki", 1024.0 },
        { "m", 1e6 },
        { "mb", 1e6 },
        { "mi", 1048576.0 },
        { "g", 1e9 },
        { "gb", 1e9 },
        { "gi", 1073741824.0 },
        { "t", 1e12 },
        { "tb", 1e12 },
        { "ti", 1099511627776.0 },
        { "p", 1e15 },
        { "pb", 1e15 },
        { "pi", 1125899906842624.0 },
        { "e", 1e18 },
        { "eb", 1e18 },
        { "ei", 1152921504606846976.0 },
    };
    size_t i;

    for (i = 0; i < ARRAY_LEN(units); i++)
        if (strcasecmp(unit, units[i].name) == 0)
            return units[i].bytes;
    return 0;
}

static int parse_bytes(const char *key, const char *s, int64_t min, const char *want, int64_t *out,
                       struct err *e)
{
    char unit[8];
    double n;

    if (split(s, &n, unit) < 0 || byte_unit(unit) == 0)
        return bad(key, s, want, e);
    n = floor(n * byte_unit(unit));
    if (n < (double)min || n > 9e18)
        return bad(key, s, want, e);
    *out = (int64_t)n;
    return 0;
}

static int parse_cpu(const char *s, int64_t *out, struct err *e)
{
    static const char want[] = "a number of CPUs such as 0.5 or 500m, at least 0.01";
    char text[NUMBER_MAX];
    size_t len = strlen(s);
    double scale = 1e9;
    double n;

    if (!len || len >= sizeof(text))
        return bad("cpu", s, want, e);
    memcpy(text, s, len + 1);
    if (text[len - 1] == 'm') {
        text[len - 1] = '\0';
        scale = 1e6;
    }
    if (num_parse_double(text, &n) < 0)
        return bad("cpu", s, want, e);
    n = trunc(n * scale);
    if (n < RESOURCES_NANO_CPUS_MIN || n > 9.2e18)
        return bad("cpu", s, want, e);
    *out = (int64_t)n;
    return 0;
}

static int parse_gpu(const char *s, int *out, struct err *e)
{
    int64_t n;

    if (strcmp(s, "all") == 0) {
        *out = RUNTIME_GPUS_ALL;
        return 0;
    }
    if (num_parse_i64(s, 1, RESOURCES_GPUS_MAX, &n) < 0)
        return bad("gpu", s, "a number from 1 to 1024, or all", e);
    *out = (int)n;
    return 0;
}

static int parse_one(const char *key, const char *value, struct resources *r, struct err *e)
{
    static const char memory[] = "a number and a unit such as 512Mi or 2Gi, at least 6Mi";
    static const char disk[] = "a number and a unit such as 512Mi or 10Gi, at least 1Mi";

    if (strcmp(key, "memory") == 0)
        return parse_bytes(key, value, RESOURCES_MEMORY_MIN, memory, &r->memory_bytes, e);
    if (strcmp(key, "cpu") == 0)
        return parse_cpu(value, &r->nano_cpus, e);
    if (strcmp(key, "gpu") == 0)
        return parse_gpu(value, &r->gpus, e);
    if (strcmp(key, "disk") != 0 && strcmp(key, "storage") != 0 &&
        strcmp(key, "ephemeral-storage") != 0)
        return err_api(e, ERRC_INVALID, "SANDBOX::INVALID_PARAMETER",
                       "resourceLimits.%.80s: is not known here; use cpu, memory, gpu or disk "
                       "(also called storage, ephemeral-storage)",
                       key);
    if (r->disk_bytes)
        return err_api(e, ERRC_INVALID, "SANDBOX::INVALID_PARAMETER",
                       "resourceLimits.%s: the disk is limited under another name already; use one "
                       "of disk, storage, ephemeral-storage",
                       key);
    return parse_bytes(key, value, RESOURCES_DISK_MIN, disk, &r->disk_bytes, e);
}

int resources_parse(const json_t *map, struct resources *out, struct err *e)
{
    struct resources r = { 0 };
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)map, key, v) {
        if (parse_one(key, json_string_value(v), &r, e) < 0)
            return -1;
    }
    *out = r;
    return 0;
}

int resources_whole_cpus(const struct resources *r)
{
    const int64_t one = 1000000000;
    int64_t n = r->nano_cpus / one + (r->nano_cpus % one != 0);

    return n > INT32_MAX ? INT32_MAX : (int)n;
}
