#include "gateway/domain/resources.h"

#include "common/base/err.h"
#include "common/base/macros.h"
#include "common/base/num.h"

#include <ctype.h>
#include <math.h>
#include <string.h>
#include <strings.h>

enum { NUMBER_MAX = 32, ENGINE_MEMORY_MIN = 6 * 1024 * 1024 };

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

static double memory_unit(const char *unit)
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
    };
    size_t i;

    for (i = 0; i < ARRAY_LEN(units); i++)
        if (strcasecmp(unit, units[i].name) == 0)
            return units[i].bytes;
    return 0;
}

static int parse_memory(const char *s, int64_t *out, struct err *e)
{
    static const char want[] = "a number and a unit such as 512Mi or 2Gi, at least 6Mi";
    char unit[8];
    double n;

    if (split(s, &n, unit) < 0 || memory_unit(unit) == 0)
        return bad("memory", s, want, e);
    n = floor(n * memory_unit(unit));
    if (n < ENGINE_MEMORY_MIN || n > 9e18)
        return bad("memory", s, want, e);
    *out = (int64_t)n;
    return 0;
}

static int parse_cpu(const char *s, int64_t *out, struct err *e)
{
    static const char want[] = "a number of CPUs such as 0.5 or 500m";
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
    if (n < 1 || n > 9.2e18)
        return bad("cpu", s, want, e);
    *out = (int64_t)n;
    return 0;
}

int resources_parse(const json_t *map, struct resources *out, struct err *e)
{
    const char *memory = json_string_value(json_object_get(map, "memory"));
    const char *cpu = json_string_value(json_object_get(map, "cpu"));
    const char *gpu = json_string_value(json_object_get(map, "gpu"));
    struct resources r = { 0 };

    if (memory && parse_memory(memory, &r.memory_bytes, e) < 0)
        return -1;
    if (cpu && parse_cpu(cpu, &r.nano_cpus, e) < 0)
        return -1;
    if (gpu)
        return err_api(e, ERRC_INVALID, "SANDBOX::INVALID_PARAMETER",
                       "resourceLimits.gpu: this version cannot assign GPUs; leave it out");
    *out = r;
    return 0;
}
