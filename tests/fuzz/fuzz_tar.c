/* Archives that the engine sends: entries lie within the archive, and reading ends. */
#include "tests/fuzz/fuzz.h"

#include "gateway/runtime/docker/tar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *archive = (const char *)data;
    struct tar_entry entry;
    size_t pos = 0;
    size_t last;

    do {
        last = pos;
        if (tar_next(archive, size, &pos, &entry) <= 0)
            return 0;
        MUST(pos > last && pos <= size + 512);
        MUST(memchr(entry.name, '\0', sizeof(entry.name)));
        MUST(entry.len <= size);
        if (entry.len)
            MUST(entry.data >= archive && entry.data + entry.len <= archive + size);
    } while (1);
}
