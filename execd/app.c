#include "execd/app.h"

#include "common/agent/wire.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/jobs.h"
#include "common/base/listen.h"
#include "common/base/loop.h"
#include "common/json/jx.h"
#include "common/proc/signals.h"
#include "execd/api/api.h"
#include "execd/code/contexts.h"
#include "execd/code/embedded.h"
#include "execd/code/jupyter.h"
#include "execd/code/probe.h"
#include "execd/exec/hooks.h"
#include "execd/exec/launch.h"
#include "execd/exec/run.h"
#include "execd/exec/session.h"
#include "execd/exec/supervise.h"
#include "execd/exec/watchdog.h"
#include "execd/isolated/isolated.h"
#include "execd/proxy/proxy.h"
#include "execd/pty/pty.h"

#include <linux/capability.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LIFECYCLE_VAR "OPENSANDBOX_LIFECYCLE"

/* The agent's own: no child sees them, nor JUPYTER_HOST and JUPYTER_TOKEN, which the entrypoint alone gets: in
 * the official image it starts the server that they name. EXECD_ENVS stays, the SDK's set_env needs it. */
static const char *const own_vars[] = {
    "EXECD_ACCESS_TOKEN",     "EXECD_ISOLATION_CONFIG", LIFECYCLE_VAR,
    "EXECD_LIFECYCLE_CONFIG", "EXECD_RUNTIME_INIT",
};

/* ---- the end ---- */

/* Before every wait while the agent leaves: until the answers are out. */
static int check_flushed(void *arg)
{
    struct app *app = arg;

    if (!app->leaving || proxy_busy(app->proxy))
        return -1;
    loop_stop(app->loop);
    return 0;
}

static void on_flush_time(struct loop_timer *t)
{
    struct app *app = CONTAINER_OF(t, struct app, flush_timer);

    if (clock_mono_ms() >= app->flush_mono_ms)
        loop_stop(app->loop);
    else if (loop_timer_set(app->loop, t, app->flush_mono_ms) < 0)
        loop_stop(app->loop);
}

void app_leave(struct app *app, int status)
{
    if (app->leaving)
        return;
    app->leaving = true;
    app->state = APP_STOPPING;
    app->exit_status = status;
    app->flush_mono_ms = clock_mono_ms() + APP_FLUSH_MS;
    /* due at once: this may be called by a hook, after check_flushed has had its turn */
    if (loop_timer_set(app->loop, &app->flush_timer, clock_mono_ms()) < 0)
        loop_stop(app->loop);
}

static void on_all_ended(void *arg, int status)
{
    app_leave(arg, status);
}

static void on_stop(void *arg)
{
    struct app *app = arg;

    app->state = APP_STOPPING;
    hooks_stop(app->hooks);
    metrics_stop(app);
    ptys_stop(app->ptys);
}

static const struct supervise_ops supervise_ops = { on_stop, on_all_ended };

static void on_signal(void *arg, int sig)
{
    supervisor_signal(((struct app *)arg)->supervisor, sig);
}

static void on_late(void *arg)
{
    struct app *app = arg;

    log_warn("the sandbox is past its time and nobody has ended it; ending it");
    supervisor_signal(app->supervisor, SIGTERM);
}

/* ---- the start ---- */

static int base_default(struct app *app, const char *name, const char *value)
{
    return env_get(&app->base, name) ? 0 : env_set(&app->base, name, value);
}

static int take_var(struct env *from, const char *name, char **out)
{
    const char *value = env_get(from, name);
    char *copy = value ? strdup(value) : NULL;

    if (value && !copy)
        return -1;
    if (value) {
        free(*out);
        *out = copy;
    }
    env_unset(from, name);
    return 0;
}

int app_take_jupyter(struct app *app, struct err *e)
{
    if (take_var(&app->base, "JUPYTER_HOST", &app->jupyter_host) < 0 ||
        take_var(&app->base, "JUPYTER_TOKEN", &app->jupyter_token) < 0)
        return err_nomem(e);
    return 0;
}

static int hide_own(struct app *app, struct err *e)
{
    size_t i;

    for (i = 0; i < ARRAY_LEN(own_vars); i++)
        env_unset(&app->base, own_vars[i]);
    return app_take_jupyter(app, e);
}

static int read_environment(struct app *app, char *const *from, struct err *e)
{
    const char *token = app->opt.access_token;
    const char *mode;

    if (env_put_all(&app->base, from) < 0)
        return err_nomem(e);
    if (!app->opt.held && !token)
        token = env_get(&app->base, "EXECD_ACCESS_TOKEN");
    if (token && strlen(token) > APP_TOKEN_MAX)
        return err_set(e, ERRC_INVALID, "the access token is longer than %d bytes", APP_TOKEN_MAX);
    (void)snprintf(app->token, sizeof(app->token), "%s", token ? token : "");
    if (hide_own(app, e) < 0)
        return -1;
    if (base_default(app, "EXECD_ENVS", AGENT_ENV_FILE) < 0 ||
        base_default(app, "PATH", LAUNCH_PATH) < 0 || base_default(app, "LANG", "C.UTF-8") < 0 ||
        (*app->opt.id && env_set(&app->base, "OPENSANDBOX_ID", app->opt.id) < 0))
        return err_nomem(e);
    mode = env_get(&app->base, "OPENSANDBOX_LINE_ENDINGS");
    if (mode && lines_parse(mode, &app->lines) < 0)
        log_warn("OPENSANDBOX_LINE_ENDINGS is not auto, keep or strip", LOG_S("value", mode));
    return 0;
}

static const char *first_of(const char *a, const char *b)
{
    return a ? a : b ? b : "";
}

int app_open_code(struct app *app, struct err *e)
{
    const char *host = first_of(app->opt.jupyter_host, app->jupyter_host);
    const char *token = first_of(app->opt.jupyter_token, app->jupyter_token);
    struct contexts_req rq = { .loop = app->loop, .runs = app->runs };

    rq.ops = &embedded_ops;
    rq.provider = app->kernels;
    if (*host) {
        app->jupyter = jupyter_new(app->loop, host, token, e);
        if (!app->jupyter)
            return -1;
        rq.ops = &jupyter_ops;
        rq.provider = app->jupyter;
    }
    app->contexts = contexts_new(&rq, e);
    return app->contexts ? 0 : -1;
}

static int open_isolated(struct app *app, struct err *e)
{
    const struct isolated_home home = { app->loop, app->jobs, app->runs, app->kernels };

    app->isolated = isolated_new(&home, e);
    return app->isolated ? 0 : -1;
}

static int open_loop(struct app *app, struct err *e)
{
    const int watched[] = { SIGTERM, SIGINT,  SIGQUIT,  SIGHUP,
                            SIGUSR1, SIGUSR2, SIGWINCH, SUPERVISE_HALT };
    struct sigaction ignore = { .sa_handler = SIG_IGN };
    sigset_t set;
    size_t i;

    (void)sigaction(SIGPIPE, &ignore, NULL);
    (void)sigemptyset(&set);
    for (i = 0; i < ARRAY_LEN(watched); i++)
        (void)sigaddset(&set, watched[i]);
    app->loop = loop_new(e);
    if (!app->loop)
        return -1;
    app->signals = signals_new(app->loop, &set, on_signal, app, e); /* before threads start */
    if (!app->signals)
        return -1;
    app->supervisor = supervisor_new(app->loop, app->signals, &supervise_ops, app, e);
    app->hooks = app->supervisor ? hooks_new(app->loop, app->signals, &app->base, e) : NULL;
    app->flush_timer.on_fire = on_flush_time;
    app->flush = (struct loop_hook){ .before_wait = check_flushed, .arg = app };
    loop_hook_add(app->loop, &app->flush);
    app->runs = app->hooks ? runs_new(app->loop, app->signals, e) : NULL;
    app->sessions = app->runs ? sessions_new(app->runs, e) : NULL;
    app->watchdog = watchdog_new(
        app->loop, app->opt.deadline_grace_ms ? app->opt.deadline_grace_ms : WATCHDOG_GRACE_MS,
        on_late, app, e);
    app->ptys = app->watchdog ? ptys_new(app->loop, app->signals, &app->base, e) : NULL;
    app->jobs = app->sessions && app->ptys ? jobs_new(APP_WORKERS, APP_JOBS_MAX, e) : NULL;
    app->kernels = app->jobs ? embedded_new(app->loop, app->signals, &app->base, e) : NULL;
    return app->kernels && open_isolated(app, e) == 0 ? 0 : -1;
}

static int open_server(struct app *app, struct err *e)
{
    uint16_t port;
    int fd;

    if (listen_tcp("::", app->opt.port, 1024, &fd, &port, e) < 0 &&
        listen_tcp("0.0.0.0", app->opt.port, 1024, &fd, &port, e) < 0)
        return -1;
    AUTO_FD int listener = fd;

    (void)snprintf(app->strip, sizeof(app->strip), "/proxy/%u", port);
    struct http_service svc = {
        .app = app,
        .routes = api_routes,
        .n_routes = api_n_routes,
        .strip = app->strip,
        .codes = api_codes,
        .authorize = api_authorize,
        .max_connections = APP_SERVER_CONNECTIONS_MAX,
        .idle_timeout_s = APP_SERVER_IDLE_S,
        .jobs = app->jobs,
        .body_header = APP_BODY_HEADER,
        .file_header = APP_FILE_HEADER,
    };

    app->server = http_server_new(app->loop, &svc, e);
    if (!app->server)
        return -1;
    runs_set_server(app->runs, app->server);
    app->proxy = proxy_new(app, e);
    if (!app->proxy || proxy_listen(app->proxy, TAKE_FD(listener), port, e) < 0)
        return -1;
    log_info("listening", LOG_N("port", port));
    return 0;
}

/* What runs in the sandbox is root there, but without the right to mount: a program of root has what the
 * bounding set or the inheritable set holds, and only cages are started with the latter (spawn.h). */
static void keep_admin(void)
{
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct data[2];
    const unsigned admin = 1U << CAP_SYS_ADMIN;

    if (syscall(SYS_capget, &head, data) < 0 || !(data[0].permitted & admin))
        return; /* not root: it is not there for anybody */
    data[0].inheritable |= admin;
    if (syscall(SYS_capset, &head, data) < 0 || prctl(PR_CAPBSET_DROP, CAP_SYS_ADMIN) < 0)
        log_warn("programs of this sandbox have CAP_SYS_ADMIN: the agent lacks CAP_SETPCAP");
}

/* A token must not be read out of the agent's memory or environment by the sandbox's programs,
 * and what they leave behind must come back to the agent to be collected. */
static void protect(const struct app *app)
{
    if (app->opt.held || app->token[0])
        (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    if (getpid() != 1)
        (void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}

/* start_run has put the failure into the log, and ends the agent. */
static void on_classic_started(struct start *s, const struct err *e)
{
    (void)s, (void)e;
}

static int read_lifecycle(const struct app *app, char *const *env, struct lifecycle *out,
                          struct err *e)
{
    static const size_t len = sizeof(LIFECYCLE_VAR "=") - 1;
    json_t *v;
    int rc;

    for (; *env && strncmp(*env, LIFECYCLE_VAR "=", len) != 0; env++)
        ;
    if (!*env || !(*env)[len])
        return 0;
    v = jx_parse(*env + len, strlen(*env + len), true, e);
    if (!v)
        return err_wrap(e, LIFECYCLE_VAR);
    rc = lifecycle_decode(v, LIFECYCLE_VAR, env_get(&app->base, "TZ"), out, e);
    json_decref(v);
    return rc;
}

static int start_classic(struct app *app, char *const *env, struct err *e)
{
    struct lifecycle lc = { 0 };
    size_t n = 0;

    if (read_lifecycle(app, env, &lc, e) < 0)
        return -1;
    while (app->opt.entrypoint && app->opt.entrypoint[n])
        n++;
    app->start = (struct start){ app, app->opt.entrypoint, n, on_classic_started };
    return start_run(&app->start, &lc, e) < 0 ? -1 : 0;
}

struct app *app_new(const struct options *opt, char *const *env, struct err *e)
{
    struct app *app = calloc(1, sizeof(*app));

    if (!app) {
        (void)err_nomem(e);
        return NULL;
    }
    app->opt = *opt;
    if (opt->isolation)
        keep_admin(); /* before threads start: it is theirs alone */
    app->state = APP_HELD;
    app->umask = umask(022);
    (void)umask(app->umask);
    if (read_environment(app, env, e) < 0 || open_loop(app, e) < 0 || open_server(app, e) < 0) {
        app_free(app);
        return NULL;
    }
    protect(app);
    if (!opt->held && start_classic(app, env, e) < 0) {
        app_free(app);
        return NULL;
    }
    return app;
}

int app_run(struct app *app, struct err *e)
{
    return loop_run(app->loop, e) < 0 ? -1 : app->exit_status;
}

void app_open_probe(struct app *app)
{
    struct err e = { 0 };

    if (env_get(&app->base, "JUPYTER_PORT"))
        return;
    if (app->jupyter ? jupyter_is_local(app->jupyter, PROBE_PORT)
                     : !embedded_has(app->kernels, "python"))
        return;
    app->probe = probe_new(app->loop, PROBE_PORT, &e);
    if (!app->probe)
        log_info("no listener for the code interpreter's client", LOG_S("reason", e.msg));
}

int app_start_entrypoint(struct app *app, const char *const *argv, size_t n, struct err *e)
{
    struct launch_req rq = { .argv = argv, .n_argv = n };
    AUTO_LAUNCH struct launch l = { 0 };
    struct spawn_req sp;

    if (env_put_all(&l.env, app->base.vars) < 0)
        return err_nomem(e);
    if ((app->jupyter_host && env_set(&l.env, "JUPYTER_HOST", app->jupyter_host) < 0) ||
        (app->jupyter_token && env_set(&l.env, "JUPYTER_TOKEN", app->jupyter_token) < 0))
        return err_nomem(e);
    if (launch_find(&l, &rq, &app->base, e) < 0)
        return err_wrap(e, "entrypoint");
    sp = launch_spawn(&l);
    sp.in = STDIN_FILENO;
    sp.out = STDOUT_FILENO;
    sp.err = STDERR_FILENO;
    if (supervisor_start(app->supervisor, &sp, e) < 0) {
        launch_explain(&l, e);
        return err_wrap(e, "entrypoint");
    }
    return 0;
}

/* What the server said last goes on to the clients; new requests find no server. */
static void send_last_answers(struct app *app)
{
    int i;

    for (i = 0; i < APP_LAST_STEPS && proxy_busy(app->proxy); i++)
        if (loop_step(app->loop, APP_LAST_STEP_MS, NULL) < 0)
            return;
}

void app_free(struct app *app)
{
    if (!app)
        return;
    http_server_give_up(app->server);
    jobs_stop(app->jobs);
    hooks_free(app->hooks); /* a claim that waits for preStart is answered */
    contexts_free(app->contexts);
    isolated_free(app->isolated);
    embedded_free(app->kernels);
    probe_free(app->probe);
    runs_free(app->runs);
    sessions_free(app->sessions);
    metrics_free(app);
    ptys_cut(app->ptys);
    http_server_free(app->server);
    ptys_free(app->ptys);
    jobs_free(app->jobs); /* not before: a late request is refused by them */
    app->server = NULL;
    if (app->leaving)
        send_last_answers(app);
    jupyter_free(app->jupyter);
    proxy_free(app->proxy);
    watchdog_free(app->watchdog);
    supervisor_free(app->supervisor);
    signals_free(app->signals);
    loop_free(app->loop);
    env_free(&app->base);
    free(app->jupyter_host);
    free(app->jupyter_token);
    explicit_bzero(app->token, sizeof(app->token));
    free(app);
}
