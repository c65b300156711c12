/* Resource quantities of a create request. */
#include "tests/fuzz/fuzz.h"

#include "common/base/err.h"
#include "gateway/domain/metadata.h"
#include "gateway/domain/platform.h"
#include "gateway/domain/resources.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *s = fuzz_text(data, size);
    json_t *map = json_pack("{s:s, s:s, s:s, s:s}", "cpu", s, "memory", s, "disk", s, "gpu", s);
    const char *os = s;
    const char *arch = s;
    struct resources r = { 0 };
    struct err e = { 0 };

    if (map) { /* else: not UTF-8, which no request can hold */
        if (resources_parse(map, &r, &e) == 0)
            MUST(r.memory_bytes >= RESOURCES_MEMORY_MIN && r.disk_bytes >= RESOURCES_DISK_MIN &&
                 r.nano_cpus >= RESOURCES_NANO_CPUS_MIN && r.gpus && resources_whole_cpus(&r) > 0);
        else
            MUST(e.code == ERRC_INVALID && e.msg[0]);
        if (metadata_check_entry(s, s, &e) < 0)
            MUST(e.code == ERRC_INVALID && e.msg[0]);
        else
            MUST(strlen(s) <= 253 + 1 + 63);
    }
    if (platform_check(&os, &arch, &e) < 0)
        MUST(e.code == ERRC_INVALID && e.msg[0]);
    json_decref(map);
    free(s);
    return 0;
}
