#include "gateway/runtime/docker/spec.h"

#include "common/agent/wire.h"
#include "gateway/runtime/docker/binds.h"
#include "gateway/runtime/docker/names.h"
#include "gateway/runtime/docker/network.h"

#include <string.h>
#include <strings.h>

#define AGENT_PORT_TEXT "44772/tcp"

_Static_assert(AGENT_PORT == 44772, "AGENT_PORT_TEXT");

/* contract/execd.md 13; counts as memory of the sandbox */
#define ISOLATION_BYTES (INT64_C(8) << 30)

enum {
    HOME_BYTES = 16 << 20,
    HOME_MODE = 01777,
    ISOLATION_MODE = 0755,
    LOG_FILES = 2,
};

static json_t *make_labels(const struct docker *d, const struct runtime_spec *spec)
{
    return json_pack("{s:s, s:s, s:s, s:s}", LABEL_INSTANCE, d->cfg.instance, LABEL_ID, spec->id,
                     LABEL_ROLE, ROLE_SANDBOX, LABEL_PUBLIC_ID, spec->id);
}

/* ---- mounts ---- */

/* A source that is not there is refused by the engine: nothing is made as root behind the checks
 * of the domain. A fresh volume gets what the image has at its target, as users expect. The
 * propagation is left to the engine: private, but below its own directory, where parts of named
 * volumes lie, it insists on a choice of its own. */
static json_t *make_mount(const struct runtime_mount *m)
{
    return json_pack("{s:s, s:s, s:s, s:b, s:o}", "Type", m->named ? "volume" : "bind", "Source",
                     m->source, "Target", m->target, "ReadOnly", m->read_only,
                     m->named ? "VolumeOptions" : "BindOptions",
                     m->named ? json_pack("{s:b}", "NoCopy", 0) : json_object());
}

static json_t *make_mounts(const struct docker *d, const struct docker_parts *parts,
                           const struct runtime_spec *spec)
{
    json_t *list = json_pack("[{s:s, s:s, s:{s:i, s:i}}, {s:s, s:s, s:s, s:b, s:{s:b}}]", "Type",
                             "tmpfs", "Target", AGENT_HOME, "TmpfsOptions", "SizeBytes", HOME_BYTES,
                             "Mode", HOME_MODE, "Type", "volume", "Source", parts->volume, "Target",
                             AGENT_DIR, "ReadOnly", 1, "VolumeOptions", "NoCopy", 1);
    int rc = list ? 0 : -1;
    size_t i;

    if (rc == 0 && spec->isolation)
        rc = json_array_append_new(list,
                                   json_pack("{s:s, s:s, s:{s:I, s:i}}", "Type", "tmpfs", "Target",
                                             AGENT_ISOLATION_DIR, "TmpfsOptions", "SizeBytes",
                                             (json_int_t)ISOLATION_BYTES, "Mode", ISOLATION_MODE));
    for (i = 0; i < d->binds.len && rc == 0; i++)
        rc = json_array_append_new(list, make_mount(&d->binds.items[i]));
    for (i = 0; i < spec->n_mounts && rc == 0; i++)
        rc = json_array_append_new(list, make_mount(&spec->mounts[i]));
    if (rc == 0)
        return list;
    json_decref(list);
    return NULL;
}

/* ---- security and limits ---- */

/* Isolation needs mounts, which AppArmor's default profile refuses; the engine's own filter of system calls
 * goes by the capability. Nothing else is loosened: paths of /proc stay masked, and the agent keeps the
 * capability to itself (AGENT_ARG_ISOLATION). */
static json_t *make_security(const struct docker *d, const struct runtime_spec *spec)
{
    const char *apparmor = spec->isolation ? "unconfined" : d->cfg.apparmor_profile;
    json_t *list = json_array();

    if (d->cfg.no_new_privileges)
        (void)json_array_append_new(list, json_string("no-new-privileges=true"));
    if (d->seccomp)
        (void)json_array_append_new(list, json_string(d->seccomp));
    if (apparmor && *apparmor)
        (void)json_array_append_new(list, json_sprintf("apparmor=%s", apparmor));
    return list;
}

static bool is_admin(const char *cap)
{
    return strcasecmp(cap, "SYS_ADMIN") == 0 || strcasecmp(cap, "CAP_SYS_ADMIN") == 0;
}

static json_t *make_cap_drop(const struct docker *d, const struct runtime_spec *spec)
{
    json_t *list = json_array();
    const char *const *cap;

    for (cap = d->cfg.drop_capabilities; cap && *cap; cap++)
        if (!spec->isolation || !is_admin(*cap))
            (void)json_array_append_new(list, json_string(*cap));
    return list;
}

static int add_capabilities(json_t *host, const struct runtime_spec *spec)
{
    return spec->isolation ? json_object_set_new(host, "CapAdd", json_pack("[s]", "SYS_ADMIN")) : 0;
}

static json_t *make_log(const struct docker *d)
{
    char size[32];

    if (d->cfg.log_max_mb <= 0)
        return json_pack("{s:s, s:{}}", "Type", "json-file", "Config");
    (void)snprintf(size, sizeof(size), "%dm", d->cfg.log_max_mb);
    return json_pack("{s:s, s:{s:s, s:o}}", "Type", "json-file", "Config", "max-size", size,
                     "max-file", json_sprintf("%d", LOG_FILES));
}

/* RUNTIME_GPUS_ALL is what the engine calls all, too. */
static int add_devices(json_t *host, const struct runtime_spec *spec)
{
    if (!spec->gpus)
        return 0;
    return json_object_set_new(host, "DeviceRequests",
                               json_pack("[{s:s, s:i, s:[], s:[[s]], s:{}}]", "Driver", "", "Count",
                                         spec->gpus, "DeviceIDs", "Capabilities", "gpu",
                                         "Options"));
}

static int add_disk(json_t *host, const struct runtime_spec *spec)
{
    if (spec->disk_bytes <= 0)
        return 0;
    return json_object_set_new(
        host, "StorageOpt",
        json_pack("{s:o}", "size", json_sprintf("%lld", (long long)spec->disk_bytes)));
}

static int add_number(json_t *host, const char *key, int64_t n)
{
    return n > 0 ? json_object_set_new(host, key, json_integer(n)) : 0;
}

/* Limits that are off are left out: zero means something else to some of them. Swap is not added to
 * the memory. */
static int add_limits(json_t *host, const struct docker *d, const struct runtime_spec *spec)
{
    const char *runtime = d->cfg.docker_runtime;

    if (add_number(host, "Memory", spec->memory_bytes) < 0 ||
        add_number(host, "MemorySwap", spec->memory_bytes) < 0 ||
        add_number(host, "NanoCpus", spec->nano_cpus) < 0 ||
        add_number(host, "PidsLimit", d->cfg.pids_limit) < 0 || add_devices(host, spec) < 0 ||
        add_disk(host, spec) < 0)
        return -1;
    return runtime && *runtime ? json_object_set_new(host, "Runtime", json_string(runtime)) : 0;
}

/* ---- the whole ---- */

static json_t *make_host(const struct docker *d, const struct docker_parts *parts,
                         const struct runtime_spec *spec)
{
    const char *publish = d->cfg.publish_host ? d->cfg.publish_host : "127.0.0.1";
    json_t *host =
        json_pack("{s:s, s:{s:[{s:s, s:s}]}, s:o, s:o, s:o, s:b, s:b, s:o}", "NetworkMode",
                  network_name(d->network), "PortBindings", AGENT_PORT_TEXT, "HostIp", publish,
                  "HostPort", "", "Mounts", make_mounts(d, parts, spec), "CapDrop",
                  make_cap_drop(d, spec), "SecurityOpt", make_security(d, spec), "ReadonlyRootfs",
                  d->cfg.read_only_root, "Init", 0, "LogConfig", make_log(d));

    if (host && (add_limits(host, d, spec) < 0 || add_capabilities(host, spec) < 0)) {
        json_decref(host);
        return NULL;
    }
    return host;
}

static json_t *make_command(const struct runtime_spec *spec)
{
    json_t *list = json_pack("[s, s+, s+]", AGENT_ARG_HELD, AGENT_ARG_ID, spec->id,
                             AGENT_ARG_CLAIM_SHA256, spec->claim_sha256);

    if (spec->isolation)
        (void)json_array_append_new(list, json_string(AGENT_ARG_ISOLATION));
    return list;
}

/* Constant but for ids, names, mounts and limits: nothing secret, no environment. The image's health
 * check is off: it would run the image's code before the sandbox is claimed. */
json_t *spec_body(const struct docker *d, const struct docker_parts *parts,
                  const struct runtime_spec *spec, const char *image)
{
    return json_pack("{s:s, s:[s], s:o, s:{s:{}}, s:{s:[s]}, s:o, s:o}", "Image", image,
                     "Entrypoint", AGENT_PATH, "Cmd", make_command(spec), "ExposedPorts",
                     AGENT_PORT_TEXT, "Healthcheck", "Test", "NONE", "Labels", make_labels(d, spec),
                     "HostConfig", make_host(d, parts, spec));
}
