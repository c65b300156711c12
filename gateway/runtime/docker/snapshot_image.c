#include "gateway/runtime/docker/snapshot_image.h"

#include "common/agent/wire.h"
#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/macros.h"
#include "gateway/runtime/docker/names.h"
#include "gateway/runtime/docker/tar.h"

#include <stdio.h>
#include <string.h>

#define OUR_LABELS "sandgate." /* beginning */

json_t *snapshot_image_blank(void)
{
    return json_pack("{s:{s:s, s:s, s:s, s:s}, s:[], s:[s], s:{s:[s]}}", "Labels", LABEL_INSTANCE,
                     "", LABEL_ID, "", LABEL_ROLE, "", LABEL_PUBLIC_ID, "", "Entrypoint", "Cmd",
                     "/bin/sh", "Healthcheck", "Test", "NONE");
}

/* ---- the configuration ---- */

static void copy(json_t *to, json_t *from, const char *key)
{
    json_t *v = json_object_get(from, key);

    if (v && !json_is_null(v))
        (void)json_object_set(to, key, v);
}

static bool is_ours(const char *label)
{
    return strncmp(label, OUR_LABELS, strlen(OUR_LABELS)) == 0 ||
           strcmp(label, LABEL_PUBLIC_ID) == 0;
}

static void copy_labels(json_t *to, json_t *from)
{
    json_t *labels = json_object();
    const char *key;
    json_t *v;

    json_object_foreach(json_object_get(from, "Labels"), key, v)
        if (!is_ours(key))
            (void)json_object_set(labels, key, v);
    (void)json_object_set_new(to, "Labels", labels);
}

static void copy_ports(json_t *to, json_t *from, bool has_agent)
{
    json_t *ports = json_deep_copy(json_object_get(from, "ExposedPorts"));
    char agent[16];

    (void)snprintf(agent, sizeof(agent), "%d/tcp", AGENT_PORT);
    if (has_agent)
        (void)json_object_del(ports, agent);
    if (json_object_size(ports) > 0)
        (void)json_object_set(to, "ExposedPorts", ports);
    json_decref(ports);
}

/* What a container of the image starts with. */
static json_t *make_config(json_t *committed, json_t *base)
{
    static const char *const kept[] = { "User",    "Env",        "WorkingDir",
                                        "Volumes", "StopSignal", "Shell" };
    static const char *const of_base[] = { "Entrypoint", "Cmd", "Healthcheck", "OnBuild",
                                           "ArgsEscaped" };
    json_t *from = json_object_get(base ? base : committed, "Config");
    json_t *to = json_object();
    size_t i;

    for (i = 0; i < ARRAY_LEN(kept); i++)
        copy(to, from, kept[i]);
    for (i = 0; base && i < ARRAY_LEN(of_base); i++)
        copy(to, from, of_base[i]);
    copy_labels(to, from);
    copy_ports(to, from, !base);
    return to;
}

static json_t *layers_of(json_t *image)
{
    return json_object_get(json_object_get(image, "RootFS"), "Layers");
}

/* One entry per layer; the engine's own would tell the sandbox's command line. A sandbox that wrote
 * nothing adds no layer, but an entry that says so. */
static json_t *make_history(json_t *committed, json_t *base)
{
    const char *created = json_string_value(json_object_get(committed, "Created"));
    size_t n = json_array_size(layers_of(committed));
    bool unchanged = base && json_array_size(layers_of(base)) == n;
    json_t *list = json_array();
    size_t i;

    for (i = 0; i + 1 < n; i++)
        (void)json_array_append_new(list, json_pack("{s:s}", "created_by", "image"));
    if (n > 0)
        (void)json_array_append_new(list,
                                    json_pack("{s:s*, s:s}", "created", unchanged ? NULL : created,
                                              "created_by", unchanged ? "image" : "snapshot"));
    if (unchanged)
        (void)json_array_append_new(list, json_pack("{s:s*, s:s, s:b}", "created", created,
                                                    "created_by", "snapshot", "empty_layer", 1));
    return list;
}

json_t *snapshot_image_config(json_t *committed, json_t *base)
{
    json_t *layers = layers_of(committed);
    json_t *out;

    if (!json_is_array(layers) || !json_is_object(json_object_get(committed, "Config")) ||
        (base && !json_is_object(json_object_get(base, "Config"))))
        return NULL;
    out = json_pack(
        "{s:O, s:O, s:O*, s:O*, s:o, s:{s:s, s:O}, s:o}", "architecture",
        json_object_get(committed, "Architecture"), "os", json_object_get(committed, "Os"),
        "variant", json_object_get(committed, "Variant"), "created",
        json_object_get(committed, "Created"), "config", make_config(committed, base), "rootfs",
        "type", "layers", "diff_ids", layers, "history", make_history(committed, base));
    return out;
}

/* ---- the archive ---- */

/* The engine wants as many names as there are layers, and looks at them for layers it lacks. */
static json_t *make_manifest(const json_t *config, const char *name)
{
    size_t n = json_array_size(json_object_get(json_object_get(config, "rootfs"), "diff_ids"));
    json_t *layers = json_array();
    char file[32];
    size_t i;

    for (i = 0; i < n; i++) {
        (void)snprintf(file, sizeof(file), "%zu/layer.tar", i);
        (void)json_array_append_new(layers, json_string(file));
    }
    return json_pack("[{s:s, s:[s], s:o}]", "Config", "config.json", "RepoTags", name, "Layers",
                     layers);
}

static int add_json(struct buf *out, const char *path, const json_t *v)
{
    AUTO_FREE char *text = v ? json_dumps(v, JSON_COMPACT) : NULL;

    return text ? tar_add_file(out, path, 0644, text, strlen(text)) : -1;
}

int snapshot_image_archive(const json_t *config, const char *name, struct buf *out)
{
    json_auto_t *manifest = make_manifest(config, name);

    if (add_json(out, "config.json", config) < 0 || add_json(out, "manifest.json", manifest) < 0)
        return -1;
    return tar_finish(out);
}
