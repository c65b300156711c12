/* The agent as a whole: what its parts share. One loop, one thread; the helper threads (jobs) run
 * the routes of files and probe cages, and of this structure look at `base`, `umask` and `isolated`,
 * which do not change once such a route is open.
 * No locks of its own. */
#pragma once
#include "common/base/loop.h"
#include "common/http/http.h"
#include "execd/exec/lines.h"
#include "execd/fs/env.h"
#include "execd/options.h"
#include "execd/start.h"

#include <stdbool.h>

/* Between the proxy in front and the server behind it; clients can neither send nor see them. */
#define APP_BODY_HEADER "X-Execd-Body"
#define APP_FILE_HEADER "X-Execd-File"

enum {
    APP_TOKEN_MAX = 512,
    APP_CONNECTIONS_MAX = 512,
    APP_SERVER_CONNECTIONS_MAX = APP_CONNECTIONS_MAX + 128, /* ends it has not yet noticed */
    APP_IDLE_TIMEOUT_S = 600,
    APP_SERVER_IDLE_S = 720, /* longer than the front keeps its end: it never meets a stale one */
    APP_WORKERS = 3,         /* a long search or replacement does not hold up the others */
    APP_JOBS_MAX = 256,
    APP_FLUSH_MS = 1000, /* for answers under way when the agent ends */
    APP_LAST_STEPS = 10, /* and for those of jobs that took longer */
    APP_LAST_STEP_MS = 10,
};

enum app_state {
    APP_HELD,     /* waits for the claim */
    APP_STARTING, /* claimed, the preStart hook runs: for requests as if held */
    APP_OPEN,
    APP_STOPPING, /* ends; nothing new is begun */
};

struct app {
    struct options opt;
    struct loop *loop;
    struct signals *signals;
    struct jobs *jobs;
    struct http_server *server; /* gets its connections from the proxy */
    struct proxy *proxy;
    struct runs *runs;
    struct sessions *sessions;
    char *jupyter_host;  /* of the environment, for the entrypoint as well; NULL: none */
    char *jupyter_token; /* likewise */
    struct embedded *kernels;
    struct jupyter *jupyter;   /* NULL: the sandbox names no Jupyter server */
    struct contexts *contexts; /* once open */
    struct probe *probe;       /* NULL: not wanted here */
    struct ptys *ptys;
    struct isolated *isolated;
    struct supervisor *supervisor;
    struct hooks *hooks;
    struct metrics *metrics; /* once open */
    struct watchdog *watchdog;
    bool has_deadline; /* by the claim: the time from the entrypoint's start */
    int64_t deadline_left_ms;
    struct env base;               /* what every child starts from, without the agent's own */
    char token[APP_TOKEN_MAX + 1]; /* "": the agent is open */
    bool closed_ports;             /* /proxy/{port} needs the token, too */
    char strip[32];                /* "/proxy/<port>": the agent itself behind an endpoint */
    enum lines lines;
    enum app_state state;
    unsigned umask;
    int exit_status;
    bool leaving;       /* from here on private to app.c */
    struct start start; /* of classic mode */
    struct loop_hook flush;
    struct loop_timer flush_timer;
    int64_t flush_mono_ms;
};

/* NULL: err set. env is read, not kept. */
struct app *app_new(const struct options *opt, char *const *env, struct err *e);
/* Until the end; the process's exit status. -1: err set. */
int app_run(struct app *app, struct err *e);
void app_free(struct app *app);

/* Ends the agent with this status once the answers under way are out. */
void app_leave(struct app *app, int status);
/* Takes JUPYTER_HOST and JUPYTER_TOKEN out of the base, where no child but the entrypoint may see them. */
int app_take_jupyter(struct app *app, struct err *e);
/* When the sandbox opens, before the entrypoint: which kernels run code. */
int app_open_code(struct app *app, struct err *e);
/* Once the sandbox is open: listens where the code interpreter's client looks for a Jupyter server, if the
 * image has a python of its own, or a server elsewhere; never where that of the image itself will be. */
void app_open_probe(struct app *app);
/* The program of a sandbox: looked up and started with app->base.
 * -1: nothing was started; err names the program and the reason. */
int app_start_entrypoint(struct app *app, const char *const *argv, size_t n, struct err *e);
