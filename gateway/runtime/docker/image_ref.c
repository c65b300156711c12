#include "gateway/runtime/docker/image_ref.h"

#include "common/base/err.h"
#include "common/base/macros.h"
#include "gateway/runtime/docker/names.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* ---- names ---- */

static bool is_part_char(unsigned char c)
{
    return isalnum(c) || c == '.' || c == '_' || c == '-' || c == ':' || c == '@';
}

/* Whatever the engine's grammar says beyond it: no empty part and none that begins with a dot, so
 * that a reference cannot leave its place in a path. */
static bool is_reference(const char *s)
{
    size_t at = 0;

    if (!*s)
        return false;
    for (; *s; s++) {
        if (*s == '/' ? at == 0 : !is_part_char((unsigned char)*s))
            return false;
        if (at == 0 && (*s == '.' || *s == '-'))
            return false;
        at = *s == '/' ? 0 : at + 1;
    }
    return at > 0;
}

int image_ref_name(const struct runtime_image *image, char out[IMAGE_REF], struct err *e)
{
    const char *begin = image->snapshot_id ? SNAPSHOT_REPO ":" : "";
    const char *name = image->snapshot_id ? image->snapshot_id : image->ref;

    if (!name || strlen(begin) + strlen(name) >= IMAGE_REF)
        return err_api(e, ERRC_INVALID, "SANDBOX::INVALID_PARAMETER",
                       "image.uri: longer than %d characters", IMAGE_REF - 1);
    if (!is_reference(name))
        return err_api(e, ERRC_INVALID, "SANDBOX::INVALID_PARAMETER",
                       "image.uri: \"%.80s\" is not an image reference "
                       "([registry/]name[:tag][@digest])",
                       name);
    memcpy(out, begin, strlen(begin));
    memcpy(out + strlen(begin), name, strlen(name) + 1);
    return 0;
}

/* ---- platforms ---- */

static const struct {
    const char *alias;
    const char *arch;
} arches[] = {
    { "x86_64", "amd64" },  { "x86-64", "amd64" },   { "aarch64", "arm64" },
    { "arm64v8", "arm64" }, { "arm64/v8", "arm64" },
};

void image_ref_platform(const char *os, const char *arch, char out[IMAGE_PLATFORM])
{
    size_t i;

    out[0] = '\0';
    if (!os || !arch || !*os || !*arch)
        return;
    for (i = 0; i < ARRAY_LEN(arches); i++)
        if (strcasecmp(arch, arches[i].alias) == 0)
            arch = arches[i].arch;
    (void)snprintf(out, IMAGE_PLATFORM, "%s/%s", os, arch);
    for (i = 0; out[i]; i++)
        out[i] = (char)tolower((unsigned char)out[i]);
}

int image_ref_split(const char *image, struct image_ref *out)
{
    const char *at = strchr(image, '@');
    size_t len = at ? (size_t)(at - image) : strlen(image);
    const char *slash = memrchr(image, '/', len);
    const char *base = slash ? slash + 1 : image;
    const char *colon = memchr(base, ':', len - (size_t)(base - image));
    size_t name_len = colon ? (size_t)(colon - image) : len;
    const char *tag = at ? at + 1 : colon ? colon + 1 : "latest";

    if (strncmp(image, "sha256:", 7) == 0 || name_len >= IMAGE_REF || strlen(tag) >= IMAGE_REF)
        return -1;
    memcpy(out->name, image, name_len);
    out->name[name_len] = '\0';
    memcpy(out->tag, tag, strlen(tag) + 1);
    return 0;
}
