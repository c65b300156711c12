/* start_held: the hot path is exactly three engine calls, create, start, inspect. Everything else
 * (image, network, agent) is found missing by the engine's own refusal. */
#include "common/agent/wire.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "gateway/runtime/docker/docker.h"
#include "gateway/runtime/docker/engine.h"
#include "gateway/runtime/docker/inspect.h"
#include "gateway/runtime/docker/names.h"
#include "gateway/runtime/docker/network.h"

#include <string.h>

#define START_FAILED "DOCKER::SANDBOX_START_FAILED"
#define INVALID "SANDBOX::INVALID_PARAMETER"
#define AGENT_PORT_TEXT "44772/tcp"

_Static_assert(AGENT_PORT == 44772, "AGENT_PORT_TEXT");

enum {
    HOME_BYTES = 16 << 20,
    HOME_MODE = 01777,
    CLEANUP_MS = 15000,
    TEXT_MAX = 400,
    ATTEMPTS = 2,
};

/* What a refusal asks for. */
enum fault {
    FAULT_NONE,
    FAULT_PARTS,  /* network or agent volume were removed under us */
    FAULT_CHANCE, /* may work a second time */
    FAULT_FINAL,
};

/* One start on its way. */
struct start {
    struct docker *d;
    const struct runtime_spec *spec;
    struct docker_parts parts;
    bool made; /* the container may exist */
};

/* ---- the request ---- */

static json_t *make_labels(const struct start *s)
{
    return json_pack("{s:s, s:s, s:s, s:s}", LABEL_INSTANCE, s->d->cfg.instance, LABEL_ID,
                     s->spec->id, LABEL_ROLE, ROLE_SANDBOX, LABEL_PUBLIC_ID, s->spec->id);
}

static json_t *make_mounts(const struct start *s)
{
    return json_pack("[{s:s, s:s, s:{s:i, s:i}}, {s:s, s:s, s:s, s:b, s:{s:b}}]", "Type", "tmpfs",
                     "Target", AGENT_HOME, "TmpfsOptions", "SizeBytes", HOME_BYTES, "Mode",
                     HOME_MODE, "Type", "volume", "Source", s->parts.volume, "Target", AGENT_DIR,
                     "ReadOnly", 1, "VolumeOptions", "NoCopy", 1);
}

static json_t *make_security(const struct docker *d)
{
    json_t *list = json_array();

    if (d->cfg.no_new_privileges)
        (void)json_array_append_new(list, json_string("no-new-privileges=true"));
    if (d->seccomp)
        (void)json_array_append_new(list, json_string(d->seccomp));
    if (d->cfg.apparmor_profile && *d->cfg.apparmor_profile)
        (void)json_array_append_new(list, json_sprintf("apparmor=%s", d->cfg.apparmor_profile));
    return list;
}

static json_t *make_cap_drop(const struct docker *d)
{
    json_t *list = json_array();
    const char *const *cap;

    for (cap = d->cfg.drop_capabilities; cap && *cap; cap++)
        (void)json_array_append_new(list, json_string(*cap));
    return list;
}

/* Limits that are off are left out: zero means something else to some of them. */
static void add_limits(json_t *host, const struct start *s)
{
    const struct runtime_spec *spec = s->spec;
    const struct runtime_config *cfg = &s->d->cfg;

    if (spec->memory_bytes > 0) {
        (void)json_object_set_new(host, "Memory", json_integer(spec->memory_bytes));
        (void)json_object_set_new(host, "MemorySwap", json_integer(spec->memory_bytes));
    }
    if (spec->nano_cpus > 0)
        (void)json_object_set_new(host, "NanoCpus", json_integer(spec->nano_cpus));
    if (cfg->pids_limit > 0)
        (void)json_object_set_new(host, "PidsLimit", json_integer(cfg->pids_limit));
    if (cfg->docker_runtime && *cfg->docker_runtime)
        (void)json_object_set_new(host, "Runtime", json_string(cfg->docker_runtime));
}

static json_t *make_host(const struct start *s)
{
    const struct docker *d = s->d;
    const char *publish = d->cfg.publish_host ? d->cfg.publish_host : "127.0.0.1";
    json_t *host = json_pack(
        "{s:s, s:{s:[{s:s, s:s}]}, s:o, s:o, s:o, s:b, s:b, s:{s:s, s:{s:s, s:s}}}", "NetworkMode",
        network_name(d->network), "PortBindings", AGENT_PORT_TEXT, "HostIp", publish, "HostPort",
        "", "Mounts", make_mounts(s), "CapDrop", make_cap_drop(d), "SecurityOpt", make_security(d),
        "ReadonlyRootfs", d->cfg.read_only_root, "Init", 0, "LogConfig", "Type", "json-file",
        "Config", "max-size", "10m", "max-file", "2");

    if (host)
        add_limits(host, s);
    return host;
}

/* Constant but for ids, names and limits: nothing secret, no environment. The image's health check
 * is off: it would run the image's code before the sandbox is claimed. */
static json_t *make_body(const struct start *s)
{
    return json_pack("{s:s, s:[s], s:[s, s+, s+], s:{s:{}}, s:{s:[s]}, s:o, s:o}", "Image",
                     s->spec->image.ref, "Entrypoint", AGENT_PATH, "Cmd", AGENT_ARG_HELD,
                     AGENT_ARG_ID, s->spec->id, AGENT_ARG_CLAIM_SHA256, s->spec->claim_sha256,
                     "ExposedPorts", AGENT_PORT_TEXT, "Healthcheck", "Test", "NONE", "Labels",
                     make_labels(s), "HostConfig", make_host(s));
}

static int create_path(const struct runtime_spec *spec, struct buf *out)
{
    char platform[64];

    if (buf_printf(out, "/containers/create?name=" SANDBOX_NAME "%s", spec->id) < 0)
        return -1;
    if (!spec->image.platform_os || !spec->image.platform_arch)
        return 0;
    (void)snprintf(platform, sizeof(platform), "%s/%s", spec->image.platform_os,
                   spec->image.platform_arch);
    return engine_query(out, "platform", platform);
}

/* ---- refusals ---- */

static bool has(const char *text, const char *part)
{
    return strcasestr(text, part) != NULL;
}

/* What a client can put right: its own limits and image name. */
static bool is_clients(const char *text)
{
    return has(text, "memory limit") || has(text, "range of CPUs") ||
           has(text, "invalid reference format") || has(text, "platform");
}

static bool is_missing_part(const char *text)
{
    return (has(text, "network") && has(text, "not found")) || has(text, "no such volume") ||
           (has(text, AGENT_PATH) && (has(text, "no such file") || has(text, "exec format")));
}

static bool is_port_race(const char *text)
{
    return has(text, "already allocated") || has(text, "address already in use");
}

static enum fault judge(const struct engine_reply *r, bool creating, struct err *e)
{
    char text[TEXT_MAX];

    (void)engine_text(r, text, sizeof(text));
    (void)err_api(e, ERRC_INTERNAL, START_FAILED, "the sandbox could not be started: %s", text);
    if (is_missing_part(text))
        return FAULT_PARTS;
    if (creating && r->status == 404) {
        (void)err_api(e, ERRC_NOT_FOUND, "DOCKER::SANDBOX_IMAGE_PULL_FAILED", "%s", text);
        return FAULT_FINAL;
    }
    if (creating && r->status == 409) {
        (void)err_api(e, ERRC_CONFLICT, START_FAILED, "the sandbox exists already: %s", text);
        return FAULT_FINAL;
    }
    if (is_port_race(text))
        return FAULT_CHANCE;
    if (creating && r->status == 400 && is_clients(text))
        (void)err_api(e, ERRC_INVALID, INVALID, "%s", text);
    return FAULT_FINAL;
}

/* ---- the three calls ---- */

static enum fault call_create(struct start *s, struct err *e)
{
    AUTO_BUF struct buf path = BUF_INIT(DOCKER_PATH);
    AUTO_REPLY struct engine_reply r = { 0 };
    json_auto_t *body = make_body(s);
    struct engine_call c = { .method = "POST", .json = body };

    if (!body || create_path(s->spec, &path) < 0) {
        (void)err_nomem(e);
        return FAULT_FINAL;
    }
    c.path = path.data;
    s->made = true; /* even when the answer is lost */
    if (engine_send(s->d->engine, &c, &r, e) < 0)
        return FAULT_FINAL;
    if (r.status == 201)
        return FAULT_NONE;
    s->made = false; /* refused; one of the same name is not ours to remove */
    return judge(&r, true, e);
}

static enum fault call_start(struct start *s, struct err *e)
{
    char path[DOCKER_PATH];
    const struct engine_call c = { .method = "POST", .path = path };
    AUTO_REPLY struct engine_reply r = { 0 };

    (void)snprintf(path, sizeof(path), "/containers/" SANDBOX_NAME "%s/start", s->spec->id);
    if (engine_send(s->d->engine, &c, &r, e) < 0)
        return FAULT_FINAL;
    if (r.status == 204 || r.status == 304)
        return FAULT_NONE;
    return judge(&r, false, e);
}

static int check_place(struct start *s, const struct runtime_status *st, struct err *e)
{
    if (st->state != RUNTIME_RUNNING) {
        struct err why = { 0 };

        (void)err_api(&why, ERRC_INTERNAL, START_FAILED, "the sandbox ended at once");
        (void)docker_explain(s->d, s->spec->id, 0, &why);
        return err_api(e, why.code, START_FAILED, "%s", why.msg);
    }
    if (!st->place.address[0])
        return err_api(e, ERRC_INTERNAL, START_FAILED, "the sandbox has no address in network %s",
                       network_name(s->d->network));
    return 0;
}

static int call_inspect(struct start *s, struct runtime_place *place, struct err *e)
{
    char path[DOCKER_PATH];
    const struct engine_call c = { .method = "GET", .path = path };
    json_auto_t *about = NULL;
    struct runtime_status st;

    (void)snprintf(path, sizeof(path), "/containers/" SANDBOX_NAME "%s/json", s->spec->id);
    if (engine_do(s->d->engine, &c, "read the started sandbox", &about, e) < 0 ||
        inspect_status(about, network_name(s->d->network), &st, e) < 0 ||
        check_place(s, &st, e) < 0)
        return -1;
    *place = st.place;
    return 0;
}

static enum fault run(struct start *s, struct runtime_place *place, struct err *e)
{
    enum fault f = call_create(s, e);

    if (f != FAULT_NONE)
        return f;
    crash_step(&s->d->cfg, "create.made");
    f = call_start(s, e);
    if (f != FAULT_NONE)
        return f;
    crash_step(&s->d->cfg, "create.started");
    if (call_inspect(s, place, e) < 0)
        return FAULT_FINAL;
    crash_step(&s->d->cfg, "create.inspected");
    return FAULT_NONE;
}

/* Leaves nothing when the engine lets it; the caller's remove does the rest. */
static void undo(struct start *s)
{
    struct err e = { 0 };

    if (s->made && docker_remove_within(s->d, s->spec->id, CLEANUP_MS, &e) < 0)
        log_warn("a sandbox that failed to start could not be removed yet",
                 LOG_S("id", s->spec->id), LOG_S("reason", e.msg));
    s->made = false;
}

int docker_start_held(struct runtime *rt, const struct runtime_spec *spec,
                      struct runtime_place *place, struct err *e)
{
    struct start s = { .d = (struct docker *)rt, .spec = spec };
    enum fault f = FAULT_NONE;
    unsigned missing = 0;
    int i;

    for (i = 0; i < ATTEMPTS; i++) {
        if (docker_parts_get(s.d, missing, &s.parts, e) < 0)
            return -1;
        f = run(&s, place, e);
        if (f == FAULT_NONE)
            return 0;
        undo(&s);
        if (f != FAULT_PARTS && f != FAULT_CHANCE)
            break;
        missing = f == FAULT_PARTS ? s.parts.generation : 0;
    }
    return -1;
}
