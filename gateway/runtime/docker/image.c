#include "gateway/runtime/docker/image.h"

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/json/jx.h"
#include "gateway/runtime/docker/engine.h"
#include "gateway/runtime/docker/names.h"

#include <stdio.h>
#include <string.h>

enum { TEXT_MAX = 300, API_PLATFORM = 49 }; /* 1.49: images are inspected by platform */

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
    json_auto_t *about = jx_parse_foreign(r->body.data, r->body.len, e);
    const char *os = "";
    const char *arch = "";

    if (!about || json_unpack(about, "{s?s, s?s}", "Os", &os, "Architecture", &arch) < 0)
        return err_set(e, ERRC_BAD_GATEWAY, "the container engine described an image oddly");
    out->there = true;
    image_ref_platform(os, arch, out->platform);
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

    if (image_ref_name(image, name, e) < 0)
        return -1;
    image_ref_platform(image->platform_os, image->platform_arch, want);
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
