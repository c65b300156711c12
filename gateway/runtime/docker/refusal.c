#include "gateway/runtime/docker/refusal.h"

#include "common/agent/wire.h"
#include "common/base/err.h"
#include "common/base/macros.h"
#include "gateway/runtime/docker/engine.h"
#include "gateway/runtime/docker/image.h"

#include <string.h>

#define START_FAILED "DOCKER::SANDBOX_START_FAILED"
#define INVALID "SANDBOX::INVALID_PARAMETER"

enum { TEXT_MAX = 400 };

static bool has(const char *text, const char *part)
{
    return strcasestr(text, part) != NULL;
}

/* path occurs as a whole: "/data" does not in "/data2". */
static bool has_path(const char *text, const char *path)
{
    size_t len = strlen(path);
    const char *at = text;

    while (len > 1 && (at = strstr(at, path))) {
        if (!at[len] || strchr("\"': ,;", at[len]))
            return true;
        at += len;
    }
    return false;
}

static bool names_mount(const char *text, const struct runtime_mount *m)
{
    return (has(text, "mount") || has(text, "bind") || has(text, "volume")) &&
           (has_path(text, m->target) || has_path(text, m->source));
}

/* ---- what the client can put right ---- */

static bool asks_memory(const struct runtime_spec *s)
{
    return s->memory_bytes > 0;
}

static bool asks_cpu(const struct runtime_spec *s)
{
    return s->nano_cpus > 0;
}

static bool asks_disk(const struct runtime_spec *s)
{
    return s->disk_bytes > 0;
}

static bool asks_gpu(const struct runtime_spec *s)
{
    return s->gpus != 0;
}

static bool asks_platform(const struct runtime_spec *s)
{
    return s->image.platform_os != NULL;
}

static bool asks_image(const struct runtime_spec *s)
{
    return s->image.ref != NULL;
}

static const struct {
    bool (*asks)(const struct runtime_spec *s);
    const char *words[5]; /* one of these; ends with NULL */
    const char *field;
    const char *advice;
} clients[] = {
    { asks_gpu,
      { "device driver", "gpu", "nvidia" },
      "resourceLimits.gpu",
      "this server's container engine has no GPU for it; leave gpu out" },
    { asks_disk,
      { "storage-opt", "storage opt", "quota", "storage size" },
      "resourceLimits.disk",
      "this server's container engine cannot limit the disk: that needs overlay2 on xfs mounted "
      "with pquota, or another storage driver with sizes; leave disk out" },
    { asks_memory,
      { "memory limit", "set memory", "memory.limit_in_bytes", "memory.max" },
      "resourceLimits.memory",
      "ask for another amount" },
    { asks_cpu,
      { "range of CPUs", "cpu.cfs_quota", "cpu.max", "NanoCPUs" },
      "resourceLimits.cpu",
      "ask for another amount" },
    { asks_image, { "invalid reference format" }, "image.uri", "correct the reference" },
    { asks_platform, { "platform" }, "platform", "ask for another platform or leave it out" },
};

static bool has_one(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (has(text, *words))
            return true;
    return false;
}

static bool judge_mounts(const struct runtime_spec *spec, const char *text, struct err *e)
{
    size_t i;

    for (i = 0; i < spec->n_mounts; i++)
        if (names_mount(text, &spec->mounts[i])) {
            (void)err_api(e, ERRC_INVALID, INVALID, "volumes: %.64s cannot be mounted: %s",
                          spec->mounts[i].target, text);
            return true;
        }
    return false;
}

static void judge_client(const struct runtime_spec *spec, const char *text, struct err *e)
{
    size_t i;

    for (i = 0; i < ARRAY_LEN(clients); i++)
        if (clients[i].asks(spec) && has_one(text, clients[i].words)) {
            (void)err_api(e, ERRC_INVALID, INVALID, "%s: %s (%s)", clients[i].field,
                          clients[i].advice, text);
            return;
        }
}

/* ---- what the operator can put right ---- */

static bool is_set(const char *s)
{
    return s && *s;
}

/* The key of the configuration that the engine stumbles over; NULL: none. */
static const char *operators_key(const struct docker *d, const char *text)
{
    size_t i;

    for (i = 0; i < d->binds.len; i++)
        if (names_mount(text, &d->binds.items[i]))
            return "docker.sandbox_binds";
    if (has(text, "apparmor") && is_set(d->cfg.apparmor_profile))
        return "docker.apparmor_profile";
    if (has(text, "seccomp") && d->seccomp)
        return "docker.seccomp_profile";
    if (has(text, "runtime") && is_set(d->cfg.docker_runtime) && has(text, d->cfg.docker_runtime))
        return "secure_runtime";
    return NULL;
}

/* ---- the whole ---- */

/* The image's own name may hold any of the words. */
static bool is_missing_part(const char *text)
{
    if (has(text, "no such image"))
        return false;
    return (has(text, "network") && has(text, "not found")) || has(text, "no such volume") ||
           (has(text, AGENT_PATH) && (has(text, "no such file") || has(text, "exec format")));
}

static bool is_port_race(const char *text)
{
    return has(text, "already allocated") || has(text, "address already in use");
}

static void judge_missing(const struct runtime_spec *spec, const char *text, struct err *e)
{
    if (spec->image.snapshot_id)
        (void)image_no_snapshot(&spec->image, text, e);
    else
        (void)err_api(e, ERRC_NOT_FOUND, "DOCKER::SANDBOX_IMAGE_PULL_FAILED", "%s", text);
}

/* A mount of the client's is its mistake also when it lies over one of the operator's. */
static void judge_rest(const struct docker *d, const struct runtime_spec *spec, const char *text,
                       struct err *e)
{
    const char *key = operators_key(d, text);

    if (judge_mounts(spec, text, e))
        return;
    if (key)
        (void)err_api(e, ERRC_INTERNAL, START_FAILED,
                      "the sandbox could not be started with the server's own setting %s: %s", key,
                      text);
    else
        judge_client(spec, text, e);
}

enum fault refusal_judge(const struct docker *d, const struct runtime_spec *spec,
                         const struct engine_reply *r, bool creating, struct err *e)
{
    char text[TEXT_MAX];

    (void)engine_text(r, text, sizeof(text));
    (void)err_api(e, ERRC_INTERNAL, START_FAILED, "the sandbox could not be started: %s", text);
    if (is_missing_part(text))
        return FAULT_PARTS;
    if (is_port_race(text))
        return FAULT_CHANCE;
    if (creating && r->status == 404)
        judge_missing(spec, text, e);
    else if (creating && r->status == 409)
        (void)err_api(e, ERRC_CONFLICT, START_FAILED, "the sandbox exists already: %s", text);
    else
        judge_rest(d, spec, text, e);
    return FAULT_FINAL;
}
