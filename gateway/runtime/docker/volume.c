#include "gateway/runtime/docker/volume.h"

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/macros.h"
#include "common/json/jx.h"
#include "gateway/runtime/docker/docker.h"
#include "gateway/runtime/docker/engine.h"
#include "gateway/runtime/docker/names.h"

#include <string.h>

#define INSPECT_FAILED "VOLUME::PVC_INSPECT_FAILED"

enum { PATH_MAX_BYTES = 2048, TEXT_MAX = 400 };

static struct docker *docker_of(struct runtime *rt)
{
    return (struct docker *)rt; /* rt is its first member */
}

/* ---- reading ---- */

static const char *label_of(json_t *labels, const char *key)
{
    const char *v = json_string_value(json_object_get(labels, key));

    return v ? v : "";
}

static bool is_internal(const char *name, json_t *labels)
{
    static const char *const prefixes[] = { VOLUME_UPSTREAM, VOLUME_UPSTREAM_OEM, AGENT_REPO "-" };
    size_t i;

    for (i = 0; i < ARRAY_LEN(prefixes); i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return strcmp(label_of(labels, LABEL_ROLE), ROLE_AGENT) == 0;
}

/* The local driver mounts a device (a share, another directory) at its path only while a container
 * uses the volume: what is beneath the path then is not the volume's. */
static bool has_device(json_t *options)
{
    return *label_of(options, "device") || *label_of(options, "type");
}

static int read_volume(const struct docker *d, json_t *about, struct runtime_volume *out,
                       struct err *e)
{
    struct runtime_volume v = { 0 };
    const char *name;
    const char *driver;
    const char *path = "";
    json_t *labels = NULL;
    json_t *options = NULL;

    if (json_unpack(about, "{s:s, s:s, s?s, s?o, s?o}", "Name", &name, "Driver", &driver,
                    "Mountpoint", &path, "Labels", &labels, "Options", &options) < 0)
        return err_api(e, ERRC_BAD_GATEWAY, INSPECT_FAILED,
                       "the container engine described a volume oddly");
    (void)snprintf(v.driver, sizeof(v.driver), "%s", driver);
    if (strlen(path) < sizeof(v.path) && !has_device(options))
        (void)snprintf(v.path, sizeof(v.path), "%s", path);
    v.internal = is_internal(name, labels);
    if (strcmp(label_of(labels, LABEL_INSTANCE), d->cfg.instance) == 0 &&
        strcmp(label_of(labels, LABEL_ROLE), ROLE_VOLUME) == 0)
        (void)snprintf(v.made_for, sizeof(v.made_for), "%s", label_of(labels, LABEL_SANDBOX));
    *out = v;
    return 0;
}

static int volume_path(struct buf *out, const char *name)
{
    return buf_puts(out, "/volumes/") < 0 ? -1 : engine_segment(out, name);
}

int docker_volume_get(struct runtime *rt, const char *name, struct runtime_volume *out,
                      struct err *e)
{
    struct docker *d = docker_of(rt);
    AUTO_BUF struct buf path = BUF_INIT(PATH_MAX_BYTES);
    AUTO_REPLY struct engine_reply r = { 0 };
    struct engine_call c = { .method = "GET" };
    json_auto_t *about = NULL;
    char text[TEXT_MAX];

    if (volume_path(&path, name) < 0)
        return err_nomem(e);
    c.path = path.data;
    if (engine_send(d->engine, &c, &r, e) < 0)
        return -1;
    if (r.status == 404)
        return err_api(e, ERRC_NOT_FOUND, "VOLUME::PVC_NOT_FOUND", "there is no volume %.200s",
                       name);
    if (r.status != 200)
        return err_api(e, ERRC_INTERNAL, INSPECT_FAILED, "volume %.200s cannot be read: %s", name,
                       engine_text(&r, text, sizeof(text)));
    about = jx_parse_foreign(r.body.data, r.body.len, NULL);
    return read_volume(d, about, out, e);
}

/* ---- making ---- */

int docker_volume_make(struct runtime *rt, const char *name, const char *sandbox_id, struct err *e)
{
    struct docker *d = docker_of(rt);
    AUTO_REPLY struct engine_reply r = { 0 };
    struct engine_call c = { .method = "POST", .path = "/volumes/create" };
    json_auto_t *body =
        json_pack("{s:s, s:s, s:{s:s, s:s, s:s, s:s}}", "Name", name, "Driver", "local", "Labels",
                  LABEL_INSTANCE, d->cfg.instance, LABEL_ROLE, ROLE_VOLUME, LABEL_SANDBOX,
                  sandbox_id, LABEL_VOLUME_MANAGED, "server");
    char text[TEXT_MAX];

    if (!body)
        return err_nomem(e);
    c.json = body;
    if (engine_send(d->engine, &c, &r, e) < 0)
        return -1;
    if (r.status == 400)
        return err_api(e, ERRC_INVALID, "VOLUME::INVALID_PVC_NAME",
                       "pvc.claimName: the container engine refuses %.100s: %s", name,
                       engine_text(&r, text, sizeof(text)));
    /* the engine keeps one that exists, with its labels; 409: it has another driver */
    if (r.status != 201 && r.status != 200 && r.status != 409)
        return engine_refused(&r, "make a volume", e);
    crash_step(&d->cfg, "volume.made");
    return 0;
}

/* ---- removing ---- */

static int delete_volume(struct docker *d, const char *name, struct err *e)
{
    AUTO_BUF struct buf path = BUF_INIT(PATH_MAX_BYTES);
    AUTO_REPLY struct engine_reply r = { 0 };
    struct engine_call c = { .method = "DELETE" };

    if (volume_path(&path, name) < 0)
        return err_nomem(e);
    c.path = path.data;
    if (engine_send(d->engine, &c, &r, e) < 0)
        return -1;
    if (r.status != 204 && r.status != 404)
        return engine_refused(&r, "remove a volume", e);
    crash_step(&d->cfg, "volume.removed");
    return 0;
}

int docker_volume_remove(struct runtime *rt, const char *name, const char *sandbox_id,
                         struct err *e)
{
    struct runtime_volume v;
    struct err mine = { 0 };

    if (docker_volume_get(rt, name, &v, &mine) < 0) {
        if (mine.code == ERRC_NOT_FOUND)
            return 0;
        if (e)
            *e = mine;
        return -1;
    }
    if (v.internal || !v.made_for[0] || strcmp(v.made_for, sandbox_id) != 0)
        return 0;
    return delete_volume(docker_of(rt), name, e);
}
