#include "gateway/app.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/jobs.h"
#include "common/base/keyed_lock.h"
#include "common/base/listen.h"
#include "common/base/log.h"
#include "common/base/loop.h"
#include "common/proc/signals.h"
#include "gateway/agent_blob.h"
#include "gateway/api/api.h"
#include "gateway/config.h"
#include "gateway/domain/captures.h"
#include "gateway/domain/creates.h"
#include "gateway/domain/expiry.h"
#include "gateway/domain/fault.h"
#include "gateway/domain/lifecycle.h"
#include "gateway/domain/metrics.h"
#include "gateway/domain/pins.h"
#include "gateway/domain/places.h"
#include "gateway/domain/reconcile.h"
#include "gateway/domain/relays.h"
#include "gateway/domain/renewer.h"
#include "gateway/domain/snapshots.h"
#include "gateway/domain/teller.h"
#include "gateway/domain/volumes.h"
#include "gateway/domain/watch.h"
#include "gateway/proxy/proxy.h"
#include "gateway/proxy/relay.h"
#include "gateway/store/db.h"
#include "gateway/store/sandbox_store.h"

#include <string.h>
#include <sys/resource.h>

enum {
    APP_CONNECTIONS = 8192,
    APP_QUEUE = 1024,
    APP_BRIEF_THREADS = 8,
    APP_INTERNAL_IDLE_S = 120, /* longer than the front keeps its end: it never meets a stale one */
    LATE_STEPS = 10,
    APP_CAPTURE_WAIT_MS = 20000, /* shorter than the time-out of clients, 30 s */
};

struct app {
    const struct config *cfg;
    char instance[RUNTIME_ID];
    char signing_key[SANDBOX_TOKEN];
    struct loop *loop;
    struct signals *signals;
    struct jobs *jobs;  /* what waits for the engine */
    struct jobs *brief; /* what waits for the store alone */
    struct db *db;
    struct runtime *rt;
    struct keyed_locks *locks;
    struct places *places;
    struct metrics metrics;
    char ossfs_root[HOST_PATH];
    char pins[HOST_PATH];
    struct volumes *volumes;
    struct captures *captures;
    struct creates *creates;
    struct lifecycle lc;
    struct expiry *expiry;
    struct teller *teller;
    struct reconcile *reconcile;
    struct watch *watch;
    struct snapshots *snapshots;
    struct renewer *renewer; /* NULL: renewal by access is off */
    struct api api;
    struct http_server *http;
    struct relay *relay; /* these two: NULL when relays are off */
    struct relays *relays;
    struct proxy *proxy;
    bool stopping;
};

static void on_signal(void *arg, int sig)
{
    struct app *app = arg;

    if (!app->stopping)
        log_info("stopping", LOG_N("signal", sig));
    app->stopping = true;
    loop_stop(app->loop);
}

static int make_loop(struct app *app, struct err *e)
{
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    app->loop = loop_new(e);
    if (!app->loop)
        return -1;
    app->signals = signals_new(app->loop, &set, on_signal, app, e);
    if (!app->signals)
        return -1;
    app->jobs = jobs_new((unsigned)app->cfg->job_threads, APP_QUEUE, e);
    app->brief = app->jobs ? jobs_new(APP_BRIEF_THREADS, APP_QUEUE, e) : NULL;
    return app->brief ? 0 : -1;
}

static const char *docker_runtime(const struct config *c)
{
    if (c->secure_docker_runtime && *c->secure_docker_runtime)
        return c->secure_docker_runtime;
    if (c->secure_type && strcmp(c->secure_type, "gvisor") == 0)
        return "runsc";
    if (c->secure_type && strcmp(c->secure_type, "kata") == 0)
        return "kata-runtime";
    return NULL;
}

static int open_runtime(struct app *app, struct err *e)
{
    const struct config *c = app->cfg;
    struct runtime_config rc = {
        .instance = app->instance,
        .engine = c->engine,
        .api_timeout_s = (int)c->api_timeout_s,
        .pull_timeout_s = (int)c->pull_timeout_s,
        .network_mode = c->network_mode,
        .publish_host = c->publish_host,
        .drop_capabilities = (const char *const *)c->drop_capabilities,
        .apparmor_profile = c->apparmor_profile,
        .seccomp_profile = c->seccomp_profile,
        .docker_runtime = docker_runtime(c),
        .no_new_privileges = c->no_new_privileges,
        .read_only_root = c->read_only_root,
        .pids_limit = (int)c->pids_limit,
        .log_max_mb = (int)c->log_max_mb,
        .binds = (const char *const *)c->sandbox_binds,
        .agent_dir = c->agent_dir,
        .agent = agent_blob,
        .agent_len = (size_t)(agent_blob_end - agent_blob),
        .crash = fault_point,
    };

    return runtime_open(c->runtime_type, &rc, &app->rt, e);
}

/* Buckets of two gateways must not meet: each cleans up below a directory of its own. */
static int make_volumes(struct app *app, struct err *e)
{
    const struct config *c = app->cfg;
    const char *path = getenv("PATH");
    char root[HOST_PATH];
    const struct host_secret secrets[] = {
        { "the engine's socket", c->engine },     { "the database", c->store_path },
        { "the configuration", c->file },         { "the agent", c->agent_dir },
        { "the server's own mounts", app->pins },
    };
    struct volumes_config vc = {
        .db = app->db,
        .rt = app->rt,
        .allowed_host_paths = (const char *const *)c->allowed_host_paths,
        .secrets = secrets,
        .n_secrets = ARRAY_LEN(secrets),
        .ossfs = { .root = app->ossfs_root,
                   .all = c->ossfs_mount_root,
                   .programs = path ? path : "/usr/local/bin:/usr/bin:/bin",
                   .device = "/dev/fuse",
                   .mountinfo = "/proc/self/mountinfo",
                   .timeout_ms = OSSFS_TIMEOUT_MS },
        .pins = app->pins,
    };

    (void)snprintf(app->pins, sizeof(app->pins), PINS_PARENT "/%s", app->instance);
    if (host_path_clean(c->ossfs_mount_root, root) < 0 ||
        snprintf(app->ossfs_root, sizeof(app->ossfs_root), "%s/%s", root, app->instance) >=
            (int)sizeof(app->ossfs_root))
        return err_set(e, ERRC_INVALID,
                       "storage.ossfs_mount_root: must be an absolute path without '..'");
    return volumes_new(&vc, &app->volumes, e);
}

/* gVisor keeps changes of the file system where the engine does not find them. */
static const char *snapshots_refusal(const struct config *c)
{
    const char *runtime = docker_runtime(c);

    return runtime && strncmp(runtime, "runsc", 5) == 0
               ? "snapshots are not available with gVisor (secure_runtime)"
               : NULL;
}

static int make_snapshots(struct app *app, struct err *e)
{
    const struct config *c = app->cfg;
    struct snapshots_config sc = {
        .workers = (unsigned)c->snapshots_workers,
        .timeout_ms = (int)c->snapshots_timeout_s * 1000,
        .max = c->snapshots_max,
        .allow_paused = c->snapshots_allow_paused,
        .refusal = snapshots_refusal(c),
    };

    app->snapshots = snapshots_new(&app->lc, &sc, e);
    return app->snapshots ? 0 : -1;
}

static int make_domain(struct app *app, struct err *e)
{
    const struct config *c = app->cfg;
    struct reconcile_config sweep = {
        .interval_ms = c->sweep_interval_s * 1000,
        .quarantine_ms = c->quarantine_s * 1000,
        .ended_keep_ms = c->ended_keep_s * 1000,
    };

    app->locks = keyed_locks_new();
    app->places = places_new();
    app->captures = captures_new();
    app->creates = creates_new((unsigned)(c->job_threads + 1) / 2);
    if (!app->locks || !app->places || !app->captures || !app->creates)
        return err_nomem(e);
    app->lc = (struct lifecycle){
        .db = app->db,
        .rt = app->rt,
        .locks = app->locks,
        .places = app->places,
        .metrics = &app->metrics,
        .volumes = app->volumes,
        .clock = &clock_system,
        .started_ms = clock_wall_ms(),
        .max_timeout_s = c->max_sandbox_timeout_s,
        .default_timeout_s = c->default_timeout_s,
        .ready_timeout_ms = (int)c->ready_timeout_s * 1000,
        .stop_grace_ms = (int)c->stop_grace_s * 1000,
        .line_endings = c->line_endings,
        .captures = app->captures,
        .capture_wait_ms = APP_CAPTURE_WAIT_MS,
        .creates = app->creates,
        .create_wait_ms = (int)c->create_wait_s * 1000,
        .cpu_hints = c->cpu_hints,
        .env = c->sandbox_env,
    };
    app->expiry = expiry_new(&app->lc, e);
    if (!app->expiry)
        return -1;
    app->lc.expiry = app->expiry;
    app->teller = teller_new(&app->lc, e);
    if (!app->teller)
        return -1;
    app->lc.teller = app->teller;
    if (lifecycle_load_places(&app->lc, e) < 0)
        return -1;
    app->reconcile = reconcile_new(&app->lc, &sweep, e);
    if (!app->reconcile)
        return -1;
    app->watch = watch_new(&app->lc, app->reconcile, e);
    if (!app->watch || make_snapshots(app, e) < 0)
        return -1;
    if (c->renew_enabled) {
        app->renewer = renewer_new(&app->lc, c->renew_interval_s * 1000, e);
        if (!app->renewer)
            return -1;
    }
    return 0;
}

/* Only when all are there who have to hear of what goes. */
static int start_domain(struct app *app, struct err *e)
{
    if (expiry_start(app->expiry, e) < 0 || snapshots_start(app->snapshots, e) < 0 ||
        reconcile_start(app->reconcile, e) < 0)
        return -1;
    return watch_start(app->watch, e);
}

static unsigned connections(const struct config *c)
{
    return c->max_connections ? (unsigned)c->max_connections : APP_CONNECTIONS;
}

static int make_relays(struct app *app, struct err *e)
{
    struct relays_config rc = { .db = app->db, .host = app->cfg->relay_host, .open = relay_open };

    if (!app->cfg->relay_enabled)
        return 0;
    app->relay = relay_new(app->loop, app->places, app->rt, e);
    if (!app->relay)
        return -1;
    rc.arg = app->relay;
    app->relays = relays_new(&rc, e);
    return app->relays ? relays_restore(app->relays, e) : -1;
}

static int make_proxy(struct app *app, struct err *e)
{
    const struct config *c = app->cfg;
    struct proxy_config pc = {
        .places = app->places,
        .rt = app->rt,
        .api = app->http,
        .relay = app->relay,
        .renewer = app->renewer,
        .renew_look_ms = c->renew_interval_s * 500,
        .signing_key = app->signing_key,
        .key = c->api_key,
        .trusted = (const char *const *)c->trusted_proxies,
        .eip = c->eip,
        .require_key = c->proxy_require_key,
        .pass_login = c->proxy_pass_login,
        .max_connections = connections(c),
        .idle_timeout_s = c->keep_alive_s,
    };

    app->proxy = proxy_new(app->loop, &pc, e);
    app->api.metrics_arg = app->proxy;
    return app->proxy ? 0 : -1;
}

static void write_metrics(void *arg, struct buf *out)
{
    if (arg)
        proxy_metrics(arg, out);
}

static int make_http(struct app *app, struct err *e)
{
    const struct config *c = app->cfg;
    struct http_service svc = {
        .app = &app->api,
        .routes = api_routes,
        .n_routes = api_routes_len,
        .prefix = "/v1",
        .codes = api_codes,
        .authorize = api_authorize,
        .cors = true,
        .log_requests = true,
        .max_connections = connections(c),
        .idle_timeout_s = APP_INTERNAL_IDLE_S,
        .jobs = app->jobs,
        .brief_jobs = app->brief,
    };

    app->api = (struct api){
        .lc = &app->lc,
        .snapshots = app->snapshots,
        .key = c->api_key,
        .signing_key = app->signing_key,
        .eip = c->eip && *c->eip ? c->eip : NULL,
        .publish_host = c->publish_host,
        .trusted = (const char *const *)c->trusted_proxies,
        .metrics = write_metrics,
        .loop = app->loop,
        .jobs = app->brief,
        .relays = app->relays,
        .relay_host = c->relay_host,
    };
    app->http = http_server_new(app->loop, &svc, e);
    return app->http ? 0 : -1;
}

static int listen_api(struct app *app, struct err *e)
{
    const struct config *c = app->cfg;
    /* design decision 10: all of IPv4 means all of IPv6 as well, where the host has it */
    bool any = strcmp(c->host, "0.0.0.0") == 0;
    uint16_t port;
    int fd;

    if (!any || listen_tcp("::", (uint16_t)c->port, (int)c->backlog, &fd, &port, NULL) < 0)
        if (listen_tcp(c->host, (uint16_t)c->port, (int)c->backlog, &fd, &port, e) < 0)
            return -1;
    if (proxy_listen(app->proxy, fd, e) < 0)
        return -1;
    log_info("listening", LOG_S("host", c->host), LOG_N("port", port),
             LOG_S("version", SANDGATE_VERSION), LOG_S("instance", app->instance));
    return 0;
}

static int start(struct app *app, struct err *e)
{
    if (make_loop(app, e) < 0)
        return -1;
    if (db_open(app->cfg->store_path, &app->db, e) < 0 ||
        sandbox_store_instance(app->db, app->instance, e) < 0 ||
        sandbox_store_secret(app->db, "signing_key", app->signing_key, e) < 0)
        return -1;
    if (open_runtime(app, e) < 0 || make_volumes(app, e) < 0 || make_domain(app, e) < 0 ||
        make_relays(app, e) < 0 || make_http(app, e) < 0 || make_proxy(app, e) < 0 ||
        start_domain(app, e) < 0)
        return -1;
    return listen_api(app, e);
}

/* Requests under way get timeout_graceful_shutdown to finish. */
static void finish_requests(struct app *app)
{
    int64_t until = clock_mono_ms() + app->cfg->graceful_s * 1000;
    int64_t left;

    proxy_drain(app->proxy);
    while (proxy_busy(app->proxy) && (left = until - clock_mono_ms()) > 0)
        if (loop_step(app->loop, left > 100 ? 100 : (int)left, NULL) < 0)
            return;
}

/* The answers of jobs that outlasted the grace period; their clients may be gone. */
static void send_late_answers(struct app *app)
{
    int i;

    for (i = 0; i < LATE_STEPS; i++)
        if (loop_step(app->loop, http_server_active(app->http) ? 10 : 0, NULL) < 0)
            return;
}

static void stop(struct app *app)
{
    if (app->proxy)
        finish_requests(app);
    lifecycle_stop(&app->lc);
    jobs_stop(app->jobs); /* waits for what a request began in the engine */
    jobs_stop(app->brief);
    snapshots_free(app->snapshots);
    watch_free(app->watch);
    reconcile_free(app->reconcile);
    expiry_free(app->expiry);
    if (app->http)
        send_late_answers(app);
    proxy_free(app->proxy);
    relay_free(app->relay);
    relays_free(app->relays);
    renewer_free(app->renewer);
    http_server_free(app->http);
    jobs_free(app->jobs); /* not before: a late request is refused by them */
    jobs_free(app->brief);
    creates_free(app->creates);
    teller_free(app->teller); /* not before: renewals and creates tell until they have ended */
    keyed_locks_free(app->locks);
    places_free(app->places);
    volumes_free(app->volumes);
    captures_free(app->captures);
    runtime_close(app->rt);
    db_close(app->db);
    signals_free(app->signals);
    loop_free(app->loop);
}

/* A proxied stream takes two descriptors. */
static void raise_descriptor_limit(void)
{
    struct rlimit lim;

    if (getrlimit(RLIMIT_NOFILE, &lim) == 0 && lim.rlim_cur < lim.rlim_max) {
        lim.rlim_cur = lim.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &lim); /* then the softer limit stays in force */
    }
}

int app_serve(const struct config *cfg, struct err *e)
{
    struct app app = { .cfg = cfg };
    int rc;

    raise_descriptor_limit();
    rc = start(&app, e);
    if (rc == 0)
        rc = loop_run(app.loop, e);
    stop(&app);
    if (rc == 0)
        log_info("stopped");
    return rc;
}
