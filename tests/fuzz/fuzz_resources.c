/* Resource quantities of a create request. */
#include "tests/fuzz/fuzz.h"

#include "common/base/err.h"
#include "gateway/domain/metadata.h"
#include "gateway/domain/resources.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *s = fuzz_text(data, size);
    json_t *map = json_pack("{s:s, s:s}", "cpu", s, "memory", s);
    struct resources r = { 0 };
    struct err e = { 0 };

    if (map) { /* else: not UTF-8, which no request can hold */
        if (resources_parse(map, &r, &e) == 0)
            MUST(r.memory_bytes >= 0 && r.nano_cpus >= 0);
        else
            MUST(e.code == ERRC_INVALID && e.msg[0]);
        if (metadata_check_entry(s, s, &e) < 0)
            MUST(e.code == ERRC_INVALID && e.msg[0]);
        else
            MUST(strlen(s) <= 253 + 1 + 63);
    }
    json_decref(map);
    free(s);
    return 0;
}
