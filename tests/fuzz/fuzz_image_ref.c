/* An image's name from a request: what is accepted stays in its place in the engine's paths, and splits into
 * parts that make it up again. */
#include "tests/fuzz/fuzz.h"

#include "gateway/runtime/docker/image_ref.h"

#include <stdio.h>

static void check_place(const char *name)
{
    const char *at;

    MUST(*name && *name != '/' && *name != '.' && strlen(name) < IMAGE_REF);
    MUST(!strpbrk(name, "?#%\\ \r\n\t\"") && !strstr(name, "//") && !strstr(name, "/."));
    for (at = name; *at; at++)
        MUST((unsigned char)*at > ' ' && (unsigned char)*at < 0x7f);
}

static void check_split(const char *name)
{
    struct image_ref ref;
    char again[2 * IMAGE_REF + 2];

    if (image_ref_split(name, &ref) < 0)
        return;
    (void)snprintf(again, sizeof(again), "%s:%s", ref.name, ref.tag);
    if (strcmp(again, name) == 0)
        return;
    (void)snprintf(again, sizeof(again), "%s:latest", name);
    if (strchr(name, '@'))
        MUST(strncmp(name, ref.name, strlen(ref.name)) == 0 &&
             strcmp(strchr(name, '@') + 1, ref.tag) == 0);
    else
        MUST(strncmp(again, ref.name, strlen(ref.name)) == 0 && strcmp(ref.tag, "latest") == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    const struct runtime_image image = { .ref = text };
    char name[IMAGE_REF];
    char platform[IMAGE_PLATFORM];

    image_ref_platform("linux", text, platform);
    MUST(strlen(platform) < IMAGE_PLATFORM);
    if (image_ref_name(&image, name, NULL) == 0) {
        MUST(strcmp(name, text) == 0);
        check_place(name);
        check_split(name);
    }
    free(text);
    return 0;
}
