#include "gateway/config.h"

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "common/base/num.h"
#include "common/json/jx.h"
#include "gateway/config_toml.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

enum { CONFIG_FILE_MAX = 1 << 20 };

enum kind {
    KIND_TEXT,
    KIND_NUM,
    KIND_BOOL,
    KIND_LIST,
    KIND_MAP,    /* a table whose keys the user chooses, with text for values */
    KIND_UNUSED, /* upstream's, accepted, without effect here; note says why */
};

struct option {
    const char *key;
    enum kind kind;
    size_t offset;
    const char *def; /* as text; NULL: none */
    int64_t min;
    int64_t max;
    const char *env;
    const char *note; /* of KIND_UNUSED; else the difference from upstream's default */
};

#define TEXT(k, f, d, env, note)                                                                   \
    {                                                                                              \
        k, KIND_TEXT, offsetof(struct config, f), d, 0, 0, env, note                               \
    }
#define NUM(k, f, d, lo, hi, note)                                                                 \
    {                                                                                              \
        k, KIND_NUM, offsetof(struct config, f), d, lo, hi, NULL, note                             \
    }
#define BOOL(k, f, d, note)                                                                        \
    {                                                                                              \
        k, KIND_BOOL, offsetof(struct config, f), d, 0, 0, NULL, note                              \
    }
#define UNUSED(k, note)                                                                            \
    {                                                                                              \
        k, KIND_UNUSED, 0, NULL, 0, 0, NULL, note                                                  \
    }

static const char native_agent[] = "the agent is built into this server";
static const char one_process[] = "has no meaning for this server";
static const char later[] = "not supported by this version";

#define DEFAULT_CAPS                                                                               \
    "AUDIT_WRITE,MKNOD,NET_ADMIN,NET_RAW,SYS_ADMIN,SYS_MODULE,SYS_PTRACE,SYS_TIME,SYS_TTY_CONFIG"

static const struct option options[] = {
    TEXT("server.host", host, "127.0.0.1", NULL,
         "server.host defaults to 127.0.0.1 (upstream: 0.0.0.0)"),
    NUM("server.port", port, "8080", 0, 65535, NULL),
    TEXT("server.api_key", api_key, NULL, "OPENSANDBOX_SERVER_API_KEY", NULL),
    TEXT("server.eip", eip, NULL, NULL, NULL),
    NUM("server.max_sandbox_timeout_seconds", max_sandbox_timeout_s, "0", 60, 1000000000, NULL),
    NUM("server.timeout_keep_alive", keep_alive_s, "30", 1, 3600, NULL),
    NUM("server.limit_concurrency", max_connections, "8192", 0, 100000,
        "server.limit_concurrency defaults to 8192 connections (upstream: 1024 requests); idle "
        "streams count"),
    NUM("server.timeout_graceful_shutdown", graceful_s, "5", 0, 600, NULL),
    NUM("server.backlog", backlog, "2048", 1, 65535, NULL),
    NUM("server.thread_pool_size", job_threads, "32", 1, 1000,
        "server.thread_pool_size defaults to 32 (upstream: 200)"),
    { "server.trusted_proxies", KIND_LIST, offsetof(struct config, trusted_proxies), NULL, 0, 0,
      NULL, NULL },
    UNUSED("server.loop", one_process),
    UNUSED("server.http", one_process),
    TEXT("log.level", log_level, "INFO", NULL, NULL),
    UNUSED("log.file_enabled", "logs go to stderr"),
    UNUSED("log.file_path", "logs go to stderr"),
    UNUSED("log.access_file_path", "logs go to stderr"),
    UNUSED("log.file_max_bytes", "logs go to stderr"),
    UNUSED("log.file_backup_count", "logs go to stderr"),
    TEXT("runtime.type", runtime_type, "docker", NULL, NULL),
    UNUSED("runtime.execd_image", native_agent),
    UNUSED("runtime.execd_run_as_init", "the agent is always PID 1"),
    TEXT("runtime.line_endings", line_endings, "auto", NULL, NULL),
    TEXT("docker.network_mode", network_mode, "bridge", NULL,
         "docker.network_mode = \"bridge\" is a network of this server's own, without traffic "
         "between sandboxes (upstream: the engine's shared bridge)"),
    NUM("docker.api_timeout", api_timeout_s, "180", 1, 3600, NULL),
    TEXT("docker.publish_host", publish_host, "127.0.0.1", NULL,
         "docker.publish_host defaults to 127.0.0.1 (upstream: 0.0.0.0); only the agent's port is "
         "published"),
    UNUSED("docker.host_ip", later),
    UNUSED("docker.port_range_min", "the engine chooses free ports"),
    UNUSED("docker.port_range_max", "the engine chooses free ports"),
    { "docker.sandbox_env", KIND_MAP, offsetof(struct config, sandbox_env), NULL, 0, 0, NULL,
      NULL },
    { "docker.sandbox_binds", KIND_LIST, offsetof(struct config, sandbox_binds), NULL, 0, 0, NULL,
      NULL },
    { "docker.drop_capabilities", KIND_LIST, offsetof(struct config, drop_capabilities),
      DEFAULT_CAPS, 0, 0, NULL, NULL },
    TEXT("docker.apparmor_profile", apparmor_profile, NULL, NULL, NULL),
    TEXT("docker.seccomp_profile", seccomp_profile, NULL, NULL, NULL),
    BOOL("docker.no_new_privileges", no_new_privileges, "true", NULL),
    NUM("docker.pids_limit", pids_limit, "4096", 0, 4194304, NULL),
    UNUSED("store.type", "the store is SQLite"),
    TEXT("store.path", store_path, NULL, NULL,
         "store.path defaults to ~/.sandgate/sandgate.db (upstream: ~/.opensandbox/)"),
    TEXT("secure_runtime.type", secure_type, NULL, NULL, NULL),
    TEXT("secure_runtime.docker_runtime", secure_docker_runtime, NULL, NULL, NULL),
    UNUSED("proxy.resolve_internal", "ports are dialled at the sandbox's own address"),
    BOOL("proxy.require_key", proxy_require_key, "false", NULL),
    BOOL("proxy.pass_login", proxy_pass_login, "false", NULL),
    UNUSED("egress.image", later),
    UNUSED("egress.mode", later),
    UNUSED("egress.disable_ipv6", later),
    UNUSED("egress.readiness_timeout_seconds", later),
    UNUSED("ingress.mode", one_process),
    { "storage.allowed_host_paths", KIND_LIST, offsetof(struct config, allowed_host_paths), NULL, 0,
      0, NULL, NULL },
    TEXT("storage.ossfs_mount_root", ossfs_mount_root, "/mnt/ossfs", NULL, NULL),
    UNUSED("storage.volume_default_size", "volumes of the engine have no size"),
    BOOL("renew_intent.enabled", renew_enabled, "false", NULL),
    NUM("renew_intent.min_interval_seconds", renew_interval_s, "60", 1, 86400, NULL),
    UNUSED("otel.enabled", later),
    BOOL("relay.enabled", relay_enabled, "false", NULL),
    TEXT("relay.host", relay_host, "127.0.0.1", NULL, NULL),
    TEXT("engine.socket", engine, "/var/run/docker.sock", "DOCKER_HOST", NULL),
    NUM("engine.pull_timeout_seconds", pull_timeout_s, "600", 1, 86400, NULL),
    BOOL("sandbox.read_only_root", read_only_root, "false", NULL),
    NUM("sandbox.log_max_mb", log_max_mb, "10", 0, 1024, NULL),
    NUM("sandbox.ready_timeout_seconds", ready_timeout_s, "20", 1, 600, NULL),
    NUM("sandbox.create_wait_seconds", create_wait_s, "20", 0, 600,
        "sandbox.create_wait_seconds: a create that takes longer (image pull, hook) is answered "
        "with state Pending and goes on (upstream: the request waits)"),
    NUM("sandbox.default_timeout_seconds", default_timeout_s, "0", 60, 1000000000, NULL),
    BOOL("sandbox.cpu_hints", cpu_hints, "true",
         "sandbox.cpu_hints: a sandbox with a cpu limit gets GOMAXPROCS, OMP_NUM_THREADS and the "
         "like unless the request sets them (upstream: no)"),
    NUM("sandbox.stop_grace_seconds", stop_grace_s, "0", 0, 300, NULL),
    NUM("sandbox.sweep_interval_seconds", sweep_interval_s, "5", 1, 3600, NULL),
    NUM("sandbox.keep_ended_seconds", ended_keep_s, "86400", 0, 31536000, NULL),
    NUM("sandbox.quarantine_seconds", quarantine_s, "3600", 0, 31536000, NULL),
    BOOL("snapshots.allow_paused", snapshots_allow_paused, "false", NULL),
    NUM("snapshots.timeout_seconds", snapshots_timeout_s, "600", 1, 86400, NULL),
    NUM("snapshots.workers", snapshots_workers, "2", 1, 32, NULL),
    NUM("snapshots.max", snapshots_max, "1000", 1, 1000000, NULL),
    TEXT("agent.dir", agent_dir, NULL, NULL, NULL),
};

static void *field(struct config *c, const struct option *o)
{
    return (char *)c + o->offset;
}

/* ---- one value ---- */

static int set_text(struct config *c, const struct option *o, const char *s, struct err *e)
{
    char **at = field(c, o);
    char *copy = strdup(s);

    if (!copy)
        return err_nomem(e);
    free(*at);
    *at = copy;
    return 0;
}

static int set_num(struct config *c, const struct option *o, int64_t n, struct err *e)
{
    if (n < o->min || n > o->max)
        return err_set(e, ERRC_INVALID, "%s = %lld: must be between %lld and %lld", o->key,
                       (long long)n, (long long)o->min, (long long)o->max);
    *(int64_t *)field(c, o) = n;
    return 0;
}

static int add_item(struct config *c, const struct option *o, const char *s, size_t len,
                    struct err *e)
{
    char **caps = field(c, o);
    unsigned n = 0;

    while (caps[n])
        n++;
    if (n == CONFIG_LIST_MAX)
        return err_set(e, ERRC_INVALID, "%s has more than %d entries", o->key, CONFIG_LIST_MAX);
    caps[n] = strndup(s, len);
    return caps[n] ? 0 : err_nomem(e);
}

static void clear_list(struct config *c, const struct option *o)
{
    char **caps = field(c, o);

    for (; *caps; caps++) {
        free(*caps);
        *caps = NULL;
    }
}

/* From text: a default or an environment variable. */
static int set_from_text(struct config *c, const struct option *o, const char *s, struct err *e)
{
    int64_t n;
    size_t len;

    switch (o->kind) {
    case KIND_TEXT:
        return set_text(c, o, s, e);
    case KIND_NUM: /* a default may lie outside the range: it means "off" */
        if (num_parse_i64(s, INT64_MIN + 1, INT64_MAX, &n) < 0)
            return err_set(e, ERRC_INVALID, "%s: must be a number", o->key);
        *(int64_t *)field(c, o) = n;
        return 0;
    case KIND_BOOL:
        *(bool *)field(c, o) = strcmp(s, "true") == 0;
        return 0;
    case KIND_LIST:
        for (; *s; s += len + (s[len] == ',')) {
            len = strcspn(s, ",");
            if (add_item(c, o, s, len, e) < 0)
                return -1;
        }
        return 0;
    case KIND_MAP: /* has neither a default nor an environment variable */
    case KIND_UNUSED:
        break;
    }
    return 0;
}

static int set_map(struct config *c, const struct option *o, const json_t *v, struct err *e)
{
    json_t **at = field(c, o);
    const char *key;
    json_t *item;

    json_object_foreach((json_t *)v, key, item) {
        if (!json_is_string(item) || !*key || strchr(key, '='))
            return err_set(e, ERRC_INVALID, "%s.%s: must be a name with a text", o->key, key);
    }
    json_decref(*at);
    *at = json_deep_copy(v);
    return *at ? 0 : err_nomem(e);
}

static int set_list(struct config *c, const struct option *o, const json_t *v, struct err *e)
{
    const char *s;
    json_t *item;
    size_t i;

    clear_list(c, o);
    json_array_foreach((json_t *)v, i, item) {
        s = json_string_value(item);
        if (!s || add_item(c, o, s, strlen(s), e) < 0)
            return err_set(e, ERRC_INVALID, "%s: must be an array of names", o->key);
    }
    return 0;
}

/* From the file. */
static int set_from_json(struct config *c, const struct option *o, const json_t *v, struct err *e)
{
    switch (o->kind) {
    case KIND_TEXT:
        if (!json_is_string(v))
            return err_set(e, ERRC_INVALID, "%s: must be a string", o->key);
        return set_text(c, o, json_string_value(v), e);
    case KIND_NUM:
        if (!json_is_integer(v))
            return err_set(e, ERRC_INVALID, "%s: must be an integer", o->key);
        return set_num(c, o, json_integer_value(v), e);
    case KIND_BOOL:
        if (!json_is_boolean(v))
            return err_set(e, ERRC_INVALID, "%s: must be true or false", o->key);
        *(bool *)field(c, o) = json_is_true(v);
        return 0;
    case KIND_LIST:
        if (!json_is_array(v))
            return err_set(e, ERRC_INVALID, "%s: must be an array of names", o->key);
        return set_list(c, o, v, e);
    case KIND_MAP:
        if (!json_is_object(v))
            return err_set(e, ERRC_INVALID, "%s: must be a table", o->key);
        return set_map(c, o, v, e);
    case KIND_UNUSED:
        break;
    }
    return 0;
}

/* ---- the file ---- */

static const struct option *find_option(const char *key)
{
    size_t i;

    for (i = 0; i < ARRAY_LEN(options); i++)
        if (strcmp(options[i].key, key) == 0)
            return &options[i];
    return NULL;
}

static int take_entry(struct config *c, const json_t *entry, struct buf *notes, struct err *e)
{
    const char *key = json_string_value(json_object_get(entry, "key"));
    long long line = json_integer_value(json_object_get(entry, "line"));
    const struct option *o = key ? find_option(key) : NULL;

    if (key && strncmp(key, "tenants.", 8) == 0)
        return err_set(
            e, ERRC_INVALID,
            "line %lld: %s: this server has one key for all and would show the sandboxes "
            "of every tenant to every other; take the table out",
            line, key);
    if (!o) {
        (void)buf_printf(notes, "unknown key %s in line %lld is ignored\n", key ? key : "?", line);
        return 0;
    }
    if (o->kind == KIND_UNUSED) {
        (void)buf_printf(notes, "%s in line %lld has no effect: %s\n", key, line, o->note);
        return 0;
    }
    if (set_from_json(c, o, json_object_get(entry, "value"), e) < 0)
        return err_wrap(e, "line %lld", line);
    return 0;
}

static int read_text(const char *path, struct buf *out, struct err *e)
{
    AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *at;
    ssize_t n;

    if (fd < 0)
        return err_sys(e, errno, "open configuration %s", path);
    do {
        at = buf_reserve(out, 16384);
        if (!at)
            return err_set(e, ERRC_INVALID, "configuration %s is too large", path);
        n = read(fd, at, 16384);
        if (n < 0)
            return err_sys(e, errno, "read configuration %s", path);
        out->len += (size_t)n;
    } while (n > 0);
    return 0;
}

static int load_file(struct config *c, const char *path, struct buf *notes, struct err *e)
{
    AUTO_BUF struct buf text = BUF_INIT(CONFIG_FILE_MAX);
    char why[256];
    json_t *all;
    json_t *entry;
    size_t i;
    int rc = 0;

    if (read_text(path, &text, e) < 0)
        return -1;

    AUTO_FREE char *json =
        config_toml_to_json(text.data ? text.data : "", text.len, why, sizeof(why));
    if (!json)
        return err_set(e, ERRC_INVALID, "configuration %s: %s", path, why);
    all = jx_parse(json, strlen(json), true, e);
    json_array_foreach(all, i, entry) {
        if (rc == 0 && take_entry(c, entry, notes, e) < 0)
            rc = err_wrap(e, "configuration %s", path);
    }
    json_decref(all);
    return all ? rc : -1;
}

/* ---- the whole ---- */

static int load_env(struct config *c, struct err *e)
{
    const char *v;
    size_t i;

    for (i = 0; i < ARRAY_LEN(options); i++) {
        v = options[i].env ? getenv(options[i].env) : NULL;
        if (v && *v && set_from_text(c, &options[i], v, e) < 0)
            return err_wrap(e, "environment variable %s", options[i].env);
    }
    v = getenv("OPENSANDBOX_INSECURE_SERVER");
    c->insecure = v && strcmp(v, "YES") == 0;
    return 0;
}

static int load_defaults(struct config *c, struct buf *notes, struct err *e)
{
    size_t i;

    for (i = 0; i < ARRAY_LEN(options); i++) {
        const struct option *o = &options[i];

        if (o->def && set_from_text(c, o, o->def, e) < 0)
            return -1;
        if (o->note && o->kind != KIND_UNUSED)
            (void)buf_printf(notes, "differs from upstream: %s\n", o->note);
    }
    return 0;
}

/* DOCKER_HOST and engine.socket may carry the scheme. */
static int check_engine(struct config *c, struct err *e)
{
    static const char scheme[] = "unix://";
    size_t len = sizeof(scheme) - 1;

    if (strncmp(c->engine, scheme, len) == 0)
        memmove(c->engine, c->engine + len, strlen(c->engine + len) + 1);
    if (c->engine[0] != '/')
        return err_set(e, ERRC_INVALID,
                       "engine.socket (or DOCKER_HOST) = %s: must be a unix socket path",
                       c->engine);
    return 0;
}

static bool blank(const char *s)
{
    return !s || s[strspn(s, " \t\r\n")] == '\0';
}

static int default_store(struct config *c, struct err *e)
{
    const char *home = getenv("HOME");
    AUTO_BUF struct buf b = BUF_INIT(4096);

    if (c->store_path)
        return 0;
    if (!home || buf_printf(&b, "%s/.sandgate", home) < 0)
        return err_set(e, ERRC_INVALID, "store.path is not set and HOME is unknown");
    (void)mkdir(b.data, 0700); /* open reports what is wrong with it */
    if (buf_puts(&b, "/sandgate.db") < 0)
        return err_nomem(e);
    c->store_path = buf_take(&b);
    return 0;
}

/* A type that nothing carries out would leave sandboxes less closed than the file says. */
static int check_secure(const struct config *c, struct err *e)
{
    const char *type = c->secure_type ? c->secure_type : "";

    if (!*type || strcmp(type, "gvisor") == 0 || strcmp(type, "kata") == 0)
        return 0;
    return err_set(e, ERRC_INVALID,
                   "secure_runtime.type = \"%s\": use gvisor, kata or \"\"; another runtime of the "
                   "engine goes into secure_runtime.docker_runtime",
                   type);
}

static int check_timeouts(const struct config *c, struct err *e)
{
    if (!c->max_sandbox_timeout_s || c->default_timeout_s <= c->max_sandbox_timeout_s)
        return 0;
    return err_set(e, ERRC_INVALID,
                   "sandbox.default_timeout_seconds = %lld: is more than "
                   "server.max_sandbox_timeout_seconds = %lld",
                   (long long)c->default_timeout_s, (long long)c->max_sandbox_timeout_s);
}

/* To the engine an address that is none means all of them. */
static int check_addresses(const struct config *c, struct err *e)
{
    struct in6_addr any;

    if (inet_pton(AF_INET, c->publish_host, &any) != 1)
        return err_set(e, ERRC_INVALID,
                       "docker.publish_host = \"%s\": must be an IPv4 address such as 127.0.0.1 or "
                       "0.0.0.0",
                       c->publish_host);
    if (inet_pton(AF_INET, c->relay_host, &any) != 1 &&
        inet_pton(AF_INET6, c->relay_host, &any) != 1)
        return err_set(e, ERRC_INVALID, "relay.host = \"%s\": must be an IP address",
                       c->relay_host);
    return 0;
}

static int check(struct config *c, struct err *e)
{
    static const char *const endings[] = { "auto", "keep", "strip" };
    size_t i;

    if (blank(c->api_key)) {
        free(c->api_key);
        c->api_key = NULL;
    }
    if (!c->api_key && !c->insecure)
        return err_set(e, ERRC_INVALID,
                       "no API key: set server.api_key or OPENSANDBOX_SERVER_API_KEY, or run "
                       "open on purpose with OPENSANDBOX_INSECURE_SERVER=YES");
    for (i = 0; i < ARRAY_LEN(endings); i++)
        if (strcmp(c->line_endings, endings[i]) == 0)
            break;
    if (i == ARRAY_LEN(endings))
        return err_set(e, ERRC_INVALID, "runtime.line_endings = %s: use auto, keep or strip",
                       c->line_endings);
    if (log_level_parse(c->log_level) < 0)
        return err_set(e, ERRC_INVALID,
                       "log.level = %s: use DEBUG, INFO, WARNING, ERROR, CRITICAL or OFF",
                       c->log_level);
    if (strcmp(c->network_mode, "host") == 0)
        return err_set(e, ERRC_INVALID,
                       "docker.network_mode = \"host\" would share the host's network with every "
                       "sandbox; use \"bridge\" or the name of a network");
    if (check_secure(c, e) < 0 || check_timeouts(c, e) < 0 || check_addresses(c, e) < 0 ||
        check_engine(c, e) < 0)
        return -1;
    return default_store(c, e);
}

int config_load(const char *path, struct config *out, struct buf *notes, struct err *e)
{
    struct config c = { 0 };
    AUTO_BUF struct buf diffs = BUF_INIT(16384);

    c.file = path ? strdup(path) : NULL;
    if (path && !c.file)
        return err_nomem(e);
    if (load_defaults(&c, &diffs, e) < 0 || (path && load_file(&c, path, notes, e) < 0) ||
        load_env(&c, e) < 0 || check(&c, e) < 0) {
        config_done(&c);
        return -1;
    }
    (void)buf_append(notes, diffs.data, diffs.len);
    *out = c;
    return 0;
}

void config_done(struct config *c)
{
    size_t i;

    for (i = 0; i < ARRAY_LEN(options); i++) {
        if (options[i].kind == KIND_TEXT)
            free(*(char **)field(c, &options[i]));
        else if (options[i].kind == KIND_LIST)
            clear_list(c, &options[i]);
        else if (options[i].kind == KIND_MAP)
            json_decref(*(json_t **)field(c, &options[i]));
    }
    free(c->file);
    *c = (struct config){ 0 };
}

char *config_find(const char *option)
{
    AUTO_BUF struct buf b = BUF_INIT(4096);
    const char *env = getenv("SANDBOX_CONFIG_PATH");
    const char *home = getenv("HOME");

    if (option)
        return strdup(option);
    if (env && *env)
        return strdup(env);
    if (home && buf_printf(&b, "%s/.sandbox.toml", home) == 0 && access(b.data, R_OK) == 0)
        return buf_take(&b);
    return NULL;
}

bool config_list_has(const char *const *list, const char *s)
{
    for (; list && *list; list++)
        if (strcmp(*list, s) == 0)
            return true;
    return false;
}
