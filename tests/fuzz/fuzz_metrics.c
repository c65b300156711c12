/* Files of the kernel that a sandbox may have put its own in place of: no read beyond the text, and
 * nothing but what the header promises. */
#include "tests/fuzz/fuzz.h"

#include "execd/metrics/parse.h"

#include <math.h>

static void numbers(const char *text)
{
    const char *second = strchr(text, '\n');
    double cpus;
    uint64_t n;

    (void)metrics_parse_key(text, "MemTotal", &n);
    (void)metrics_parse_key(text, "usage_usec", &n);
    (void)metrics_parse_busy(text, &n);
    if (metrics_parse_amount(text, &n) == 0)
        MUST(n == METRICS_UNLIMITED || (text[0] >= '0' && text[0] <= '9'));
    if (metrics_parse_cpu_max(text, &cpus) == 0)
        MUST(isfinite(cpus) && cpus >= 0);
    if (second && metrics_parse_cfs(text, second + 1, &cpus) == 0)
        MUST(isfinite(cpus) && cpus >= 0);
}

static void places(const char *text, const char *controller)
{
    struct metrics_mount m;
    const char *path;
    int len;

    if (metrics_parse_member(text, controller, &path, &len) == 1)
        MUST(path >= text && path[0] == '/' && len > 0 && path + len <= text + strlen(text));
    if (metrics_parse_mount(text, controller, &m) == 1)
        MUST(m.root[0] == '/' && m.point[0] == '/' && strlen(m.point) < METRICS_PATH);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);

    numbers(text);
    places(text, "");
    places(text, "memory");
    places(text, "cpuacct");
    free(text);
    return 0;
}
