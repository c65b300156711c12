#include "gateway/runtime/docker/image.h"

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/macros.h"
#include "common/json/jx.h"
#include "gateway/runtime/docker/engine.h"
#include "gateway/runtime/docker/names.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_MAX = 300, API_PLATFORM = 49 }; /* 1.49: images are inspected by platform */

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

int image_name(const struct runtime_image *image, char out[IMAGE_REF], struct err *e)
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

void image_platform(const char *os, const char *arch, char out[IMAGE_PLATFORM])
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

/* ---- looking ---- */

/* A store that holds several platforms under one name answers for the one that is asked for. */
static int add_platform(struct engine *en, const char *platform, struct buf *path)
{
    const char *slash = strchr(platform, '/');
    char text[2 * IMAGE_PLATFORM];

    if (!slash || engine_version(en) < API_PLATFORM)
        return 0;
    (void)snprintf(text, sizeof(text), "{\"os\":\"%.*s\",\"architecture\":\"%s\"}",
                   (int)(slash - platform), platform, slash + 1);
    return engine_query(path, "platform", text);
}

static int take_found(const struct engine_reply *r, const char *want, struct image_found *out,
                      struct err *e)
{
    json_auto_t *about = jx_parse(r->body.data ? r->body.data : "", r->body.len, true, e);
    const char *os = "";
    const char *arch = "";

    if (!about || json_unpack(about, "{s?s, s?s}", "Os", &os, "Architecture", &arch) < 0)
        return err_set(e, ERRC_BAD_GATEWAY, "the container engine described an image oddly");
    out->there = true;
    image_platform(os, arch, out->platform);
    out->fits = !*want || strcmp(want, out->platform) == 0;
    return 0;
}

int image_look(struct engine *en, const struct runtime_image *image, struct image_found *out,
               struct err *e)
{
    AUTO_BUF struct buf path = BUF_INIT(4 * IMAGE_REF);
    AUTO_REPLY struct engine_reply r = { 0 };
    struct engine_call c = { .method = "GET" };
    char name[IMAGE_REF];
    char want[IMAGE_PLATFORM];

    if (image_name(image, name, e) < 0)
        return -1;
    image_platform(image->platform_os, image->platform_arch, want);
    if (buf_printf(&path, "/images/%s/json", name) < 0 || add_platform(en, want, &path) < 0)
        return err_nomem(e);
    c.path = path.data;
    if (engine_send(en, &c, &r, e) < 0)
        return -1;
    *out = (struct image_found){ 0 };
    if (r.status == 404)
        return 0;
    if (r.status != 200) {
        (void)engine_refused(&r, "look at the image", e);
        if (r.status == 400 && e)
            e->api_code = "SANDBOX::INVALID_PARAMETER";
        return -1;
    }
    return take_found(&r, want, out, e);
}

int image_no_snapshot(const struct runtime_image *image, const char *why, struct err *e)
{
    return err_api(e, ERRC_CONFLICT, "SNAPSHOT::INVALID_RESTORE_CONFIG",
                   "the image of snapshot %.64s cannot be used on this engine: %.*s",
                   image->snapshot_id, TEXT_MAX, why);
}
